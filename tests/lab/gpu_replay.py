"""Plays trials by a kernel, and then the same rounds once more by the lab's own objects, in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from robandit.arrays import Floats, Ints
from robandit.lab.attacks import Adversary
from robandit.lab.environments import Menu, Offer
from robandit.lab.gpu.launch import Device, _BulkDraws, _rehearse, play
from robandit.lab.gpu.plan import Plan, plan
from robandit.lab.protocol import REALISED, MakePolicy, Scenario, prepare


class Replayed(NamedTuple):
    """How far a kernel and the lab's own objects are apart."""

    changed: float
    """The share of rounds in which float64 would have chosen another action."""
    behind: float
    """By how much the worst of these actions is behind the best, in terms of its half-width or its value."""
    reward: float
    """The largest difference of a reward that the policy was told."""
    columns: float
    """The largest difference of what was written down at the checkpoints."""
    climbed: int
    """Levels that were climbed because their sets were empty."""
    counts: int
    """The largest difference of what a quorum counts: votes, doubted sources, rewards that are not believed."""


class Recorded:
    """A stream that gives the numbers which a kernel drew."""

    def __init__(self, numbers: Floats) -> None:
        self._numbers = numbers  # (B, rounds)

    def at(self, round_: int) -> Floats:
        return self._numbers[:, round_ - 1]


class Rounds(NamedTuple):
    """What a kernel drew and did, (B, rounds, …)."""

    actions: Floats
    noise: Floats
    sigma: Floats
    coin: Floats
    played: Ints
    reward: Floats
    source: Ints | None

    @classmethod
    def read(cls, record: Floats, what: Plan) -> Rounds:
        kind = what.world_kind
        tile = kind.tall * kind.wide
        actions = record[:, :, :tile].reshape(*record.shape[:2], kind.tall, kind.wide)
        sigma, coin, index, reward, who = (record[:, :, tile + kind.tall + place] for place in range(5))
        noise, source = record[:, :, tile : tile + kind.actions], who.astype(np.int64) if kind.sources else None
        return cls(actions[:, :, : kind.actions, : kind.dim], noise, sigma, coin, index.astype(np.intp), reward, source)


def replayed(make: MakePolicy, scenario: Scenario, rounds: int, seed: int = 1, **kind: Any) -> Replayed:
    """Play a scenario by a kernel, and again by the policy, the attack and the ledger of the CPU."""
    scenario = scenario._replace(environment=scenario.environment.facing(scenario.attack))
    what, at = plan(make, scenario, rounds, seed, record=True), np.arange(1, rounds + 1)
    what = what._replace(world_kind=what.world_kind._replace(**kind))
    device = Device.find()
    played = play(what, scenario.trials, rounds, seed, at, device)
    seen = Rounds.read(played.record.cpu().numpy().astype(float), what)
    written = played.columns.cpu().numpy().astype(float)
    if isinstance(make, partial) and make.keywords.get("corruption") == REALISED:
        make = partial(make, corruption=_rehearse(what, scenario.trials, seed, device).tolist())
    used = None if played.used is None else played.used[:-1].cpu().numpy().astype(int)
    return _compare(make, scenario, rounds, seed, what, seen, written, used)


