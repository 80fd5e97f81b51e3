"""Plays trials on a GPU, with PyTorch for memory and Triton for the work; this can be imported without them.

Worlds are the GPU's own: the same distributions as on the CPU, other numbers. A trial's numbers depend on the seed, the
trial and the round alone, so every policy sees the same worlds here, too, whatever the batch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from robandit.arrays import Floats, Ints
from robandit.errors import ConfigError, install
from robandit.lab.gpu.plan import POINT, UNIT, Plan, PolicyKind, plan
from robandit.lab.gpu.quorum import COUNTS, VOTE_REGISTERS, quorum_state, spans
from robandit.lab.gpu.worlds import ends_of
from robandit.lab.protocol import MakePolicy, Scenario, Trace
from robandit.streams import ENVIRONMENT

COLUMNS = ("regret", "reward", "c_sup", "c_play", "lies", "gap", "smallest_gap")
"""What the kernels write down at each checkpoint, in this order; in worlds with sources, the visitor's and the lies in
the name of each come after these."""
_COUNTS = 32  # as in kernels.levels
_EXTRA = 5  # numbers of a recorded round beside its set and its noise: σ, the coin, the place, the reward, the source


class Device(NamedTuple):
    """Where kernels run: a GPU, or a CPU that interprets them."""

    torch: Any
    name: str
    """PyTorch's name of the device that holds the arrays."""

    @classmethod
    def find(cls) -> Device:
        """The GPU, or the interpreter where ``TRITON_INTERPRET`` is 1."""
        try:
            import torch
            import triton  # noqa: F401  so that what is missing is said here
        except ImportError as error:
            raise ConfigError(f"device cuda needs PyTorch with Triton: {install('gpu')} ({error})") from None
        if os.environ.get("TRITON_INTERPRET") == "1":
            return cls(torch, "cpu")
        if not torch.cuda.is_available():
            raise ConfigError(
                "device cuda: PyTorch sees no GPU here; leave out --device, or set TRITON_INTERPRET=1 to try the "
                "kernels on the CPU, slowly"
            )
        return cls(torch, "cuda")

    def array(self, values: Any, kind: str) -> Any:
        """An array of this type on the device."""
        return self.torch.from_numpy(np.array(values, dtype=kind)).to(self.name)

    def filled(self, shape: tuple[int, ...], value: float, kind: str = "float32") -> Any:
        """An array full of one value."""
        return self.torch.full(shape, value, dtype=getattr(self.torch, kind), device=self.name)


class Played(NamedTuple):
    """What a launch leaves on the device."""

    columns: Any
    """(checkpoints, columns, B), in float32: `COLUMNS`, and those of the sources."""
    record: Any
    """Every round, (B, rounds, numbers), if the plan asks for it."""
    used: Any
    """What a policy counts, (checkpoints, B, numbers): `quorum.COUNTS`, or for a policy with levels empty sets, the
    rounds of each level and steps of the cascade."""


def whole(parts: Sequence[Played], device: Device) -> Any:
    """The columns of all trials, (checkpoints, columns, B), which must have been written."""
    columns = device.torch.cat([part.columns for part in parts], 2)
    if bool(columns.isnan().any()):
        raise RuntimeError("a kernel left some results unwritten; leave out --device, and please report this")
    return columns


def key_of(seed: int) -> int:
    """The key of Philox that belongs to a seed; 63 bits, since Triton's integers have a sign."""
    return int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0] >> np.uint64(1))


def play(what: Plan, trials: Sequence[int], rounds: int, seed: int, at: Ints, device: Device) -> Played:
    """Play consecutive ``trials`` of a plan, and keep the columns at the rounds ``at``."""
    found, launches = prepare_launches(what, trials, rounds, seed, at, device)
    records = [record for launch in launches if (record := launch()) is not None]
    return found._replace(record=device.torch.cat(records, 1)) if what.world_kind.record else found


def prepare_launches(
    what: Plan, trials: Sequence[int], rounds: int, seed: int, at: Ints, device: Device
) -> tuple[Played, list[Callable[[], Any]]]:
    """Put on the device what `play` needs. Gives where the columns will be, and the launches to make, in order."""
    more_columns = what.world_kind.sources + 1 if what.world_kind.sources else 0
    out = device.filled((len(at), len(COLUMNS) + more_columns, len(trials)), np.nan)
    held = [*_inputs(what, trials, seed, at, device), *_start(what, len(trials), device)]
    places = key_of(seed), trials[0], len(trials)
    if what.quorum is not None:
        used, launches = _quorum_launches(what, out, held, places, rounds, at, device)
        return Played(out, None, used), launches
    used, more = (None, []) if what.levels is None else _level_state(what, len(trials), len(at), device)
    return Played(out, None, used), [
        partial(_launch, what, out, held, (*places, *phase), more, kernel, device)
        for kernel, *phase in _phases(what, rounds, at)
    ]


