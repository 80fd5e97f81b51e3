"""From what callers pass to `Bandit` to features and a policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from robandit.bandit.pick import PLAIN, are_plain
from robandit.bandit.transformed import Transformed
from robandit.errors import nearest
from robandit.features import Features, Growing
from robandit.inputs import read_text
from robandit.policies import POLICIES, Policy
from robandit.policies.recommend import Recommendation, recommend
from robandit.rewards import Rewards

_THE_BANDITS = {"dim", "trials", "seed", "action_bound", "exploration", "horizon"}  # what the bandit says itself
_THE_BANDITS |= {"fixed_sets", "sources", "parameter_bound"}


def read_features(given: Any, longest: float) -> Features | Transformed:
    """Features of a bandit's own: a copy of the caller's, a transformer, or slots for plain ids."""
    if given is None:
        return Features(action=[Growing(PLAIN)], id=PLAIN)
    if isinstance(given, Features):
        return Features.from_json(given.to_json())
    if hasattr(given, "transform"):
        return Transformed(given, longest)
    if isinstance(given, str | Path):
        raise ValueError(f"features must be Features, got the text {str(given)!r}: open a file with Features.load")
    raise ValueError(
        f"features must be Features or a fitted scikit-learn transformer, got {given!r:.60}; "
        "try Features(action={'price': (0, 50)}) or Features.fit(history)"
    )


def read_policy(
    given: Any, rewards: Rewards, features: Features | Transformed, settings: Mapping[str, Any], more: Mapping[str, Any]
) -> tuple[Policy, str]:
    """The policy of a bandit and why it is that one. ``more`` are settings that a made policy has already."""
    if isinstance(given, Policy):
        _check_made(given, features, more)
        return given, "You passed this policy."
    if given is None:
        known = {name: value for name, value in settings.items() if name != "horizon"}
        given = recommend(dim=features.dim, rewards=rewards, **known)
    if isinstance(given, str):
        given, own = _by_name(given)
        settings = {**settings, **own}
    if isinstance(given, type) and issubclass(given, Policy):
        given = _by_class(given, rewards, features, settings)
    if not isinstance(given, Recommendation):
        raise ValueError(f"policy must be a policy, its class or name, or what recommend gave; got {given!r:.60}")
    if given.settings.get("dim") != features.dim:
        raise ValueError(f"policy is for {given.settings.get('dim')} features, and these are {features.dim}")
    return given.make(action_bound=features.action_bound, **more), given.reason


def _by_name(text: str) -> tuple[type[Policy], dict[str, Any]]:
    """A policy and settings of its own, as the command line takes them: `oful,radius_scale=0.1`."""
    table = read_text(text)
    name = table.pop("name")
    if name not in POLICIES:
        raise ValueError(f"there is no policy {name!r}{nearest(name, POLICIES)}")
    known = {item.name for item in fields(POLICIES[name])} - _THE_BANDITS
    for key, value in table.items():
        if key in _THE_BANDITS:
            raise ValueError(f"{key}={value!r} is a setting of the bandit: pass it there, not in {text!r}")
        if key not in known:
            raise ValueError(f"policy {name!r} has no setting {key!r}{nearest(key, known)}")
    none = {key: None for key, value in table.items() if isinstance(value, str) and value.lower() == "none"}
    return POLICIES[name], table | none


def _by_class(
    kind: type[Policy], rewards: Rewards, features: Features | Transformed, settings: Mapping[str, Any]
) -> Recommendation:
    known = {item.name for item in fields(kind)}
    given = {"dim": features.dim, **rewards.for_policy(), **settings}
    held = {name: value for name, value in given.items() if name in known and value is not None}
    return Recommendation(kind, held, f"You asked for {kind.__name__}.")


def _check_made(policy: Policy, features: Features | Transformed, more: Mapping[str, Any]) -> None:
    for name, value in more.items():
        if value:
            raise ValueError(f"{name}={value!r} is a setting of the policy, which you have made: pass it there")
    if policy.trials is not None:
        raise ValueError(f"a bandit is a single trial, and this policy has trials={policy.trials!r}")
    if features.scaling and policy.rounds:
        raise ValueError(
            f"policy has decided {policy.rounds} rounds, and these features have yet to learn their scales: pass the "
            "features that it knows, after their freeze(), or a new policy"
        )
    if policy.dim != features.dim:
        raise ValueError(f"policy has dim={policy.dim}, and these features are {features.dim}")
    if policy.action_bound < features.action_bound:
        raise ValueError(
            f"policy has action_bound={policy.action_bound:g}, and vectors are up to {features.action_bound:g} long"
        )


def restored(saved: Any, given: Any, path: str | Path) -> Features | Transformed:
    """The features of a saved bandit."""
    if isinstance(saved, str):
        if given is not None:
            raise ValueError(f"{path} holds its features: leave out features=")
        return Features.from_json(saved)
    if given is None:
        raise ValueError(f"{path} was saved with a scikit-learn transformer, which is not in it: pass features=")
    found = Transformed(given, saved["longest"])
    if list(found.names) != saved["names"]:
        raise ValueError(f"{path} was saved with the features {saved['names'][:5]}, but these are {found.names[:5]}")
    return found


def check_plain(candidates: Any, context: Any) -> None:
    """Refuse what is more than ids: that needs features."""
    if context is not None:
        raise ValueError(f"a context needs features that say what to make of it, got {context!r:.60}: pass features=")
    if are_plain(candidates):
        return
    first = candidates[0] if isinstance(candidates, Sequence) and len(candidates) else None
    names = first if isinstance(first, Mapping) else {"price": 1.0}
    shown = ", ".join(f"{name!r}: {_guess(cell)}" for name, cell in names.items() if name != PLAIN)
    raise ValueError(
        "candidates that are more than ids need features that say what to make of them: pass "
        f"features=Features(action={{{shown}}}), or Features.fit(history); got {candidates!r:.60}"
    )


def _guess(cell: Any) -> str:
    return "bool" if isinstance(cell, bool) else "float" if isinstance(cell, int | float) else "str"
