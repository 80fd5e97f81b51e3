"""What a new bandit's settings are where its creator did not say: the one place in which the service decides that."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import msgspec

from robandit.errors import nearest
from robandit.features import Features
from robandit.policies import POLICIES
from robandit.policies.recommend import evidence, recommend
from robandit.rewards import Rewards
from robandit.service.described import LARGEST, read_features
from robandit.wire.types import BanditSettings, Creation, RewardRange

_FOLLOWS = {
    "rewards": ("noise_range", "mean_bound"),
    "features": ("action_bound",),
}
"""Settings that follow from another one."""
_WORLD = "varying noise"  # the world of the arena whose scales hold where nothing is known of the noise


def settled(wanted: Creation, given: Collection[str] = ()) -> BanditSettings:
    """All settings of the bandit that is wanted; ``given`` are the names of those that its creator gave.

    The store keeps them in full. So a bandit stays as it is when later releases recommend something else.
    """
    for one, others in _FOLLOWS.items():
        for other in others:
            if getattr(wanted, one) is not None and other in given:
                raise ValueError(f"{other} follows from {one}: leave it out")
    chosen = {name: getattr(wanted, name) for name in BanditSettings.__struct_fields__}
    chosen |= _from_rewards(wanted)
    chosen |= _from_features(wanted, chosen)
    if chosen["dim"] is None:
        raise ValueError('say `features`, such as {"action": {"price": [0, 50]}}, or `dim`, the length of your vectors')
    chosen |= _from_evidence(chosen)
    return BanditSettings(**chosen)


def _from_rewards(wanted: Creation) -> dict[str, Any]:
    """What follows from the declared rewards. The policy sees shares of their range."""
    if wanted.rewards is None:
        return {}
    given = wanted.rewards
    rewards = Rewards.read(msgspec.structs.asdict(given) if isinstance(given, RewardRange) else given)
    if wanted.default_reward is not None:
        rewards.check(wanted.default_reward, "default_reward")
    return {"rewards": RewardRange(**rewards.to_json()), **rewards.for_policy()}


def _from_features(wanted: Creation, chosen: dict[str, Any]) -> dict[str, Any]:
    """What follows from the features: the dimension, the bounds, and whether the monitor needs a constant."""
    if wanted.features is None:
        return {"intercept": wanted.intercept is not False, "parameter_bound": wanted.parameter_bound or 1.0}
    described = read_features(wanted.features)
    features = Features.from_json(json.dumps(described))
    if features.dim > LARGEST:
        raise ValueError(f"features must be at most {LARGEST:,}, and these are {features.dim:,}: use fewer buckets")
    if wanted.dim not in (None, features.dim):
        raise ValueError(f"dim is {wanted.dim}, and there are {features.dim} features: leave dim out")
    if described["features"]["centre"] == "set" and wanted.rewards is None:
        raise ValueError("centre='set' takes away what all actions of a set share: declare `rewards`, too")
    found = {"features": described, "dim": features.dim, "action_bound": features.action_bound}
    constant = not described["features"]["intercept"]
    bound = wanted.parameter_bound or features.parameter_bound(0.0, chosen["mean_bound"]) or 1.0
    return found | {"intercept": constant if wanted.intercept is None else wanted.intercept, "parameter_bound": bound}


def _from_evidence(chosen: dict[str, Any]) -> dict[str, Any]:
    """The policy that is recommended, or the practical scale of the one that was named.

    A theorem's radius is so wide that most policies would play at random for a million rounds.
    """
    if chosen["policy"] is None:
        found = recommend(dim=chosen["dim"], horizon=chosen["horizon"], noise_range=chosen["noise_range"])
        own = {name: value for name, value in found.settings.items() if name not in ("dim", "horizon", "noise_range")}
        name = next(name for name, kind in POLICIES.items() if kind is found.policy)
        mine = {key: value for key, value in own.items() if key in chosen and chosen[key] is None}
        more = {key: value for key, value in own.items() if key not in chosen}
        return {"policy": name, **mine, "policy_settings": {**more, **(chosen["policy_settings"] or {})} or None}
    if chosen["policy"] not in POLICIES:
        raise ValueError(f"policy must be a known one, got {chosen['policy']!r}{nearest(chosen['policy'], POLICIES)}")
    if chosen["radius_scale"] is not None:
        return {}
    rows = (row["settings"] for row in evidence()["worlds"][_WORLD])
    return {"radius_scale": next((row.get("radius_scale") for row in rows if row["name"] == chosen["policy"]), None)}
