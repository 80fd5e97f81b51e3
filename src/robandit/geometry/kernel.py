"""Which kernel computes: NumPy's, or the compiled one."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from robandit.errors import install

KERNELS = "numpy", "numba"
"""The names of all kernels. Their results differ in the last places."""


def load_kernel(name: str) -> Any:
    """The module `compiled` for "numba"; None for "numpy".

    >>> load_kernel("numpy") is None
    True
    """
    if name == "numpy":
        return None
    try:
        return import_module("robandit.geometry.compiled")
    except ImportError as error:
        raise ImportError(f"kernel='numba' needs Numba ({error}): {install('fast')}, or use kernel='numpy'") from error
