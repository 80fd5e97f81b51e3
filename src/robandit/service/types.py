"""What clients send and are answered. The same types check requests and make the OpenAPI document."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from robandit.policies import POLICIES
from robandit.service.history import Bucket

NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""What a bandit may be called."""
Name = Annotated[str, Meta(pattern=f"^{NAME}$", description="letters, digits, . _ -")]
TOLD = ("robust-weighted-oful",)
"""Policies that can't do without being told the corruption."""
Id = Annotated[str, Meta(min_length=1, max_length=128)]
Label = Annotated[str, Meta(max_length=128)]
Positive = Annotated[float, Meta(ge=1e-9, le=1e9)]
Share = Annotated[float, Meta(ge=1e-9, lt=1)]
Reward = Annotated[float, Meta(ge=-1e9, le=1e9)]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bandit: how it decides, what it assumes, and how long it waits for rewards."""

    dim: Annotated[int, Meta(ge=1, le=1000, description="features of an action")]
    policy: Annotated[
        str, Meta(description="one of `robandit policies`", extra_json_schema={"enum": sorted(POLICIES)})
    ] = "sceptic"
    horizon: Annotated[int, Meta(ge=1, le=2**53)] = 1_000_000
    noise_range: Annotated[
        float, Meta(ge=1e-9, le=1e9, description="R: rewards differ from their mean by at most this")
    ] = 1.0
    action_bound: Positive = 1.0
    parameter_bound: Positive = 1.0
    mean_bound: Positive = 1.0
    delta: Share = 0.05
    radius_scale: Positive | None = None
    exploration: Annotated[float, Meta(ge=0, le=1)] = 0.0
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
    noise: (
        Annotated[float, Meta(ge=1e-9, le=1e9, description="the noise's sub-Gaussian scale, for the monitor")] | None
    ) = None
    sources: Annotated[int, Meta(ge=0, le=10_000, description="sources that the monitor tells apart")] = 0
    reward_window: Annotated[float, Meta(gt=0, le=1e9, description="seconds that a reward may take")] = 86_400.0
    default_reward: Annotated[Reward, Meta(description="where none came; left out: none")] | None = None

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
    sigma: Annotated[float, Meta(gt=0, le=1e9, description="the standard deviation of its reward")] | None = None


class Choice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Which of these should I show?"""

    actions: Annotated[list[Action], Meta(min_length=1, max_length=10_000)]
    decision_id: Annotated[Id, Meta(description="yours, so that a retry is the same decision")] | None = None
    source: Annotated[Label, Meta(description="where the traffic comes from")] | None = None


class Chosen(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """This one."""

    decision_id: str
    action_id: str
    index: int
    propensity: Annotated[float, Meta(gt=0, le=1)]
    round: int


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

    lower_bound: float
    """At least so much corruption in all, in units of reward."""
    sentence: str
    alarm: int | None
    """How many rounds were final when corruption was first proved,"""
    at: float | None
    """and the time of that, in seconds since 1970."""
    since: int | None
    """The first round of the corruption by its cheapest explanation, which is no proof."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """How a bandit is doing."""

    name: str
    settings: Settings
    now: float
    """The service's time, in seconds since 1970."""
    rounds: int
    pending: int
    """Decisions whose reward is not final."""
    rewards: int
    defaults: int
    lost: int
    """Decisions without a reward or a default."""
    levels: list[tuple[int, int]]
    """The policy's levels and how many decisions each has made; a policy without levels has level 0 alone."""
    estimate: list[float]
    """What each feature is worth,"""
    uncertainty: list[float]
    """give or take, by the policy's confidence set."""
    recent: list[tuple[int, float]]
    """The rounds and rewards that became final last, the latest at the end."""
    curves: dict[str, list[Bucket]]
    """Traffic and rewards over time, by seconds, minutes and hours: start, decisions, final rewards, their sum."""
    certificate: Alarm


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why not."""

    error: str
