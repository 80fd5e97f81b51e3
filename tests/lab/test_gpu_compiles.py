"""The kernels compile for a GPU, on a machine without one, and their state fits into registers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu


def test_kernels_compile_for_a_hopper_gpu_and_spill_hardly_anything() -> None:
    pytest.importorskip("triton", reason="needs Triton: make test-gpu")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    script = Path(__file__).with_name("compiled_kernels.py")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    (_, times), *stacks = [line.split() for line in done.stdout.splitlines()]
    assert times == "1"  # other numbers of trials and rounds are no reason to compile anew
    names = [*(4 * ["held"]), "fresh", "recorded", "fresh", "held", "held", "fresh", "leaning"]
    names += [*(3 * ["levels"]), *(3 * ["quorum"])]
    assert [name for name, _ in stacks] == names
    assert max(int(size) for name, size in stacks if name in ("held", "fresh")) <= 64, done.stdout
    assert max(int(size) for name, size in stacks if name == "quorum") <= 1024, done.stdout  # where groups merge: rare
    assert max(int(size) for name, size in stacks if name == "levels") <= 2048, (
        done.stdout
    )  # in a search, which is rare