def _level_state(what: Plan, lanes: int, looks: int, device: Device) -> tuple[Any, list[Any]]:
    """The counts of a policy with levels, and what its kernels get beside the others' arrays.

    That is radii, S and S⁻¹, μ, and where a trial puts X, V, m, D and μ of all rounds when it has to search.
    """
    assert what.levels is not None
    kind, levels = what.world_kind, what.policy_kind.levels
    used = device.filled((looks + 1, lanes, _COUNTS), 0, "int32")
    unit, start = device.torch.eye(kind.dim, device=device.name), what.learner.start
    store = (unit / start).repeat(lanes, 2 * levels + 1, 1, 1)
    store[:, 1::2] = unit * start
    centers = device.filled((lanes, levels + 1, kind.wide), 0.0)
    shelf = device.filled((lanes, 2 * kind.wide * kind.tall + 2 * kind.tall + kind.wide), 0.0)
    radii = [device.array(values, "float32") for values in (what.levels.gammas, what.levels.steps)]
    return used, [*radii, store, centers, shelf, used]


def _quorum_launches(
    what: Plan, out: Any, held: Sequence[Any], places: tuple[int, ...], rounds: int, at: Ints, device: Device
) -> tuple[Any, list[Callable[[], Any]]]:
    """The counts of a quorum, and its launches: rounds, a vote, rounds, …"""
    from robandit.lab.gpu.kernels.quorum import play_quorum_fresh, play_quorum_held

    assert what.quorum is not None
    used, more = quorum_state(what.quorum, places[2], len(at), device)
    found: list[Callable[[], Any]] = []
    for begin, end, votes in spans(rounds, what.fresh):
        kernel = play_quorum_fresh if end <= what.fresh else play_quorum_held
        phase = int(np.count_nonzero(at < begin)), begin, end
        found.append(partial(_launch, what, out, held, (*places, *phase), [used, *more], kernel, device))
        if votes:
            found.append(partial(_vote, what, held, more, places[2], end))
    return used, found


def _vote(what: Plan, held: Sequence[Any], more: Sequence[Any], lanes: int, end: int) -> None:
    """Let all trials vote after a round."""
    from robandit.lab.gpu.kernels.votes import vote

    assert what.quorum is not None
    kinds = what.world_kind, what.quorum.kind
    vote[(lanes,)](*held[8:10], end, *more, *kinds, num_warps=1, maxnreg=VOTE_REGISTERS)


def _launch(
    what: Plan, out: Any, held: Sequence[Any], places: tuple[int, ...], more: Sequence[Any], kernel: Any, device: Device
) -> Any:
    """Launch a kernel, a program for each trial. Gives its rounds, (B, rounds, numbers), if the plan asks for them."""
    kind, lanes, begin, end = what.world_kind, places[2], *places[-2:]
    shape = (lanes, end + 1, kind.tall * (kind.wide + 1) + _EXTRA) if kind.record else (1,)
    record = device.filled(shape, np.nan)
    constants = (kind, what.policy_kind) if what.quorum is None else (kind, what.policy_kind, what.quorum.kind)
    kernel[(lanes,)](out, record, *held, *places, *more, *constants, num_warps=1, maxnreg=what.registers)
    return record[:, begin : end + 1] if kind.record else None


def _phases(what: Plan, rounds: int, at: Ints) -> list[tuple[Any, int, int, int]]:
    """The kernels to launch, each with its first checkpoint, its first round and its last."""
    from robandit.lab.gpu.kernels.ellipsoid import play_fresh, play_held
    from robandit.lab.gpu.kernels.levels import play_levels_fresh, play_levels_held

    by_fresh, by_held = (play_fresh, play_held) if what.levels is None else (play_levels_fresh, play_levels_held)
    fresh = what.fresh
    found: list[tuple[Any, int, int, int]] = []
    if fresh:
        found.append((by_fresh, 0, 1, fresh))
    if fresh < rounds:
        found.append((by_held, int(np.count_nonzero(at <= fresh)), fresh + 1, rounds))
    return found


def _inputs(what: Plan, trials: Sequence[int], seed: int, at: Ints, device: Device) -> list[Any]:
    """The arrays that kernels read, in the order of their parameters."""
    lanes = len(trials)
    offsets, thresholds = np.zeros(lanes), np.full(lanes, what.threshold)
    if what.by_corruption is not None:
        offsets, thresholds = what.by_corruption(_rehearse(what, trials, seed, device))
    floats = [[*what.world, *ends_of(what.environment)], what.learner]
    return [
        *(device.array(numbers, "float32") for numbers in floats),
        device.array(what.when, "int8"),
        *(
            device.array(numbers, "float32")
            for numbers in (what.radii, offsets, thresholds, _truth(what, trials, seed))
        ),
        device.array([*at, 0], "int32"),
    ]


