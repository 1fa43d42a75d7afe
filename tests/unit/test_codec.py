"""Arguments and results travel as JSON and come back the same, or are refused."""

import dataclasses
import datetime as dt
import enum
import json
import math
import timeit
import uuid
import zoneinfo
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NotRequired,
    Optional,
    TypedDict,
    TypeVar,
    Unpack,
)

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.codec import Signature, convert
from windlass.errors import InvalidArguments, InvalidTask, OutputError, PayloadTooLarge

if TYPE_CHECKING:
    from fractions import Fraction

LIMIT = 1 << 20
T = TypeVar("T")


class Context:
    """Stands for what a worker hands in."""


class Next(Generic[T]):
    """Stands for a continuation: recognised by its name and package."""

    __module__ = "windlass.model"


class Retry:
    __module__ = "windlass.retry"


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.0


@dataclasses.dataclass
class Place(Point):
    name: str = ""


class Spot(Point):
    """A subclass that adds no field."""


@dataclasses.dataclass
class Line:
    points: list[Point]
    label: str | None = None


@dataclasses.dataclass
class Tree:
    value: int
    children: list["Tree"] = dataclasses.field(default_factory=list["Tree"])


@dataclasses.dataclass
class Even:
    n: int

    def __post_init__(self) -> None:
        if self.n == 0:
            raise LookupError("zero")
        if self.n % 2:
            raise ValueError("odd")


class Order(msgspec.Struct):
    id: int
    lines: dict[str, int] = {}


class User(pydantic.BaseModel):
    id: int
    born: dt.date | None = None
    name: str = pydantic.Field(default="", alias="fullName")


class StrictUser(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    id: uuid.UUID
    tags: set[str]


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Pair(NamedTuple):
    left: int
    right: str


class Colour(enum.Enum):
    RED = "red"


class Word(enum.StrEnum):
    A = "a"


class Level(enum.IntEnum):
    LOW = 1


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


def signature(function: Callable[..., Any], name: str | None = None) -> Signature:
    return Signature(function, name=name or function.__name__, injected=Context)


def of(annotation: Any) -> Signature:
    """The signature of a task that takes and returns one annotated value."""

    def task(value: Any) -> Any: ...

    task.__annotations__ = {"value": annotation, "return": annotation}
    return signature(task)


def unannotated(value, *rest, **options): ...  # type: ignore[no-untyped-def]


def through(codec: Signature, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return codec.decode(codec.encode(args, kwargs, limit=LIMIT))


def refused(codec: Signature, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(InvalidArguments) as caught:
        codec.encode(args, kwargs, limit=LIMIT)
    assert str(caught.value).startswith(codec.text)
    return str(caught.value)


def argument(codec: Signature, value: Any) -> Any:
    return through(codec, value)[1]["value"]


def result(codec: Signature, value: Any) -> Any:
    return codec.decode_output(codec.encode_output(value, limit=LIMIT))


def add(a: int, b: int) -> int:
    return a + b


def describe(a: int, b: str = "x", *rest: int, flag: bool = False, **options: float) -> None:
    """Say what was given."""


def only(a: int, b: int = 2, /, c: int = 3) -> None: ...


ADD, DESCRIBE = signature(add), signature(describe)
ONLY, PLAIN = signature(only), signature(unannotated)

# E5: plain JSON

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
trees = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12
)


def alike(left: Any, right: Any) -> bool:
    return repr(left) == repr(right)


@given(value=trees)
@settings(max_examples=150, deadline=None)
def test_e5_every_json_kind_round_trips(value: Any) -> None:
    text = PLAIN.encode((value,), {}, limit=LIMIT)
    assert "\0" not in text
    assert alike(json.loads(text), {"value": value})
    assert alike(PLAIN.decode(text), ((), {"value": value}))
    assert alike(result(PLAIN, value), value)
    for annotation in (object, dict[str, Any], dict[str, object]):
        wrapped = value if annotation is object else {"key": value}
        assert alike(argument(of(annotation), wrapped), wrapped)


@given(value=st.text() | st.integers() | st.booleans() | st.none() | st.lists(st.integers()))
@settings(max_examples=80, deadline=None)
def test_e5_typed_and_untyped_agree(value: Any) -> None:
    codec = of(str | int | bool | list[int] | None)
    assert alike(argument(codec, value), value)
    assert alike(result(codec, value), value)


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, False, 0, -1, 2**53 + 1, 2**63, 2**64, -(2**64), 10**400),
        *(0.0, -0.0, 5e-324, 1.7976931348623157e308, 0.1, 1e22),
        *("", "\0", "a\0b", "é", "\u2028", "\ue000", "\uffff", "😀", "\U0010ffff", '"\\\n'),
        *([], {}, [[]], [{}], {"": []}, [[1, [2, [3]]]], {"a": {"b": [None]}}),
    ],
)
def test_e5_edges_round_trip(value: Any) -> None:
    assert alike(argument(PLAIN, value), value)
    assert alike(result(PLAIN, value), value)
    assert alike(argument(of(type(value)), value), value)


