"""The monitor on real data: who is accused where nobody lied, and what is found where somebody did.

``make test-real`` fetches the data. ``-s`` prints the table of docs/evidence/monitor.md.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robandit import CorruptionMonitor
from robandit.arrays import Floats
from robandit.experiments.real import Decisions, MissingData, load
from robandit.logs.audit import SOURCES, AuditSettings, audit

pytestmark = pytest.mark.real
FOLDER = Path(__file__).parents[2] / "out" / "data"
REPLAYS = {"swissmetro": 10, "electricity": 10, "movielens": 10, "open-bandit": 10}
MANY = {"swissmetro": "purpose", "electricity": "customers", "movielens": "occupation", "open-bandit": "log"}
SEGMENTS = {"swissmetro": "group", "electricity": "customers", "movielens": "gender", "open-bandit": "log"}
LIAR, SHARE = "s3", 0.1
Columns = dict[str, Any]


class Found(NamedTuple):
    """What an audit says of one log."""

    proved: bool
    confident: bool
    named: str | None


class Counted(NamedTuple):
    """Of how many replays each was said."""

    replays: int
    proved: int
    confident: int
    named: int
    wrong: int

    def __str__(self) -> str:
        sure = "" if self.confident == self.proved else " without confidence"
        names = f"; named {self.named}, wrongly {self.wrong}" if self.named else ""
        return f"{self.proved}/{self.replays}{sure if self.proved else ''}{names}"


@pytest.fixture(params=REPLAYS)
def data(request: pytest.FixtureRequest) -> tuple[str, Decisions]:
    try:
        return request.param, load(request.param, FOLDER, fetch=True)
    except MissingData as missing:
        pytest.skip(str(missing))


def clean(decisions: Decisions, seed: int) -> Columns:
    """A log of uniform play, the decisions in a drawn order."""
    rng = np.random.default_rng(seed)
    drawn = decisions.of(rng.permutation(len(decisions)))
    return drawn.columns(drawn.play_uniformly(rng))


def as_logged(decisions: Decisions, _: int) -> Columns:
    """A log of what was shown, in the order of time."""
    return decisions.columns(np.zeros(len(decisions), dtype=np.intp))


def ordered(decisions: Decisions, seed: int, by: str) -> Columns:
    """A clean log, sorted by a segment."""
    columns = clean(decisions, seed)
    order = np.argsort(columns[by], kind="stable")
    return {name: column[order] for name, column in columns.items()}


def with_sources(decisions: Decisions, seed: int) -> Columns:
    """A clean log from ten sources alike."""
    rng = np.random.default_rng([seed, 2])
    return clean(decisions, seed) | {"source": np.char.add("s", rng.integers(0, 10, len(decisions)).astype(str))}


def bought(decisions: Decisions, seed: int) -> Columns:
    """The same with one source that sends bots as well: a tenth of all rows, spread over time.

    They click wherever one of the features is high, and nowhere else.
    """
    columns, rng = with_sources(decisions, seed), np.random.default_rng([seed, 1])
    bots = rng.random(len(decisions)) < SHARE
    tastes = [name for name in columns if name[0] == "x" and 0.2 < np.mean(above(columns[name])) < 0.8]
    clicked = above(columns[tastes[seed % len(tastes)]])
    source = np.where(bots, LIAR, columns["source"])
    return columns | {"reward": np.where(bots, clicked, columns["reward"]), "source": source}


def above(column: Floats) -> Floats:
    """Whether a feature is above its mean."""
    return (column > column.mean()).astype(float)


def today(path: Path, columns: Columns, source: str | None, **declared: Any) -> Found:
    """What `robandit audit` says of a log."""
    pq.write_table(pa.table(columns), path)
    settings = AuditSettings(reward_range=(0.0, 1.0), sources=0 if source is None else SOURCES, **declared)
    found = audit(path, settings, features="x*", source=source)
    said, proved = found.sentence, found.certificate.lower_bound > 0.0
    return Found(proved, proved and "% confidence these" in said, found.certificate.suspect)


def before(columns: Columns, source: str | None) -> Found:
    """What it said once: ‖μ*‖ ≤ 1, no constant, and the first of the sources that are listed is blamed."""
    actions = np.stack([column for name, column in columns.items() if name[0] == "x"], axis=1)
    actions /= np.linalg.norm(actions, axis=1).max()
    sources = 0 if source is None else SOURCES
    monitor = CorruptionMonitor(dim=actions.shape[1], noise=0.5, parameter_bound=1.0, sources=sources)
    monitor.observe_log(actions, columns["reward"], source=None if source is None else columns[source])
    found = monitor.certificate()
    proved = found.lower_bound > 0.0
    return Found(proved, proved, found.sources[0].name if found.sources else None)


def counted(replays: int, say: Callable[[int], Found], liar: str | None = None) -> Counted:
    """What is said of all replays."""
    found = [say(seed) for seed in range(replays)]
    named = [one.named for one in found if one.named is not None]
    wrong = sum(name != liar for name in named)
    return Counted(replays, sum(f.proved for f in found), sum(f.confident for f in found), len(named), wrong)


class Replayed(NamedTuple):
    """A data set, and how its logs are audited."""

    name: str
    decisions: Decisions
    path: Path

    def row(
        self, title: str, make: Callable[[Decisions, int], Columns], source: str | None = None, liar: str | None = None
    ) -> list[Counted]:
        """What is said before and today: with nothing declared, of a model that is called exact or right to within
        0.1, and of an exact one with features of their own for each segment."""
        number = 1 if make is as_logged else REPLAYS[self.name]
        crossed = self.decisions.crossed(SEGMENTS[self.name])
        cells = [counted(number, lambda seed: before(make(self.decisions, seed), source), liar)]
        for decisions, zeta in ((self.decisions, None), (self.decisions, 0.0), (self.decisions, 0.1), (crossed, 0.0)):
            say = partial(self._today, decisions, make, source, zeta)
            cells.append(counted(number, say, liar))
        print(f"\n| {self.name} | {title} | " + " | ".join(map(str, cells)) + " |", end="")
        return cells

    def _today(
        self,
        decisions: Decisions,
        make: Callable[[Decisions, int], Columns],
        source: str | None,
        zeta: float | None,
        seed: int,
    ) -> Found:
        return today(self.path, make(decisions, seed), source, misspecification=zeta)


def test_nobody_is_accused_of_honest_choices(data: tuple[str, Decisions], tmp_path: Path) -> None:
    replayed, segment, many = Replayed(*data, tmp_path / "log.parquet"), SEGMENTS[data[0]], MANY[data[0]]
    found = [replayed.row("clean", clean), replayed.row("clean, ten sources", with_sources, "source")]
    for by in dict.fromkeys((segment, many)):
        found.append(replayed.row(f"clean, by {by}", clean, by))
    found.append(replayed.row(f"clean, sorted by {segment}", partial(ordered, by=segment), segment))
    if data[1].offered.shape[1] == 1:
        found.append(replayed.row(f"clean, as logged, by {segment}", as_logged, segment))
    for _, nothing, exact, within, _ in found:
        assert (nothing.confident, nothing.named, exact.named) == (0, 0, 0)
        assert (within.proved, within.named) == (0, 0)
    alike = [exact for _, _, exact, _, _ in found[:2]]  # the same mix of people all the time, and in all sources
    assert [one.proved for one in alike] == [0, 0]


def test_bots_under_one_of_ten_sources_are_found(data: tuple[str, Decisions], tmp_path: Path) -> None:
    replayed = Replayed(*data, tmp_path / "log.parquet")
    cells = replayed.row("a tenth of bots, one of ten sources", bought, "source", LIAR)
    assert all(cell.wrong == 0 for cell in cells[1:])
    exact = cells[2]
    assert exact.proved >= 0.8 * exact.replays
