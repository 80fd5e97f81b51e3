"""Figure 1 of the paper: its settings, its claims as checks, and the growth of regret against the theorems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from robandit.arrays import Floats
from robandit.experiments.intervals import interval
from robandit.experiments.tune import final_regret
from robandit.figures.numbers import mean_half
from robandit.lab.summary import Curve, Curves, summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyarrow import Table

FLIPS = (0, 30, 90, 150, 300, 450)
"""The number k of flipped rounds in each panel. The paper labels the panel C = 2k."""
SETTING: Mapping[str, Any] = {"rounds": 10_000, "trials": 10, "seed": 1}

OFUL, WEIGHTED, GREEDY, MULTI = "OFUL", "Weighted OFUL", "Greedy", "Multi-level weighted OFUL"
ROBUST, ROBUST_REALISED = "Robust weighted OFUL, C = 2k", "Robust weighted OFUL, C realised"
POLICIES: Mapping[str, Mapping[str, Any]] = {
    OFUL: {"name": "oful"},
    WEIGHTED: {"name": "weighted-oful"},
    GREEDY: {"name": "greedy"},
    ROBUST: {"name": "robust-weighted-oful", "corruption": "labelled"},
    ROBUST_REALISED: {"name": "robust-weighted-oful", "corruption": "realised"},
    MULTI: {"name": "multi-level-weighted-oful"},
}


def config(
    scales: Mapping[str, float], *, dim: int = 20, actions: int = 20, flips: Sequence[int] = FLIPS, **numbers: Any
) -> dict[str, Any]:
    """The settings of the run. Policies that ``scales`` leaves out are at scale 1, the theory."""
    return {
        **SETTING,
        **numbers,
        **world(dim, actions, flips),
        "policies": [
            {**settings, "label": label} | ({} if label == GREEDY else {"radius_scale": scales.get(label, 1.0)})
            for label, settings in POLICIES.items()
        ],
    }


def world(dim: int = 20, actions: int = 20, flips: Sequence[int] = FLIPS) -> dict[str, Any]:
    """The environment and the attacks of Figure 1."""
    return {
        "environments": [{"name": "paper", "dim": dim, "actions": actions}],
        "attacks": [{"name": "flip", "rounds": list(flips)}],
    }


class Claim(NamedTuple):
    """An observation in "Results and Discussion" of the paper: left < factor · right, or > if ``worse``."""

    corruption: float
    """C of the panel, as the paper labels it."""
    left: str
    right: str
    factor: float
    worse: bool
    words: str
    """The paper's words, with {} for the name of the right policy."""

    def text(self) -> str:
        """The claim as a line of a table."""
        relation = "more" if self.worse else "less"
        measure = "" if self.factor == 1.0 else f" ({relation} than {self.factor:g} times its regret)"
        return f"C = {self.corruption:g}: {self.words.format(self.right)}{measure}"


LARGE, MUCH, CLOSE = 0.8, 2.0, 1.2
"""How we read the paper's words. "By a large margin" and "remarkably" mean less than 0.8 times the regret, "much worse"
more than twice, and "minor additional regret" less than 1.2 times."""

CLAIMS: Sequence[Claim] = (
    *(Claim(0, MULTI, other, 1.0, True, "Multi-level behaves worse than {}") for other in (WEIGHTED, OFUL)),
    Claim(0, WEIGHTED, OFUL, LARGE, False, "Weighted OFUL outperforms {} remarkably"),
    *(Claim(0, GREEDY, other, MUCH, True, "Greedy is much worse than {}") for other in (OFUL, WEIGHTED, ROBUST, MULTI)),
    *(
        Claim(corruption, MULTI, other, LARGE, False, "Multi-level outperforms {} by a large margin")
        for corruption in (180, 300, 600, 900)
        for other in (OFUL, WEIGHTED, GREEDY)
    ),
    *(
        Claim(corruption, MULTI, ROBUST, CLOSE, False, "Multi-level suffers minor additional regret compared with {}")
        for corruption in (180, 300, 600, 900)
    ),
)


class Finding(NamedTuple):
    """The verdict on a claim, and the numbers behind it."""

    claim: Claim
    verdict: str
    left: float
    """The mean regret of the left policy."""
    right: float
    """The mean regret of the right policy."""
    low: float
    """The lower end of the 95 % interval of left − factor · right, paired over trials."""
    high: float
    """The upper end of that interval."""

    def evidence(self) -> str:
        """The numbers in words."""
        factor = "" if self.claim.factor == 1.0 else f"{self.claim.factor:g} · "
        interval = f"[{self.low:.0f}, {self.high:.0f}]" if self.low < self.high else "no interval from one trial"
        return f"{self.left:.0f} and {self.right:.0f}; first − {factor}second: {interval}"


def judge(table: Table, claims: Sequence[Claim] = CLAIMS) -> list[Finding]:
    """The verdict on every claim whose corruption and policies are in the table."""
    regret, panels = final_regret(table), table["C"].unique().to_pylist()
    found = []
    for claim in claims:
        if claim.corruption in panels and {claim.left, claim.right} <= regret.keys():
            panel = panels.index(claim.corruption)
            found.append(_find(claim, regret[claim.left][panel], regret[claim.right][panel]))
    return found


