"""Results are typed by what the chain ends with; E8: no payload is larger than allowed."""

import dataclasses
import timeit
from typing import Any

import pytest

from tests.payloads import KEY, LIMIT, Point
from tests.unit.signatures import ADD, PLAIN, Context, alike, argument, of, result, signature
from towline import Next, Retry
from towline.errors import InvalidArguments, OutputError, PayloadTooLarge
from towline.task.signature import convert


@dataclasses.dataclass
class Even:
    n: int

    def __post_init__(self) -> None:
        if self.n == 0:
            raise LookupError("zero")
        if self.n % 2:
            raise ValueError("odd")


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


def test_E8_a_payload_over_the_limit_is_refused_with_its_size() -> None:
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
