"""The pages of the reference of the package: which name stands where. mkdocstrings fills them from the docstrings."""

from __future__ import annotations

from typing import NamedTuple

import robandit


class Topic(NamedTuple):
    """A page of the reference: its title, what it is for, an example, and the names that it explains."""

    title: str
    about: str
    example: str
    names: list[str]


def _of(module: str, *names: str) -> list[str]:
    return [f"robandit.{module}.{name}" for name in names]


def _all_of(module: str, *first: str) -> list[str]:
    """What a module of the package exports, but for its tables and constants; those named here come first."""
    found = vars(getattr(robandit, module))
    names = [name for name in found["__all__"] if callable(found[name])]
    return _of(module, *first, *(name for name in names if name not in first))


TOPICS = {
    "bandit": Topic(
        "Bandit and features",
        "What an application holds: it chooses among records and learns from rewards.\n"
        "[Your own data](../how-to/bandit.md) shows how they work together.",
        'bandit = robandit.Bandit(rewards="clicks")\npick = bandit.choose(["red", "green"])\nbandit.learn(pick, 1)',
        [
            *("robandit.Bandit", "robandit.Pick", "robandit.Explanation", "robandit.Features"),
            *_of("features", "Numeric", "Boolean", "Categorical", "Hashed", "Growing"),
            *("robandit.Rewards", "robandit.recommend", "robandit.Recommendation"),
        ],
    ),
    "policies": Topic(
        "Policies",
        "A policy chooses one of the vectors on offer and learns from the reward.\n"
        "[The policies](../how-to/policies.md) says which one to use, and what all settings mean.",
        "policy = robandit.Quorum(dim=3, noise_range=0.5, seed=7)\n"
        "decision = policy.choose([[0.9, 0.1, 0.0], [0.1, 0.9, 0.0]])\npolicy.update(decision, reward=0.31)",
        [
            f"robandit.{name}"
            for name in (
                *("Policy", "Decision", "Quorum", "OFUL", "WeightedOFUL", "RobustWeightedOFUL"),
                *("MultiLevelWeightedOFUL", "Greedy", "CWOFUL", "VarianceAwareCWOFUL", "RobustBandit"),
                *("StochasticCorral", "Exp3P", "COBE", "SAVE", "LinTS", "RobustLinTS", "GAdaOFUL"),
                *("DiscountedLinUCB", "GuaranteeLapsed"),
            )
        ],
    ),
    "geometry": Topic(
        "Sets",
        "Infinite sets of actions, and the confidence sets of policies.\n"
        "[The mathematics](../ideas/mathematics.md) says how their optima are found.",
        "policy = robandit.OFUL(dim=3, noise_range=0.5)\ndecision = policy.choose(robandit.Ball(3))",
        [f"robandit.{name}" for name in ("Ball", "Box", "Polytope", "Ellipsoid", "Intersection")],
    ),
    "monitor": Topic(
        "The monitor",
        "It watches any stream of actions and rewards, and proves how much was tampered with.\n"
        "[The corruption monitor](../ideas/monitor.md) says what it assumes.",
        "monitor = robandit.CorruptionMonitor(dim=3, noise=0.05)\n"
        "monitor.observe([0.2, 0.1, 0.4], 0.3)\nprint(monitor.certificate().sentence)",
        [f"robandit.{name}" for name in ("CorruptionMonitor", "Certificate", "joint_certificate")],
    ),
    "experiments": Topic(
        "Experiments",
        "Simulate, tune and race policies against attacks, in a notebook or a script.\n"
        "[In a notebook](../how-to/notebooks.md) shows it step by step.",
        'result = robandit.simulate(policies=["oful"], environment="fresh", attacks=["none", "flip,rounds=30"],\n'
        "                           rounds=200, trials=4)\nresult.plot()",
        [f"robandit.{name}" for name in ("simulate", "Simulation", "tune", "Tuning", "arena", "Race")],
    ),
    "environments": Topic(
        "Environments",
        "The worlds that simulations run in: what is on offer, what it is worth, and how late rewards come.\n"
        "[The proving ground](../how-to/proving-ground.md#an-environment-of-your-own) shows how to write one.",
        "world = robandit.environments.Fresh(dim=5)\n"
        'result = robandit.simulate(["oful"], world, ["none"], rounds=100, trials=2)',
        _all_of("environments", "Environment", "Offer", "Menu"),
    ),
    "attacks": Topic(
        "Attacks",
        "Those who lie about rewards in simulations, and what their lies cost them.\n"
        "[The proving ground](../how-to/proving-ground.md#an-attack-of-your-own) shows how to write one.",
        "attack = robandit.attacks.Flip(rounds=30)\n"
        'result = robandit.simulate(["oful"], "fresh", [attack], rounds=100, trials=2)',
        _all_of("attacks", "Attack", "Targeted", "Flips", "BySource"),
    ),
    "checks": Topic(
        "Checks",
        "What every policy, attack and environment must pass, ours and yours.\n"
        "[CONTRIBUTING](../repository/CONTRIBUTING.md) has one of each that does.",
        "robandit.checks.check_policy(lambda **settings: robandit.Greedy(noise_range=0.5, **settings))",
        _all_of("checks", "check_policy", "check_attack", "check_environment"),
    ),
    "client": Topic(
        "The client",
        "Talks to a decision service, and retries so that everything counts once.\n"
        "[The client](../how-to/client.md) shows it in five lines.",
        'client = robandit.Client("http://localhost:8000")\nprint(client.bandits())',
        [f"robandit.{name}" for name in ("Client", "AsyncClient", "ServiceError")],
    ),
}


def page(topic: Topic) -> str:
    """The page of a topic, with a directive of mkdocstrings for each name."""
    head = f"# {topic.title}\n\n{topic.about}\n\n```python\n{topic.example}\n```\n\n"
    return head + "\n".join(f"::: {name}\n" for name in topic.names)
