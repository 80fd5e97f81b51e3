"""The two clients. A call that was not answered is sent again with the same ids, so that it counts once."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, Generic, Self, TypeVar

import httpx

from robandit.client.bodies import Actions, Record, Sigma
from robandit.client.calls import Ask, Calls, EventLines, Plan, Rewards, broken_off
from robandit.client.calls import ServiceError as ServiceError
from robandit.wire.activity import ActivityReport
from robandit.wire.alarms import AcknowledgementMade
from robandit.wire.changes import ChangeMade, Deleted
from robandit.wire.cuts import CutMade
from robandit.wire.events import Event
from robandit.wire.forgetting import ForgetMade
from robandit.wire.imports import ImportDone
from robandit.wire.types import Chosen, Outcome, Status

T = TypeVar("T")
Http = TypeVar("Http", httpx.Client, httpx.AsyncClient)
Transport = TypeVar("Transport", httpx.BaseTransport, httpx.AsyncBaseTransport)


class _BaseClient(ABC, Generic[Http, Transport]):
    """The settings and the connections of either client."""

    def __init__(
        self,
        url: str = "http://localhost:8000",
        *,
        key: str | None = None,
        timeout: float = 5.0,
        retries: int = 8,
        deadline: float = 30.0,
        blocks: bool = False,
        transport: Transport | None = None,
    ) -> None:
        self._calls = Calls(key, timeout, retries, deadline, blocks)
        self._http: Http = self._connect(**self._calls.settings(url), transport=transport)

    @staticmethod
    @abstractmethod
    def _connect(**settings: Any) -> Http: ...

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._http.base_url)!r})"


class Client(_BaseClient[httpx.Client, httpx.BaseTransport]):
    """A client of the decision service, which many threads may share. docs/how-to/client.md says what retries promise.

    ``timeout`` is the number of seconds to wait for an answer, ``retries`` the number of further attempts, and
    ``deadline`` the seconds for all attempts together. Only calls that got no answer, 503 or 429 are sent again.
    With ``blocks``, actions that are an array go out as they are and not as JSON.

    >>> answer = {"decision_id": "visit-1", "action_id": "red", "index": 0, "propensity": 1.0, "round": 1}
    >>> elsewhere = httpx.MockTransport(lambda request: httpx.Response(200, json=answer))
    >>> with Client("http://localhost:8000", transport=elsewhere) as client:
    ...     client.decide("shop", {"red": [1, 0], "blue": [0, 1]}).action_id
    'red'
    """

    @staticmethod
    def _connect(**settings: Any) -> httpx.Client:
        return httpx.Client(**settings)

    def create(self, name: str, **settings: Any) -> Status:
        """Create a bandit, or confirm that it exists as described. Settings are those of `PUT /v1/bandits/{name}`.

        ``features`` may be `Features`, and ``rewards`` "clicks", (lowest, highest) or `Rewards`.
        """
        return self._do(self._calls.create(name, settings))

    def decide(
        self,
        name: str,
        actions: Actions,
        decision_id: str | None = None,
        source: str | None = None,
        *,
        sigma: Sigma = None,
        context: Record | None = None,
    ) -> Chosen:
        """Choose one of these actions. Without a ``decision_id`` of yours, the client draws one.

        Actions of a bandit with ``features`` are records, and ``context`` is what they have in common.
        """
        return self._do(self._calls.decide(name, actions, decision_id, source, sigma, context))

    def decide_many(self, name: str, requests: Iterable[Mapping[str, Any]]) -> list[Chosen]:
        """Make many decisions in as few requests as it takes. Each is a dict of the arguments of `decide`.

        If it raises, some may have been made: with ids of your own, ask again, and those get the same answers.
        """
        return self._do(self._calls.decide_many(name, requests))

    def reward(self, name: str, decision_id: str, reward: float) -> Outcome:
        """Give the reward of a decision. The outcome is accepted, duplicate, conflict, expired or unknown."""
        return self.rewards(name, [(decision_id, reward)])[0]

    def rewards(self, name: str, given: Rewards) -> list[Outcome]:
        """Give the rewards of many decisions, in as few requests as it takes. If it raises, send all of them again."""
        return self._do(self._calls.rewards(name, given))

    def change(self, name: str, version: int | None = None, *, wait: float = 600.0, **settings: Any) -> ChangeMade:
        """Change settings of a bandit, as `PATCH /v1/bandits/{name}` takes them; it waits for a policy that learns.

        ``version`` is that of the settings that you saw, in `status`: if they have changed since, this raises. Without
        it, the settings of now are changed.
        """
        return self._do(self._calls.change(name, version, settings, wait))

    def archive(self, name: str, version: int | None = None) -> ChangeMade:
        """Take a bandit out of service: it keeps its log, and makes no decisions and takes no rewards."""
        return self.change(name, version, archived=True)

    def unarchive(self, name: str, version: int | None = None) -> ChangeMade:
        """Take an archived bandit into service again."""
        return self.change(name, version, archived=False)

    def cut(self, name: str, *, keep_days: float, wait: float = 600.0) -> CutMade:
        """Let the events of a log go that are older than so many days, for good, and keep what they taught."""
        return self._do(self._calls.cut(name, keep_days, wait))

    def forget(self, name: str, decision_ids: Iterable[str], *, wait: float = 600.0) -> ForgetMade:
        """Forget decisions and their rewards, such as those about a person: as if they had never been made."""
        return self._do(self._calls.forget(name, decision_ids, wait))

    def learn_history(self, name: str, rows: Iterable[Mapping[str, Any]]) -> ImportDone:
        """Learn from rewards of decisions that others made: dicts with ``id``, ``features``, ``reward`` and, if known,
        ``context``, ``source``, ``sigma`` and ``propensity``. A row of an id counts once, however often it is sent."""
        return self._do(self._calls.learn_history(name, rows))

    def delete(self, name: str, version: int | None = None) -> Deleted:
        """Delete an archived bandit and its log for good. Its name is free from then on."""
        return self._do(self._calls.delete(name, version))

    def trust(self, name: str, source: str | None) -> ChangeMade:
        """Believe a source whatever the others say."""
        return self.change(name, ruling={"source": source, "ruling": "trusted"})

    def quarantine(self, name: str, source: str | None) -> ChangeMade:
        """Believe nothing of a source, and give it no vote."""
        return self.change(name, ruling={"source": source, "ruling": "quarantined"})

    def release(self, name: str, source: str | None) -> ChangeMade:
        """Take back what `trust` or `quarantine` said of a source: the others vote again."""
        return self.change(name, ruling={"source": source, "ruling": "released"})

    def status(self, name: str) -> Status:
        """How a bandit is doing."""
        return self._do(self._calls.status(name))

    def activity(self, name: str, range: str = "minutes") -> ActivityReport:  # noqa: A002
        """What a bandit chose and what that earned, by action and by source, in the last two minutes by the second
        ("seconds"), two hours by the minute ("minutes") or week by the hour ("hours"); and beside uniform play."""
        return self._do(self._calls.activity(name, range))

    def acknowledge(
        self, name: str, note: str = "", *, by: str | None = None, lower_bound: float | None = None
    ) -> AcknowledgementMade:
        """Acknowledge an alarm: it goes up again if more is proved.

        ``lower_bound`` is what you saw in `status`: if more is proved by now, this raises. Without it, what is proved
        now is acknowledged.
        """
        return self._do(self._calls.acknowledge(name, lower_bound, by, note))

    def bandits(self) -> list[str]:
        """The names of all bandits."""
        return self._do(self._calls.bandits())

    def log(self, name: str) -> Iterator[Event]:
        """Read every decision, reward, default and proof so far, one by one."""
        response, lines = self._do(self._calls.log(name)), EventLines()
        try:
            for piece in response.iter_bytes():
                yield from lines.feed(piece)
            lines.end()
        except httpx.TransportError as error:
            raise broken_off(repr(error)) from error
        finally:
            response.close()

    def _do(self, plan: Plan[T]) -> T:
        """Carry out a plan."""
        answer: httpx.Response | httpx.TransportError | None = None
        while True:
            try:
                step = plan.send(answer)
            except StopIteration as stop:
                return stop.value
            if isinstance(step, float):
                time.sleep(step)
                answer = None
            else:
                answer = self._send(step)

    def _send(self, ask: Ask) -> httpx.Response | httpx.TransportError:
        try:
            response = self._http.send(self._http.build_request(**ask.arguments()), stream=ask.stream)
            if not response.is_success:
                response.read()
            return response
        except httpx.TransportError as error:
            return error

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(_BaseClient[httpx.AsyncClient, httpx.AsyncBaseTransport]):
    """`Client` for asyncio: `await client.decide(...)`, `async for event in client.log(...)`, many calls at once.

    >>> async def names():
    ...     elsewhere = httpx.MockTransport(lambda request: httpx.Response(200, json=["shop"]))
    ...     async with AsyncClient("http://localhost:8000", transport=elsewhere) as client:
    ...         return await client.bandits()
    >>> asyncio.run(names())
    ['shop']
    """

    @staticmethod
    def _connect(**settings: Any) -> httpx.AsyncClient:
        return httpx.AsyncClient(**settings)

    async def create(self, name: str, **settings: Any) -> Status:
        """See `Client.create`."""
        return await self._do(self._calls.create(name, settings))

    async def decide(
        self,
        name: str,
        actions: Actions,
        decision_id: str | None = None,
        source: str | None = None,
        *,
        sigma: Sigma = None,
        context: Record | None = None,
    ) -> Chosen:
        """See `Client.decide`."""
        return await self._do(self._calls.decide(name, actions, decision_id, source, sigma, context))

    async def decide_many(self, name: str, requests: Iterable[Mapping[str, Any]]) -> list[Chosen]:
        """See `Client.decide_many`."""
        return await self._do(self._calls.decide_many(name, requests))

    async def reward(self, name: str, decision_id: str, reward: float) -> Outcome:
        """See `Client.reward`."""
        return (await self.rewards(name, [(decision_id, reward)]))[0]

    async def rewards(self, name: str, given: Rewards) -> list[Outcome]:
        """See `Client.rewards`."""
        return await self._do(self._calls.rewards(name, given))

    async def change(
        self, name: str, version: int | None = None, *, wait: float = 600.0, **settings: Any
    ) -> ChangeMade:
        """See `Client.change`."""
        return await self._do(self._calls.change(name, version, settings, wait))

    async def archive(self, name: str, version: int | None = None) -> ChangeMade:
        """See `Client.archive`."""
        return await self.change(name, version, archived=True)

    async def unarchive(self, name: str, version: int | None = None) -> ChangeMade:
        """See `Client.unarchive`."""
        return await self.change(name, version, archived=False)

    async def cut(self, name: str, *, keep_days: float, wait: float = 600.0) -> CutMade:
        """See `Client.cut`."""
        return await self._do(self._calls.cut(name, keep_days, wait))

    async def forget(self, name: str, decision_ids: Iterable[str], *, wait: float = 600.0) -> ForgetMade:
        """See `Client.forget`."""
        return await self._do(self._calls.forget(name, decision_ids, wait))

    async def learn_history(self, name: str, rows: Iterable[Mapping[str, Any]]) -> ImportDone:
        """See `Client.learn_history`."""
        return await self._do(self._calls.learn_history(name, rows))

    async def delete(self, name: str, version: int | None = None) -> Deleted:
        """See `Client.delete`."""
        return await self._do(self._calls.delete(name, version))

    async def trust(self, name: str, source: str | None) -> ChangeMade:
        """See `Client.trust`."""
        return await self.change(name, ruling={"source": source, "ruling": "trusted"})

    async def quarantine(self, name: str, source: str | None) -> ChangeMade:
        """See `Client.quarantine`."""
        return await self.change(name, ruling={"source": source, "ruling": "quarantined"})

    async def release(self, name: str, source: str | None) -> ChangeMade:
        """See `Client.release`."""
        return await self.change(name, ruling={"source": source, "ruling": "released"})

    async def status(self, name: str) -> Status:
        """See `Client.status`."""
        return await self._do(self._calls.status(name))

    async def activity(self, name: str, range: str = "minutes") -> ActivityReport:  # noqa: A002
        """See `Client.activity`."""
        return await self._do(self._calls.activity(name, range))

    async def acknowledge(
        self, name: str, note: str = "", *, by: str | None = None, lower_bound: float | None = None
    ) -> AcknowledgementMade:
        """See `Client.acknowledge`."""
        return await self._do(self._calls.acknowledge(name, lower_bound, by, note))

    async def bandits(self) -> list[str]:
        """See `Client.bandits`."""
        return await self._do(self._calls.bandits())

    async def log(self, name: str) -> AsyncIterator[Event]:
        """See `Client.log`."""
        response, lines = await self._do(self._calls.log(name)), EventLines()
        try:
            async for piece in response.aiter_bytes():
                for event in lines.feed(piece):
                    yield event
            lines.end()
        except httpx.TransportError as error:
            raise broken_off(repr(error)) from error
        finally:
            await response.aclose()

    async def _do(self, plan: Plan[T]) -> T:
        """Carry out a plan."""
        answer: httpx.Response | httpx.TransportError | None = None
        while True:
            try:
                step = plan.send(answer)
            except StopIteration as stop:
                return stop.value
            answer = await (asyncio.sleep(step) if isinstance(step, float) else self._send(step))

    async def _send(self, ask: Ask) -> httpx.Response | httpx.TransportError:
        try:
            response = await self._http.send(self._http.build_request(**ask.arguments()), stream=ask.stream)
            if not response.is_success:
                await response.aread()
            return response
        except httpx.TransportError as error:
            return error

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
