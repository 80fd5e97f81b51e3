"""Draws the picture of the README: a plain bandit and a quorum in a shop whose partner turns.

python benchmarks/partner.py docs/figures/partner.png
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from robandit import CWOFUL, OFUL, Greedy, Policy
from robandit.experiments.fraud.turning import TRIALS, TURNS, VISITS, Course, course, drawn, played

OTHERS: dict[str, Callable[..., Policy]] = {
    **{f"OFUL {scale:g}": partial(OFUL, radius_scale=scale) for scale in (0.03, 0.3, 1.0)},
    "Greedy": Greedy,
    "CW-OFUL 0.03": partial(CWOFUL, corruption=None, radius_scale=0.03, horizon=VISITS),
}
"""Policies that are not in the picture, lest the plain one be badly chosen."""


def words(found: Course) -> str:
    """The regret of each, in all and of uniform play's, and when the quorum came to doubt the partner."""
    uniform, turned = found.uniform, TURNS * found.rounds[-1]
    lines = [f"uniform play loses {uniform.mean():.0f} clicks in {found.rounds[-1]} visits, {len(uniform)} trials"]
    for label, regret in found.regret.items():
        error = regret[-1].std(ddof=1) / len(uniform) ** 0.5
        lines.append(f"{label:24}{regret[-1].mean():5.0f} ± {error:.0f}, {100 * (regret[-1] / uniform).mean():.0f} %")
    low = (found.weight < 0.5) & (found.rounds > turned)[:, None]
    after = found.rounds[low.argmax(axis=0)][low.any(axis=0)] - turned
    lines.append(
        f"doubted in {low.any(axis=0).sum()} trials, at the median {np.median(after):.0f} visits after he turned"
    )
    return "\n".join(lines)


def main() -> None:
    """Play, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", type=Path, help="where to write the picture")
    parser.add_argument("--trials", type=int, default=TRIALS, help="number of trials (default %(default)s)")
    options = parser.parse_args()
    with threadpool_limits(1):
        found = course(trials=options.trials)
        print(words(found), flush=True)
        for label, make in OTHERS.items():
            lost = played(make, found.rounds, options.trials)[0][-1]
            print(f"{label:24}{lost.mean():5.0f} ± {lost.std(ddof=1) / len(lost) ** 0.5:.0f}", flush=True)
    drawn(found).savefig(options.picture, dpi=150)


if __name__ == "__main__":
    main()
