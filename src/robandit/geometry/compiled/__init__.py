"""The kernels of `ridge`, `ellipsoid` and `intersection`, compiled by Numba: the same formulas as loops over trials.

Large products of matrices stay with BLAS, which no loop beats; what is here goes through each trial once instead of
once per NumPy call. Each trial is computed by itself, so its bits do not depend on the batch. They differ from NumPy's
in the last places, since sums are added up in another order.
"""

from robandit.geometry.compiled.ellipsoid import leading
from robandit.geometry.compiled.intersection import EMPTY, HARD, SETTLED, intersect, separated, separators
from robandit.geometry.compiled.ridge import update
from robandit.geometry.compiled.sums import add
from robandit.geometry.compiled.surprise import judge

__all__ = ["EMPTY", "HARD", "SETTLED", "add", "intersect", "judge", "leading", "separated", "separators", "update"]
