"""What a new bandit's settings are where its creator did not say: the one place in which the service decides that."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from robandit.errors import nearest
from robandit.features import Features
from robandit.features.layout import CONSTANT
from robandit.policies import POLICIES, Quorum
from robandit.policies.recommend import evidence
from robandit.rewards import Rewards
from robandit.service.requests.cost import most_sources
from robandit.service.requests.described import LARGEST, read_features
from robandit.wire.types import DEFAULT, BanditSettings, Creation, RewardRange

_FOLLOWS = {
    "rewards": ("noise_range", "mean_bound"),
    "features": ("action_bound",),
}
"""Settings that follow from another one."""
_LONGEST = 1e9  # the largest parameter that settings may have
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
    features = None if wanted.features is None else Features.from_json(json.dumps(read_features(wanted.features)))
    chosen |= _from_features(wanted, features, chosen["mean_bound"])
    if chosen["dim"] is None:
        raise ValueError('say `features`, such as {"action": {"price": [0, 50]}}, or `dim`, the length of your vectors')
    chosen |= _policy(chosen)
    kept = msgspec.json.encode(BanditSettings(**chosen))
    return msgspec.json.decode(kept, type=BanditSettings)  # which refuses what a store could not read again


def resettled(settings: BanditSettings, asked: Mapping[str, Any]) -> dict[str, Any]:
    """All settings that a change makes others, in full, as the store keeps them. A new policy has its own defaults."""
    new = {name: value for name, value in asked.items() if name in BanditSettings.__struct_fields__}
    if "shadow" in asked:
        return new | {"shadow": _shadow(settings, asked["shadow"])}
    if "policy" in new:
        own = {"policy_settings": None, "radius_scale": None} | new
        new |= own | _policy({"dim": settings.dim, **own})  # which may add to its settings
        new["policy_settings"] = _told_apart({"dim": settings.dim, **new})
    if settings.declared is not None and new.get("default_reward") is not None:
        settings.declared.check(new["default_reward"], "default_reward")
    whole = msgspec.convert(msgspec.to_builtins(settings) | new, BanditSettings)
    plain = msgspec.to_builtins(whole)
    return {name: plain[name] for name in new}


def _shadow(settings: BanditSettings, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a policy that watches, in full."""
    if asked["remove"]:
        return {"name": asked["name"], "remove": True}
    own = dict(asked)
    own |= _policy({"dim": settings.dim, **own})
    own["policy_settings"] = _told_apart({"dim": settings.dim, **own})
    return own


def _from_rewards(wanted: Creation) -> dict[str, Any]:
    """What follows from the declared rewards. The policy sees shares of their range."""
    if wanted.rewards is None:
        return {}
    given = wanted.rewards
    rewards = Rewards.read(msgspec.structs.asdict(given) if isinstance(given, RewardRange) else given)
    if wanted.default_reward is not None:
        rewards.check(wanted.default_reward, "default_reward")
    return {"rewards": RewardRange(**rewards.to_json()), **rewards.for_policy()}


def _from_features(wanted: Creation, features: Features | None, cap: float) -> dict[str, Any]:
    """What follows from the features: the dimension, the bounds, and whether the monitor needs a constant."""
    if features is None:
        return {"intercept": wanted.intercept is not False, "parameter_bound": wanted.parameter_bound or 1.0}
    if features.dim > LARGEST:
        raise ValueError(f"features must be at most {LARGEST:,}, and these are {features.dim:,}: use fewer buckets")
    if wanted.dim not in (None, features.dim):
        raise ValueError(f"dim is {wanted.dim}, and there are {features.dim} features: leave dim out")
    if features.centred and wanted.rewards is None:
        raise ValueError("centre='set' takes away what all actions of a set share: declare `rewards`, too")
    intercept = CONSTANT not in features.names if wanted.intercept is None else wanted.intercept
    return {
        "features": json.loads(features.to_json()),
        "dim": features.dim,
        "action_bound": features.action_bound,
        "parameter_bound": wanted.parameter_bound or min(features.parameter_bound(0.0, cap) or 1.0, _LONGEST),
        "intercept": intercept,
    }


def _policy(chosen: dict[str, Any]) -> dict[str, Any]:
    """The policy that is recommended, or the practical scale of the one that was named.

    A theorem's radius is so wide that most policies would play at random for a million rounds.
    """
    name = chosen["policy"] or DEFAULT
    if name not in POLICIES:
        raise ValueError(f"policy must be a known one, got {name!r}{nearest(name, POLICIES)}")
    chosen["policy_settings"] = _told_apart({**chosen, "policy": name})
    if chosen["radius_scale"] is None:
        return {"policy": name, "radius_scale": _practical_scale(name)}
    if not hasattr(POLICIES[name], "radius_scale"):
        raise ValueError(f"{name} takes no radius_scale: leave it out, or name another policy")
    return {"policy": name}


def _told_apart(chosen: Mapping[str, Any]) -> dict[str, Any] | None:
    """The settings of the policy: a quorum with many features tells fewer sources apart."""
    given: dict[str, Any] | None = chosen["policy_settings"]
    if chosen["policy"] == DEFAULT and (most := most_sources(chosen["dim"])) < Quorum.max_sources:
        return {"max_sources": most, **(given or {})}
    return given


def _practical_scale(policy: str) -> float | None:
    """The scale that the arena found for a policy, or OFUL's where it has raced without; None for its own default."""
    rows = [row["settings"] for row in reversed(evidence()["worlds"][_WORLD])]
    scales: dict[str, float | None] = {row["name"]: row.get("radius_scale") for row in rows}
    theory = getattr(POLICIES[policy], "radius_scale", None) == 1.0
    return scales.get(policy, scales["oful"] if theory else None)
