"""What a service counts about itself, for Prometheus: requests, their latency, and the process."""

from __future__ import annotations

import os
import re
import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from itertools import accumulate
from pathlib import Path
from shutil import disk_usage

from robandit.service.requests.openapi import openapi
from robandit.wire.service import Minute, ServiceReport

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the buckets of a histogram, in seconds."""
_PAGES = ("/", "/docs")
_DECIDE = "POST /v1/bandits/{name}/decisions"
_MINUTES = 120
_BANDIT = re.compile("/v1/bandits/([^/]+)")


class Histogram:
    """Counts how long things took."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Count one that took so long."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    @classmethod
    def sum(cls, several: Iterable[Histogram]) -> Histogram:
        """All that several have counted."""
        found = cls()
        for one in several:
            found.counts = [a + b for a, b in zip(found.counts, one.counts, strict=True)]
            found.total += one.total
        return found

    def within(self, share: float) -> float | None:
        """The seconds within which this share of all was done, between the bounds of a bucket."""
        wanted, before = share * sum(self.counts), 0
        for low, high, count in zip((0.0, *BOUNDS), (*BOUNDS, BOUNDS[-1]), self.counts, strict=True):
            if count and before + count >= wanted:
                return low + (high - low) * (wanted - before) / count
            before += count
        return None

    def lines(self, name: str, labels: str = "") -> Iterator[str]:
        """The lines that Prometheus reads, after the one that says the type."""
        inner = f"{labels}," if labels else ""
        for bound, count in zip((*map(repr, BOUNDS), "+Inf"), accumulate(self.counts), strict=True):
            yield f'{name}_bucket{{{inner}le="{bound}"}} {count}'
        around = f"{{{labels}}}" if labels else ""
        yield f"{name}_sum{around} {self.total!r}"
        yield f"{name}_count{around} {sum(self.counts)}"


class MinuteMeter:
    """Counts the requests of a minute."""

    def __init__(self, start: float) -> None:
        self.start, self.by_class, self.decisions = start, Counter[int](), Histogram()

    def report(self) -> Minute:
        """The minute as it is shown."""
        return Minute(
            start=self.start,
            requests=self.by_class.total(),
            refused=self.by_class[4],
            failed=self.by_class[5],
            decisions=sum(self.decisions.counts),
            half=self.decisions.within(0.5),
            nearly_all=self.decisions.within(0.99),
        )


class Meters:
    """Counts requests by call and status. Calls are those of the OpenAPI document, so they are few."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder  # of a store in a file
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: dict[str, Histogram] = {}
        self._minutes: deque[MinuteMeter] = deque(maxlen=_MINUTES)
        self.openings = 0
        """How often a store was opened: more than once where a database went away and came back."""

    def note(self, call: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests[call, status] += 1
        if (found := self._seconds.get(call)) is None:
            found = self._seconds[call] = Histogram()
        found.add(seconds)
        now = time.time()
        if not self._minutes or now >= self._minutes[-1].start + 60.0:
            self._minutes.append(MinuteMeter(now - now % 60.0))
        self._minutes[-1].by_class[status // 100] += 1
        if call == _DECIDE:
            self._minutes[-1].decisions.add(seconds)

    def report(self) -> ServiceReport:
        """How this process has done in the last two hours."""
        now = time.time()
        first = now - now % 60.0 - 60.0 * (_MINUTES - 1)
        kept = [one.report() for one in self._minutes if one.start >= first]
        return ServiceReport(now=now, started=_STARTED, minutes=kept)

    def lines(self, *, ready: bool) -> Iterator[str]:
        """The lines that Prometheus reads about requests and the process."""
        yield from gauge("robandit_ready", int(ready))
        yield from _family("robandit_store_openings_total", "counter", {"": self.openings})
        counts = {f'{{call="{call}",status="{code}"}}': n for (call, code), n in sorted(self._requests.items())}
        yield from _family("robandit_requests_total", "counter", counts)
        yield "# TYPE robandit_request_seconds histogram"
        for call, seconds in sorted(self._seconds.items()):
            yield from seconds.lines("robandit_request_seconds", f'call="{call}"')
        if self._folder is not None:
            yield from gauge("robandit_disk_free_bytes", disk_usage(self._folder).free)
        yield from _process()


def gauge(name: str, value: float) -> Iterator[str]:
    """A metric that has one value."""
    return _family(name, "gauge", {"": value})


def _family(name: str, kind: str, values: Mapping[str, float]) -> Iterator[str]:
    yield f"# TYPE {name} {kind}"
    for labels, value in values.items():
        yield f"{name}{labels} {value!r}"


_STARTED = time.time()


def _process() -> Iterator[str]:
    """The process by the names that all programs use for it. What a system doesn't tell is left out."""
    yield from _family("process_cpu_seconds_total", "counter", {"": time.process_time()})
    yield from gauge("process_start_time_seconds", _STARTED)
    with suppress(OSError, ValueError):
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[1])
        yield from gauge("process_resident_memory_bytes", pages * os.sysconf("SC_PAGE_SIZE"))
        yield from gauge("process_open_fds", len(os.listdir("/proc/self/fd")))


@lru_cache(maxsize=4096)
def call_of(method: str, path: str) -> tuple[str, str | None]:
    """The call that a request is for, as the OpenAPI document names it, or "other"; and the bandit that it names."""
    found = next((call for pattern, call in _calls() if pattern.fullmatch(f"{method} {path}")), "other")
    bandit = _BANDIT.match(path) if "{name}" in found else None
    return found, bandit and bandit[1]


@cache
def _calls() -> list[tuple[re.Pattern[str], str]]:
    methods = [(method, path) for path, found in openapi()["paths"].items() for method in found]
    methods = [(method, path) for method, path in methods if method != "parameters"]
    return [
        (re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(f"{method.upper()} {path}"))), f"{method.upper()} {path}")
        for method, path in [*methods, *(("get", page) for page in _PAGES)]
    ]
