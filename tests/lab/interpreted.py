"""Prepares Triton's interpreter, in which kernels run without a GPU; where Triton is missing, tests are skipped."""

from __future__ import annotations

import os
from typing import Any

import pytest

os.environ.setdefault("TRITON_INTERPRET", "1")  # read when the kernels are imported
pytest.importorskip("torch", reason="needs PyTorch: make test-gpu")
interpreter = pytest.importorskip("triton.runtime.interpreter", reason="needs Triton: make test-gpu")
_prepared: set[str] = set()


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a helper of a kernel. Triton itself prepares its language anew for each call, in half of the time."""
    if self.fn.__module__ not in _prepared:
        _prepared.add(self.fn.__module__)
        interpreter._patch_lang(self.fn)
    return self.rewrite()(*args, **kwargs)


interpreter.InterpretedFunction.__call__ = _call