def _truth(what: Plan, trials: Sequence[int], seed: int) -> Floats:
    """μ* of each trial and the leans of its sources, padded with zeros, (B, 1 + leans, wide)."""
    kind, draw = what.world_kind, _BulkDraws(seed, trials)
    found = np.zeros((len(trials), 1 + kind.leans, kind.wide))
    found[:, 0, : kind.dim] = what.environment.parameters(draw)(0)  # type: ignore[arg-type]
    if kind.leans:
        found[:, 1:, : kind.dim] = what.environment.traffic(draw).leans  # type: ignore[arg-type]
    return found


def _start(what: Plan, lanes: int, device: Device) -> list[Any]:
    """The state before the first round: S, then μ and log det Σ/λ, and the sums in double and single precision."""
    wide, slots = what.world_kind.wide, what.world_kind.slots
    counts = device.filled((lanes, slots + 1), 0.0)
    counts[:, slots] = np.inf  # the smallest gap
    root = device.torch.eye(wide, device=device.name) * what.learner.start
    roots = root.repeat(lanes, 1, 1)
    return [roots, device.filled((lanes, 2, wide), 0.0), device.filled((lanes, 4), 0.0, "float64"), counts]


def _rehearse(what: Plan, trials: Sequence[int], seed: int, device: Device) -> Floats:
    """C_sup at the end of each trial, (B,): what a weak attack spends, whoever plays."""
    plain = what._replace(
        by_corruption=None,
        levels=None,
        registers=None,
        policy_kind=PolicyKind(UNIT, POINT, False),
        world_kind=what.world_kind._replace(record=False),
    )
    rounds = len(what.when) - 1
    spent = play(plain, trials, rounds, seed, np.array([rounds]), device).columns[0, COLUMNS.index("c_sup")]
    return spent.cpu().numpy().astype(float)


class _BulkDraws:
    """Stands in for `streams.Draws` where a hundred thousand trials draw a few numbers each, once."""

    def __init__(self, seed: int, trials: Sequence[int]) -> None:
        self._seed, self._trials, self._made = seed, trials, 0

    def __len__(self) -> int:
        return len(self._trials)

    def normal(self, *shape: int) -> _Numbers:
        return self._drawn(shape, np.random.Generator.standard_normal)

    def uniform(self, *shape: int) -> _Numbers:
        return self._drawn(shape, np.random.Generator.random)

    def _drawn(self, shape: tuple[int, ...], how: Callable[..., Any]) -> _Numbers:
        self._made += 1
        source = np.random.Philox(np.random.SeedSequence(self._seed, spawn_key=(ENVIRONMENT, self._made)))
        numbers = how(np.random.Generator(source), (self._trials[-1] + 1, *shape))  # a trial's, whatever the batch
        return _Numbers(numbers[self._trials[0] :])


class _Numbers:
    """Numbers of round 0."""

    def __init__(self, numbers: Floats) -> None:
        self._numbers = numbers

    def at(self, round_: int) -> Floats:
        assert round_ == 0, "only what is drawn once for a trial is drawn in bulk"
        return self._numbers


def simulate_each(
    *,
    policies: Sequence[MakePolicy],
    scenarios: Sequence[Scenario],
    rounds: int,
    seed: int,
    at: Ints,
    progress: Callable[[int], object] | None = None,
) -> list[Trace]:
    """Do on the device what `protocol.simulate_each` does on the CPU."""
    device, traces = Device.find(), []
    for policy in policies:
        plans = [plan(policy, scenario, rounds, seed) for scenario in scenarios]
        parts = [
            play(what, scenario.trials, rounds, seed, at, device)
            for what, scenario in zip(plans, scenarios, strict=True)
        ]
        traces.append(_trace(parts, at, plans[0], device))
    if progress is not None:
        progress(rounds)
    return traces


def _trace(parts: Sequence[Played], at: Ints, what: Plan, device: Device) -> Trace:
    """The trace of what kernels wrote down in some scenarios."""
    columns = whole(parts, device).cpu().numpy().astype(float).transpose(1, 0, 2)
    named, sources = dict(zip(COLUMNS, columns, strict=False)), columns[len(COLUMNS) :].astype(np.int64)
    shape = named["regret"].shape
    used, levels, info = np.zeros((*shape, 0), np.int64), what.policy_kind.levels, {}
    if parts[0].used is not None:
        used = device.torch.cat([part.used[:-1] for part in parts], 1).cpu().numpy().astype(np.int64)
        names = COUNTS if what.quorum is not None else ("empty", *range(1, levels + 1), "cascade")
        info = {name: used[:, :, place] for place, name in enumerate(names) if isinstance(name, str)}
    return Trace(
        round=at,
        **{name: values for name, values in named.items() if name != "lies"},
        lies=named["lies"].astype(np.int64),
        updates=np.broadcast_to(at[:, None], shape).copy(),
        proved=np.full(shape, np.nan),
        source=sources[0] if len(sources) else np.full(shape, -1, np.int64),
        lies_by_source=sources[1:].transpose(1, 2, 0),
        level_use=used[:, :, 1 : levels + 1],
        info=info,
    )
