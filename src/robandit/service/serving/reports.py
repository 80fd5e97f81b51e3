"""What can be seen of bandits: their status, and metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from robandit.service.learning.belief import belief, doubted
from robandit.service.learning.labels import label
from robandit.service.learning.learner import Learner
from robandit.service.learning.notices import assumes
from robandit.service.learning.worth import Worth, worth
from robandit.service.meters import gauge
from robandit.service.serving.alarms import made
from robandit.service.serving.cuts import cut_made
from robandit.service.serving.lanes import Lanes
from robandit.service.serving.live_bandit import LiveBandit
from robandit.wire.shadows import ShadowReport
from robandit.wire.types import Alarm, Effect, Status

MOST_NAMED = 500
"""Number of bandits that have series of their own in the metrics, the oldest; the others are summed up as one named
``_others``, which can be the name of none."""


def status(bandit: LiveBandit, now: float) -> Status:
    """How a bandit is doing."""
    learner = bandit.learner
    known = worth(learner, bandit.vectors.span)
    return Status(
        name=bandit.record.name,
        settings=bandit.settings,
        version=learner.life.version,
        imported=learner.life.imported,
        archived=learner.life.archived,
        now=now,
        rounds=learner.decisions,
        pending=len(learner.pending),
        rewards=learner.rewards,
        defaults=learner.defaults,
        lost=learner.lost,
        clipped=int(learner.policy.clipped),
        levels=sorted(learner.levels.items()),
        estimate=known.estimate.tolist(),
        standard_error=known.standard_error.tolist(),
        uncertainty=known.uncertainty.tolist(),
        named=_named(bandit, known),
        unusual=learner.unusual,
        recent=list(learner.recent),
        curves=learner.history.curves,
        cut=cut_made(learner.life.cut),
        certificate=_alarm(learner),
        shadows=_shadows(learner),
        belief=belief(learner),
    )


def _named(bandit: LiveBandit, known: Worth) -> list[Effect] | None:
    """What the estimate says of each feature by name, where there are names."""
    features, declared = bandit.vectors.features, bandit.learner.declared
    return None if features is None else known.named(features, declared.low if declared else 0.0)


def _shadows(learner: Learner) -> list[ShadowReport]:
    """How the policies do that watch."""
    declared = learner.declared
    low, width = (0.0, 1.0) if declared is None else (declared.low, declared.width)
    return [one.report(name, low, width) for name, one in learner.shadows.items()]


def metrics(bandits: Iterable[LiveBandit]) -> Iterator[str]:
    """The lines that Prometheus reads about these bandits."""
    known = [(one.record.name, one.learner) for one in bandits]
    named, others = known[:MOST_NAMED], [learner for _, learner in known[MOST_NAMED:]]
    for metric, kind, value in (
        ("rounds_total", "counter", lambda learner: learner.decisions),
        ("rewards_total", "counter", lambda learner: learner.rewards),
        ("defaults_total", "counter", lambda learner: learner.defaults),
        ("lost_total", "counter", lambda learner: learner.lost),
        ("clipped_total", "counter", lambda learner: learner.policy.clipped),
        ("pending", "gauge", lambda learner: len(learner.pending)),
        ("corruption_proved", "gauge", lambda learner: learner.proof.lower_bound if learner.proof else 0.0),
        ("alarm_up", "gauge", lambda learner: int(learner.board.up)),
        ("monitor_lag", "gauge", lambda learner: learner.policy.rounds - learner.monitor.rounds),
        ("doubted_sources", "gauge", doubted),  # without their labels, which outsiders choose
    ):
        yield f"# TYPE robandit_{metric} {kind}"
        for name, learner in named:
            yield f'robandit_{metric}{{bandit="{name}"}} {value(learner)!r}'
        if others:
            yield f'robandit_{metric}{{bandit="_others"}} {sum(map(value, others))!r}'


def gauges(bandits: int, lanes: Lanes) -> Iterator[str]:
    """The lines that Prometheus reads about what all bandits share."""
    yield from gauge("robandit_bandits", bandits)
    yield from gauge("robandit_queue_length", lanes.waiting)
    yield "# TYPE robandit_commit_seconds histogram"
    yield from lanes.commits.lines("robandit_commit_seconds")


def _alarm(learner: Learner) -> Alarm:
    """What is proved, and what operators said of it."""
    first, best, known = learner.alarm, learner.proof, learner.board.acknowledged
    return Alarm(
        lower_bound=best.lower_bound if best else 0.0,
        sentence=best.sentence if best else "No corruption is proved.",
        alarm=first.round if first else None,
        at=first.at if first else None,
        since=best.since if best else None,
        blamed=label(best.blamed) if best and best.blamed is not None else None,
        assumes=assumes(learner.settings),
        up=learner.board.up,
        acknowledged=made(known) if known else None,
    )