def test_e5_an_int_too_long_to_print_is_refused() -> None:
    assert "argument 'a'" in refused(ADD, 10**5000, 1)
    assert "argument 'value'" in refused(PLAIN, [10**5000])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_e5_floats_that_json_lacks_are_refused_by_name(bad: float) -> None:
    for codec, value in [
        (PLAIN, bad),
        (PLAIN, {"a": [1.0, bad]}),
        (of(float), bad),
        (of(float | None), bad),
        (of(list[float | None]), [bad]),
        (of(dict[str, Any]), {"a": bad}),
        (of(Point), Point(1, bad)),
        (of(Line), Line([Point(1, 2), Point(1, bad)])),
        (of(tuple[float, ...]), (bad,)),
    ]:
        text = refused(codec, value)
        assert "argument 'value'" in text
        assert repr(bad) in text
        assert "JSON" in text
        with pytest.raises(OutputError, match="JSON"):
            codec.encode_output(value, limit=LIMIT)


def test_e5_the_place_of_a_bad_value_is_told() -> None:
    assert "was given Line, at .points[1].y: nan" in refused(
        of(Line), Line([Point(1), Point(1, math.nan)])
    )
    assert "argument 'value' (dict), at ['a'][1]: nan" in refused(PLAIN, {"a": [1, math.nan]})


@pytest.mark.parametrize("bad", ["\ud800", "a\udfffb"])
def test_e5_lone_surrogates_are_refused(bad: str) -> None:
    for codec, value in [
        (PLAIN, bad),
        (PLAIN, {"a": [bad]}),
        (PLAIN, {bad: 1}),
        (of(str), bad),
        (of(list[str]), [bad]),
        (of(dict[str, int]), {bad: 1}),
    ]:
        text = refused(codec, value)
        assert "argument 'value'" in text
        assert "lone surrogate" in text
        text.encode()
        with pytest.raises(OutputError, match="lone surrogate"):
            codec.encode_output(value, limit=LIMIT)
    refused(DESCRIBE, 1, **{bad: 1.0})


def test_e5_endless_nesting_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    tree = Tree(0)
    for _ in range(300):
        tree = Tree(0, [tree])
    for codec, value in [(PLAIN, loop), (PLAIN, deep), (of(list[Any]), loop), (of(Tree), tree)]:
        assert "nested deeper" in refused(codec, value)


