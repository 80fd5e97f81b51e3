"""Who may be named: nobody, unless blaming anybody else costs clearly more.

A proof is about the total. A source is named only if it passes three tests, for which ``lower_bound`` is the judge:

1. Without it, nothing is proved of the others: they agree with each other.
2. Without any other source, corruption is still proved: so no other source explains it alone.
3. If it alone were honest, the others, who agree with each other, would have had to alter clearly more together than
   it would have had to alone.

If only one source lies and the assumptions hold, then an honest one passes the second test with probability at most δ:
the others, without the liar, would have to contradict each other. A source with most of the traffic fails the third:
that it lies, and that all others do, look alike.
"""

from __future__ import annotations

import numpy as np

from robandit.arrays import Bools, Floats
from robandit.monitor.contradiction import lower_bound
from robandit.monitor.groups import SUMS, Groups
from robandit.monitor.radii import Assumptions

_MORE = 1.5  # how many times as much blaming the others must cost
_MOST = 12  # the most sources that are tried
_DEAR = 1e-3  # factor of the corruption per round that a source may have which is taken to be honest
_LEAST = 3  # with two sources, each explains everything alone


def find_suspect(groups: Groups, assumed: Assumptions) -> int | None:
    """The place of the source that may be named, of the groups of one stream."""
    heard = np.flatnonzero(groups.reach[0] > 0.0)
    bound = lower_bound(groups, assumed)
    if len(heard) < _LEAST or not bound.value[0]:
        return None
    weight = bound.voice[0] + bound.placed[0] / bound.placed[0].sum()  # the others change next to nothing
    tried = heard[np.argsort(-weight[heard])][:_MOST]
    without = np.array([lower_bound(_dropped(groups, place), assumed).value[0] for place in tried.tolist()])
    if np.count_nonzero(without == 0.0) != 1:
        return None
    suspect = int(tried[int(np.argmin(without))])
    pair = _against_the_rest(groups, suspect)
    guilty, innocent = (_cost(pair, assumed, honest) for honest in (1, 0))
    return suspect if innocent >= _MORE * guilty > 0.0 else None


def _dropped(groups: Groups, place: int) -> Groups:
    """The groups without the rounds of one of them."""
    kept = {name: getattr(groups, name).copy() for name in SUMS}
    for array in kept.values():
        array[:, place] = 0.0
    return groups._replace(**kept)


def _against_the_rest(groups: Groups, place: int) -> Groups:
    """One group and all others as one: they agree, and as many small groups each would be excused for its own noise."""
    rest = np.arange(groups.reach.shape[1]) != place
    totals = {name: _pair(getattr(groups, name), place, rest, np.add) for name in ("gram", "moment", "weight")}
    peaks = {name: _pair(getattr(groups, name), place, rest, np.maximum) for name in ("reach", "peaks")}
    length, share = (_pair(array[None], place, rest, np.add)[0] for array in (groups.length, groups.share))
    return Groups(**totals, **peaks, length=length, share=share)


def _pair(array: Floats, place: int, rest: Bools, together: np.ufunc) -> Floats:
    """One item of the second axis, and the others put together."""
    return np.stack([array[:, place], together.reduce(array[:, rest], axis=1)], axis=1)


def _cost(groups: Groups, assumed: Assumptions, honest: int) -> float:
    """The least corruption that explains the groups, if one is honest: there it costs a thousand times as much."""
    reach, peaks = groups.reach.copy(), groups.peaks.copy()
    reach[:, honest] *= _DEAR
    peaks[:, honest] *= _DEAR
    return float(lower_bound(groups._replace(reach=reach, peaks=peaks), assumed).value[0])
