"""The description of the JSON API, made of the pages and actions there are."""

from __future__ import annotations

import re
from typing import Any

from ..version import VERSION
from .actions import ACTIONS, MANY
from .page import FILTERS, Page
from .shapes import schema, shared

TEXT = {"type": "string"}
NUMBER = {"type": "integer"}
# What actions take, by name: its type, and what it is.
TAKEN: dict[str, dict[str, Any]] = {
    "id": {**NUMBER, "description": "The job."},
    "queue": {**TEXT, "description": "The queue."},
    "schedule": {**TEXT, "description": "The schedule, by its name."},
    "reason": {**TEXT, "description": "Why, for the history."},
    "lane": {**TEXT, "description": 'A lane; "*" for each of them; the queue if not said.'},
    "concurrency": {**NUMBER, "minimum": 0, "description": "How much may run at a time; 0: none."},
    "rate": {**NUMBER, "minimum": 1, "description": "How much may begin in any `per` seconds."},
    "per": {"type": "number", "default": 60, "description": "Seconds that `rate` is about."},
}
NEEDED = ("id", "queue", "schedule")
# The same of actions on many: filters, as the page of jobs has them.
TAKEN_BY_MANY: dict[str, dict[str, Any]] = {
    **{name: {**TEXT, "description": text} for name, text in FILTERS.items()},
    "chain": {**NUMBER, "description": FILTERS["chain"]},
    "ids": {"type": "array", "items": NUMBER, "minItems": 1, "description": FILTERS["ids"]},
    "preview": {
        "type": "boolean", "default": False, "description": "Count what it would be done to.",
    },
}  # fmt: skip
# What actions answer: how many it was done to, and to which.
DONE = {
    "type": "object",
    "properties": {
        "done": {"type": "integer"},
        "id": {"type": "integer"},
        "chain": {"type": "integer"},
        "queue": {"type": "string"},
        "schedule": {"type": "string"},
        "preview": {"type": "boolean"},
        "arguments": {},
        "output": {},
        "errors": {"type": "array", "items": {"type": ["string", "null"]}},
    },
    "required": ["done"],
}


def document(root: str) -> dict[str, Any]:
    from .pages import PAGES

    paths: dict[str, Any] = {}
    for page in PAGES:
        paths[f"/api{re.sub(r':int', '', page.path)}"] = {"get": _reading(page)}
    for name, action in ACTIONS.items():
        paths[f"/do/{name}"] = {
            "post": {
                "operationId": name,
                "summary": action.text,
                "requestBody": {"required": True, "content": _taken(action.takes)},
                "responses": _responses("What was done.", DONE),
            }
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Towline", "version": VERSION},
        "servers": [{"url": root or "/"}],
        "paths": paths,
        "security": [{"token": []}, {}],
        "components": {
            "schemas": shared(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _taken(names: tuple[str, ...]) -> dict[str, Any]:
    many = names == MANY
    known = TAKEN_BY_MANY if many else TAKEN
    needed = [] if many else [name for name in names if name in NEEDED]
    return _json(
        {
            "type": "object",
            "properties": {name: known[name] for name in names},
            "additionalProperties": False,
            **({"required": needed} if needed else {}),
        }
    )


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _reading(page: Page) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}
        for _ in re.findall(r"{id:int}", page.path)
    ]
    parameters += [
        {
            "name": param.name,
            "in": "query",
            "description": param.text,
            "schema": {"type": "string"},
            **({} if param.example is None else {"required": True, "example": param.example}),
        }
        for param in page.params
    ]
    return {
        "operationId": page.name,
        "summary": page.text,
        "parameters": parameters,
        "responses": _responses(page.text, schema(page.shows)),
    }


def _responses(text: str, answer: dict[str, Any]) -> dict[str, Any]:
    refused = {"description": "Refused; `error` says why.", "content": _json(schema("refusal"))}
    return {
        "200": {"description": text, "content": _json(answer)},
        **{str(code): refused for code in (400, 401, 403, 404, 409, 421, 503)},
    }
