"""reference/mcp-tools.md: the tools of the agents' server, as a client is told of them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any

from tests.docs.reference import shown
from towline.agent.server import TOOLS
from towline.agent.tool import Tool

HEAD = """# MCP tools

What `towline mcp`, `agent.server()` and `agent.asgi()` offer an agent; the guide is
[agents](../guides/with/agents.md). A tool that needs a word is listed, and done, only where `allow`
has it. All definitions together are {all} KB, those that read {reading} KB: that is what each
conversation carries.
"""
HINTS = {
    "readOnlyHint": "reads only",
    "destructiveHint": "may destroy",
    "idempotentHint": "repeating changes nothing more",
    "openWorldHint": "handlers may run because of it",
}
Schema = dict[str, Any]


def page() -> str:
    sizes = {
        "all": _size(TOOLS.values()),
        "reading": _size(each for each in TOOLS.values() if not each.needs),
    }
    return "\n".join([HEAD.format(**sizes), *_parts()])


def _parts() -> Iterator[str]:
    yield "| tool | needs | " + " | ".join(HINTS.values()) + " |"
    yield "|---|---|" + "---|" * len(HINTS)
    for tool in TOOLS.values():
        hints = _hints(tool)
        shown.check("mcp_tools", HINTS, hints)
        said = ["yes" if hints[name] else "" for name in HINTS]
        yield f"| [`{tool.name}`](#{tool.name}) | {tool.needs or ''} | {' | '.join(said)} |"
    yield (
        f"\nThe last columns are MCP's hints, in this order: {shown.words(HINTS)}. They are words "
        "for the host; the guard is in the server.\n"
    )
    for tool in TOOLS.values():
        yield f"## {tool.name}\n"
        yield f"{tool.text}\n"
        yield from _arguments(tool)


def _arguments(tool: Tool) -> Iterator[str]:
    schema = tool.definition().input_schema
    rows = list(_rows(schema, schema.get("$defs", {})))
    if rows:
        yield "| argument | type | default | |\n|---|---|---|---|"
        yield from rows
        yield ""


def _rows(schema: Schema, known: Schema, before: str = "") -> Iterator[str]:
    """One for each argument; those of an object inside it by its name and theirs."""
    for name, each in schema.get("properties", {}).items():
        each = {**known.get(each.get("$ref", "").rpartition("/")[2], {}), **each}
        default = "needed" if name in schema.get("required", ()) else _default(each)
        cells = [f"`{before}{name}`", _type(each), default, each.get("description", "")]
        yield f"| {' | '.join(cells)} |"
        yield from _rows(each, known, f"{before}{name}.")


def _default(schema: Schema) -> str:
    return f"`{json.dumps(schema['default'])}`" if "default" in schema else ""


def _type(schema: Schema) -> str:
    """In words, with its bounds."""
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    words = [schema["type"]]
    if "items" in schema:
        words.append(f"of {_type(schema['items'])}")
    if "pattern" in schema:
        words.append(f"`{schema['pattern']}`")
    bounds = (
        ("minimum", "from {}"), ("maximum", "to {}"), ("minLength", "of {}"),
        ("maxLength", "to {} characters"), ("maxItems", "at most {}"),
    )  # fmt: skip
    words += [text.format(schema[name]) for name, text in bounds if name in schema]
    strange = schema.keys() - {name for name, _ in bounds} - KNOWN
    assert not strange, f"say on the page what {strange} mean"
    return " ".join(words)


KNOWN = {
    "type", "items", "pattern", "default", "description", "properties", "required",
    "additionalProperties", "$ref", "enum",
}  # fmt: skip


def _hints(tool: Tool) -> dict[str, bool]:
    hints = tool.definition().annotations
    assert hints is not None
    return hints.model_dump(by_alias=True, exclude_none=True)


def _size(tools: Iterator[Tool] | Collection[Tool]) -> str:
    """In KB, as it is sent."""
    data = [
        tool.definition().model_dump(mode="json", by_alias=True, exclude_none=True)
        for tool in tools
    ]
    return f"{len(json.dumps(data, separators=(',', ':')).encode()) / 1024:.1f}"
