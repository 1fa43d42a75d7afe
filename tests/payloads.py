"""Values that a job may carry, values that it may not, and what "the same" means.

Each is given with the annotation it travels under; `Any` stands for plain JSON.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import math
import uuid
import zoneinfo
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

import msgspec
import pydantic

LIMIT = 1024 * 1024
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
LATEST = dt.datetime.max.replace(tzinfo=dt.UTC)
KEY = uuid.UUID(int=2**127 + 7)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Word(enum.StrEnum):
    A = "a"
    B = "b"


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.0


@dataclasses.dataclass
class Parcel:
    sent: dt.datetime
    weight: Decimal | None = None
    tags: frozenset[str] = frozenset()
    inside: list[Parcel] = dataclasses.field(default_factory=list["Parcel"])


class Part(msgspec.Struct):
    id: uuid.UUID
    span: dt.timedelta
    raw: bytes = b""
    place: Point | None = None


class Account(pydantic.BaseModel):
    id: uuid.UUID
    opened: dt.datetime
    balance: Decimal
    grace: dt.timedelta
    names: set[str]
    born: dt.date | None = None
    limits: tuple[int, float] = (0, 0.0)
    home: Path = Path("/")
    colour: Colour = Colour.RED
    owner: str = pydantic.Field(default="", alias="ownerName")


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Pair(NamedTuple):
    left: int
    right: str


# All that SQL, drivers and their placeholders, JSON and COPY might take for something of their own.
WORDS = [
    "'", "''", '"', "`", "\\", "\\\\", "%", "%%", "%s", "%(a)s", "?", "??", ":name", "::text", "$1",
    "$$", "{}", "{0}", "{job}", "@a", "#", "--", "/* */", ";", "'; DROP TABLE mine; --",
    "NULL", "null", "true", "\\N", "\\.", "\\x00", "\\u0000", "\\ud800", "E'\\n'", "0", "1e5",
    "[1]", '{"a": 1}', " ", " a", "a ", "a", "A", "ä", "a\u0308", "ß", "SS", "İ", "ı", "ñ", "Ω",
    "Ж", "א", "ع", "ก็", "漢字", "한", "\ufffd", "\U00010348", "\U0001f600", "\U0001f701",
    "\U00020000", "\U000300a3", "x" * 200, "\U0001f600" * 200,
]  # fmt: skip
# Text of people and of errors may hold more: lines, marks, and what no script has a sign for.
LINES = [
    "", "two\nlines", "a\r\nb\tc", "\x01\x1f\x7f\x80\x9f", "\u00a0\u2028\u2029\u200b\u200d\ufeff",
    "\ue000", "\ufffe\uffff", "\U000e0041", "\U000f0000", "\U0010ffff",
    "\U0001f469\u200d\U0001f4bb",
]  # fmt: skip


def _nested(depth: int) -> Any:
    value: Any = "deep"
    for level in range(depth):
        value = [value] if level % 2 else {"in": value}
    return value


PLAIN: list[Any] = [
    None, True, False,
    0, -1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, -(2**64), 2**200, 10**4299,
    0.0, -0.0, 0.1, 1.0, 1e22, 1e308, 1.7976931348623157e308, 2.2250738585072014e-308, 5e-324,
    *WORDS, *LINES, "\0", "a\0b", "".join(chr(0x10000 * plane + 0x41) for plane in range(17)),
    [], {}, [[]], [{}], {"": {}}, {"a": []}, [[], [[]], {}], [None, [True, [0.5, "x"]]],
    {word: word for word in [*WORDS, *LINES, "\0"]}, _nested(100),
    [2**64, -0.0, [None]], {"a b": [{"ключ": None}]}, list(range(500)), "é" * 100_000,
]  # fmt: skip

TYPED: list[tuple[Any, Any]] = [
    (int, 2**200),
    (float, -0.0),
    (str, "\0 \U0010ffff"),
    (bytes, bytes(range(256))),
    (bytes, b""),
    (Point, Point(2**64, -0.0)),
    (Parcel, Parcel(dt.datetime(2026, 1, 2, tzinfo=BERLIN), Decimal("0.10"), frozenset("\0%"))),
    (Parcel, Parcel(LATEST, inside=[Parcel(LATEST)])),
    (Part, Part(KEY, dt.timedelta(-1, 2, 3), b"\xff\x00", Point(1))),
    (Account, Account(
        id=KEY, opened=dt.datetime(2025, 10, 26, 2, 30, tzinfo=BERLIN, fold=1), names={"", "\0ä"},
        balance=Decimal("-1E+3"), grace=dt.timedelta(microseconds=-1), born=dt.date(2024, 2, 29),
        limits=(2**70, 1e-7), home=Path("/a b/%s"), colour=Colour.BLUE, ownerName="O'Neil",
    )),
    (Account | None, None),
    (Movie, {"title": "M"}),
    (Movie, {"title": "M", "year": 1931}),
    (Pair, Pair(-1, "?")),
    (dt.datetime, dt.datetime(2026, 3, 29, 1, 2, 3, 456789, dt.timezone(dt.timedelta(hours=5.5)))),
    (dt.datetime, dt.datetime(2025, 10, 26, 2, 30, tzinfo=BERLIN, fold=1)),
    (dt.datetime, LATEST),
    (dt.date, dt.date(1, 1, 1)),
    (dt.time, dt.time(23, 59, 59, 999999)),
    (dt.timedelta, dt.timedelta.max),
    (dt.timedelta, dt.timedelta(days=-1, microseconds=1)),
    (uuid.UUID, KEY),
    (Decimal, Decimal("1.10")),
    (Decimal, Decimal("-0E-30")),
    (Decimal, Decimal("Infinity")),
    (Colour, Colour.BLUE),
    (Level, Level.HIGH),
    (Word, Word.B),
    (Literal["a", 1, None], 1),
    (Path, Path("/a/ä b/../%s")),
    (PurePosixPath, PurePosixPath("c:\\x")),
    (set[int], {3, 1, 2**70}),
    (set[dt.datetime], {dt.datetime(2025, 10, 26, 2, 30, tzinfo=BERLIN)}),
    (frozenset[tuple[int, str]], frozenset({(1, "'"), (2, "\0")})),
    (tuple[int, str], (1, "a")),
    (tuple[float, ...], ()),
    (int | str | None, None),
    (int | str | None, "1"),
    (list[int] | str, "[1]"),
    (dict[int, str], {-1: "a", 2**70: "\0"}),
    (dict[uuid.UUID, list[tuple[int, Point]]], {KEY: [(1, Point(2))]}),
    (list[dict[str, set[dt.date]]], [{"a": {dt.date(2024, 1, 1)}}, {}]),
    (dict[str, Path | None], {"": Path("b"), "%": None}),
    (list[Point | None], [Point(0, 5e-324), None]),
]  # fmt: skip

VALUES: list[tuple[Any, Any]] = [*((Any, value) for value in PLAIN), *TYPED]


def _endless() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


# Under annotations that are right for it or for nothing; refused all the same.
REFUSED: list[tuple[Any, Any]] = [
    (Any, math.nan), (Any, math.inf), (Any, [{"a": -math.inf}]), (float, math.nan),
    (list[float], [math.inf]), (Point, Point(1, math.nan)), (dict[str, float], {"a": math.nan}),
    (Any, "\ud800"), (Any, {"\udfff": 1}), (str, "a\ud800b"), (list[str], ["\ud800"]),
    (Path, Path("\ud800")), (dict[str, int], {"\ud800": 1}),
    (Any, 10**5000), (int, -(10**5000)),
    (Any, _nested(102)), (Any, _endless()),
    (Any, (1, 2)), (Any, {1}), (Any, {1: "a"}), (Any, b"a"), (Any, KEY), (Any, Colour.RED),
    (Any, object()), (Any, 1j), (Any, dt.date(2024, 1, 1)),
    (int, "1"), (int, 1.0), (str, 1), (str, None), (bool, 1), (bytes, "a"), (Point, {"x": 1}),
    (Colour, "red"), (uuid.UUID, str(KEY)), (dt.date, dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
    (tuple[int, ...], [1]), (set[int], [1]), (list[int], [None]), (Account, {"id": 1}),
    (Decimal, Decimal("NaN")), (dt.datetime, dt.datetime(2024, 1, 1, fold=1)),  # noqa: DTZ001
]  # fmt: skip


# As label, key, queue or name of a blocker.
REFUSED_NAMES: list[Any] = [
    "", "x" * 201, "\0", "a\0", "a\nb", "\t", "\x7f", "\ud800", "\ue000", "\uffff", "\u2028", 3,
]  # fmt: skip


def same(given: Any, back: Any) -> bool:
    """Equal in value and type, all the way down; the same instant at the same offset."""
    if type(given) is not type(back):
        return False
    if isinstance(given, (float, Decimal)):
        return repr(given) == repr(back)  # -0.0 is not 0.0, and 1.10 is not 1.1
    if isinstance(given, dt.datetime) and given.tzinfo:
        instants = given.astimezone(dt.UTC), back.astimezone(dt.UTC)
        return given.utcoffset() == back.utcoffset() and bool(instants[0] == instants[1])
    if isinstance(given, dict):
        return same(list(given.items()), list(back.items()))
    if isinstance(given, (list, tuple)):
        return len(given) == len(back) and all(map(same, given, back))
    if isinstance(given, (set, frozenset)):
        return len(given) == len(back) and all(any(same(x, y) for y in back) for x in given)
    if names := _fields(given):
        return all(same(getattr(given, name), getattr(back, name)) for name in names)
    return bool(given == back)


def _fields(value: Any) -> list[str]:
    if isinstance(value, msgspec.Struct):
        return list(value.__struct_fields__)
    if isinstance(value, pydantic.BaseModel):
        return list(type(value).model_fields)
    return [field.name for field in dataclasses.fields(value)] if _is_data(value) else []


def _is_data(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)