# E6: typed values

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
KEY = uuid.UUID(int=7)
TYPED: list[tuple[Any, Any]] = [
    (Point, Point(1, 2.5)),
    (Line, Line([Point(1), Point(2)], "a")),
    (Tree, Tree(1, [Tree(2)])),
    (Order, Order(1, {"a": 2})),
    (User, User(id=1, born=dt.date(2000, 1, 2), fullName="Ann")),
    (User | None, None),
    (list[User], [User(id=1)]),
    (StrictUser, StrictUser(id=KEY, tags={"a"})),
    (Movie, {"title": "M", "year": 1931}),
    (Pair, Pair(1, "a")),
    (dt.datetime, dt.datetime(2024, 5, 6, 7, 8, 9, 10, tzinfo=dt.UTC)),
    (dt.datetime, dt.datetime(2024, 5, 6, 7, 8, tzinfo=BERLIN)),
    (dt.datetime, dt.datetime(2024, 5, 6, 7, 8)),  # noqa: DTZ001
    (dt.date, dt.date(2024, 2, 29)),
    (dt.time, dt.time(1, 2, 3, 4)),
    (dt.timedelta, dt.timedelta(days=-3, seconds=4, microseconds=5)),
    (uuid.UUID, KEY),
    (Decimal, Decimal("1.10")),
    (Colour, Colour.RED),
    (Word, Word.A),
    (Level, Level.LOW),
    (Literal["a", "b"], "b"),
    (Literal[1, 2], 2),
    (bytes, b"\0\xff"),
    (Path, Path("/tmp/é/../x")),
    (Path | None, None),
    (PurePosixPath, PurePosixPath("a")),
    (set[int], {1, 2}),
    (frozenset[str], frozenset({"a"})),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], ()),
    (Optional[int], None),  # noqa: UP045
    (int | str | None, "a"),
    (Annotated[int, msgspec.Meta(ge=0)], 3),
    (dict[int, str], {1: "a", -2: "b"}),
    (dict[uuid.UUID, list[tuple[int, Point]]], {KEY: [(1, Point(2))]}),
    (list[dict[str, set[dt.date]]], [{"a": {dt.date(2024, 1, 1)}}]),
    (dict[str, Path], {"a": Path("b")}),
]


@pytest.mark.parametrize(("annotation", "value"), TYPED)
def test_e6_typed_values_round_trip(annotation: Any, value: Any) -> None:
    for back in (argument(of(annotation), value), result(of(annotation), value)):
        assert back == value
        assert type(back) is type(value)
    assert convert(of(annotation).encode_output(value, limit=LIMIT), annotation) == value


@given(value=st.datetimes(timezones=st.just(BERLIN) | st.timezones()))
@settings(max_examples=80, deadline=None)
def test_e6_an_instant_never_moves(value: dt.datetime) -> None:
    codec = of(dt.datetime)
    try:
        back = argument(codec, value)
    except InvalidArguments:
        return  # an offset with seconds, or an instant beyond the calendar, has no JSON form
    assert back.astimezone(dt.UTC) == value.astimezone(dt.UTC)


def test_e6_the_repeated_hour_keeps_its_instant() -> None:
    for fold in (0, 1):
        value = dt.datetime(2025, 10, 26, 2, 30, tzinfo=BERLIN, fold=fold)
        assert argument(of(dt.datetime), value).utcoffset() == value.utcoffset()


def test_e6_a_time_that_would_change_is_refused() -> None:
    odd = dt.timezone(dt.timedelta(hours=1, seconds=30))
    refused(of(dt.datetime), dt.datetime(2024, 1, 1, tzinfo=odd))
    refused(of(dt.datetime), dt.datetime(2024, 1, 1, fold=1))  # noqa: DTZ001
    early = dt.timezone(dt.timedelta(hours=5))
    refused(of(dt.datetime), dt.datetime.min.replace(tzinfo=early))
    refused(of(dt.date), dt.datetime(2024, 1, 1, tzinfo=dt.UTC))


@pytest.mark.parametrize("value", [Decimal("NaN"), Decimal("sNaN")])
def test_e6_a_decimal_that_equals_nothing_is_refused(value: Decimal) -> None:
    refused(of(Decimal), value)


