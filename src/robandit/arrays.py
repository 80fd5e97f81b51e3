"""The kinds of arrays that everything is made of, and a constant that keeps quotients finite."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int64]
Index: TypeAlias = NDArray[np.intp]
Rows: TypeAlias = slice | Index

ALL = slice(None)
"""Selects all rows."""
TINY = 1e-300
"""Keeps a quotient finite where its denominator may be zero."""
