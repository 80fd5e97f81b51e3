"""An audit reads a whole log, finds out how linear its rewards are, and feeds it to a `CorruptionMonitor`.

The result depends on the log and the settings alone, bit for bit: not on the format of the file or the chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import NamedTuple

import numpy as np

from robandit.errors import ConfigError
from robandit.features.scaling import Scaling
from robandit.logs.audit.collinear import check_independent
from robandit.logs.audit.feedback import Columns
from robandit.logs.audit.linearity import LEAST, Linearity, measure
from robandit.logs.audit.placebo import read_labelled, stands_out
from robandit.logs.audit.settings import ALONE, AuditSettings
from robandit.logs.audit.stored import StoredRounds
from robandit.logs.audit.tables import CHUNK, BadRows
from robandit.logs.audit.tally import tally
from robandit.logs.audit.whole_log import WholeLog
from robandit.monitor.certificate import Certificate, Group, in_words
from robandit.monitor.single_rounds import Rounds, prove_by_rounds
from robandit.monitor.sources import OTHERS

SOURCES = 100
"""The number of sources that are told apart by default."""
_LARGEST = 1 << 25  # the most numbers that are held in memory for a proof by single rounds

DECLARED, REFERENCE, ESTIMATED = "declared", "reference", "estimated"
"""Where the tolerance for what is not linear comes from."""


class Look(NamedTuple):
    """What was proved after some round."""

    round: int
    """The number of rounds observed by then."""
    proved: float
    """The lower bound on the corruption."""
    row: int
    """The number of the last round's row in the log, where bad rows count too."""
    time: str | None
    """The time of that row, if the log has times."""


class Source(NamedTuple):
    """A source of traffic and what was found of it."""

    name: str
    rows: int
    """The number of its rows that could be used."""
    mean: float
    """The mean of its rewards."""
    placed: float | None
    """The corruption that the cheapest explanation places on it; None unless a source may be named."""


@dataclass(frozen=True, kw_only=True)
class Audit:
    """All that an audit found."""

    path: Path
    """The log."""
    kind: str
    """The format of the log."""
    columns: Columns
    """The columns that were read."""
    settings: AuditSettings
    """The settings of the audit."""
    reference: Path | None
    """The clean log from which the tolerance was taken, if there is one."""
    dim: int
    """The number of features, without the constant."""
    rows: int
    """The number of rows in the log, bad ones included."""
    linearity: Linearity | None
    """How far from linear the rewards of this log are, or those of the reference; None if there are too few rows."""
    tolerance: float
    """ζ: what was proved, was proved of rewards that are linear to within this."""
    origin: str
    """Where ζ comes from: `declared`, `reference` or `estimated`."""
    certificate: Certificate
    """What is proved after the last row."""
    by_rounds: float | None
    """What single rounds prove, in units of reward; None if they were not looked at."""
    looks: list[Look]
    """What groups proved on the way."""
    sources: list[Source]
    """All sources; those on which the cheapest explanation places most come first."""
    bad: BadRows
    """The rows that could not be used."""

    @property
    def alarm(self) -> Look | None:
        """The first look that proved anything."""
        return next((look for look in self.looks if look.proved > 0.0), None)

    @property
    def sentence(self) -> str:
        """The verdict in plain words: what it assumes comes first."""
        return " ".join(filter(None, (self._assumed(), self.certificate.sentence, self._missing())))

    def _assumed(self) -> str:
        if self.origin == REFERENCE:
            name = self.reference.name if self.reference else ""
            off = in_words(self.tolerance)
            return f"In {name}, which you say is clean, a linear model is off by up to {off} on average over many rows."
        seen = "There are too few rows to see how linear rewards are."
        if self.linearity is not None:
            seen = f"On rows that it was not fitted to, a linear model is off by up to {in_words(self.linearity.off)}."
        if self.origin == DECLARED:
            return f"You declare that honest rewards are linear to within {self.tolerance:g}. {seen}"
        if self.linearity is None:
            return seen
        return f"{seen} That is an estimate from this log, and what follows holds only if it is right."

    def _missing(self) -> str:
        if not self.bad.count:
            return ""
        return (
            f"{self.bad.count:,} of {self.rows:,} rows could not be used; if that has to do with what their rewards "
            "were, none of this holds."
        )


