"""The calls of the decision service as plans: what to send, and when to send it again. `http` carries them out."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import urlencode
from uuid import uuid4

import httpx
import msgspec
import numpy as np
from numpy.typing import NDArray

from robandit.client.bodies import Actions, Record, Sigma, choice_of, creation, encode, named_choice, parts, row_parts
from robandit.errors import nearest
from robandit.wire.activity import ActivityReport
from robandit.wire.alarms import AcknowledgementMade
from robandit.wire.changes import Change, ChangeMade, ChangeWaits, Deleted
from robandit.wire.cuts import CutMade, CutWaits
from robandit.wire.events import Event, decode
from robandit.wire.forgetting import MOST_FORGOTTEN, ForgetMade, ForgetWaits
from robandit.wire.imports import ImportDone
from robandit.wire.types import (
    NAME,
    Answered,
    Choice,
    Chosen,
    Feedback,
    ManyAnswered,
    Outcome,
    Outcomes,
    Problem,
    Status,
)

T = TypeVar("T")
Rewards: TypeAlias = Mapping[str, float] | Iterable[tuple[str, float]]
"""Rewards by the ids of their decisions."""

_BLOCK = "application/octet-stream"  # an array of numbers as it is
_CHANGES = tuple(name for name in Change.__struct_fields__ if name != "version")
_AGAIN = 0.2  # seconds until a change is asked for again that is not made yet
_FIRST, _LONGEST = 0.1, 2.0  # seconds before the first retry, which double each time, and the most
_AT_ONCE = 5000  # rewards in a request: even with the longest ids, the service takes it
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)  # the service can't have read the request
_HOPELESS = (httpx.UnsupportedProtocol, httpx.LocalProtocolError)
LIMITS = httpx.Limits(max_connections=100, keepalive_expiry=2.0)  # before the service hangs up


class ServiceError(Exception):
    """The service refused a call, or did not answer within the deadline."""

    def __init__(self, status: int | None, message: str) -> None:
        super().__init__(status, message)
        self.status = status
        """Status of the answer, None if there was none."""
        self.message = message
        """The service's reason."""

    def __str__(self) -> str:
        return self.message if self.status is None else f"{self.status}: {self.message}"


class Ask(NamedTuple):
    """A request to be sent."""

    method: str
    path: str
    body: bytes | None = None
    stream: bool = False
    timeout: float = 0.0
    kind: str = "application/json"

    def arguments(self) -> dict[str, Any]:
        """The arguments of httpx's `build_request`."""
        found = {"method": self.method, "url": self.path, "content": self.body, "timeout": self.timeout}
        return found | {"headers": {"Content-Type": self.kind}}


class Reply(NamedTuple):
    """The answer to a request, after as many attempts as it took."""

    response: httpx.Response
    unsure: bool
    """Whether an earlier attempt may have been carried out, though its answer was lost."""


Plan: TypeAlias = Generator[Ask | float, httpx.Response | httpx.TransportError | None, T]
"""A generator that yields a request and is sent its answer or error, or yields a number of seconds to wait. So the plan
itself neither sends nor waits, and both clients carry out the same one."""


