"""The JSON schema of a type, for those who must send such a value: agents, forms."""

from __future__ import annotations

from typing import Any

import msgspec

Schema = dict[str, Any]
_PLACE = "#/$defs/"


def schema_of(type: Any) -> Schema:
    """What JSON must look like to be read as this type. Stars (`*rest`) cannot be sent by name and
    are left out; any further name may be sent where there is a `**rest`."""
    (top,), found = msgspec.json.schema_components(
        [type], schema_hook=_foreign, ref_template=_PLACE + "{name}"
    )
    if "$ref" in top:
        top = found.pop(top["$ref"].removeprefix(_PLACE))
    properties = top.get("properties", {})
    for name in [name for name in properties if name.startswith("*")]:
        del properties[name]
        if name.startswith("**"):
            top["additionalProperties"] = True
    whole: Schema = _brief({**top, "$defs": found} if found else top)
    return whole


def _foreign(type: Any) -> Schema:
    """A type that msgspec does not know: pydantic's models say it themselves, others are any."""
    describe = getattr(type, "model_json_schema", None)
    return {} if describe is None else _inlined(describe())


def _inlined(schema: Schema) -> Schema:
    """Its own definitions stand elsewhere than where its references would look for them."""
    schema = dict(schema)
    schema.pop("$defs", None)
    return schema if "$ref" not in str(schema) else {"type": "object"}


def _brief(value: Any) -> Any:
    """Without what repeats the names of types, and without empty lists of what is needed."""
    if isinstance(value, list):
        several = [_brief(each) for each in value]
        # An int may be a bool in Python; nobody should be told to send one.
        is_number = {"type": "integer"} in several
        return [each for each in several if not (is_number and each == {"type": "boolean"})]
    if not isinstance(value, dict):
        return value
    if len(either := _brief(value.get("anyOf", ()))) == 1:
        return either[0]
    return {
        key: {name: _brief(each) for name, each in inner.items()}
        if key in ("properties", "$defs")
        else _brief(inner)
        for key, inner in value.items()
        if not (key == "title" and isinstance(inner, str)) and not (key == "required" and not inner)
    }