def test_e6_what_cannot_be_encoded_is_refused_by_name_and_type() -> None:
    for value in (object(), add, 1j, Point, iter([1])):
        for codec in (PLAIN, of(dict[str, Any]), of(list[int])):
            text = refused(codec, value)
            assert "argument 'value'" in text
            assert type(value).__name__ in text


def test_e6_what_a_model_would_drop_is_refused() -> None:
    class Hidden(pydantic.BaseModel):
        secret: str = pydantic.Field(default="", exclude=True)

    assert argument(of(Hidden), Hidden()) == Hidden()
    refused(of(Hidden), Hidden(secret="x"))
    refused(of(User), User.model_construct(id="not a number"))


@pytest.mark.parametrize(
    "annotation",
    [
        Context,
        Callable[[int], int],
        complex,
        range,
        list[Context],
        Path | str,
        Point | Order,
        OrderedDict[str, int],
        type,
        Iterable[complex],
    ],
)
def test_e6_an_unsupported_annotation_is_refused_at_decoration(annotation: Any) -> None:
    def task(value: Any) -> Any: ...

    for place, name in [("value", "argument 'value'"), ("return", "the result")]:
        task.__annotations__ = {place: annotation}
        with pytest.raises(InvalidTask, match=f"^mail: {name} is annotated"):
            Signature(task, name="mail")


# E7: arguments that do not fit


def test_e7_the_signature_names_what_the_caller_gives() -> None:
    def publish(album: int, ctx: Context, size: float = 1.5, *, to: str | None = None) -> str:
        return ""

    assert ADD.text == "add(a: int, b: int) -> int"
    text = "publish(album: int, size: float = 1.5, *, to: str | None = None) -> str"
    assert signature(publish).text == text
    assert DESCRIBE.text.endswith(") -> None")
    assert DESCRIBE.doc == "Say what was given."
    assert ADD.doc is None


def test_e7_missing_unknown_and_superfluous_arguments() -> None:
    assert "argument 'b' is missing" in refused(ADD, 1)
    assert "arguments 'a', 'b' are missing" in refused(ADD)
    assert "unknown argument 'c'" in refused(ADD, 1, 2, c=3)
    assert "takes at most 2 positional arguments, 3 were given" in refused(ADD, 1, 2, 3)
    assert "argument 'a' was given twice" in refused(ADD, 1, a=2)
    assert "argument 'a' is positional only" in refused(ONLY, a=1)

    def nothing(*, a: int = 1) -> None: ...

    assert "takes no positional arguments, 1 was given" in refused(signature(nothing), 1)


@pytest.mark.parametrize(
    ("annotation", "value", "given_type"),
    [
        (int, "x", "str"),
        (int, 1.0, "float"),
        (int, None, "NoneType"),
        (str, 1, "int"),
        (str, b"a", "bytes"),
        (bool, 1, "int"),
        (float, "1", "str"),
        (float, 2**53 + 1, "int"),
        (uuid.UUID, str(KEY), "str"),
        (dt.date, "2024-01-01", "str"),
        (Colour, "red", "str"),
        (Point, {"x": 1}, "dict"),
        (Point, Point("x"), "Point"),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        (Point, Place(1), "Place"),
        (Point, Spot(1), "Spot"),
        (Line, Line([Point("x")]), "Line"),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        (Order, Order("x"), "Order"),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        (User, {"id": 1}, "dict"),
        (Movie, {"title": 1}, "dict"),
        (Movie, {"title": "a", "unknown": 1}, "dict"),
        (Literal["a"], "b", "str"),
        (list[int], (1, 2), "tuple"),
        (list[int], ["x"], "list"),
        (tuple[int, ...], [1], "list"),
        (set[int], [1], "list"),
        (dict[str, int], {1: 2}, "dict"),
        (dict[str, Any], {"a": (1,)}, "dict"),
        (dict[str, Any], {"a": {1: 2}}, "dict"),
        (Annotated[int, msgspec.Meta(ge=0)], -1, "int"),
        (Path, "a", "str"),
        (bytes, bytearray(b"a"), "bytearray"),
    ],
)
def test_e7_a_wrong_type_is_refused(annotation: Any, value: Any, given_type: str) -> None:
    codec = of(annotation)
    text = refused(codec, value)
    assert "argument 'value' expects " in text
    assert f"was given {given_type}" in text
    with pytest.raises(OutputError, match=f"the result expects .*was given {given_type}"):
        codec.encode_output(value, limit=LIMIT)


