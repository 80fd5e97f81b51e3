"""The OpenAPI document, made from the types that requests are checked by."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

import robandit
from robandit.policies import POLICIES
from robandit.wire.types import NAME, TOLD, Choice, Chosen, Creation, Feedback, Outcomes, Problem, Settings, Status

_NAME = {
    "name": "name",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": f"^{NAME}$"},
    "example": "shop",
}
_FORMAT = {
    "name": "format",
    "in": "query",
    "description": "one JSON object a line, or a Parquet file with a row for each decision and what came of it",
    "schema": {"type": "string", "enum": ["ndjson", "parquet"], "default": "ndjson"},
}
_RED, _BLUE = {"id": "red", "features": [1, 0]}, {"id": "blue", "features": [0, 1]}
_EXAMPLES: dict[type, Any] = {
    Creation: {"dim": 2, "noise_range": 1.0},
    Choice: {"decision_id": "visit-1", "actions": [_RED, _BLUE]},
    Feedback: {"decision_id": "visit-1", "reward": 1},
}
_TEXT = {"type": "string"}
_KEY = {401: "no key, or a wrong one", 403: "a key for something else", 429: "too many requests with this key"}
_BODY = {400: "not JSON", 413: "too large", 422: "not what is expected; the message says where"}
_STOPPING = {503: "nothing can be written; ask again with the same ids"}
_NOBODY = {404: "no such bandit"}
_HEADERS = {401: "WWW-Authenticate", 429: "Retry-After"}


@cache
def openapi(*, keys: bool = True) -> dict[str, Any]:
    """The whole document, of a service with keys or of one that needs none."""
    types = (Creation, Settings, Status, Choice, Chosen, Feedback, Outcomes, Problem)
    _, schemas = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    free = {"properties": {"policy": {"enum": sorted(set(POLICIES) - set(TOLD))}}}
    schemas["Creation"]["anyOf"] = [
        free,
        {"properties": {"corruption": {"type": "number"}}, "required": ["corruption"]},
    ]
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "robandit", "version": robandit.__version__, "description": "Bandits that can't be bought."},
        "paths": _bandits() | _service(),
        "components": {"schemas": schemas},
    }
    if keys:
        document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"key": []}]
    return document


def _bandits() -> dict[str, Any]:
    bandit = "/v1/bandits/{name}"
    create = _call("Create a bandit, or confirm that it is as described", _ref(Status), Creation)
    create["responses"] |= _responses({201: "created"}, _ref(Status))
    create["responses"] |= _responses({409: "it is there with other settings"}, _ref(Problem))
    decide = _call("Which of these should I show?", _ref(Chosen), Choice, _NOBODY)
    decide["responses"] |= _responses({409: "this decision was made between other actions"}, _ref(Problem))
    reward = _call("What came of it", _ref(Outcomes), Feedback, _NOBODY)
    content = reward["requestBody"]["content"]["application/json"]
    content["schema"] = {"anyOf": [_ref(Feedback), {"type": "array", "items": _ref(Feedback)}]}
    errors = _NOBODY | _STOPPING | {422: "no such format", 501: "no Parquet where the service runs"}
    log = _call(
        "Every decision, reward and default, one JSON object a line or as Parquet",
        _TEXT,
        None,
        errors,
        kind="application/x-ndjson",
    )
    log["responses"]["200"]["content"]["application/vnd.apache.parquet"] = {"schema": {}}
    return {
        "/v1/bandits": {"get": _call("The names of all bandits", {"type": "array", "items": _TEXT})},
        bandit: {
            "parameters": [_NAME],
            "put": create,
            "get": _call("How a bandit is doing", _ref(Status), None, _NOBODY),
        },
        f"{bandit}/decisions": {"parameters": [_NAME], "post": decide},
        f"{bandit}/rewards": {"parameters": [_NAME], "post": reward},
        f"{bandit}/log": {"parameters": [_NAME, _FORMAT], "get": log},
    }


def _service() -> dict[str, Any]:
    status = {"type": "object", "properties": {"status": _TEXT}, "required": ["status"]}
    return {
        "/metrics": {"get": _call("What Prometheus reads", _TEXT, kind="text/plain")},
        "/health": {"get": _open("Whether it can write; needs no key", status, _STOPPING)},
        "/ready": {"get": _open("Whether it can write; needs no key", status, _STOPPING)},
        "/openapi.json": {"get": _open("This document; needs no key", {"type": "object"})},
    }


def _call(
    about: str,
    answer: dict[str, Any],
    body: type | None = None,
    more: dict[int, str] | None = None,
    kind: str = "application/json",
) -> dict[str, Any]:
    """A method that may need a key: what it does, takes and answers."""
    errors = _KEY | (more or {}) | ({} if body is None else _BODY | _STOPPING)
    call: dict[str, Any] = {
        "summary": about,
        "responses": _responses({200: "done"}, answer, kind) | _responses(errors, _ref(Problem)),
    }
    if body is not None:
        content = {"schema": _ref(body), "example": _EXAMPLES[body]}
        call["requestBody"] = {"required": True, "content": {"application/json": content}}
    return call


def _open(about: str, answer: dict[str, Any], errors: dict[int, str] | None = None) -> dict[str, Any]:
    """A method that never needs one."""
    responses = _responses({200: "done"}, answer) | _responses(errors or {}, _ref(Problem))
    return {"summary": about, "security": [], "responses": responses}


def _responses(about: dict[int, str], schema: dict[str, Any], kind: str = "application/json") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status, why in about.items():
        found[str(status)] = {"description": why, "content": {kind: {"schema": schema}}}
        if status in _HEADERS:
            found[str(status)]["headers"] = {_HEADERS[status]: {"required": True, "schema": _TEXT}}
    return found


def _ref(kind: type) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}