class Calls:
    """Makes the plan of every call."""

    def __init__(self, key: str | None, timeout: float, retries: int, deadline: float, blocks: bool = False) -> None:
        for name, value in (("timeout", timeout), ("deadline", deadline)):
            if not 0.0 < value < float("inf"):
                raise ValueError(f"{name} must be > 0 and finite, got {value!r}")
        if retries < 0:
            raise ValueError(f"retries must be >= 0, got {retries!r}")
        if key is not None and not (key and key.isascii() and key.isprintable() and " " not in key):
            raise ValueError("key must be a word of printable ASCII")  # and is not shown
        self._key, self._timeout, self._retries, self._deadline = key, timeout, retries, deadline
        self._random, self._blocks = random.Random(), blocks

    def settings(self, url: str) -> dict[str, Any]:
        """The arguments of the HTTP client."""
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"url must begin with http:// or https://, got {url!r}")
        headers = {"Content-Type": "application/json"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        return {"base_url": url, "headers": headers, "limits": LIMITS}

    def create(self, name: str, settings: Mapping[str, Any]) -> Plan[Status]:
        body = encode(creation(settings))
        reply = yield from self._insist(Ask("PUT", _path(name), body))
        return self._read(reply, Status)

    def decide(
        self,
        name: str,
        actions: Actions,
        decision_id: str | None,
        source: str | None,
        sigma: Sigma,
        context: Record | None,
    ) -> Plan[Chosen]:
        given = uuid4().hex if decision_id is None else decision_id
        if self._blocks and isinstance(actions, np.ndarray) and actions.ndim == 2 and sigma is None and context is None:
            return (yield from self._decide_block(name, actions, given, source))
        body = encode(choice_of(Choice, actions, given, source, sigma, context))
        reply = yield from self._insist(Ask("POST", f"{_path(name)}/decisions", body))
        return self._read(reply, Chosen)

    def decide_many(self, name: str, requests: Iterable[Mapping[str, Any]]) -> Plan[list[Chosen]]:
        choices = [named_choice(one) for one in requests]
        found: list[Chosen] = []
        for part in parts(choices):
            reply = yield from self._insist(Ask("POST", f"{_path(name)}/decisions/batch", b"[%s]" % b",".join(part)))
            answers = self._read(reply, ManyAnswered).results
            asked = [one.decision_id for one in choices[len(found) : len(found) + len(part)]]
            if [one.decision_id for one in answers] != asked:
                raise _about_others(reply, "decisions")
            found += [self._chosen(one) for one in answers]
        return found

    def _chosen(self, answer: Answered) -> Chosen:
        if answer.chosen is None:
            raise ServiceError(answer.status, self._hide(f"decision {answer.decision_id!r}: {answer.error}"))
        return answer.chosen

    def _decide_block(self, name: str, rows: NDArray[Any], given: str, source: str | None) -> Plan[Chosen]:
        """Send an array as it is: the service need not read its numbers one by one."""
        said = urlencode({"decision_id": given} | ({} if source is None else {"source": source}))
        ask = Ask("POST", f"{_path(name)}/decisions?{said}", rows.astype("<f8").tobytes(), kind=_BLOCK)
        return self._read((yield from self._insist(ask)), Chosen)

    def change(self, name: str, version: int | None, settings: Mapping[str, Any], wait: float) -> Plan[ChangeMade]:
        for word in settings:
            if word not in _CHANGES:
                raise TypeError(f"a bandit can't change its {word!r}{nearest(word, _CHANGES)}")
        if version is None:
            version = (yield from self.status(name)).version
        ask, end = Ask("PATCH", _path(name), encode({"version": version, **settings})), time.monotonic() + wait
        while True:
            reply = yield from self._insist(ask)
            if reply.response.status_code != 202:
                return self._read(reply, ChangeMade)
            known = self._read(reply, ChangeWaits)
            if time.monotonic() >= end:
                raise ServiceError(202, f"the policy has learnt {known.learnt:,} of {known.events:,} events: ask again")
            yield _AGAIN

    def cut(self, name: str, keep_days: float, wait: float) -> Plan[CutMade]:
        ask, end = Ask("POST", f"{_path(name)}/cuts", encode({"keep_days": keep_days})), time.monotonic() + wait
        while True:
            reply = yield from self._insist(ask)
            if reply.response.status_code != 202:
                return self._read(reply, CutMade)
            known = self._read(reply, CutWaits)
            if time.monotonic() >= end:
                raise ServiceError(202, f"{known.folded:,} of {known.events:,} events are folded: ask again")
            yield _AGAIN

    def forget(self, name: str, decision_ids: Iterable[str], wait: float) -> Plan[ForgetMade]:
        ids, end = list(decision_ids), time.monotonic() + wait
        done, unknown, cut = 0, list[str](), list[str]()
        for start in range(0, len(ids), MOST_FORGOTTEN):
            body = encode({"decision_ids": ids[start : start + MOST_FORGOTTEN]})
            found = yield from self._forget_some(Ask("POST", f"{_path(name)}/forget", body), end)
            done, unknown, cut = done + found.decisions, unknown + found.unknown, cut + found.cut
        return ForgetMade(decisions=done, unknown=unknown, cut=cut)

    def _forget_some(self, ask: Ask, end: float) -> Plan[ForgetMade]:
        while True:
            reply = yield from self._insist(ask)
            if reply.response.status_code != 202:
                return self._read(reply, ForgetMade)
            known = self._read(reply, ForgetWaits)
            if time.monotonic() >= end:
                raise ServiceError(202, f"{known.folded:,} of {known.events:,} events are folded: ask again")
            yield _AGAIN

    def delete(self, name: str, version: int | None) -> Plan[Deleted]:
        if version is None:
            version = (yield from self.status(name)).version
        reply = yield from self._insist(Ask("DELETE", f"{_path(name)}?version={version:d}"))
        return self._read(reply, Deleted)

    def learn_history(self, name: str, rows: Iterable[Mapping[str, Any]]) -> Plan[ImportDone]:
        imported = duplicates = 0
        conflicts: list[str] = []
        for part in row_parts(rows):
            reply = yield from self._insist(Ask("POST", f"{_path(name)}/imports", b"[%s]" % b",".join(part)))
            found = self._read(reply, ImportDone)
            imported, duplicates = imported + found.imported, duplicates + found.duplicates
            conflicts += found.conflicts
        return ImportDone(imported=imported, duplicates=duplicates, conflicts=conflicts)

    def rewards(self, name: str, given: Rewards) -> Plan[list[Outcome]]:
        pairs = given.items() if isinstance(given, Mapping) else given
        items = [Feedback(decision_id=one, reward=float(reward)) for one, reward in pairs]
        outcomes: list[Outcome] = []
        for start in range(0, len(items), _AT_ONCE):
            part = items[start : start + _AT_ONCE]
            reply = yield from self._insist(Ask("POST", f"{_path(name)}/rewards", msgspec.json.encode(part)))
            results = self._read(reply, Outcomes).results
            if [one.decision_id for one in results] != [one.decision_id for one in part]:
                raise _about_others(reply, "rewards")
            outcomes += _ours(results) if reply.unsure else results
        return outcomes

    def status(self, name: str) -> Plan[Status]:
        return self._read((yield from self._insist(Ask("GET", _path(name)))), Status)

    def acknowledge(self, name: str, lower_bound: float | None, by: str | None, note: str) -> Plan[AcknowledgementMade]:
        if lower_bound is None:
            lower_bound = (yield from self.status(name)).certificate.lower_bound
            if lower_bound <= 0.0:
                raise ServiceError(409, f"no corruption of bandit {name!r} is proved, so there is no alarm")
        body = encode({"lower_bound": lower_bound, "by": by, "note": note})
        reply = yield from self._insist(Ask("POST", f"{_path(name)}/acknowledgements", body))
        return self._read(reply, AcknowledgementMade)

    def activity(self, name: str, scale: str) -> Plan[ActivityReport]:
        reply = yield from self._insist(Ask("GET", f"{_path(name)}/activity?{urlencode({'range': scale})}"))
        return self._read(reply, ActivityReport)

    def bandits(self) -> Plan[list[str]]:
        return self._read((yield from self._insist(Ask("GET", "/v1/bandits"))), list[str])

    def log(self, name: str) -> Plan[httpx.Response]:
        """The answer of this plan is a response whose body is not read yet."""
        return (yield from self._insist(Ask("GET", f"{_path(name)}/log", stream=True))).response

    def _insist(self, ask: Ask) -> Plan[Reply]:
        """Ask until there is a final answer, or the retries or the time are used up."""
        end, unsure, attempt = time.monotonic() + self._deadline, False, 0
        while True:
            left = max(0.001, end - time.monotonic())
            answer = yield ask._replace(timeout=min(self._timeout, left))
            if isinstance(answer, httpx.Response) and answer.is_success:
                return Reply(answer, unsure)
            wait = self._wait(attempt, answer)
            if attempt >= self._retries or wait is None or time.monotonic() + wait >= end:
                raise self._error(answer) from (answer if isinstance(answer, Exception) else None)
            unsure |= not isinstance(answer, _UNSENT) and getattr(answer, "status_code", 503) == 503
            yield wait
            attempt += 1

    def _wait(self, attempt: int, answer: httpx.Response | httpx.TransportError | None) -> float | None:
        """The seconds to wait before the next attempt; None if another attempt is pointless."""
        wait = min(_FIRST * 2.0 ** min(attempt, 30), _LONGEST) * self._random.uniform(0.5, 1.0)
        if not isinstance(answer, httpx.Response):
            return None if isinstance(answer, _HOPELESS) else wait
        if answer.status_code not in (429, 503):
            return None
        asked = answer.headers.get("retry-after", "")
        return max(wait, float(asked)) if asked.isascii() and asked.isdigit() else wait

    def _read(self, reply: Reply, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(reply.response.content, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            text = f"this is no answer of a decision service: {error}"
            raise ServiceError(reply.response.status_code, self._hide(text)) from None

    def _error(self, answer: httpx.Response | httpx.TransportError | None) -> ServiceError:
        if not isinstance(answer, httpx.Response):
            return ServiceError(None, self._hide(f"no answer from the service: {answer!r}"))
        message = answer.text[:200] or answer.reason_phrase
        with suppress(msgspec.MsgspecError, UnicodeDecodeError):
            message = msgspec.json.decode(answer.content, type=Problem).error
        return ServiceError(answer.status_code, self._hide(message))

    def _hide(self, text: str) -> str:
        """Take the key out of a text: somebody on the way may have sent it back."""
        return text.replace(self._key, "[key]") if self._key else text


def _path(name: str) -> str:
    if not re.fullmatch(NAME, name):
        raise ValueError(f"name must have up to 64 letters, digits, . _ or -, got {name!r}")
    return f"/v1/bandits/{name}"


def _about_others(reply: Reply, what: str) -> ServiceError:
    return ServiceError(reply.response.status_code, f"the service answered about other {what} than were sent")


def _ours(results: Sequence[Outcome]) -> list[Outcome]:
    """Call the first duplicate of a decision accepted: a lost answer, or an earlier call, had accepted its reward."""
    seen: set[str] = set()
    outcomes = []
    for one in results:
        first = one.decision_id not in seen
        seen.add(one.decision_id)
        outcomes.append(msgspec.structs.replace(one, status="accepted") if first and one.status == "duplicate" else one)
    return outcomes


class EventLines:
    """Reads events from bytes that come in pieces. Lines end with \\n alone: labels may hold any other separator."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> Iterator[Event]:
        """The events whose lines end in this piece."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            try:
                yield decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise ServiceError(200, f"this is no log of a decision service: {error}") from None

    def end(self) -> None:
        """Raise an error unless the last line is complete."""
        if self._rest:
            raise broken_off("in the middle of a line")


def broken_off(why: object) -> ServiceError:
    """The error for a log that ended too early."""
    return ServiceError(None, f"the log broke off, read it again from its beginning: {why}")
