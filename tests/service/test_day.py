"""A day in the life of a bandit, from its creation to the archive: the state is the fold of the log at every step."""

from __future__ import annotations

import csv
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from test_app import Here, serving

from robandit import Client, Features
from robandit.cli import main
from robandit.service.learning.fold import fold
from robandit.service.learning.learner import Learner
from robandit.wire.events import Changed, Decided, Imported, Rewarded, decode
from robandit.wire.types import BanditSettings

FEATURES = Features(
    action={"price": (0, 50), "colour": ["red", "blue"]}, context={"hour": (0, 24)}, crosses=[("hour", "price")]
)
COLUMNS = ["--reward", "click", "--source", "partner"]


class Day:
    """A service, its client, and a check after every step."""

    def __init__(self, here: Here, client: Client) -> None:
        self.here, self.client = here, client
        self.rng, self.visits = np.random.default_rng(1), 0

    def folded(self) -> int:
        """The number of events, after the log as clients read it was folded to the state that is served."""
        bandit = self.here.hub.bandits["shop"]
        text = self.client._http.get("/v1/bandits/shop/log").content
        log = [decode(line) for line in text.splitlines()]
        learner = Learner(msgspec.json.decode(bandit.record.settings, type=BanditSettings), bandit.record.seed)
        assert len(list(fold(learner, lambda after: iter(log[after:])))) == len(log)
        assert learner.digest() == bandit.learner.digest()
        again = Learner.restore(learner.settings, bandit.record.seed, bandit.learner.snapshot())
        assert again.digest() == learner.digest()
        return len(log)

    def morning(self, count: int) -> list[Any]:
        """Visits that are decided in one request, and their clicks in another."""
        asked = []
        for _ in range(count):
            self.visits += 1
            things = {
                f"p{n}": {"price": self.rng.uniform(0, 50), "colour": self.rng.choice(["red", "blue"])}
                for n in range(4)
            }
            context = {"hour": int(self.rng.integers(24))}
            source = str(self.rng.choice(["web", "mail"]))
            decision = {"actions": things, "context": context, "source": source, "decision_id": f"v{self.visits}"}
            asked.append(decision)
        chosen = self.client.decide_many("shop", asked)
        clicks = {one.decision_id: int(self.rng.random() < 0.3) for one in chosen[: count - 2]}
        assert all(one.status == "accepted" for one in self.client.rewards("shop", clicks))
        return chosen

    def backed_up(self, folder: Path) -> int:
        """Take a backup while visitors come, and restore it elsewhere: it is a beginning of the log, and folds the
        same. Gives the number of decisions meanwhile."""
        url, over, count = f"http://127.0.0.1:{self.here.port}", threading.Event(), 0

        def visit() -> None:
            nonlocal count
            with Client(url) as client:
                while not over.is_set():
                    things = {"p0": {"price": 1.0, "colour": "red"}, "p1": {"price": 2.0, "colour": "blue"}}
                    client.decide("shop", things, context={"hour": 1}, decision_id=f"w{count}")
                    count += 1

        before, visitor = self.folded(), threading.Thread(target=visit)
        visitor.start()
        while count < 5 and visitor.is_alive():
            time.sleep(0.01)
        assert main(["backup", url, str(folder / "copy.db")]) == 0
        known = count
        while count < known + 5 and visitor.is_alive():
            time.sleep(0.01)
        over.set()
        visitor.join()
        assert main(["restore", str(folder / "copy.db"), str(folder / "elsewhere.db")]) == 0
        whole = [repr(event) for event in self.client.log("shop")]
        with serving(folder / "elsewhere.db") as here, Client(f"http://127.0.0.1:{here.port}") as client:
            length = Day(here, client).folded()
            assert [repr(event) for event in client.log("shop")] == whole[:length]
            assert before + 5 <= length < len(whole) == before + count
        return count


def table(path: Path, rows: int) -> str:
    rng = np.random.default_rng(2)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["price", "colour", "hour", "click", "partner"])
        for number in range(rows):
            price, click = round(rng.uniform(0, 50), 2), int(rng.random() < 0.3)
            writer.writerow([price, ("red", "blue")[number % 2], number % 24, click, "old shop"])
    return str(path)


def test_a_day(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Created with features, taught by a table, asked in batches, changed, watched, copied under load and restored
    elsewhere, switched, archived, restarted."""
    with serving(tmp_path / "log.db") as here, Client(f"http://127.0.0.1:{here.port}") as client:
        day = Day(here, client)
        assert client.create("shop", features=FEATURES, rewards="clicks").settings.exploration == 0.05
        assert day.folded() == 0
        given = ["import", table(tmp_path / "old.csv", 80), "--bandit", "shop", *COLUMNS]
        assert main([*given, "--url", f"http://127.0.0.1:{here.port}"]) == 0 and day.folded() == 80
        first = day.morning(40)
        assert day.folded() == 80 + 40 + 38 and [one.round for one in first] == list(range(1, 41))
        client.change("shop", exploration=0.2, reward_window=7200)
        assert day.folded() == 159 and min(one.propensity for one in day.morning(30)) < 0.2
        assert day.folded() == 217
        client.change("shop", shadow={"name": "plain", "policy": "oful"})
        day.morning(40)
        (shadow,) = client.status("shop").shadows
        assert (shadow.policy, shadow.decisions) == ("oful", 38) and shadow.dr is not None and day.folded() == 296
        more = day.backed_up(tmp_path)
        assert client.change("shop", policy="oful", radius_scale=0.3).version == 4 and day.folded() == 297 + more
        late = client.rewards("shop", {"v39": 1, "v40": 0})  # decided by the policy of the morning
        assert [one.status for one in late] == ["accepted", "accepted"]
        day.morning(20)
        client.archive("shop")
        assert day.folded() == 338 + more and client.status("shop").archived
        seen = client.status("shop")
    with serving(tmp_path / "log.db") as here, Client(f"http://127.0.0.1:{here.port}") as client:
        day = Day(here, client)
        again = client.status("shop")
        assert msgspec.structs.replace(again, now=0.0) == msgspec.structs.replace(seen, now=0.0)
        assert day.folded() == 338 + more
        log = list(client.log("shop"))
        kinds = [sum(isinstance(one, kind) for one in log) for kind in (Imported, Decided, Rewarded, Changed)]
        assert kinds == [80, 130 + more, 124, 4] and (again.rounds, again.rewards, again.imported) == (
            130 + more,
            124,
            80,
        )
        client.unarchive("shop")
        assert client.decide_many("shop", []) == [] and day.folded() == 339 + more
    assert main(["check", str(tmp_path / "log.db")]) == 0 and "Nothing is damaged" in capsys.readouterr().out
