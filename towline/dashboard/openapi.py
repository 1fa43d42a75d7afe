"""The description of the JSON API, made of the pages and actions there are."""

from __future__ import annotations

import re
from typing import Any

from ..version import VERSION
from .actions import ACTIONS
from .page import Page

ANSWER = {"application/json": {"schema": {"type": "object"}}}


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
                "requestBody": {"required": True, "content": ANSWER},
                "responses": _responses("What was done."),
            }
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Towline", "version": VERSION},
        "servers": [{"url": root or "/"}],
        "paths": paths,
        "security": [{"token": []}, {}],
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _reading(page: Page) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}
        for _ in re.findall(r"{id:int}", page.path)
    ]
    parameters += [
        {"name": param.name, "in": "query", "description": param.text, "schema": {"type": "string"}}
        for param in page.params
    ]
    return {
        "operationId": page.name,
        "summary": page.text,
        "parameters": parameters,
        "responses": _responses(page.text),
    }


def _responses(text: str) -> dict[str, Any]:
    refused = {"description": "Refused; `error` says why."}
    return {
        "200": {"description": text, "content": ANSWER},
        **{str(code): refused for code in (400, 401, 403, 404, 409, 503)},
    }