def _compare(
    make: MakePolicy,
    scenario: Scenario,
    rounds: int,
    seed: int,
    what: Plan,
    seen: Rounds,
    written: Floats,
    used: Ints | None,
) -> Replayed:
    policy: Any = prepare(make, [scenario], rounds, seed)
    adversary = Adversary([(scenario.attack, scenario.environment, scenario.trials)], seed)
    for name in ("_coin", "_visitor"):
        if hasattr(adversary._attacks[0], name):
            setattr(adversary._attacks[0], name, Recorded(seen.coin))
    offer_of, size = _world(seen, what, seed, scenario.trials), len(scenario.trials)
    lanes, regret, earned, by_source = np.arange(size), np.zeros(size), np.zeros(size), np.zeros((size, 32))
    changed, behind, reward_gap, column_gap, total, miscounted = 0.0, 0.0, 0.0, 0.0, 0, 0
    levels = None if used is None or what.levels is None else np.diff(used, axis=0, prepend=0)
    least = np.full(size, np.inf)
    for t in range(1, rounds + 1):
        offer, told_before = offer_of(t), adversary.ledger.lies
        plot = adversary.commit(offer, [offer])
        sigma = offer.sigma if offer.told is None else offer.told
        if levels is not None:
            drawn = levels[t - 1, :, 1 : policy.levels + 1].argmax(axis=1) + 1
            object.__setattr__(policy, "draw_level", lambda uniform, drawn=drawn: drawn)
        decision = policy.choose(plot.actions, sigma, source=offer.source)
        heights, half_widths = _heights(policy, plot.actions, decision)
        index = seen.played[:, t - 1]
        scale = np.maximum(half_widths.max(axis=1), np.abs(heights).max(axis=1)) + 1e-9
        lost = (heights.max(axis=1) - heights[lanes, index]) / scale
        assert isinstance(plot.actions, np.ndarray)
        decision = replace(decision, index=index, action=plot.actions[lanes, index])
        reward = adversary.answer(offer, [offer], plot, decision)
        reward_gap = max(reward_gap, float(np.abs(reward - seen.reward[:, t - 1]).max()))
        if levels is not None:
            climbed = levels[t - 1, :, policy.levels + 1]
            lost, total = np.where(climbed == decision.info.cascade, lost, np.inf), total + int(climbed.sum())
        if used is not None and what.quorum is not None:
            miscounted = max(miscounted, int(np.abs(used[t - 1] - np.stack(decision.info, axis=1)).max()))
        changed, behind = changed + float((lost > 1e-12).mean()), max(behind, float(lost.max()))
        policy.update(decision, reward)
        regret += offer.menu.best - offer.mean_of(index, decision.action)
        earned += offer.reward_of(index, decision.action)
        least = np.minimum(least, offer.menu.gap)
        ledger = adversary.ledger
        now = [regret, earned, ledger.c_sup, ledger.c_play, ledger.lies, offer.menu.gap, least]
        if offer.source is not None:
            by_source[lanes, offer.source] += ledger.lies - told_before
            now += [offer.source, *by_source.T[: what.environment.sources]]
        assert len(now) == written.shape[1]
        column_gap = max(column_gap, float(np.abs(written[t - 1] - now).max()))
    return Replayed(changed / rounds, behind, reward_gap, column_gap, total, miscounted)


def _heights(policy: Any, actions: Any, decision: Any) -> tuple[Floats, Floats]:
    """The heights of all actions under the set that was used, and half-widths that they are to be compared with."""
    if not policy.levels:
        return policy.confidence(policy.no_level)._heights(actions)
    used = decision.level + decision.info.cascade
    whole, widths = policy._global(used, policy.rows)._heights(actions)
    pairs = policy.confidence(np.minimum(used, policy.levels)).support(actions).values
    return np.where((used > policy.levels)[:, None], whole, pairs), widths


def _world(seen: Rounds, what: Plan, seed: int, trials: Sequence[int]) -> Callable[[int], Offer]:
    """The rounds that a kernel drew, as an environment would offer them."""
    environment, draw = what.environment, _BulkDraws(seed, trials)
    truth = environment.parameters(draw)(0)  # type: ignore[arg-type]
    traffic = environment.traffic(draw) if environment.sources else None  # type: ignore[arg-type]

    def offer_of(t: int) -> Offer:
        menu, noise, sigma = Menu.of(seen.actions[:, t - 1], truth), seen.noise[:, t - 1], seen.sigma[:, t - 1]
        source = None if seen.source is None else seen.source[:, t - 1]
        lean, bias = None, None
        if traffic is not None and source is not None:
            lean, bias = traffic.bias(source, seen.actions[:, t - 1]), environment.leaning(traffic, source, menu)
        if environment.noise == "bernoulli":  # a click less its rate, which the kernel does not cut to 0 and 1
            clicks = np.rint(menu.means + noise + (0.0 if lean is None else lean))
            noise = clicks - (menu.means if bias is None else menu.means + bias)
        else:
            noise = noise[:, 0]
        told = np.full_like(sigma, environment.noise_range) if environment.hide_sigma else None
        return Offer(t, menu, sigma, noise, told, None, source, bias)

    return offer_of
