"""The state of a policy as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from numpy.typing import NDArray

if TYPE_CHECKING:
    from robandit.policies.base import Policy

P = TypeVar("P", bound="Policy[Any]")

_FORMAT = 1


def pack(policy: Policy[Any], round_: int, arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """The state of a policy: JSON values and, under ``arrays``, copies of its arrays."""
    state = {
        "format": _FORMAT,
        "policy": type(policy).__name__,
        "config": {item.name: getattr(policy, item.name) for item in fields(policy)},
        "round": round_,
        "arrays": {name: array.copy() for name, array in arrays.items()},
    }
    return state | {"sources": policy.slots.labels} if policy.slots.most else state


def unpack(policy: type[P], state: Mapping[str, Any]) -> P:
    """Make the policy of a state, which has not learnt anything yet."""
    if (state.get("format"), state.get("policy")) != (_FORMAT, policy.__name__):
        raise ValueError(
            f"this is not a state of {policy.__name__} in format {_FORMAT}, "
            f"but of {state.get('policy')} in format {state.get('format')}"
        )
    made = policy(**state["config"])
    if made.slots.most:
        made.slots.restore(state["sources"])
    return made
