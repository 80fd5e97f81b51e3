"""Tells webhooks what happened: every notice at least once, however often the service is started again in between."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime
from time import monotonic, time

import msgspec

from robandit.service.hub import Hub
from robandit.service.learning.notices import Notice
from robandit.service.refused import Refused
from robandit.service.serving.live_bandit import LiveBandit
from robandit.service.web.hooks import Hook, HookError

log = logging.getLogger("robandit.service")

TRY_FOR = 86_400.0
"""Seconds after which a notice is given up that nobody took."""
_FIRST, _LONGEST = 1.0, 300.0  # seconds before the first retry, which double each time, and the most
_HEAR_EVERY = 5.0  # seconds between two looks at what other processes have written


class NoticeAttempt:
    """How often a notice was tried, and when it is tried again."""

    def __init__(self) -> None:
        self.count, self.due = 0, 0.0

    def failed(self, now: float) -> None:
        """Note that it was not taken."""
        self.due = now + min(_FIRST * 2.0 ** min(self.count, 20), _LONGEST)
        self.count += 1


class Notifier:
    """Sends notices to webhooks, one request at a time to each. Which of them took which is an event of the log.

    It holds no notices itself: those are in the states of the bandits, which keep a bounded number.
    """

    def __init__(self, hooks: Sequence[Hook], *, ticks: Callable[[], float] = monotonic) -> None:
        self._hooks, self._ticks = hooks, ticks
        self._attempts: dict[tuple[str, int, int], NoticeAttempt] = {}  # by hook, bandit and notice
        self._results: Counter[tuple[str, str]] = Counter()
        self._waiting: Counter[str] = Counter()
        self._heard, self._ours = float("-inf"), False

    async def work(self, hub: Hub) -> None:
        """Look once a second for what is to be sent, for as long as a hub is served."""
        self._ours = False
        if self._hooks:
            watch = self._often("looking for what to tell", lambda: self._watch(hub))
            await asyncio.gather(watch, *(self._serve(hub, hook) for hook in self._hooks))

    async def _watch(self, hub: Hub) -> None:
        """See whether this process sends: it is the one that looks at the monitors. What others wrote is heard now and
        then."""
        if self._ticks() > self._heard + _HEAR_EVERY:
            self._heard = self._ticks()
            await hub.catch_up()
        self._ours = await hub.watches()

    async def _serve(self, hub: Hub, hook: Hook) -> None:
        """Send to one webhook what it has not taken; others don't wait for it."""

        async def send() -> None:
            if self._ours:
                await self._send_due(hub, hook)

        await self._often(f"webhook {hook.name}", send)

    async def _often(self, what: str, do: Callable[[], Awaitable[None]]) -> None:
        """Do this once a second, even after it has failed."""
        while True:
            await asyncio.sleep(1.0)
            try:
                await do()
            except Refused:  # the service is stopping, or the bandit was deleted
                pass
            except Exception:
                log.exception("%s failed, and is tried again", what)

    async def _send_due(self, hub: Hub, hook: Hook) -> None:
        """Send the notices whose time has come, those that were tried least often first, until one is not taken. So one
        that is refused, or an address that hangs, keeps no other back for long."""
        found = {(hook.name, one.record.number, notice.number): (one, notice) for one, notice in _open(hub, hook)}
        self._waiting[hook.name] = len(found)
        for key in [key for key in self._attempts if key[0] == hook.name and key not in found]:
            del self._attempts[key]
        tries = {key: self._attempts.setdefault(key, NoticeAttempt()) for key in found}
        for key in sorted(found, key=lambda key: (tries[key].count, found[key][1].at)):
            if self._ticks() >= tries[key].due and not await self._send(hub, hook, *found[key], tries[key]):
                break

    async def _send(self, hub: Hub, hook: Hook, bandit: LiveBandit, notice: Notice, attempt: NoticeAttempt) -> bool:
        """Send a notice, and write down that it was taken or given up; return whether it was one of these."""
        name = bandit.record.name
        if hub.clock() > notice.at + TRY_FOR:
            if attempt.count:
                log.error("webhook %s: notice %d of bandit %s is given up", hook.name, notice.number, name)
            await hub.told(bandit, hook.name, notice.number, taken=False)
            self._results[hook.name, "given_up"] += 1  # what is counted is in the log
            return True
        try:
            await hook.post(id_of(bandit, notice), document(bandit, notice), time())
        except HookError as error:
            attempt.failed(self._ticks())
            self._results[hook.name, "failed"] += 1
            log.warning("webhook %s did not take notice %d of bandit %s: %s", hook.name, notice.number, name, error)
            return False
        log.info("webhook %s took notice %d of bandit %s, %s", hook.name, notice.number, name, notice.kind)
        await hub.told(bandit, hook.name, notice.number, taken=True)
        self._results[hook.name, "delivered"] += 1
        return True

    def lines(self) -> Iterator[str]:
        """The lines that Prometheus reads, since the start of this process."""
        yield "# TYPE robandit_webhook_requests_total counter"
        for hook in self._hooks:
            for result in ("delivered", "failed", "given_up"):
                count = self._results[hook.name, result]
                yield f'robandit_webhook_requests_total{{hook="{hook.name}",result="{result}"}} {count}'
        yield "# TYPE robandit_webhook_waiting gauge"
        for hook in self._hooks:
            yield f'robandit_webhook_waiting{{hook="{hook.name}"}} {self._waiting[hook.name]}'


def _open(hub: Hub, hook: Hook) -> Iterator[tuple[LiveBandit, Notice]]:
    """What a webhook has not taken."""
    for bandit in list(hub.bandits.values()):
        if bandit.learner.board.kept:
            for notice in bandit.learner.board.open(hook.name):
                yield bandit, notice


def id_of(bandit: LiveBandit, notice: Notice) -> str:
    """The id of a notice. It is the same whenever and by whichever process it is sent, and no other notice has it."""
    return f"{bandit.record.number}-{int(bandit.record.at)}-{notice.number}"


def document(bandit: LiveBandit, notice: Notice) -> bytes:
    """What is sent: the same bytes every time."""
    at = datetime.fromtimestamp(notice.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    data = {"bandit": bandit.record.name, "number": notice.number, **notice.data}
    return msgspec.json.encode({"type": notice.kind, "id": id_of(bandit, notice), "timestamp": at, "data": data})
