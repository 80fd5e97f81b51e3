"""Vowpal Wabbit's explorers on the real wing of the arena: the same shuffles, the same bots, tuned on the same people.

    python benchmarks/real_peers.py --trials 20 --fetch

It prints mean rewards as `robandit arena real` does: when nobody lies → over five kinds of fraud at 20 % of the rounds.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from peer_adapters import CONTENDERS, Contender, Knobs, Trial, installed
from robandit.arrays import Floats
from robandit.errors import install
from robandit.experiments.real.race import Earned, attacks
from robandit.experiments.real.wing import SHARE, TRIALS, TUNE_TRIALS, WORLDS, World, both, pair, world
from robandit.experiments.tune import SEED
from robandit.figures.tables import markdown
from robandit.lab.attacks import ATTACKS, Adversary
from robandit.lab.environments import Replay
from robandit.policies import Decision
from robandit.streams import ENVIRONMENT, Draws

GRIDS: dict[str, Sequence[Knobs]] = {
    name: [{knob: value, "learning_rate": rate} for value in values for rate in (0.2, 0.5, 2.0)]
    for name, knob, values in (
        ("VW SquareCB", "gamma_scale", (1000.0, 3000.0)),
        ("VW RegCB", "mellowness", (0.001, 0.01)),
        ("VW ε-greedy", "epsilon", (0.0, 0.02)),
    )
}
"""The knobs to try: clicks are noisier than the rewards of `peer_adapters`, so they are not those of that race."""


def play(
    contender: Contender,
    knobs: Knobs,
    replay: Replay,
    fraud: dict[str, Any],
    rounds: int,
    trials: Sequence[int],
    seed: int,
) -> Floats:
    """The mean reward of each shuffle, (trials,): the loop of `robandit.lab.protocol` for learners without batches."""
    attack = ATTACKS[fraud["name"]](**{key: value for key, value in fraud.items() if key not in ("name", "label")})
    peers = [contender.make(knobs, Trial(replay.dim, rounds, 1000 * seed + trial)) for trial in trials]
    offers, adversary = (
        replay.rounds(Draws(seed=seed, trials=trials, who=ENVIRONMENT)),
        Adversary([(attack, replay, trials)], seed),
    )
    rows, total = np.arange(len(peers)), np.zeros(len(peers))
    for _ in range(rounds):
        offer = next(offers)
        plot = adversary.commit(offer, [offer])
        actions: Any = plot.actions
        shown = [peer.build(peer.convert(one)) for peer, one in zip(peers, actions, strict=True)]
        index = np.array([peer.pick(one) for peer, one in zip(peers, shown, strict=True)])
        decision = Decision(round=offer.round, action=actions[rows, index], index=index)
        rewards = adversary.answer(offer, [offer], plot, decision)
        for peer, one, place, reward in zip(peers, shown, index.tolist(), rewards.tolist(), strict=True):
            peer.learn(one, place, reward)
        total += offer.reward_of(index, decision.action)
    return total / rounds


def earned(contender: Contender, knobs: Knobs, one: World, half: str, trials: int, seed: int) -> dict[str, Floats]:
    """The mean rewards by attack."""
    replay, numbers = one.replay(half), range(trials)
    found = attacks(one.rounds, (SHARE,))
    return {
        fraud.get("label", fraud["name"]): play(contender, knobs, replay, fraud, one.rounds, numbers, seed)
        for fraud in found
    }


def race(contender: Contender, one: World, trials: int, tune_trials: int, seed: int) -> dict[str, Floats]:
    """The mean rewards by attack, at the knobs that earn most on the people who do not play."""
    tuned = max(GRIDS[contender.name], key=lambda knobs: both(earned(contender, knobs, one, "tune", tune_trials, SEED)))
    print(f"{contender.name} on {one.name}: {dict(tuned)}", flush=True)
    return earned(contender, tuned, one, "play", trials, seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=TRIALS, help="(default %(default)s)")
    parser.add_argument("--tune-trials", type=int, default=TUNE_TRIALS, help="(default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="(default %(default)s)")
    parser.add_argument("--worlds", nargs="+", default=WORLDS, help="(default: all)")
    parser.add_argument("--data", type=Path, default=Path("out/data"), help="(default %(default)s)")
    parser.add_argument("--fetch", action="store_true")
    options = parser.parse_args()
    if not installed("vowpalwabbit"):
        print(f"Vowpal Wabbit is not installed: {install('peers')}")
        return
    peers = [contender for contender in CONTENDERS if contender.package == "vowpalwabbit"]
    worlds = {name: world(name, options.data, fetch=options.fetch) for name in options.worlds}
    found: dict[str, Earned] = {peer.name: {} for peer in peers}
    for name, one in worlds.items():
        for peer in peers:
            found[peer.name][name] = race(peer, one, options.trials, options.tune_trials, options.seed)
            print(f"{peer.name} on {name}: {pair(found[peer.name][name])}", flush=True)
    rows = [[peer, *(pair(each[name]) for name in worlds)] for peer, each in found.items()]
    print("\n".join(markdown(["", *worlds], rows)))


if __name__ == "__main__":
    main()