def test_e7_the_text_of_a_refusal() -> None:
    text = "add(a: int, b: int) -> int: argument 'a' expects int, was given str"
    assert refused(ADD, "x", 2) == text
    nested = refused(of(Line), Line([Point("x")]))  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    assert "Expected `int`, got `str` - at `$.points[0].x`" in nested


@pytest.mark.parametrize(
    "value",
    [
        (1, 2),
        {1},
        {1: "a"},
        {None: 1},
        b"a",
        Point(1),
        KEY,
        Colour.RED,
        Word.A,
        Text("a"),
        [(1,)],
        {"a": {True: 1}},
        dt.date(2024, 1, 1),
        OrderedDict(a=1),
    ],
)
def test_e7_untyped_values_that_json_would_change_are_refused(value: Any) -> None:
    for codec in (PLAIN, of(Any), of(object)):
        text = refused(codec, value)
        assert "argument 'value'" in text
        assert "annotate" in text
        with pytest.raises(OutputError, match="annotate"):
            codec.encode_output(value, limit=LIMIT)


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (float, 1, 1.0),
        (list[float], [1, 2.5], [1.0, 2.5]),
        (Point, Point(1, 2), Point(1, 2.0)),
        (int, True, True),
        (int | None, False, False),
        (int, Level.LOW, 1),
        (str, Word.A, "a"),
        (str, Text("a"), "a"),
        (list[str], [Text("a")], ["a"]),
        (dict[str, int], defaultdict(int, a=1), {"a": 1}),
        (tuple[int, str], Pair(1, "a"), (1, "a")),
        (Sequence[int], (1, 2), [1, 2]),
        (Sequence, (1, "a"), [1, "a"]),
        (Iterable[int], (1,), [1]),
        (Mapping[str, int], {"a": 1}, {"a": 1}),
    ],
)
def test_e7_what_python_accepts_is_accepted(annotation: Any, value: Any, expected: Any) -> None:
    assert alike(argument(of(annotation), value), expected)
    assert alike(result(of(annotation), value), expected)


# How arguments are stored and handed to the function


def test_arguments_are_stored_by_name_and_defaults_are_not() -> None:
    assert ADD.encode((1,), {"b": 2}, limit=LIMIT) == '{"a":1,"b":2}'
    assert DESCRIBE.encode((1,), {}, limit=LIMIT) == '{"a":1}'
    stored = json.loads(DESCRIBE.encode((1, "y", 3, 4), {"flag": True, "z": 1.5}, limit=LIMIT))
    assert stored == {"a": 1, "b": "y", "*rest": [3, 4], "flag": True, "**options": {"z": 1.5}}


def call(
    a: int, b: int = 2, /, c: int = 3, *rest: int, d: int = 4, **options: int
) -> tuple[Any, ...]:
    return a, b, c, rest, d, options


@given(
    args=st.lists(st.integers(), min_size=1, max_size=5),
    kwargs=st.dictionaries(st.sampled_from(["c", "d", "a", "rest", "x"]), st.integers()),
)
@settings(max_examples=80, deadline=None)
def test_a_call_through_storage_is_the_call(args: list[int], kwargs: dict[str, int]) -> None:
    if len(args) > 2:
        kwargs.pop("c", None)
    got_args, got_kwargs = through(signature(call), *args, **kwargs)
    assert call(*got_args, **got_kwargs) == call(*args, **kwargs)