def audit(
    path: Path,
    settings: AuditSettings,
    *,
    kind: str | None = None,
    reference: Path | None = None,
    chunk: int = CHUNK,
    progress: Callable[[int, int, str], None] = lambda done, size, unit: None,
    **columns: str | None,
) -> Audit:
    """Test whether a log can be honest feedback. ``columns`` are those of `find_columns`."""
    _check_given(settings, reference, columns.get("sigma"))
    with StoredRounds() as rounds:
        log = WholeLog(path, settings, rounds, columns, kind=kind, chunk=chunk, progress=progress)
        return _audited(log, settings, reference, columns)


def _audited(log: WholeLog, settings: AuditSettings, reference: Path | None, columns: dict[str, str | None]) -> Audit:
    features = log.features()
    if settings.parameter_bound is None:
        names = log.columns.feature_names(log.rounds.dim) + ["(the constant)"] * features.intercept
        check_independent((features(piece.features) for piece in log.rounds.pieces(log.learned)), names)
    linearity, tolerance, origin = _tolerance(settings, log, features, reference, columns)
    run = _Run(settings, log, features, tolerance)
    certificate = run.finish()
    if origin != DECLARED:  # averages, which bound no single mean: docs/ideas/monitor.md
        certificate = replace(certificate, estimated=True, suspect=None)
    elif certificate.suspect is not None and not _stands_out(log, settings, features, certificate.suspect):
        certificate = replace(certificate, suspect=None)
    by_rounds = _by_rounds(settings, log, features, tolerance)
    return Audit(
        path=log.path,
        kind=log.kind,
        columns=log.columns,
        settings=settings,
        reference=reference,
        dim=log.rounds.dim,
        rows=log.rounds.rounds + log.bad.count,
        linearity=linearity,
        tolerance=tolerance,
        origin=origin,
        certificate=_combined(settings, certificate, by_rounds),
        by_rounds=by_rounds,
        looks=run.looks,
        sources=_sources(log, settings.sources, certificate.sources if certificate.suspect else ()),
        bad=log.bad,
    )


def _stands_out(log: WholeLog, settings: AuditSettings, features: Scaling, suspect: str) -> bool:
    """Whether a source may be named: it stands out more than with labels drawn at random."""
    known = [*log.rounds.labels[: settings.sources], OTHERS]
    rounds = read_labelled(log.rounds, features, settings.clip, first=log.learned, sources=settings.sources)
    return stands_out(rounds, known.index(suspect))


def _check_given(settings: AuditSettings, reference: Path | None, sigma: str | None) -> None:
    if reference is not None and settings.misspecification is not None:
        raise ConfigError("give --misspecification or a --reference to take it from, not both")
    if sigma is not None and settings.highest_mean is not None:
        raise ConfigError("--sigma and --highest-mean both say how noisy rewards are; give one of them")


def _tolerance(
    settings: AuditSettings, log: WholeLog, features: Scaling, reference: Path | None, columns: dict[str, str | None]
) -> tuple[Linearity | None, float, str]:
    """How linear rewards are, the tolerance to use, and where it comes from."""
    if reference is not None:
        with StoredRounds() as rounds:
            clean = WholeLog(reference, settings, rounds, columns)
            found = measure(rounds, clean.features(), settings.clip, everywhere=True)
        if found is None:
            raise ConfigError(f"{reference} holds {rounds.rounds:,} usable rows, and {LEAST:,} are the least")
        return found, _two_digits(found.off), REFERENCE
    found = measure(log.rounds, features, settings.clip, everywhere=False)
    if settings.misspecification is not None:
        return found, settings.misspecification, DECLARED
    return found, 0.0 if found is None else _two_digits(found.off), ESTIMATED


