"""The norms in which groups are compared: one that treats all columns alike, and one in which one column stands out.

Somebody who adds clicks, or who always takes something away, moves the mean of the rewards. In a norm that treats all
features alike this is diluted by the others. Where a column hardly varies, as a constant does, a norm in which that
column counts most sees nearly all of it. Both share δ, so the better can be picked for each group.
"""

from __future__ import annotations

import numpy as np

from robandit.arrays import TINY, Floats
from robandit.monitor.cones import Cones
from robandit.monitor.groups import Groups, rank_shares
from robandit.monitor.radii import Assumptions, Spectra, Stretch

_ALIKE = 0.75  # the share of δ that the norm has which treats all columns alike
_POWER, _STEP = 7.0, 3.0  # the other columns are divided by 2⁷ at least, and by 2³ more where they are larger
_MOST = 6.0  # the most such steps


class Norms:
    """The two norms for each group of B streams."""

    def __init__(self, groups: Groups, assumed: Assumptions, guess: Floats) -> None:
        if assumed.regularization is not None:  # λ is given, and so is the norm
            self._spectra = [Spectra(groups, assumed, guess)]
            return
        alike = groups._replace(share=_ALIKE * groups.share)
        self._spectra = [Spectra(alike, assumed, guess), Spectra(*_stretched(groups, assumed, guess))]

    def cones(self, parameter: Floats) -> Cones:
        """The problem with the norm and the λ for each group that say most at μ (B, d)."""
        best, most = self._spectra[0].cones(parameter)
        for spectra in self._spectra[1:]:
            found, says = spectra.cones(parameter)
            for old, new in zip(best, found, strict=True):
                old[says > most] = new[says > most]
        return best


def _stretched(groups: Groups, assumed: Assumptions, guess: Floats) -> tuple[Groups, Assumptions, Floats, Stretch]:
    """The groups in coordinates in which the column stands out that varies least, and what `Spectra` needs beside.

    The column and the power of 2 depend on what was seen. Each of them has its share of δ, whatever is chosen.
    """
    batch, number, dim = groups.moment.shape
    squares, peaks = np.diagonal(groups.gram, axis1=2, axis2=3).sum(axis=1), groups.peaks.max(axis=1, initial=0.0)
    even = squares / np.maximum(peaks**2, TINY)
    column = dim - 1 - even[:, ::-1].argmax(axis=1)  # of equals the last, where a constant usually stands
    peak = np.take_along_axis(groups.peaks, column[:, None, None], axis=2)[..., 0]
    ratio = np.maximum(groups.reach, TINY) / np.maximum(peak, TINY)
    steps = np.clip(np.ceil(np.log2(ratio) / _STEP) - 1.0, 0.0, _MOST)
    power = _POWER + _STEP * steps
    factor = np.broadcast_to(2.0 ** -power[..., None], (batch, number, dim)).copy()
    np.put_along_axis(factor, column[:, None, None], 1.0, axis=2)
    rest = groups.reach * 2.0**-power
    share = (1.0 - _ALIKE) * groups.share * rank_shares(dim - 1.0 - column)[:, None] * rank_shares(steps)
    return (
        groups._replace(
            gram=groups.gram * factor[..., None] * factor[:, :, None],
            moment=groups.moment * factor,
            reach=np.sqrt(peak**2 + rest**2),
            share=share,
        ),
        assumed,
        guess,
        Stretch(column, factor, peak, rest),
    )