def test_a_parameter_added_with_a_default_takes_it() -> None:
    def before(a: int, b: int = 0, /, *rest: int) -> tuple[Any, ...]:
        return a, b, rest

    def after(a: int, new: str = "n", b: int = 0, /, more: int = 5, *rest: int) -> tuple[Any, ...]:
        return a, new, b, more, rest

    for given_args, expected in [
        ((1,), (1, "n", 0, 5, ())),
        ((1, 2), (1, "n", 2, 5, ())),
        ((1, 2, 3), (1, "n", 2, 5, (3,))),
    ]:
        text = signature(before).encode(given_args, {}, limit=LIMIT)
        args, kwargs = signature(after).decode(text)
        assert after(*args, **kwargs) == expected


@pytest.mark.parametrize("text", ['{"a":1}', '{"a":1,"b":2,"c":3}', '{"a":1,"b":"x"}', "[]", "{"])
def test_stored_arguments_that_no_longer_fit_are_refused(text: str) -> None:
    with pytest.raises(InvalidArguments, match=r"^add\(a: int, b: int\) -> int: the stored"):
        ADD.decode(text)


def test_text_from_a_driver_may_be_bytes() -> None:
    assert ADD.decode(b'{"a":1,"b":2}') == ((), {"a": 1, "b": 2})
    assert ADD.decode_output(b"3") == 3


def test_keyword_options_can_be_typed_by_a_typed_dict() -> None:
    def film(**movie: Unpack[Movie]) -> None: ...

    assert through(signature(film), title="M") == ((), {"title": "M"})
    assert "expects" in refused(signature(film), title=1)


# The parameter that the worker fills


def injected_middle(a: int, ctx: Context, b: int = 2) -> None: ...
def injected_optional(a: int, b: int = 2, ctx: Context | None = None) -> None: ...
def injected_keyword(a: int, b: int = 2, *, job: "Context") -> None: ...
def injected_default(a: int = 1, ctx: Optional["Context"] = None, *, b: int = 2) -> None: ...


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (injected_middle, "ctx"),
        (injected_optional, "ctx"),
        (injected_keyword, "job"),
        (injected_default, "ctx"),
    ],
)
def test_the_injected_parameter_is_never_stored(function: Callable[..., Any], name: str) -> None:
    codec = signature(function)
    assert codec.injected == name
    assert name not in codec.text
    args, kwargs = through(codec, 1, b=3)
    function(*args, **kwargs, **{name: Context()})
    assert (args, kwargs) == ((), {"a": 1, "b": 3})
    assert f"'{name}' is handed in by the worker" in refused(codec, 1, **{name: Context()})


def test_an_injected_type_may_be_known_to_type_checkers_only() -> None:
    def task(a: int, ctx: Any) -> None: ...

    class Late: ...

    task.__annotations__ = {"a": "int", "ctx": "Late"}
    assert Signature(task, name="task", injected=(Context, Late)).injected == "ctx"


def test_without_an_injected_type_there_is_no_injected_parameter() -> None:
    assert ADD.injected is None
    assert Signature(add, name="add").injected is None


# Functions that cannot be tasks


class Holder:
    def method(self, a: int) -> None: ...

    @classmethod
    def of_class(cls, a: int) -> None: ...

    @staticmethod
    def alone(a: int) -> int:
        return a


def test_a_staticmethod_and_a_coroutine_function_are_tasks() -> None:
    async def later(a: int) -> Point:
        return Point(a)

    assert through(Signature(vars(Holder)["alone"], name="alone"), 1) == ((), {"a": 1})
    assert through(signature(Holder.alone), 1) == ((), {"a": 1})
    assert result(signature(later), Point(1)) == Point(1)


def generates() -> Iterable[int]:
    yield 1


