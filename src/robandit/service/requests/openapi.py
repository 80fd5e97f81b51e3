"""The OpenAPI document, made from the types that requests are checked against."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import msgspec

import robandit
from robandit.policies import POLICIES
from robandit.service.requests.choices import BLOCK
from robandit.wire.activity import RANGES, ActivityReport
from robandit.wire.alarms import Acknowledgement, AcknowledgementMade
from robandit.wire.changes import Change, ChangeMade, ChangeWaits, Deleted
from robandit.wire.cuts import CutMade, CutWaits, CutWanted
from robandit.wire.forgetting import ForgetMade, ForgetWaits, ForgetWanted
from robandit.wire.imports import MOST_ROWS, HistoryRow, ImportDone
from robandit.wire.service import ServiceReport
from robandit.wire.types import (
    MOST_DECISIONS,
    MOST_REWARDS,
    NAME,
    NEED_CORRUPTION,
    BanditSettings,
    Choice,
    Chosen,
    Creation,
    Feedback,
    Id,
    Label,
    ManyAnswered,
    NamedChoice,
    Outcomes,
    Problem,
    Status,
)

_BANDIT = "/v1/bandits/{name}"
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
    "description": "Form of the log: one JSON object a line, or a Parquet file with one row for each decision.",
    "schema": {"type": "string", "enum": ["ndjson", "parquet"], "default": "ndjson"},
}
_RANGE = {
    "name": "range",
    "in": "query",
    "description": "Range of time: two minutes by the second, two hours by the minute, or a week by the hour.",
    "schema": {"type": "string", "enum": [*RANGES], "default": RANGES[1]},
}
_RED, _BLUE = (
    {"id": name, "features": {"price": price, "colour": name}} for name, price in (("red", 20), ("blue", 35))
)
_SCHEMA = {"action": {"price": [0, 50], "colour": ["red", "blue"]}}
_EXAMPLES: dict[type, Any] = {
    Creation: {"features": _SCHEMA, "rewards": "clicks"},
    Change: {"version": 1, "exploration": 0.1},
    CutWanted: {"keep_days": 30},
    ForgetWanted: {"decision_ids": ["visit-1"]},
    Choice: {"decision_id": "visit-1", "actions": [_RED, _BLUE]},
    NamedChoice: [{"decision_id": "visit-2", "actions": [_RED, _BLUE]}],
    Feedback: {"decision_id": "visit-1", "reward": 1},
    Acknowledgement: {"lower_bound": 5.2, "by": "Ada", "note": "bots of a partner; quarantined"},
    HistoryRow: [{"id": "2025-1", "features": {"price": 20, "colour": "red"}, "reward": 1}],
}
_REF = re.compile(r"'#/components/schemas/(\w+)'")
_TEXT = {"type": "string"}
_DONE = {200: "The request was carried out."}
_KEY = {
    401: "The key is missing or unknown.",
    403: "The key has another role or is for other bandits, or a page elsewhere has sent this.",
    429: "The key has sent too many requests.",
}
_BODY = {
    400: "The body is not JSON.",
    413: "The body is too large.",
    415: "The body is not declared to be JSON.",
    422: "The body is not as described; the message says where.",
}
_STOPPING = {503: "The service can't write now; ask again with the same ids."}
_ARCHIVED = {410: "The bandit is archived, and only keeps its log."}
_UNKNOWN = {404: "There is no such bandit."}
_OUT = _UNKNOWN | _ARCHIVED
_HEADERS = {401: "WWW-Authenticate", 429: "Retry-After", 503: "Retry-After"}


@cache
def openapi(*, keys: bool = True) -> dict[str, Any]:
    """The whole document, for a service with or without keys."""
    types: list[type] = [Creation, BanditSettings, Status, Change, ChangeMade, ChangeWaits, Deleted, Choice]
    types += [CutWanted, CutMade, CutWaits, ForgetWanted, ForgetMade, ForgetWaits]
    types += [Acknowledgement, AcknowledgementMade, ActivityReport, ServiceReport]
    types += [HistoryRow, ImportDone, Chosen, NamedChoice, ManyAnswered, Feedback, Outcomes, Problem]
    _, schemas = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    free = {"properties": {"policy": {"enum": [*sorted(set(POLICIES) - set(NEED_CORRUPTION)), None]}}}
    told = {"properties": {"corruption": {"type": "number"}}, "required": ["corruption"]}
    schemas["Creation"]["allOf"] = [{"anyOf": [free, told]}]  # both: some generators read a bare anyOf as "or"
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "robandit", "version": robandit.__version__, "description": "Bandits that can't be bought."},
        "paths": _bandits() | _service(),
        "components": {"schemas": schemas},
    }
    answers, bodies = (_named(document["paths"], part, schemas) for part in ("responses", "requestBody"))
    for schema in (schemas[name] for name in answers - bodies):
        if "properties" in schema:  # an answer has all of its fields, also those that a reader has a default for
            schema["required"] = list(schema["properties"])
    if keys:
        document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"key": []}]
    return document


def _named(paths: dict[str, Any], part: str, schemas: dict[str, Any]) -> set[str]:
    """The schemas that this part of the calls is made of."""
    calls = [call.get(part, {}) for methods in paths.values() for call in methods.values() if isinstance(call, dict)]
    found, fresh = set[str](), set(_REF.findall(repr(calls)))
    while fresh:
        found |= fresh
        fresh = set(_REF.findall(repr([schemas[name] for name in fresh]))) - found
    return found


def _bandits() -> dict[str, Any]:
    """The calls about bandits."""
    create = _call("Create a bandit, or confirm that it exists as described", _ref(Status), Creation)
    create["responses"] |= _responses({201: "The bandit was created."}, _ref(Status))
    create["responses"] |= _responses({409: "The bandit exists with other settings."}, _ref(Problem))
    change = _call("Change a bandit's settings, or take it out of service", _ref(ChangeMade), Change, _OUT)
    change["responses"] |= _responses({202: "A policy learns the log first; ask again."}, _ref(ChangeWaits))
    change["responses"] |= _responses({409: "The settings have another version."}, _ref(Problem))
    see = _call("See how a bandit is doing", _ref(Status), None, _UNKNOWN)
    return {
        "/v1/bandits": {"get": _call("List the names of all bandits", {"type": "array", "items": _TEXT})},
        _BANDIT: {
            "parameters": [_NAME],
            "put": create,
            "get": see,
            "patch": change,
            "delete": _delete(),
        },
        **_traffic(),
        f"{_BANDIT}/imports": {"parameters": [_NAME], "post": _import()},
        f"{_BANDIT}/cuts": {"parameters": [_NAME], "post": _cut()},
        f"{_BANDIT}/forget": {"parameters": [_NAME], "post": _forget()},
        f"{_BANDIT}/activity": {"parameters": [_NAME, _RANGE], "get": _activity()},
        f"{_BANDIT}/acknowledgements": {"parameters": [_NAME], "post": _acknowledge()},
        f"{_BANDIT}/log": {"parameters": [_NAME, _FORMAT], "get": _log()},
    }


def _import() -> dict[str, Any]:
    """The call that takes history in."""
    found = _call("Learn from rewards of decisions that others made, each once", _ref(ImportDone), HistoryRow, _OUT)
    rows = {"type": "array", "items": _ref(HistoryRow), "minItems": 1, "maxItems": MOST_ROWS}
    found["requestBody"]["content"]["application/json"]["schema"] = rows
    return found


def _cut() -> dict[str, Any]:
    """The call that cuts a log."""
    cut = _call("Let the old events of a log go, and keep what they taught", _ref(CutMade), CutWanted, _UNKNOWN)
    cut["responses"] |= _responses({202: "The beginning is folded first; ask again."}, _ref(CutWaits))
    cut["responses"] |= _responses({409: "The log is being cut already, elsewhere."}, _ref(Problem))
    return cut


def _forget() -> dict[str, Any]:
    """The call that forgets decisions."""
    forget = _call("Forget decisions, as if they had never been made", _ref(ForgetMade), ForgetWanted, _UNKNOWN)
    forget["responses"] |= _responses({202: "The log is folded first; ask again."}, _ref(ForgetWaits))
    forget["responses"] |= _responses({409: "Other decisions are being forgotten."}, _ref(Problem))
    return forget


def _activity() -> dict[str, Any]:
    """The call for what was chosen and earned over time."""
    about = "See what was chosen, what that earned, and how the bandit does beside uniform play"
    return _call(about, _ref(ActivityReport), None, _UNKNOWN | {422: "There is no such range."})


def _acknowledge() -> dict[str, Any]:
    """The call that acknowledges an alarm."""
    errors = _UNKNOWN | {409: "Nothing is proved, or another amount than that."}
    return _call("Acknowledge what is proved", _ref(AcknowledgementMade), Acknowledgement, errors)


def _delete() -> dict[str, Any]:
    """The call that deletes a bandit."""
    delete = _call("Delete an archived bandit, and its log, for good", _ref(Deleted), None, _UNKNOWN | _STOPPING)
    delete["responses"] |= _responses({409: "It is in service, or its settings have another version."}, _ref(Problem))
    delete["responses"] |= _responses({422: "The query does not say the version."}, _ref(Problem))
    about = "Version of the settings that this is about, as the bandit's state has it."
    schema = {"type": "integer", "minimum": 1, "maximum": 2**53}
    version = {"name": "version", "in": "query", "required": True, "description": about, "schema": schema, "example": 1}
    return {"parameters": [version], **delete}


def _traffic() -> dict[str, Any]:
    """The calls for decisions and rewards."""
    decide = _call("Choose one of several actions", _ref(Chosen), Choice, _OUT)
    decide["responses"] |= _responses({409: "The decision was made before, between other actions."}, _ref(Problem))
    decide["parameters"] = [_query(name, kind) for name, kind in (("decision_id", Id), ("source", Label))]
    decide["requestBody"]["content"][BLOCK] = {"schema": {"type": "string", "format": "binary"}}
    many = _call("Make many decisions, each as if it had come alone", _ref(ManyAnswered), NamedChoice, _OUT)
    listed = {"type": "array", "items": _ref(NamedChoice), "minItems": 1, "maxItems": MOST_DECISIONS}
    many["requestBody"]["content"]["application/json"]["schema"] = listed
    reward = _call("Give the rewards of one or many decisions", _ref(Outcomes), Feedback, _OUT)
    rewards = {"type": "array", "items": _ref(Feedback), "maxItems": MOST_REWARDS}
    reward["requestBody"]["content"]["application/json"]["schema"] = {"anyOf": [_ref(Feedback), rewards]}
    return {
        f"{_BANDIT}/decisions": {"parameters": [_NAME], "post": decide},
        f"{_BANDIT}/decisions/batch": {"parameters": [_NAME], "post": many},
        f"{_BANDIT}/rewards": {"parameters": [_NAME], "post": reward},
    }


def _query(name: str, kind: Any) -> dict[str, Any]:
    """What the query may say where the body is a block of numbers."""
    about = f"The `{name}` of a decision whose body is a block of numbers; with JSON the body says it."
    return {"name": name, "in": "query", "description": about, "schema": msgspec.json.schema(kind)}


def _log() -> dict[str, Any]:
    """The call for a log, which comes in two forms."""
    about = "Read every decision, reward and default, one JSON object a line or as Parquet"
    errors = {422: "There is no such format.", 501: "Parquet is not installed where the service runs."}
    log = _call(about, _TEXT, None, _UNKNOWN | _STOPPING | errors, kind="application/x-ndjson")
    log["responses"]["200"]["content"]["application/vnd.apache.parquet"] = {"schema": {}}
    return log


def _backup() -> dict[str, Any]:
    """The call for a copy of the store."""
    errors = {
        409: "A backup is being made already.",
        501: "The store is a database, which has tools of its own.",
        507: "There is no room for the copy, or it failed.",
    }
    call = _call(
        "Copy the whole store, while it is in use", {}, None, _STOPPING | errors, kind="application/vnd.sqlite3"
    )
    digest = "SHA-256 of the file, as RFC 9530 has it."
    call["responses"]["200"]["headers"] = {"Repr-Digest": {"required": True, "schema": _TEXT, "description": digest}}
    return call


def _service() -> dict[str, Any]:
    """The calls about the service itself."""
    status = {"type": "object", "properties": {"status": _TEXT}, "required": ["status"]}
    return {
        "/v1/backup": {"get": _backup()},
        "/v1/service": {"get": _call("See how this process has done in the last two hours", _ref(ServiceReport))},
        "/metrics": {"get": _call("Read metrics in the format of Prometheus", _TEXT, kind="text/plain")},
        "/health": {"get": _open("Ask whether the process lives; needs no key", status)},
        "/ready": {"get": _open("Ask whether the service can write; needs no key", status, _STOPPING)},
        "/openapi.json": {"get": _open("Read the OpenAPI document; needs no key", {"type": "object"})},
    }


def _call(
    about: str,
    answer: dict[str, Any],
    body: type | None = None,
    more: dict[int, str] | None = None,
    kind: str = "application/json",
) -> dict[str, Any]:
    """A call that may need a key: what it does, takes and answers."""
    errors = _KEY | (more or {}) | ({} if body is None else _BODY | _STOPPING)
    call: dict[str, Any] = {
        "summary": about,
        "responses": _responses(_DONE, answer, kind) | _responses(errors, _ref(Problem)),
    }
    if body is not None:
        content = {"schema": _ref(body), "example": _EXAMPLES[body]}
        call["requestBody"] = {"required": True, "content": {"application/json": content}}
    return call


def _open(about: str, answer: dict[str, Any], errors: dict[int, str] | None = None) -> dict[str, Any]:
    """A call that never needs a key."""
    responses = _responses(_DONE, answer) | _responses(errors or {}, _ref(Problem))
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
