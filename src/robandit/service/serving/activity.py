"""What can be seen of a bandit over time: its choices, its sources, and how it does beside uniform play."""

from __future__ import annotations

from robandit.rewards import Rewards
from robandit.service.learning.history import SCALES
from robandit.service.learning.interval import interval
from robandit.service.learning.labels import label
from robandit.service.learning.tallies import OTHERS, Sums, Tally, add
from robandit.service.serving.live_bandit import LiveBandit
from robandit.wire.activity import Activity, ActivityReport

_Stretches = list[tuple[float, dict[int, Sums]]]


def activity(bandit: LiveBandit, now: float, scale: str) -> ActivityReport:
    """What was chosen and earned in a range of time that ends now."""
    learner = bandit.learner
    actions, sources = (list(tally.over(scale, now)) for tally in (learner.actions, learner.sources))
    starts = [start for start, _ in actions]  # a decision, or a reward, is counted in both
    return ActivityReport(
        range=scale,
        width=SCALES[scale][0],
        now=now,
        starts=starts,
        actions=_all(learner.actions, actions, learner.declared),
        sources=_all(learner.sources, sources, learner.declared),
        uniform=learner.uniform.report(),
    )


def _all(tally: Tally, stretches: _Stretches, declared: Rewards | None) -> list[Activity]:
    """Every name that came, and the others if there are any."""
    known = [(name, one.number, one.sums) for name, one in tally.names.items()]
    if tally.others[0] or tally.others[1]:
        known.append((None, OTHERS, tally.others))
    found = [_one(name, number, sums, stretches, declared) for name, number, sums in known]
    return sorted(found, key=lambda one: (not one.others, sum(one.made), one.decisions), reverse=True)


def _one(name: str | None, number: int, sums: Sums, stretches: _Stretches, declared: Rewards | None) -> Activity:
    nothing: Sums = [0, 0, 0.0, 0.0]
    cells = [cells.get(number, nothing) for _, cells in stretches]
    recent: Sums = [0, 0, 0.0, 0.0]
    for cell in cells:
        add(recent, cell)
    return Activity(
        name=None if name is None else label(name),
        others=number == OTHERS,
        decisions=sums[0],
        rewards=sums[1],
        recent=interval(recent[1], recent[2], recent[3], declared),
        made=[cell[0] for cell in cells],
        earned=[(cell[1], cell[2]) for cell in cells],
    )
