"""Compiles the kernels for a Hopper GPU, which needs none, and prints a line for each: its name and its stack's bytes.

Run in a process of its own, without the interpreter.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from robandit import CWOFUL, OFUL, Greedy, MultiLevelWeightedOFUL, Quorum, WeightedOFUL
from robandit.lab import attacks, environments
from robandit.lab.gpu.launch import Device, prepare_launches
from robandit.lab.gpu.plan import plan
from robandit.lab.protocol import Scenario

INTEGERS = {"seed": "i64", "when": "*i8", "checkpoints": "*i32", "totals": "*fp64", "used": "*i32"}
INTEGERS |= dict.fromkeys(("first", "lanes", "here", "begin", "end", "fresh", "t"), "i32")
INTEGERS |= dict.fromkeys(("wholes", "standings", "table"), "*i32")
INTEGERS |= dict.fromkeys(("terms", "forms", "quadratics", "reals", "trust", "singles", "desk", "point"), "*fp64")


def hopper() -> Any:
    """The GPU to compile for. Triton is imported here, since tests that collect this file interpret kernels."""
    from triton.backends.compiler import GPUTarget

    return GPUTarget("cuda", 90, 32)


def stack(kernel: Any, make: Any, environment: Any, attack: Any, **kind: Any) -> int:
    """The bytes of the stack, into which registers are spilled, of a kernel that is compiled for a scenario."""
    import triton
    from triton.compiler import ASTSource

    what = plan(make, Scenario(environment, attack, [0]), rounds=100, seed=1)
    names = [parameter.name for parameter in kernel.params]
    constants: dict[str, Any] = {"W": what.world_kind._replace(**kind), "P": what.policy_kind}
    constants |= {} if what.quorum is None else {"Q": what.quorum.kind}
    constants = {name: value for name, value in constants.items() if name in names}
    types = {name: INTEGERS.get(name, "*fp32") for name in names} | dict.fromkeys(constants, "constexpr")
    source = ASTSource(kernel, types, {(names.index(name),): value for name, value in constants.items()})
    done = triton.compile(source, target=hopper(), options={"num_warps": 1, "maxnreg": what.registers})
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(done.asm["cubin"])
        file.flush()
        told = subprocess.run([tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True)
    return int(re.findall(r"STACK:(\d+)", told.stdout)[0])


def compiled_by_launches() -> int:
    """How often a kernel of Multi-level's is compiled for two runs with other integers, through the launches' own code.

    A driver that only says which GPU there is stands in for a real one, and the last step, the start, is left out.
    """
    import torch
    from triton.runtime.driver import driver
    from triton.runtime.jit import JITFunction

    from robandit.lab.gpu.kernels.levels import play_levels_fresh, play_levels_held

    answers = {"get_current_target": hopper(), "get_current_device": 0, "get_current_stream": 0}
    driver.set_active(SimpleNamespace(**{name: partial(_answer, value) for name, value in answers.items()}))
    start = JITFunction.run
    JITFunction.run = lambda self, *given, **more: start(self, *given, **{**more, "warmup": True})
    scenario = Scenario(environments.Paper(), attacks.Flip(rounds=3), range(64))
    what = plan(partial(MultiLevelWeightedOFUL, radius_scale=0.01), scenario, rounds=20, seed=1)
    for fresh, trials in ((3, range(5)), (16, range(16, 48))):
        device, at = Device(torch, "cpu"), np.array([5, 20])
        for launch in prepare_launches(what._replace(fresh=fresh), trials, 20, 1, at, device)[1]:
            launch()
    kernels = play_levels_fresh, play_levels_held
    return max(sum(len(held[0]) for held in kernel.device_caches.values()) for kernel in kernels)


def _answer(value: object, *_: object) -> object:
    return value


def main() -> None:
    from robandit.lab.gpu.kernels.ellipsoid import play_fresh, play_held
    from robandit.lab.gpu.kernels.levels import play_levels_fresh, play_levels_held
    from robandit.lab.gpu.kernels.quorum import play_quorum_fresh, play_quorum_held
    from robandit.lab.gpu.kernels.votes import vote

    print("compiled", compiled_by_launches())
    flips, levels = attacks.Flip(rounds=9), partial(MultiLevelWeightedOFUL, radius_scale=0.01)
    paper, fresh, clicks = environments.Paper(), environments.Fresh(), environments.Bernoulli()
    print("held", stack(play_held, WeightedOFUL, paper, flips))
    print("held", stack(play_held, CWOFUL, paper, attacks.SuppressBest()))
    print("held", stack(play_held, OFUL, clicks, attacks.ClickFraud()))
    coins = environments.Paper(noise="two-point", sigma_low=0.01)
    print("held", stack(play_held, Greedy, coins, attacks.RandomFlips()))
    print("fresh", stack(play_fresh, WeightedOFUL, fresh, flips))
    print("recorded", stack(play_fresh, WeightedOFUL, fresh, attacks.OracleTarget(target=3), record=True))
    print("fresh", stack(play_fresh, WeightedOFUL, fresh, flips, precision="ieee"))
    visited, lied = environments.Clicks(sources=10), attacks.SourcePromote(liars=3)
    differing = environments.Clicks(sources=10, zeta=0.05)
    measured = environments.Fresh(sources=32, zeta=0.1)
    print("held", stack(play_held, OFUL, visited, lied))
    print("held", stack(play_held, WeightedOFUL, measured, lied))
    print("fresh", stack(play_fresh, OFUL, differing, lied))
    print("leaning", stack(play_fresh, WeightedOFUL, measured, attacks.SourceNoise()))
    print("levels", stack(play_levels_held, levels, measured, attacks.SourceSuppress()))
    print("levels", stack(play_levels_fresh, levels, paper, flips))
    print("levels", stack(play_levels_held, levels, paper, flips))
    for kernel in (play_quorum_fresh, play_quorum_held, vote):
        print("quorum", stack(kernel, Quorum, paper, flips))


if __name__ == "__main__":
    main()
