"""The OpenAPI document, made from the types that requests are checked by."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

import robandit
from robandit.service.types import Choice, Chosen, Creation, Feedback, Outcomes, Problem, Settings, Status

_NAME = {
    "name": "name",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"},
}
_ERRORS = {
    400: "not JSON",
    401: "no key, or a wrong one",
    403: "a key for something else",
    413: "too large",
    422: "not what is expected; the message says where",
    429: "too many requests with this key",
    503: "nothing can be written; ask again with the same ids",
}


@cache
def openapi() -> dict[str, Any]:
    """The whole document."""
    types = (Creation, Settings, Status, Choice, Chosen, Feedback, Outcomes, Problem)
    _, schemas = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    one_or_many = {"anyOf": [_ref(Feedback), {"type": "array", "items": _ref(Feedback)}]}
    bandit = "/v1/bandits/{name}"
    return {
        "openapi": "3.1.0",
        "info": {"title": "robandit", "version": robandit.__version__, "description": "Bandits that can't be bought."},
        "paths": {
            "/v1/bandits": {"get": _call("The names of all bandits", {"type": "array", "items": {"type": "string"}})},
            bandit: {
                "parameters": [_NAME],
                "put": _call(
                    "Create a bandit, or confirm that it is as described",
                    _ref(Status),
                    _ref(Creation),
                    {201: "created", 409: "it is there with other settings"},
                ),
                "get": _call("How a bandit is doing", _ref(Status), None, {404: "no such bandit"}),
            },
            f"{bandit}/decisions": {
                "parameters": [_NAME],
                "post": _call(
                    "Which of these should I show?",
                    _ref(Chosen),
                    _ref(Choice),
                    {404: "no such bandit", 409: "this decision was made between other actions"},
                ),
            },
            f"{bandit}/rewards": {
                "parameters": [_NAME],
                "post": _call("What came of it", _ref(Outcomes), one_or_many, {404: "no such bandit"}),
            },
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}, {}],
    }


def _ref(kind: type) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _call(
    about: str, answer: dict[str, Any], body: dict[str, Any] | None = None, more: dict[int, str] | None = None
) -> dict[str, Any]:
    """A method: what it does, takes and answers."""
    responses: dict[str, Any] = {"200": {"description": "done", "content": {"application/json": {"schema": answer}}}}
    for status, why in sorted({**_ERRORS, **(more or {})}.items()):
        schema = answer if status < 300 else _ref(Problem)
        responses[str(status)] = {"description": why, "content": {"application/json": {"schema": schema}}}
    found: dict[str, Any] = {"summary": about, "responses": responses}
    if body is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return found
