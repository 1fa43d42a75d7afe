"""The JSON schema of a task's arguments says what `read` takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from pydantic import BaseModel

from towline import INJECTED, Context, Secret, Towline
from towline.errors import InvalidArguments


@dataclass
class Address:
    street: str
    number: int | None = None


class Item(BaseModel):
    name: str


def order(
    id: int,
    to: Address,
    items: list[Item],
    how: Literal["post", "pick"] = "post",
    password: Annotated[str, Secret] = "hunter2",
    ctx: Context = INJECTED,
    **rest: Any,
) -> None: ...


def rest(first: int, *others: int) -> None: ...


@pytest.fixture
def app() -> Towline:
    app = Towline("sqlite:///nowhere.db")
    app.task(order)
    app.task(rest)
    return app


def test_the_schema_names_what_can_be_given(app: Towline) -> None:
    schema = app.registry["order"].signature.schema
    jsonschema.Draft202012Validator.check_schema(schema)
    assert list(schema["properties"]) == ["id", "to", "items", "how", "password"]
    assert schema["required"] == ["id", "to", "items"]
    assert schema["properties"]["id"] == {"type": "integer"}
    assert schema["additionalProperties"] is True
    assert "hunter2" not in str(schema)
    assert app.registry["rest"].signature.schema == {
        "type": "object",
        "properties": {"first": {"type": "integer"}},
        "required": ["first"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("given", "fits"),
    [
        ({"id": 1, "to": {"street": "x"}, "items": [{"name": "a"}]}, True),
        ({"id": 1, "to": {"street": "x", "number": None}, "items": [], "more": 1}, True),
        ({"id": 1, "to": {"street": "x", "number": "1"}, "items": []}, False),
        ({"id": "1", "to": {"street": "x"}, "items": []}, False),
        ({"id": 1, "to": {}, "items": []}, False),
        ({"id": 1, "to": {"street": "x"}, "items": [], "how": "fly"}, False),
        ({"id": 1}, False),
    ],
)
def test_what_fits_the_schema_is_read(app: Towline, given: dict[str, Any], fits: bool) -> None:
    signature = app.registry["order"].signature
    assert jsonschema.Draft202012Validator(signature.schema).is_valid(given) == fits
    if fits:
        signature.read((), given)
    else:
        with pytest.raises(InvalidArguments):
            signature.read((), given)