def two_contexts(a: Context, b: Context) -> None: ...
def positional_context(ctx: Context, /) -> None: ...
def context_before_rest(ctx: Context, *rest: int) -> None: ...


@pytest.mark.parametrize(
    "function",
    [
        Holder,
        Holder().method,
        Holder.of_class,
        vars(Holder)["of_class"],
        print,
        "text",
        generates,
        two_contexts,
        positional_context,
        context_before_rest,
    ],
)
def test_what_cannot_be_a_task_is_refused(function: Any) -> None:
    with pytest.raises(InvalidTask, match=r"^name: "):
        Signature(function, name="name", injected=Context)


def test_an_unresolved_annotation_is_named() -> None:
    def task(a: "int", b: "Fraction") -> None: ...

    with pytest.raises(InvalidTask, match=r"^task: the name 'Fraction' .*TYPE_CHECKING"):
        signature(task)

    @dataclasses.dataclass
    class Deep:
        a: "Missing"  # type: ignore[name-defined] # noqa: F821 # pyright: ignore[reportUndefinedVariable]

    with pytest.raises(InvalidTask, match="'Missing'"):
        of(Deep)


# Results


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Next[int], 3),
        (int | Next[int], 3),
        (int | Next[int] | None, None),
        (int | Retry, 3),
        (Point | Next[Point] | Retry, Point(1)),
        (Next[tuple[int, ...]], (1, 2)),
        (Next, "a"),
        (Retry, "a"),
        (None, "a"),
    ],
)
def test_a_result_is_typed_by_what_the_chain_ends_with(annotation: Any, value: Any) -> None:
    def task() -> Any: ...

    task.__annotations__ = {"return": annotation}
    assert alike(result(signature(task), value), value)
    with pytest.raises(OutputError, match=r"^task\(\)"):
        signature(task).encode_output(KEY, limit=LIMIT)


def test_no_text_is_no_result() -> None:
    assert ADD.decode_output(None) is None


def test_a_stored_result_that_no_longer_fits_is_refused() -> None:
    with pytest.raises(OutputError, match="does not fit"):
        ADD.decode_output('"x"')
    with pytest.raises(OutputError, match="does not fit"):
        convert('"x"', int)


def test_what_a_class_of_the_application_raises_is_told() -> None:
    codec = of(Even)
    assert argument(codec, Even(2)) == Even(2)
    for text in ('{"value":{"n":1}}', '{"value":{"n":0}}'):
        with pytest.raises(InvalidArguments, match=r"odd|zero"):
            codec.decode(text)
    with pytest.raises(OutputError, match="zero"):
        codec.decode_output('{"n":0}')


def test_convert_decodes_any_type() -> None:
    assert convert('{"x":1}', Point) == Point(1)
    assert convert("[1]", Any) == [1]
    assert convert("3", int | Next[int]) == 3
    with pytest.raises(OutputError, match="not a supported type"):
        convert("3", Context)


# E8: size


def test_e8_a_payload_over_the_limit_is_refused_with_its_size() -> None:
    text = PLAIN.encode(("é" * 10,), {}, limit=32)
    assert len(text.encode()) == 32
    with pytest.raises(PayloadTooLarge, match=r"unannotated take 32 bytes; the limit is 31 bytes"):
        PLAIN.encode(("é" * 10,), {}, limit=31)
    assert PLAIN.encode_output("é" * 10, limit=22)
    with pytest.raises(PayloadTooLarge, match=r"takes 1,002 bytes; the limit is 1,000 bytes"):
        PLAIN.encode_output("e" * 1000, limit=1000)


def test_plain_arguments_are_cheap() -> None:
    """A guard against the slow path, far above the usual 2 µs, for busy machines."""
    best = min(timeit.repeat(lambda: ADD.encode((1, 2), {}, limit=LIMIT), number=1000, repeat=5))
    assert best / 1000 < 20e-6
