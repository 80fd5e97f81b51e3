"""The page of an audit: the verdict for a manager, then the evidence and the assumptions for a statistician."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from math import floor, log10
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ticker import MaxNLocator

import robandit
from robandit.figures.html import Block, CommandBlock, Facts, Grid, Picture, Section, Text, page
from robandit.figures.pictures import FONT, WIDTH
from robandit.logs.audit.auditing import DECLARED, ESTIMATED, REFERENCE, SOURCES, Audit
from robandit.logs.audit.settings import LEARNED, AuditSettings
from robandit.logs.audit.tables import examples, format_of
from robandit.monitor.certificate import Group, in_words

_BARS = 20  # the most bars in a picture
_STRONG, _WEAK, _QUIET = "#D55E00", "#7FA6C4", "#56606B"
_TRACE = 1e-3  # a smaller share of the largest amount is shown as 0
_LETTERS = 26  # the most letters of a name in a picture


def build(found: Audit) -> str:
    """The page as HTML."""
    proved = found.certificate.lower_bound > 0.0
    sections = [Section("How linear honest rewards are", [Text(_linear(found))])]
    sections += [Section("What is proved, over time", [Text(_over_time(found)), _curve(found)])]
    if proved:
        sections.append(Section("Where it may sit", _evidence(found)))
    if found.sources:
        sections.append(Section("The sources", [_source_table(found)]))
    sections += [Section("Rows left out", _left_out(found)), Section("How it was computed", _method(found))]
    verdict = Verdict(found.sentence, _meaning(found), _badge(found))
    return page(f"Audit of {found.path.name}", verdict, sections)


@dataclass(frozen=True)
class Verdict:
    """The verdict: assumptions and finding in large letters, and what it means."""

    sentence: str
    meaning: str
    badge: str

    def html(self) -> str:
        symbol, look, word = ("?", "idle", self.badge) if self.badge == _NOTHING else ("!", "bad", self.badge)
        badge = f'<span class="badge {look}"><span aria-hidden="true">{symbol}</span> {word}</span>'
        large = "font-size: 1.4rem; line-height: 1.4; color: var(--ink)"
        return f'<p>{badge}</p>\n<p style="{large}">{escape(self.sentence)}</p>\n{Text(self.meaning).html()}'


_NOTHING = "nothing proved"


def _badge(found: Audit) -> str:
    if found.certificate.lower_bound <= 0.0:
        return _NOTHING
    if found.certificate.rests_on_bound:
        return "contradicts your parameter bound"
    return "does not fit one linear model" if found.certificate.estimated else "rewards were altered, if you are right"


def _meaning(found: Audit) -> str:
    if found.certificate.lower_bound > 0.0:
        return (
            "The rewards contradict each other by more than chance and the tolerance above allow. That is what fraud "
            "looks like; so do a fault, a drift of the world, and a group of users who honestly differ. To tell these "
            "apart, add what the honest groups differ in to the features, or compare with a period that is known to "
            "be clean (`--reference`). A source that lies from the first row to the last, and one that honestly "
            "differs, no data of this kind can tell apart."
        )
    return (
        "The rewards fit together as honest ones would, as far as noise of the declared size lets anyone tell. That is "
        "no proof of innocence: corruption that is small beside the noise, or that bends all of the log in the same "
        "way, can't be seen."
    )


def _linear(found: Audit) -> str:
    measured = found.linearity
    if measured is None:
        return "There are too few rows to see how linear rewards are, and nobody declared it."
    where = "the reference log" if found.origin == REFERENCE else "this log"
    words = (
        f"A linear model was fitted to the first half of {where} and tried on the other {measured.rounds:,} rows. It "
        f"is off by up to {in_words(measured.off)} on average, in {measured.cell} (two standard errors included)."
    )
    if found.origin == DECLARED and measured.off > found.tolerance:
        words += (
            f" That is more than the {found.tolerance:g} that was declared: altered rewards do that, and so does a "
        )
        words += "declaration that is too strict."
    if found.origin == ESTIMATED:
        words += (
            f" All that follows allows honest rewards to be off by {found.tolerance:g}. That was measured on the rows "
            "that are on trial, so it carries no confidence: it does not see groups that differ, nor a drift. Declare "
            "what you know (`--misspecification`), or give a clean period (`--reference`)."
        )
    return words


def _over_time(found: Audit) -> str:
    alarm = found.alarm
    looks = f"The log was looked at {len(found.looks):,} times while it was read, in the order of its rows."
    if alarm is None:
        return f"{looks} No look proved anything."
    row = f"row {alarm.row:,} of the log" if alarm.row != alarm.round else ""
    when = f"{found.columns.time}: {alarm.time}" if alarm.time is not None else ""
    place = "; ".join(filter(None, (row, when)))
    after = f"round {alarm.round:,}" + (f" ({place})" if place else "")
    single = ""
    if found.by_rounds is not None and found.by_rounds > found.looks[-1].proved:
        single = f" Single rounds, which are looked at once and at the end, prove {in_words(found.by_rounds)}."
    return f"{looks} The first to prove anything was the one after {after}.{single}"


# The pictures.


def _axes(height: float) -> tuple[Figure, Any]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.add_subplot()
    axes.tick_params(labelsize=FONT, length=2.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#e4e4e4", linewidth=0.5)
    axes.set_axisbelow(True)
    return figure, axes


def _curve(found: Audit) -> Picture:
    """A picture of the bound over the rounds."""
    rounds, proved = (np.array([0, *(look[place] for look in found.looks)]) for place in (0, 1))
    alarm = found.alarm
    figure, axes = _axes(1.4 if alarm is None else 2.6)
    axes.step(rounds, proved, where="post", color=_STRONG if alarm else _QUIET, linewidth=1.6)
    axes.set(xlim=(0, rounds[-1]), ylim=(0, 1.12 * proved[-1] if alarm else 1.0))
    axes.set_xlabel("round", fontsize=FONT)
    axes.set_ylabel("corruption proved", fontsize=FONT)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10], integer=True))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    if alarm is None:
        axes.set_yticks([0])
        axes.text(0.5, 0.5, "nothing proved at any look", transform=axes.transAxes, ha="center", fontsize=FONT + 1)
        return Picture(figure, "The corruption that is proved after each look: none.")
    axes.fill_between(rounds, proved, step="post", color=_STRONG, alpha=0.12, linewidth=0)
    label = _mark_alarm(axes, alarm.round, rounds[-1])
    look = {"textcoords": "offset points", "va": "center", "fontsize": FONT, "annotation_clip": False}
    axes.annotate(in_words(proved[-1]), (rounds[-1], proved[-1]), (4, 0), fontweight="bold", **look)
    words = "The least corruption in all that is proved after each look, in units of reward."
    return Picture(
        figure, f"{words} What is proved stays proved.", f"{words} It rises to {in_words(proved[-1])}; {label}."
    )


def _mark_alarm(axes: Any, at: int, end: int) -> str:
    """Draw a line where the alarm was. Gives the label beside it."""
    axes.axvline(at, color=_QUIET, linewidth=1, linestyle=(0, (4, 2)))
    label, side = f"alarm after round {at:,}", 1 if at < 0.6 * end else -1
    look = {"va": "top", "ha": "left" if side > 0 else "right", "fontsize": FONT, "color": _QUIET}
    place = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
    axes.annotate(label, (at, 0.97), (4 * side, 0), **place, **look)
    return label


def _bars(groups: Sequence[Group], what: str) -> Figure:
    """A picture of the corruption placed in each group. The largest bar has a strong colour."""
    figure, axes = _axes(0.75 + 0.19 * len(groups))
    placed = [group.placed for group in groups]
    most = max(placed)
    looks = [_STRONG if value == most else _WEAK for value in placed]
    axes.barh(range(len(groups)), placed, color=looks, height=0.72)
    for place, value in enumerate(placed):
        axes.annotate(
            _amount(value, most),
            (value, place),
            (3, 0),
            textcoords="offset points",
            va="center_baseline",
            fontsize=FONT,
            fontweight="bold" if value == most else "normal",
            color="black" if value > _TRACE * most else _QUIET,
        )
    axes.set_yticks(range(len(groups)), [drawable(group.name) for group in groups], parse_math=False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.set(ylim=(len(groups) - 0.4, -0.6), xlim=(0, 1.12 * most))
    axes.set_xlabel("corruption attributed, in units of reward: attribution, not proof", fontsize=FONT)
    axes.set_title(what, loc="left", fontsize=FONT)
    return figure


def drawable(name: str) -> str:
    """A name as a picture can show it: not too long, and with the letters that the font has.

    >>> drawable("partner-13 北")
    'partner-13 ?'
    """
    short = name if len(name) <= _LETTERS else name[: _LETTERS - 1] + "…"
    return "".join(letter if letter.isprintable() and _font().get_char_index(ord(letter)) else "?" for letter in short)


@cache
def _font() -> Any:
    return get_font(findfont(FontProperties(family="DejaVu Sans")))


# The evidence.


def _evidence(found: Audit) -> list[Block]:
    """Where the cheapest explanation places the corruption: by source and by time, where these prove something."""
    words, pictures = "Corruption that the cheapest explanation places {}: attribution, not proof.", []
    told = [Group(one.name, one.placed) for one in found.sources if one.placed]
    if told:
        rest = f" {len(told) - _BARS:,} more are in the table below." if len(told) > _BARS else ""
        caption = words.format("on each source") + rest
        pictures.append(Picture(_bars(told[:_BARS], "source"), caption, f"{caption} Most is on {told[0].name}."))
    if found.certificate.groups:
        blocks = _most(found.certificate.groups)
        pictures.append(Picture(_bars(blocks, "rounds"), words.format("in each block of rounds")))
    return [Text(_where(found)), *pictures]


def _most(groups: Sequence[Group]) -> list[Group]:
    """The groups with most corruption, in the order of time."""
    most = sorted(groups, key=lambda group: -group.placed)[:_BARS]
    return [group for group in groups if group in most]


def _where(found: Audit) -> str:
    named, by_time = found.certificate.suspect, found.certificate.groups
    words = (
        "The proof is about the total. Where the corruption sits is another matter: of all explanations of the log, "
        "the one that takes least corruption places it as shown here. Others may place it elsewhere."
    )
    if not named and not by_time:
        words = "The proof is about the total. Neither a stretch of time nor a source explains it."
    if found.sources and not named and found.certificate.sources:
        words += (
            " The sources contradict each other, but no single one explains that, or blaming the others would cost "
            "about as much. So none is named."
        )
    elif found.sources and not named:
        words += " It is blocks of rounds that contradict each other; the sources, as wholes, hardly do."
    if named and by_time:
        words += " The amounts by source and by time are two views of one log; don't add them up."
    return words


def _source_table(found: Audit) -> Grid:
    header, words = ["source", "rows", "mean reward"], "All sources; nothing is attributed to any."
    means = _means(found)
    rows: list[list[object]] = [
        [one.name, f"{one.rows:,}", mean] for one, mean in zip(found.sources, means, strict=True)
    ]
    if found.certificate.suspect is not None:
        header += ["placed here by the cheapest explanation"]
        words = "What the cheapest explanation places on each source: attribution, not proof."
        most = max(one.placed or 0.0 for one in found.sources)
        for row, one in zip(rows, found.sources, strict=True):
            row += [_amount(one.placed or 0.0, most)]
    limit = found.settings.sources
    return Grid(
        header, rows, words + (f" Sources beyond the first {limit:,} count as one." if len(rows) > limit else "")
    )


def _amount(value: float, most: float) -> str:
    """An amount with three digits; 0 if it is nothing beside the largest."""
    return in_words(value) if value > _TRACE * most else "0"


def _means(found: Audit) -> list[str]:
    """The mean rewards of the sources, with so many decimals that the largest has three digits."""
    most = max(abs(one.mean) for one in found.sources)
    decimals = min(12, max(0, 2 - floor(log10(most)))) if most > 0.0 else 0
    return [f"{one.mean:,.{decimals}f}" if most < 1e6 else f"{one.mean:.3g}" for one in found.sources]


def _left_out(found: Audit) -> list[Block]:
    bad = found.bad
    if not bad.count:
        return [Text(f"None: all {found.rows:,} rows of the log could be used.")]
    words = (
        f"{bad.count:,} of {found.rows:,} rows could not be used and were left out. The guarantee stands only if what "
        "they lack has nothing to do with what their rewards would have been: rows dropped because of their values, "
        "here or before the log was written, void it."
    )
    rows = [[name, f"{reason.count:,}", examples(reason)] for name, reason in bad.reasons()]
    return [Text(words), Grid(["reason", "rows", "the first of them"], rows, "A row counts once, for its first fault.")]


def _method(found: Audit) -> list[Block]:
    return [Text(_rests_on(found)), Facts(_facts(found)), CommandBlock(_command(found))]


def _rests_on(found: Audit) -> str:
    settings = found.settings
    return (
        "The rounds are cut into groups, by time and by source. Each group alone says where the parameter of the "
        "rewards must lie, up to noise. The farther these places are apart, the more corruption there must be. "
        "`docs/ideas/monitor.md` has the proof.\n\n"
        f"This holds with probability {1.0 - settings.delta:g}, however often one looks, if: (1) an honest reward is a "
        f"fixed linear function of the features, to within {found.tolerance:g} on average, plus noise; (2) given the "
        "past, that noise is sub-Gaussian with the "
        f"declared scale; (3) {_bound_in_words(settings)}; (4) the rows stand in the "
        "order of the decisions, and actions were chosen without knowing the noise to come; (5) whether a "
        "reward is missing does not depend on what it would have been. "
        f"The first {LEARNED} usable rows, or fewer in a small log, set the scales of the features and prove nothing."
    )


def _facts(found: Audit) -> dict[str, str]:
    settings, columns = found.settings, found.columns
    return {
        "log": f"{found.path.name} ({found.kind})",
        "rows": f"{found.rows:,}, of which {found.certificate.rounds:,} were used: a round is a row that was used",
        "features": _features(found),
        "linear to within": f"{found.tolerance:g} ({found.origin})",
        "reward": columns.reward,
        "noise's scale": f"{settings.monitor(1).noise_scale:.3g}" if columns.sigma is None else f"in {columns.sigma}",
        "source": columns.source or "not told apart",
        "order": f"by {columns.time}, which never falls" if columns.time else "as in the file; not checked",
        "honest rewards": "anywhere"
        if settings.reward_range is None
        else "from {:g} to {:g}".format(*settings.reward_range) + _cap(settings),
        "norm of the parameter": "any" if settings.parameter_bound is None else f"at most {settings.parameter_bound:g}",
        "chance of a false alarm": f"at most {settings.delta:g}, over all looks",
        "made by": f"robandit {robandit.__version__}",
    }


def _features(found: Audit) -> str:
    """The features by name, and what was unusual about their values."""
    columns, constant = found.columns, ", and a constant" if found.settings.intercept else ""
    if columns.described is None:
        return f"{found.dim} from {_shown(columns.features)}{constant}"
    counts = columns.described.counts
    odd = [f"{number:,} {what} of {name}" for name, whats in counts.items() for what, number in whats.items()]
    unusual = f"; values that were {', '.join(odd)}" if odd else ""
    return f"{found.dim} by {columns.asked}: {', '.join(columns.described.names)}{constant}{unusual}"


def _cap(settings: AuditSettings) -> str:
    return "" if settings.highest_mean is None else f", and at most {settings.highest_mean:g} on average"


def _bound_in_words(settings: AuditSettings) -> str:
    bound = settings.parameter_bound
    return "the parameter may have any size" if bound is None else f"the parameter's norm is at most {bound:g}"


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names if len(names) < 5 else [*names[:2], "…", names[-1]])


def _command(found: Audit) -> str:
    """The command that makes this page."""
    settings, columns = found.settings, found.columns
    limits = settings.reward_range
    given = {
        "format": found.kind.lower() if format_of(found.path) != found.kind.lower() else None,
        "features": columns.asked,
        "reward": columns.reward if columns.reward != "reward" else None,
        "sigma": columns.sigma,
        "source": columns.source,
        "time": columns.time,
        "noise": settings.noise,
        "reference": found.reference,
        "rewards": limits and f"{limits[0]!r},{limits[1]!r}",
        "sources": settings.sources if settings.sources not in (0, SOURCES) else None,
    }
    for name in ("parameter_bound", "misspecification", "highest_mean", "delta", "looks"):
        if getattr(settings, name) != getattr(AuditSettings, name):
            given[name.replace("_", "-")] = getattr(settings, name)
    words = [f"--{name}={value}" for name, value in given.items() if value is not None]
    words += [] if settings.intercept else ["--no-intercept"]
    words += [] if settings.single_rounds else ["--groups-only"]
    return shlex.join(["robandit", "audit", found.path.name, *words])
