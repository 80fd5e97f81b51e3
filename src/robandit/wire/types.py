"""What clients send and are answered. The same types check requests and make the OpenAPI document."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from robandit.policies import POLICIES
from robandit.wire.history import Bucket


def _about(text: str, **limits: Any) -> Meta:
    return Meta(description=text, **limits)


NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""What a bandit may be called."""
TOLD = ("robust-weighted-oful",)
"""Policies that can't do without being told the corruption."""
Id = Annotated[str, Meta(min_length=1, max_length=128)]
Label = Annotated[str, Meta(max_length=128)]
Positive = Annotated[float, Meta(ge=1e-9, le=1e9)]
Share = Annotated[float, Meta(ge=1e-9, lt=1)]
Reward = Annotated[float, Meta(ge=-1e9, le=1e9)]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bandit: how it decides, what it assumes, and how long it waits for rewards."""

    dim: Annotated[int, _about("features of an action", ge=1, le=1000)]
    policy: Annotated[str, _about("one of `robandit list policies`", extra_json_schema={"enum": sorted(POLICIES)})] = (
        "sceptic"
    )
    horizon: Annotated[int, _about("T: rounds that guarantees are for", ge=1, le=2**53)] = 1_000_000
    noise_range: Annotated[float, _about("R: rewards differ from their mean by at most this", ge=1e-9, le=1e9)] = 1.0
    action_bound: Annotated[Positive, _about("the largest norm of an action's features")] = 1.0
    parameter_bound: Annotated[Positive, _about("the largest norm that the unknown parameter can have")] = 1.0
    mean_bound: Annotated[Positive, _about("the largest mean reward; rewards beyond it and R are cut")] = 1.0
    delta: Annotated[Share, _about("the probability that a guarantee, or the monitor's proof, is wrong")] = 0.05
    radius_scale: (
        Annotated[Positive, _about("of the confidence radius: 1 is the theory's; left out, the policy's")] | None
    ) = None
    exploration: Annotated[float, _about("the share of uniform play, for off-policy estimates", ge=0, le=1)] = 0.0
    corruption: (
        Annotated[
            float,
            Meta(
                ge=0,
                le=1e9,
                description="C, for policies that are told it",
                extra_json_schema={"not": {"exclusiveMinimum": 0, "exclusiveMaximum": 1e-9}},
            ),
        ]
        | None
    ) = None
    noise: Annotated[float, _about("the noise's sub-Gaussian scale, for the monitor", ge=1e-9, le=1e9)] | None = None
    sources: Annotated[int, _about("sources that the monitor tells apart", ge=0, le=10_000)] = 0
    reward_window: Annotated[float, _about("seconds that a reward may take", gt=0, le=1e9)] = 86_400.0
    default_reward: Annotated[Reward, _about("where none came; left out: none")] | None = None

    def __post_init__(self) -> None:
        if self.policy in TOLD and self.corruption is None:
            raise ValueError(f"policy {self.policy} must be told `corruption`")
        if self.corruption is not None and 0 < self.corruption < 1e-9:
            raise ValueError(f"corruption must be 0, or at least 1e-9, got {self.corruption}")

    def for_policy(self) -> dict[str, Any]:
        """The settings that its policy has."""
        known = {item.name for item in fields(POLICIES[self.policy])}
        told = {item: getattr(self, item) for item in self.__struct_fields__}
        return {k: v for k, v in told.items() if k in known and (v is not None or k == "corruption")}

    def for_monitor(self) -> dict[str, Any]:
        """Those that its monitor has."""
        reach = self.mean_bound + self.noise_range
        return {
            "dim": self.dim,
            "noise": self.noise_range if self.noise is None else self.noise,
            "parameter_bound": self.parameter_bound,
            "delta": self.delta,
            "reward_range": (-reach, reach),
            "sources": self.sources,
        }


class Creation(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bandit to be made, and its seed if it is not to come from the operating system. No answer ever holds it."""

    seed: Annotated[int, Meta(ge=0, le=2**53)] | None = None

    def settings(self) -> Settings:
        """All but the seed."""
        return Settings(**{name: getattr(self, name) for name in Settings.__struct_fields__})


class Action(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Something that could be shown."""

    id: Id
    features: Annotated[list[float], Meta(min_length=1, max_length=1000)]
    sigma: Annotated[float, _about("the standard deviation of its reward", gt=0, le=1e9)] | None = None


class Choice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Which of these should I show?"""

    actions: Annotated[list[Action], Meta(min_length=1, max_length=10_000)]
    decision_id: Annotated[Id, _about("yours, so that a retry is the same decision")] | None = None
    source: Annotated[Label, _about("where the traffic comes from")] | None = None


class Chosen(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """This one."""

    decision_id: Annotated[str, _about("for its reward; yours, if you gave one")]
    action_id: str
    index: Annotated[int, _about("its place among the actions, from 0 on")]
    propensity: Annotated[float, _about("the probability with which it was chosen", gt=0, le=1)]
    round: Annotated[int, _about("the number of the decision, from 1 on")]


class Feedback(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """What came of a decision."""

    decision_id: Id
    reward: Reward


OUTCOMES = ("accepted", "duplicate", "conflict", "expired", "unknown")


class Outcome(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What became of a reward: accepted, duplicate (the same again), conflict (another before), expired or unknown."""

    decision_id: str
    status: Annotated[str, Meta(extra_json_schema={"enum": [*OUTCOMES]})]


class Outcomes(msgspec.Struct, frozen=True, kw_only=True):
    results: list[Outcome]


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """What the monitor has proved."""

    lower_bound: Annotated[float, _about("at least so much corruption in all, in units of reward")]
    sentence: Annotated[str, _about("the proof in words")]
    alarm: Annotated[int | None, _about("rounds that were final when corruption was first proved")]
    at: Annotated[float | None, _about("the time of that, in seconds since 1970")]
    since: Annotated[int | None, _about("the first corrupt round by the cheapest explanation, which is no proof")]


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """How a bandit is doing."""

    name: str
    settings: Settings
    now: Annotated[float, _about("the service's time, in seconds since 1970")]
    rounds: Annotated[int, _about("decisions so far")]
    pending: Annotated[int, _about("decisions whose reward is not final")]
    rewards: Annotated[int, _about("rewards that came in time")]
    defaults: Annotated[int, _about("defaults that were applied where none came")]
    lost: Annotated[int, _about("decisions with neither")]
    levels: Annotated[
        list[tuple[int, int]], _about("levels of the policy, and the decisions of each; 0 if it has none")
    ]
    estimate: Annotated[list[float], _about("what each feature is worth")]
    uncertainty: Annotated[list[float], _about("give or take, by the policy's confidence set")]
    recent: Annotated[
        list[tuple[int, float]], _about("rounds and rewards that became final last, the latest at the end")
    ]
    curves: Annotated[
        dict[str, list[Bucket]],
        _about("by seconds, minutes and hours: start, decisions, rewards that became final, their sum"),
    ]
    certificate: Alarm


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why not."""

    error: str
