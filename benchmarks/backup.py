"""What a backup costs those who use the service meanwhile: `python benchmarks/backup.py`.

A store of some decisions is made, a service is started on it, and one client decides without a pause: first alone, then
while a backup is taken, read and checked.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import msgspec
import numpy as np

from robandit.service.files.copies import back_up_service, restore
from robandit.service.learning.learner import Learner
from robandit.service.stores.sqlite import SQLiteStore
from robandit.service.stores.store import Bandit, LogEntry, Snapshot, append
from robandit.wire.events import Rewarded
from robandit.wire.types import BanditSettings

PORT = 18_732
SETTINGS = b'{"dim": 10, "policy": "oful", "noise_range": 0.5}'


def fill(path: Path, decisions: int) -> None:
    """Write a log of decisions with their rewards, and the snapshot that a service leaves when it stops."""
    learner, rng = Learner(msgspec.json.decode(SETTINGS, type=BanditSettings), 1), np.random.default_rng(1)
    store = SQLiteStore(path)
    append(store, [Bandit(1, "shop", SETTINGS, 1, 0.0)])
    names, entries = [f"a{i}" for i in range(10)], []
    for number in range(decisions):
        rows = rng.uniform(-1, 1, (10, 10)) / 4
        made = learner.decide(id=f"d{number}", now=1e9, actions=names, features=rows, sigma=None, source=None)
        for event in (made, Rewarded(id=made.id, at=1e9, reward=0.1)):
            learner.apply(event)
            entries.append(LogEntry(1, learner.place, event))
        if len(entries) >= 10_000:
            append(store, entries)
            entries = []
    append(store, entries, [Snapshot(1, learner.place, learner.snapshot())])
    store.close()


class Client(threading.Thread):
    """Decides without a pause, and notes how long each decision took."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.times: list[float] = []
        self.over = False
        rows = (np.random.default_rng(2).uniform(-1, 1, (10, 10)) / 4).round(4).tolist()
        self._body = json.dumps({"actions": [{"id": f"a{i}", "features": row} for i, row in enumerate(rows)]})

    def run(self) -> None:
        link = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
        while not self.over:
            start = time.perf_counter()
            link.request("POST", "/v1/bandits/shop/decisions", self._body, {"Content-Type": "application/json"})
            link.getresponse().read()
            self.times.append(time.perf_counter() - start)

    def tell(self, when: str) -> None:
        """Print what was noted since the last time."""
        times, self.times = sorted(self.times), []
        found = statistics.median(times), times[int(0.99 * len(times))], times[-1]
        half, most, worst = (f"{1e3 * one:.1f}" for one in found)
        print(f"{when}: {len(times)} decisions, half within {half} ms, 99 of 100 within {most}, the longest {worst}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        store, copy = Path(name) / "log.db", Path(name) / "copy.db"
        fill(store, options.decisions)
        command = [sys.executable, "-m", "robandit", "serve", "--store", str(store), "--port", str(PORT)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout and process.stdout.readline()
            client = Client()
            client.start()
            time.sleep(3.0)
            client.tell("alone")
            start = time.perf_counter()
            found = back_up_service(f"http://127.0.0.1:{PORT}", None, copy)
            took = time.perf_counter() - start
            client.tell("meanwhile")
            client.over = True
            client.join(20)
            process.terminate()
        print(f"backup: {found.events} events, {copy.stat().st_size / 1e6:.0f} MB in {took:.1f} s")
        start = time.perf_counter()
        restore(copy, Path(name) / "new.db", lambda found: None)
        print(f"restore, with every log folded: {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
