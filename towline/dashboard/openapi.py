"""The description of the JSON API, made of the pages and actions there are."""

from __future__ import annotations

import re
from typing import Any

from ..version import VERSION
from .actions import ACTIONS
from .page import Page
from .shapes import schema, shared

# What actions take, beside the filters that the page of jobs has.
TAKEN = {
    "id": "The job.",
    "ids": "Only these jobs: a list.",
    "queue": "The queue.",
    "reason": "Why, for the history.",
    "preview": "Only count what it would be done to.",
}
# What actions answer: how many it was done to, and to which.
DONE = {
    "type": "object",
    "properties": {
        "done": {"type": "integer"},
        "id": {"type": "integer"},
        "chain": {"type": "integer"},
        "queue": {"type": "string"},
        "preview": {"type": "boolean"},
        "arguments": {},
        "output": {},
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
    properties = {
        name: {"description": TAKEN.get(name, f"Only jobs with this {name}.")} for name in names
    }
    return _json({"type": "object", "properties": properties})


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
        **{str(code): refused for code in (400, 401, 403, 404, 409, 503)},
    }
