"""Who may be named: nobody, unless blaming anybody else costs clearly more.

A proof is about the total. A source is named only if it passes three tests, for which ``lower_bound`` is the judge:

1. Without it, nothing is proved of the others: they agree with each other.
2. Without any other source, corruption is still proved: so no other source explains it alone.
3. If it alone were honest, the others would have had to alter clearly more than it would have had to alone.

If only one source lies and the assumptions hold, then an honest one passes the second test with probability at most δ:
the others, without the liar, would have to contradict each other. A source with most of the traffic fails the third:
that it lies, and that all others do, look alike.
"""

from __future__ import annotations

import numpy as np

from robandit.arrays import Floats, Index
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
    guilty, innocent = (_cost(groups, assumed, heard[(heard == suspect) == honest]) for honest in (False, True))
    return suspect if innocent >= _MORE * guilty > 0.0 else None


def _dropped(groups: Groups, place: int) -> Groups:
    """The groups without the rounds of one of them."""
    kept = {name: getattr(groups, name).copy() for name in SUMS}
    for array in kept.values():
        array[:, place] = 0.0
    return groups._replace(**kept)


def _cost(groups: Groups, assumed: Assumptions, honest: Index) -> float:
    """The least corruption that explains the groups, if some are honest: there it costs a thousand times as much."""
    reach: Floats = groups.reach.copy()
    reach[:, honest] *= _DEAR
    return float(lower_bound(groups._replace(reach=reach), assumed).value[0])
