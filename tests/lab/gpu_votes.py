"""States of quorums to vote on: from runs, and of random groups; and the vote by the policy and by the kernel."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from robandit import Quorum
from robandit.arrays import count_to
from robandit.lab import attacks
from robandit.lab.environments import Fresh
from robandit.lab.gpu.launch import Device
from robandit.lab.gpu.plan import plan
from robandit.lab.gpu.quorum import QuorumPlan, quorum_plan, quorum_state
from robandit.lab.protocol import Scenario, simulate

Found: TypeAlias = dict[str, Any]
_ROWS = ("slot", "side", "spell", "since", "last", "counts")  # the whole numbers of a group, in the kernels' order


class State(NamedTuple):
    """Quorums, (B,), right before a vote, and the round after which they vote."""

    policy: Quorum
    now: int


class Kept(Quorum):
    """A quorum that can be looked at after a run."""

    made: ClassVar[list[Quorum]] = []

    def start(self) -> Any:
        self.made.append(self)
        return super().start()


def run_state(environment: Any, attack: Any, rounds: int, trials: int = 3) -> State:
    """The state that a run leads to."""
    scenario, sources = Scenario(environment, attack, range(trials)), max(1, environment.sources)
    policy = partial(Kept, max_sources=sources)
    simulate(policy=policy, scenarios=[scenario], rounds=rounds, seed=3, at=np.array([rounds]))
    return State(Kept.made.pop(), rounds)


def random_state(seed: int, sources: int, trials: int = 3, groups: int = 9, dim: int = 5) -> State:
    """Groups of which some lie, in two spells of each source, on both of its sides, believed at random so far."""
    rng = np.random.default_rng(seed)
    policy = Quorum(dim=dim, noise_range=0.5, seed=1, trials=trials, max_sources=sources)
    held, truth, now = policy.stats.groups, rng.normal(size=(trials, dim)) / dim**0.5, 16 * groups
    held.make_room(groups)
    for trial in range(trials):
        for group in range(groups):
            actions, liar = rng.normal(size=(16, dim)) * rng.uniform(0.1, 1.0), rng.random() < 0.35
            told = actions @ (truth[trial] * (-1.0 if liar else 1.0)) + rng.normal(size=16) * 0.05
            weights = np.full(16, 400.0)
            held.precision[trial, group] = np.einsum("n,ni,nj->ij", weights, actions, actions)
            held.target[trial, group], held.squares[trial, group] = (weights * told) @ actions, weights @ told**2
            held.mass[trial, group], held.counts[trial, group] = weights.sum(), 16
            held.slot[trial, group], held.side[trial, group] = rng.integers(sources), rng.integers(2)
            held.spell[trial, group], held.weight[trial, group] = rng.integers(2), rng.choice([0.0, 0.3, 1.0])
            held.since[trial, group], held.last[trial, group] = 16 * group + 1, 16 * group + 16
        held.now[trial] = 1
    at = count_to(trials)
    weight = held.weight[..., None]
    precision = np.eye(dim) * policy.lam + (weight[..., None] * held.precision)[:, :groups].sum(axis=1)
    policy.stats.ridge.refit(at, precision, (weight * held.target)[:, :groups].sum(axis=1))
    policy.stats.noise[:] = rng.uniform(0.8, 2.0, trials)
    return State(policy, now)


def by_policy(state: State) -> Found:
    """What the policy's vote leaves behind."""
    policy, stats = state.policy, state.policy.stats
    policy = type(policy).from_state(policy.state())
    stats = policy.stats
    policy._vote(count_to(policy.batch), np.full(policy.batch, state.now))
    groups, used = stats.groups, stats.groups.used(count_to(policy.batch))
    found = {"weight": groups.weight, "side": groups.side, "spell": groups.spell}
    found = {name: np.where(groups.slot >= 0, array, 0)[:, :used] for name, array in found.items()}
    inverse = stats.ridge.root @ np.swapaxes(stats.ridge.root, 1, 2)
    found |= {"current": groups.current, "now": groups.now, "noise": stats.noise, "trust": stats.trust}
    doubted = (stats.doubted >= 0).sum(axis=1)
    return found | {"mean": stats.ridge.mean, "root": inverse, "dismissed": stats.dismissed, "doubted": doubted}


def by_kernel(state: State) -> Found:
    """What the kernel's vote leaves behind."""
    from robandit.lab.gpu.kernels.votes import vote

    policy, device = state.policy, Device.find()
    kind = plan(Quorum, Scenario(Fresh(dim=policy.dim), attacks.NoAttack(), [0]), 1, 1).world_kind
    what, batch = quorum_plan(policy, policy.stats.groups.current.shape[1], kind.wide, kind.tall), policy.batch
    _, more = quorum_state(what, batch, 1, device)
    _load(state, what, more)
    roots, centers = device.filled((batch, kind.wide, kind.wide), 0.0), device.filled((batch, 2, kind.wide), 0.0)
    vote[(batch,)](roots, centers, state.now, *more, kind, what.kind, num_warps=1)
    _, _, _, reals, wholes, standings, trust, singles = (array.cpu().numpy() for array in more[:8])
    used, dim = policy.stats.groups.used(count_to(batch)), policy.dim
    root = roots.cpu().numpy()[:, :dim, :dim].astype(float)
    found = {"weight": reals[:, 1, :used], "side": wholes[:, 1, :used], "spell": wholes[:, 2, :used]}
    slots = what.kind.number
    found |= {"current": np.swapaxes(standings[:, :2, :slots], 1, 2), "now": standings[:, 2, :slots]}
    found |= {"noise": singles[:, 4], "trust": trust[:, :slots]}
    found |= {"mean": centers.cpu().numpy()[:, 0, :dim], "root": np.swapaxes(root, 1, 2) @ root}
    return found | {"dismissed": singles[:, 7], "doubted": singles[:, 6]}


def _load(state: State, what: QuorumPlan, more: list[Any]) -> None:
    """Put what a policy has learnt where the kernel finds it."""
    stats, torch = state.policy.stats, Device.find().torch
    groups, used = stats.groups, stats.groups.used(count_to(state.policy.batch))
    _, forms, _, reals, wholes, standings, trust, singles = more[:8]
    row, column = np.triu_indices(state.policy.dim + 1)
    matrix = np.concatenate([groups.precision, groups.target[:, :, None]], axis=2)
    last = np.concatenate([groups.target, groups.squares[:, :, None]], axis=2)
    whole = np.concatenate([matrix, last[..., None]], axis=3)[:, :used]
    forms[:, :used, : what.kind.size] = torch.from_numpy(whole[:, :, row, column])
    for place, name in enumerate(_ROWS):
        wholes[:, place, :used] = torch.from_numpy(np.maximum(getattr(groups, name)[:, :used], 0))
    wholes[:, 6, :used] = 1  # changed
    for place, numbers in enumerate((groups.mass, groups.weight)):
        reals[:, place, :used] = torch.from_numpy(numbers[:, :used])
    slots = what.kind.number
    standings[:, :2, :slots] = torch.from_numpy(np.swapaxes(groups.current, 1, 2).copy())
    standings[:, 2, :slots], trust[:, :slots] = torch.from_numpy(groups.now), torch.from_numpy(stats.trust)
    singles[:, 3] = torch.from_numpy((groups.slot >= 0).sum(axis=1))
    singles[:, 4] = torch.from_numpy(stats.noise)