def _find(claim: Claim, left: Floats, right: Floats) -> Finding:
    """The verdict by the paired t interval of the difference, which is above 0, below 0, or contains it."""
    difference = left - claim.factor * right
    mean, half = interval(difference)
    low, high = mean - half, mean + half
    above, below = ("holds", "does not hold") if claim.worse else ("does not hold", "holds")
    verdict = above if low > 0.0 else below if high < 0.0 else "undecided"  # also for one trial, whose half is nan
    return Finding(claim, verdict, float(left.mean()), float(right.mean()), low, high)


def regret_rows(table: Table, scales: Mapping[str, float]) -> tuple[list[str], list[list[str]]]:
    """The header and rows of a table of the regret at the end: a row for each policy, a column for each C."""
    found = summary(table)
    header = ["policy", "radius scale", *(f"C = {case.corruption:g}" for case in found)]
    realised = [f"{next(iter(policies.values())).realised:.1f}" for policies in found.values()]
    rows = [["realised C", "", *realised]]
    for policy in next(iter(found.values())):
        cells = [mean_half(policies[policy].mean[-1], policies[policy].half[-1]) for policies in found.values()]
        rows.append([policy, "" if policy == GREEDY else f"{scales.get(policy, 1.0):.3g}", *cells])
    return header, rows


class Slope(NamedTuple):
    """The exponent with which a policy's regret grows."""

    policy: str
    of: str
    """What it grows in: T at some C, or C."""
    exponent: float
    half: float
    """Half of the exponent's 95 % interval."""
    theorem: str
    """The exponent in the theorem, or `none`."""


def growth(table: Table) -> list[Slope]:
    """The exponents of the regret's growth: in T from a tenth of the rounds on, and in C over the panels."""
    found = summary(table)
    return [slope for policy in next(iter(found.values())) for slope in _slopes(policy, found)]


def _slopes(policy: str, found: Curves) -> Iterator[Slope]:
    """The exponents of one policy."""
    for case, policies in found.items():
        if case.corruption in (0.0, 180.0, 900.0):
            bounded = policy in (MULTI, ROBUST, ROBUST_REALISED) or (policy != GREEDY and case.corruption == 0.0)
            name = f"T at C = {case.corruption:g}"
            yield _slope(policy, name, *_in_rounds(policies[policy]), "1/2" if bounded else "none")
    ends = [policies[policy] for policies in found.values() if policies[policy].realised > 0]
    if len(ends) > 2:
        x, y, half = np.array([(end.realised, end.mean[-1], end.half[-1]) for end in ends]).T
        theorem = {MULTI: "2", ROBUST: "1", ROBUST_REALISED: "1"}.get(policy, "none")
        yield _slope(policy, "C", x, y, half, theorem)


def _in_rounds(curve: Curve) -> tuple[Floats, Floats, Floats]:
    """Rounds, mean and half from a tenth of the rounds on."""
    late = curve.rounds >= curve.rounds[-1] / 10
    return curve.rounds[late], curve.mean[late], curve.half[late]


def _slope(policy: str, of: str, x: Floats, y: Floats, half: Floats, theorem: str) -> Slope:
    """The slope from the first to the last point on logarithmic axes, with an interval from those of the two."""
    reach = np.log(x[-1] / x[0])
    error = np.hypot(half[-1] / y[-1], half[0] / y[0]) / reach
    return Slope(policy, of, float(np.log(y[-1] / y[0]) / reach), float(error), theorem)


def growth_picture(table: Table) -> Figure:
    """Regret against T and against the realised C on logarithmic axes, with lines of the theorems' slopes."""
    from robandit.figures.pictures import FONT, log_panels, style

    found = summary(table)
    case = next((c for c in found if c.corruption == 180.0), next(iter(found)))
    titles = [f"in the rounds, C = {case.corruption:g}", "in the corruption, at the last round"]
    figure, (left, right) = log_panels(titles, [("round", "regret"), ("realised C", "regret at the end")], 3.8)
    for number, (policy, curve) in enumerate(found[case].items()):
        left.plot(curve.rounds, np.maximum(curve.mean, 1e-3), **style(number), markevery=12, label=policy)
        points = [(p[policy].realised, p[policy].mean[-1]) for p in found.values() if p[policy].realised > 0]
        if points:
            right.plot(*zip(*points, strict=True), **style(number))
    for axes, slopes in ((left, (0.5, 1.0)), (right, (1.0, 2.0))):
        _rulers(axes, slopes)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=FONT)
    return figure


def _rulers(axes: Any, slopes: Sequence[float]) -> None:
    """Draw grey lines of these slopes through the upper right corner of a panel."""
    (x0, x1), (y0, y1) = axes.get_xlim(), axes.get_ylim()
    for slope in slopes:
        x = np.array([x1 * (x0 / x1) ** 0.4, x1])
        axes.plot(x, y1 * (x / x1) ** slope, color="#888888", linewidth=0.8)
        words = axes.text(x[0], y1 * (x[0] / x1) ** slope, f"slope {slope:g} ", fontsize=8, color="#555555", ha="right")
        words.set(clip_on=True, in_layout=False)
    axes.set(xlim=(x0, x1), ylim=(y0, y1))
