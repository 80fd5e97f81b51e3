"""What may change about a bandit after it was made, and what became of that."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from robandit.wire.types import (
    DEFAULT,
    Corruption,
    Days,
    Label,
    Numbers,
    PolicyName,
    Positive,
    Reward,
    Rounds,
    Scale,
    Share,
)

Version = Annotated[int, Meta(ge=1, le=2**53)]
RULINGS = ("trusted", "quarantined", "released")


def _about(text: str) -> Meta:
    return Meta(description=text)


class Ruling(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an operator says of a source: it is believed, or it is not, whatever the others say; or they vote again."""

    source: Annotated[Label, _about("Its label; null stands for visitors without a source.")] | None
    ruling: Annotated[str, Meta(pattern=f"^({'|'.join(RULINGS)})$", extra_json_schema={"enum": [*RULINGS]})]


class ShadowChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A policy that watches and never acts, or the end of it."""

    name: Annotated[str, Meta(min_length=1, max_length=64, description="What to call it.")]
    remove: Annotated[bool, _about("Whether this one is to watch no longer.")] = False
    policy: Annotated[PolicyName, _about("Name of the policy.")] = DEFAULT
    policy_settings: Annotated[Numbers, _about("Further settings of the policy.")] | None = None
    radius_scale: Annotated[Scale, _about("Factor of the confidence radius.")] | None = None
    corruption: Annotated[Corruption, _about("C: the corruption, for policies that must know it.")] | None = None
    exploration: Annotated[Share, _about("Share of uniform play that it would have.")] = 0.0


class Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What should change about a bandit. What is left out stays as it is.

    A new policy, or other settings of it, learns the log from its beginning. The old one acts until then. Where the
    log was cut, that beginning is where it was cut last, and the answer says so.
    """

    version: Annotated[Version, _about("Version of the settings that this changes, as the bandit's state has it.")]
    exploration: Annotated[Share, _about("Share of uniform play, for off-policy estimates.")] | UnsetType = UNSET
    reward_window: Annotated[Positive, _about("Number of seconds that a reward may take.")] | UnsetType = UNSET
    default_reward: (
        Annotated[Reward, _about("What counts where no reward came in time; null if nothing does.")] | UnsetType | None
    ) = UNSET
    retention_days: (
        Annotated[Days, _about("Number of days after which events go from the log; null if it is kept for good.")]
        | UnsetType
        | None
    ) = UNSET
    archived: (
        Annotated[bool, _about("Whether the bandit only keeps its log, and makes no decisions and takes no rewards.")]
        | UnsetType
    ) = UNSET
    ruling: Ruling | UnsetType = UNSET
    shadow: ShadowChange | UnsetType = UNSET
    policy: (
        Annotated[PolicyName, _about("The policy that acts from then on; its settings are then its own defaults.")]
        | UnsetType
    ) = UNSET
    policy_settings: Annotated[Numbers, _about("Further settings of the policy.")] | UnsetType | None = UNSET
    radius_scale: Annotated[Scale, _about("Factor of the confidence radius.")] | UnsetType | None = UNSET
    horizon: Annotated[Rounds, _about("T: the number of rounds that guarantees are for.")] | UnsetType = UNSET
    corruption: (
        Annotated[Corruption, _about("C: the corruption, for policies that must know it.")] | UnsetType | None
    ) = UNSET

    def asked(self) -> dict[str, Any]:
        """What is asked for, without the version."""
        found = msgspec.to_builtins(self)
        return {name: value for name, value in found.items() if name != "version"}


class ChangeMade(msgspec.Struct, frozen=True, kw_only=True):
    """A change that was made. The same request gets the same answer again."""

    version: Annotated[int, _about("Version of the settings that it made.")]
    at: Annotated[float, _about("When it was made, in seconds since 1970.")]
    settings: Annotated[dict[str, Any], _about("Every setting that it changed, with its new value.")]
    learnt_after: Annotated[
        int, _about("Number of events that a new policy could not learn, since the log had been cut there.")
    ] = 0


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """A bandit that was deleted. The same request gets the same answer again."""

    name: str
    version: Annotated[int, _about("Version of the settings that it had.")]
    at: Annotated[float, _about("When it was deleted, in seconds since 1970.")]


class ChangeWaits(msgspec.Struct, frozen=True, kw_only=True):
    """A change that is not made yet, since a policy learns the log first. Ask again with the same request."""

    learnt: Annotated[int, _about("Number of events of the log that it has learnt.")]
    events: Annotated[int, _about("Number of events in the log.")]
