"""Figure 1 of the paper: its settings as data, its claims as checks, its growth beside the theorems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from robandit.arrays import Floats
from robandit.experiments.tune import final_regret, interval
from robandit.lab.summary import summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyarrow import Table

FLIPS = (0, 30, 90, 150, 300, 450)
"""k of the six panels, which the paper labels C = 2k."""
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
    """The run of Figure 1. Policies without a scale of their own are at 1, the theory."""
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
    """Its environment and attacks."""
    return {
        "environments": [{"name": "paper", "dim": dim, "actions": actions}],
        "attacks": [{"name": "flip", "rounds": list(flips)}],
    }


class Claim(NamedTuple):
    """An observation of the paper's "Results and Discussion": left < factor · right, or > if ``worse``."""

    corruption: float
    left: str
    right: str
    factor: float
    worse: bool
    words: str
    """The paper's, with a place for the name of the right."""

    def text(self) -> str:
        relation = "more" if self.worse else "less"
        measure = "" if self.factor == 1.0 else f" ({relation} than {self.factor:g} times its regret)"
        return f"C = {self.corruption:g}: {self.words.format(self.right)}{measure}"


LARGE, MUCH, CLOSE = 0.8, 2.0, 1.2
"""What we take the paper's words for: by a large margin, remarkably: less than 0.8 times; much worse: more than twice;
minor additional regret: less than 1.2 times."""

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
    """What became of a claim: the means, and left − factor · right with its 95 % interval, paired over trials."""

    claim: Claim
    verdict: str
    left: float
    right: float
    low: float
    high: float

    def evidence(self) -> str:
        factor = "" if self.claim.factor == 1.0 else f"{self.claim.factor:g} · "
        interval = f"[{self.low:.0f}, {self.high:.0f}]" if self.low < self.high else "no interval from one trial"
        return f"{self.left:.0f} and {self.right:.0f}; first − {factor}second: {interval}"


def judge(table: Table, claims: Sequence[Claim] = CLAIMS) -> list[Finding]:
    """The verdict on every claim whose corruption and policies the table has."""
    regret, order = final_regret(table), _labels(table)
    return [
        _find(
            claim, regret[claim.left][order.index(claim.corruption)], regret[claim.right][order.index(claim.corruption)]
        )
        for claim in claims
        if claim.corruption in order and {claim.left, claim.right} <= regret.keys()
    ]


def _find(claim: Claim, left: Floats, right: Floats) -> Finding:
    """By the paired t interval: a difference on the one side of zero, on the other, or on both."""
    difference = left - claim.factor * right
    mean, half = interval(difference)
    low, high = mean - half, mean + half
    above, below = ("holds", "does not hold") if claim.worse else ("does not hold", "holds")
    verdict = above if low > 0.0 else below if high < 0.0 else "undecided"  # as it is from one trial, with its nan
    return Finding(claim, verdict, float(left.mean()), float(right.mean()), low, high)


def _labels(table: Table) -> list[float]:
    """C of the panels, in the order of the table."""
    return table["C"].unique().to_pylist()


def regret_rows(table: Table, scales: Mapping[str, float]) -> tuple[list[str], list[list[str]]]:
    """The regret at the end with its interval, a row for each policy and a column for each C; and the scales."""
    found = summary(table)
    header = ["policy", "radius scale", *(f"C = {case.corruption:g}" for case in found)]
    realised = [f"{next(iter(policies.values())).realised:.1f}" for policies in found.values()]
    rows = [["realised C", "", *realised]]
    for policy in next(iter(found.values())):
        cells = [_cell(policies[policy].mean[-1], policies[policy].half[-1]) for policies in found.values()]
        rows.append([policy, "" if policy == GREEDY else f"{scales.get(policy, 1.0):.3g}", *cells])
    return header, rows


def _cell(mean: float, half: float) -> str:
    return f"{mean:.0f}" if np.isnan(half) else f"{mean:.0f} ± {half:.0f}"


class Slope(NamedTuple):
    """How regret grows: the exponent with its 95 % interval, and the theorem's."""

    policy: str
    of: str
    exponent: float
    half: float
    theorem: str


def growth(table: Table) -> list[Slope]:
    """The exponents of the regret's growth: in T from a tenth of the rounds on, and in C over the panels."""
    rows = []
    found = summary(table)
    for policy in next(iter(found.values())):
        for case, policies in found.items():
            if case.corruption in (0.0, 180.0, 900.0):
                bounded = policy in (MULTI, ROBUST, ROBUST_REALISED) or (policy != GREEDY and case.corruption == 0.0)
                name = f"T at C = {case.corruption:g}"
                rows.append(_slope(policy, name, *_in_rounds(policies[policy]), "1/2" if bounded else "none"))
        points = [
            (p[policy].realised, p[policy].mean[-1], p[policy].half[-1])
            for p in found.values()
            if p[policy].realised > 0
        ]
        if len(points) > 2:
            x, y, half = np.array(points).T
            theorem = {MULTI: "2", ROBUST: "1", ROBUST_REALISED: "1"}.get(policy, "none")
            rows.append(_slope(policy, "C", x, y, half, theorem))
    return rows


def _in_rounds(curve: Any) -> tuple[Floats, Floats, Floats]:
    late = curve.rounds >= curve.rounds[-1] / 10
    return curve.rounds[late], curve.mean[late], curve.half[late]


def _slope(policy: str, of: str, x: Floats, y: Floats, half: Floats, theorem: str) -> Slope:
    """From the first to the last point on logarithmic axes; its interval from those of the two."""
    reach = np.log(x[-1] / x[0])
    error = np.hypot(half[-1] / y[-1], half[0] / y[0]) / reach
    return Slope(policy, of, float(np.log(y[-1] / y[0]) / reach), float(error), theorem)


def growth_picture(table: Table) -> Figure:
    """Regret against T and against the realised C on logarithmic axes, beside lines of the theorems' slopes."""
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
    """Grey lines of some slopes through the upper right of a panel."""
    (x0, x1), (y0, y1) = axes.get_xlim(), axes.get_ylim()
    for slope in slopes:
        x = np.array([x1 * (x0 / x1) ** 0.4, x1])
        axes.plot(x, y1 * (x / x1) ** slope, color="#888888", linewidth=0.8)
        words = axes.text(x[0], y1 * (x[0] / x1) ** slope, f"slope {slope:g} ", fontsize=8, color="#555555", ha="right")
        words.set(clip_on=True, in_layout=False)
    axes.set(xlim=(x0, x1), ylim=(y0, y1))