def _two_digits(value: float) -> float:
    """A number of two digits that is no lower."""
    if value <= 0.0:
        return 0.0
    digit = 10.0 ** (np.floor(np.log10(value)) - 1.0)
    return float(f"{np.ceil(value / digit - 1e-9) * digit:.2g}")


def _by_rounds(settings: AuditSettings, log: WholeLog, features: Scaling, tolerance: float) -> float | None:
    """What single rounds prove."""
    number = log.rounds.rounds - log.learned
    scale = settings.monitor(1).noise_scale
    width = np.inf if settings.reward_range is None else settings.reward_range[1] - settings.reward_range[0]
    if not settings.single_rounds or number * features.dim > _LARGEST or tolerance + 2.0 * scale >= width:
        return None
    actions, rewards, noise = np.empty((number, features.dim)), np.empty(number), np.full(number, scale)
    done = 0
    for piece in log.rounds.pieces(log.learned):
        part = slice(done, done + len(piece.rewards))
        actions[part], rewards[part] = features(piece.features), settings.clip(piece.rewards)
        if piece.sigma is not None:
            noise[part] = piece.sigma
        done = part.stop
    return prove_by_rounds(Rounds(actions, rewards, noise, tolerance), settings.delta * ALONE)[0]


def _combined(settings: AuditSettings, found: Certificate, by_rounds: float | None) -> Certificate:
    """The better of the two proofs, with the δ of both."""
    found = replace(found, delta=settings.delta)
    if by_rounds is None or by_rounds <= found.lower_bound:
        return found
    width = np.inf if settings.reward_range is None else settings.reward_range[1] - settings.reward_range[0]
    return replace(
        found,
        lower_bound=by_rounds,
        altered=max(found.altered, ceil(by_rounds / width), 1),
        alarm=found.alarm or found.rounds,
        rests_on_bound=False,
    )


class _Run:
    """Feeds a monitor in pieces that depend on nothing but the round, and looks when a look is due."""

    def __init__(self, settings: AuditSettings, log: WholeLog, features: Scaling, tolerance: float) -> None:
        self._monitor, self._log, self._features = settings.monitor(features.dim, tolerance), log, features
        labels, most = log.rounds.labels, settings.sources
        self._names = np.array([*labels[:most], *[OTHERS] * len(labels[most:])], dtype=object)
        self.looks: list[Look] = []
        self._feed(settings.schedule())

    def _feed(self, schedule: Iterator[int]) -> None:
        due, rounds = next(schedule), 0
        for piece in self._log.rounds.pieces(self._log.learned):
            done, number = 0, len(piece.rewards)
            while done < number:
                part = piece.cut(done, min(number, done + due - rounds))
                sources = None if part.sources is None else self._names[part.sources]
                self._monitor.observe_log(self._features(part.features), part.rewards, part.sigma, sources)
                done += len(part.rewards)
                rounds += len(part.rewards)
                if rounds == due:
                    self._note(rounds, float(self._monitor.lower_bounds()[0]))
                    due = next(schedule)

    def finish(self) -> Certificate:
        """Look a last time, at the whole log."""
        found: Certificate = self._monitor.certificate()
        if found.rounds and (not self.looks or self.looks[-1].round < found.rounds):
            self._note(found.rounds, found.lower_bound)
        return found

    def _note(self, rounds: int, proved: float) -> None:
        self.looks.append(Look(rounds, proved, *self._log.place(rounds)))


def _sources(log: WholeLog, most: int, blamed: tuple[Group, ...]) -> list[Source]:
    placed = {group.name: group.placed for group in blamed}
    found = [
        Source(name, rows, mean, placed.get(name, 0.0) if blamed else None)
        for name, rows, mean in tally(log.rounds, most)
    ]
    return sorted(found, key=lambda source: (-(source.placed or 0.0), -source.rows))
