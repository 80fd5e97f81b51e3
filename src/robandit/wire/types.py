"""The types of requests and answers. They check what comes in, and the OpenAPI document is made from them."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from robandit.policies import POLICIES
from robandit.rewards import KINDS, Rewards
from robandit.wire.alarms import AcknowledgementMade
from robandit.wire.cuts import CutMade
from robandit.wire.shadows import ShadowReport

NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""Pattern of a bandit's name."""
DEFAULT = "quorum"
"""Policy of a bandit whose creator named none: the one that `recommend` answers."""
EXPLORATION = 0.05
"""Share of uniform play of a bandit whose creator named none, so that its log can be evaluated."""
NEED_CORRUPTION = ("robust-weighted-oful",)
"""Policies that can't do without the setting ``corruption``."""

# Limits stand in these types alone; the fields below add the words.
PolicyName = Annotated[str, Meta(extra_json_schema={"enum": sorted(POLICIES)})]
RewardKind = Annotated[str, Meta(extra_json_schema={"enum": sorted(KINDS)})]
Id = Annotated[str, Meta(min_length=1, max_length=128)]
Label = Annotated[str, Meta(max_length=128)]
Dimension = Annotated[int, Meta(ge=1, le=1000)]
Vector = Annotated[list[float], Meta(min_length=1, max_length=1000)]
Cell = Annotated[str, Meta(max_length=1000)] | float | int | bool | None
Record = Annotated[dict[Annotated[str, Meta(max_length=200)], Cell], Meta(max_length=1000)]
Rounds = Annotated[int, Meta(ge=1, le=2**53)]
Seed = Annotated[int, Meta(ge=0, le=2**53)]
Sources = Annotated[int, Meta(ge=0, le=10_000)]
Scale = Annotated[float, Meta(ge=1e-9, le=1e9)]
Positive = Annotated[float, Meta(gt=0, le=1e9)]
Reward = Annotated[float, Meta(ge=-1e9, le=1e9)]
Corruption = Annotated[
    float, Meta(ge=0, le=1e9, extra_json_schema={"not": {"exclusiveMinimum": 0, "exclusiveMaximum": 1e-9}})
]
Share = Annotated[float, Meta(ge=0, le=1)]
ErrorRate = Annotated[float, Meta(ge=1e-9, lt=1)]
Propensity = Annotated[float, Meta(gt=0, le=1)]
Days = Annotated[float, Meta(ge=1, le=100_000)]
Numbers = Annotated[dict[Label, int | float | bool], Meta(max_length=20)]

_FEATURES = (
    "Features by name: the JSON that `Features.save` writes, or a schema such as "
    '`{"action": {"price": [0, 50], "colour": ["red", "blue"]}}`. Actions are then records.'
)
_REWARDS = 'What a reward can be: "clicks", [lowest, highest], or an object. A reward beyond it is refused.'


def _about(text: str) -> Meta:
    return Meta(description=text)


class RewardRange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The range of honest rewards, and a cap on their means."""

    low: Annotated[Reward, _about("Lowest reward.")] = 0.0
    high: Annotated[Reward, _about("Highest reward.")] = 1.0
    highest_mean: (
        Annotated[Reward, _about("The most that any honest reward has on average, if that is known for sure.")] | None
    ) = None


class BanditSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a bandit: how it decides, what it assumes, and how long it waits for rewards."""

    dim: Annotated[Dimension, _about("Number of features of an action.")]
    features: Annotated[dict[str, Any], _about(_FEATURES)] | None = None
    rewards: RewardRange | None = None
    policy: Annotated[PolicyName, _about("Name of the policy, as `robandit list policies` has it.")] = DEFAULT
    policy_settings: Annotated[Numbers, _about("Further settings of the policy.")] | None = None
    horizon: Annotated[Rounds, _about("T: the number of rounds that guarantees are for.")] = 1_000_000
    noise_range: Annotated[Scale, _about("R: the most by which a reward differs from its mean.")] = 1.0
    action_bound: Annotated[Scale, _about("Largest norm of an action's features.")] = 1.0
    parameter_bound: Annotated[Scale, _about("Largest norm that the unknown parameter can have.")] = 1.0
    mean_bound: Annotated[
        Scale, _about("Largest absolute mean of a reward; rewards beyond this bound plus R are clipped.")
    ] = 1.0
    delta: Annotated[ErrorRate, _about("Probability that a guarantee, or the monitor's proof, is wrong.")] = 0.05
    radius_scale: (
        Annotated[Scale, _about("Factor of the confidence radius: 1 is the theory's; by default, the policy's own.")]
        | None
    ) = None
    exploration: Annotated[Share, _about("Share of uniform play, for off-policy estimates.")] = 0.0
    corruption: Annotated[Corruption, _about("C: the corruption, for policies that must know it.")] | None = None
    noise: (
        Annotated[Scale, _about("Sub-Gaussian scale of the noise, for the monitor; by default, `noise_range`.")] | None
    ) = None
    sources: Annotated[Sources, _about("Number of sources of traffic that the monitor tells apart.")] = 0
    intercept: Annotated[
        bool, _about("Whether mean rewards are linear up to a constant, for the monitor: true by default.")
    ] = False  # as it was before there was a choice; `settled` makes it true for new bandits
    reward_window: Annotated[
        Positive, _about("Number of seconds that a reward may take; the monitor waits as long for one that is missing.")
    ] = 3600.0
    default_reward: (
        Annotated[Reward, _about("Reward that counts where none came in time; by default, nothing does.")] | None
    ) = None
    retention_days: (
        Annotated[Days, _about("Number of days after which events go from the log; by default, it is kept for good.")]
        | None
    ) = None

    def __post_init__(self) -> None:
        if self.policy in NEED_CORRUPTION and self.corruption is None:
            raise ValueError(f"policy {self.policy} must be told `corruption`")
        if self.corruption is not None and 0 < self.corruption < 1e-9:
            raise ValueError(f"corruption must be 0, or at least 1e-9, got {self.corruption}")
        for name in self.policy_settings or ():
            if name in (*BanditSettings.__struct_fields__, "trials", "seed"):
                raise ValueError(f"policy_settings must hold settings of the policy alone, and {name} is none of them")

    @property
    def declared(self) -> Rewards | None:
        """The rewards, if they are declared."""
        given = self.rewards
        return None if given is None else Rewards(low=given.low, high=given.high, highest_mean=given.highest_mean)

    @property
    def centred(self) -> bool:
        """Whether the mean of the decision set is taken from its vectors."""
        return self.features is not None and self.features["features"]["centre"] == "set"

    def for_policy(self) -> dict[str, Any]:
        """The settings that the policy takes. Where rewards are declared, it sees shares of their range."""
        known = {item.name for item in fields(POLICIES[self.policy])}
        given = {item: getattr(self, item) for item in self.__struct_fields__}
        own = {k: v for k, v in given.items() if k in known and (v is not None or k == "corruption")}
        return own | (self.policy_settings or {})

    def for_monitor(self) -> dict[str, Any]:
        """The settings that the monitor takes.

        The bounds on means and on the parameter are the policy's. They have defaults that nobody declared, and a reward
        that contradicts one of them is no fraud: so the monitor's proof does without them.
        """
        rewards, noise = self.declared, self.noise
        own = {"dim": self.dim + self.intercept, "delta": self.delta, "sources": self.sources}
        if rewards is None:
            return own | {"noise": self.noise_range if noise is None else noise}
        # Without what a decision set shares, honest means may be anything in the range.
        off = 0.5 * rewards.width if self.centred else 0.0
        return own | {"noise": noise, "misspecification": off} | rewards.for_monitor()


class Creation(BanditSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a new bandit, and its seed. No answer ever holds the seed."""

    dim: Annotated[Dimension, _about("Number of features of an action; needed unless `features` say.")] | None = None  # type: ignore[assignment]
    rewards: Annotated[RewardKind | tuple[Reward, Reward] | RewardRange, _about(_REWARDS)] | None = None  # type: ignore[assignment]
    policy: Annotated[PolicyName, _about(f"Name of the policy; by default, {DEFAULT}.")] | None = None  # type: ignore[assignment]
    parameter_bound: Annotated[Scale, _about("Largest norm that the unknown parameter can have.")] | None = None  # type: ignore[assignment]
    exploration: Annotated[Share, _about("Share of uniform play; without it a log can't be evaluated.")] = EXPLORATION
    intercept: bool | None = None  # type: ignore[assignment]
    seed: Annotated[Seed, _about("Seed of the policy's draws; by default, the operating system gives one.")] | None = (
        None
    )


class Action(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """An action that could be chosen."""

    id: Id
    features: Annotated[
        Vector | Record, _about("Its features: numbers, or where the bandit has `features`, a record by column.")
    ]
    sigma: Annotated[Positive, _about("Standard deviation of its reward; by default, `noise_range`.")] | None = None


MOST_ACTIONS = 10_000
"""Largest number of actions in a request."""


class Choice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """The actions to choose from."""

    actions: Annotated[list[Action], Meta(min_length=1, max_length=MOST_ACTIONS)]
    decision_id: Annotated[Id, _about("Your id for the decision: a retry with the same id is the same decision.")] | (
        None
    ) = None
    source: Annotated[Label, _about("Where the traffic comes from.")] | None = None
    context: Annotated[Record, _about("What is the same for all actions, by column; for bandits with `features`.")] | (
        None
    ) = None


class NamedChoice(Choice, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """One of many decisions. It needs an id, so that the whole request can be sent again."""

    decision_id: Annotated[Id, _about("Your id for the decision: a retry with the same id is the same decision.")]


MOST_DECISIONS = 1000
"""Largest number of decisions in a request, between `MOST_ACTIONS` actions in all."""
ManyChoices = Annotated[list[NamedChoice], Meta(min_length=1, max_length=MOST_DECISIONS)]


class ChoiceBlock(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """The actions to choose from as one block of numbers; their ids are "0", "1", …"""

    features: bytes
    """Their features, row by row, as little-endian doubles of 8 bytes."""
    decision_id: Id | None = None
    source: Label | None = None


class Chosen(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The action that was chosen."""

    decision_id: Annotated[str, _about("Id to send the reward with; yours, if you gave one.")]
    action_id: str
    index: Annotated[int, _about("Place of the action among those on offer, from 0 on.")]
    propensity: Annotated[Propensity, _about("Probability with which the action was chosen.")]
    round: Annotated[
        int, _about("Number of the decision, from 1 on. With `--staleness` some are missing, or in another order.")
    ]


class Answered(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What became of one of many decisions: the action that was chosen, or why none was."""

    decision_id: str
    status: Annotated[int, _about("200, or the status with which the decision alone would have been refused.")] = 200
    chosen: Chosen | None = None
    error: Annotated[str, _about("The reason why it was refused.")] | None = None


class ManyAnswered(msgspec.Struct, frozen=True, kw_only=True):
    """What became of every decision, in the order in which they were sent."""

    results: list[Answered]


class Feedback(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """The reward of a decision."""

    decision_id: Id
    reward: Reward


MOST_REWARDS = 10_000
"""Largest number of rewards in a request."""
Batch = Annotated[list[Feedback], Meta(max_length=MOST_REWARDS)]
OUTCOMES = ("accepted", "duplicate", "conflict", "expired", "unknown")


class Outcome(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What became of a reward: accepted, duplicate (the same came before), conflict (another came before), expired (it
    came too late) or unknown (there is no such decision)."""

    decision_id: str
    status: Annotated[str, Meta(extra_json_schema={"enum": [*OUTCOMES]})]


class Outcomes(msgspec.Struct, frozen=True, kw_only=True):
    """What became of every reward, in the order in which they were sent."""

    results: list[Outcome]


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """What the monitor has proved."""

    lower_bound: Annotated[float, _about("Least corruption in all that is proved, in units of reward.")]
    sentence: Annotated[str, _about("The proof in words.")]
    alarm: Annotated[int | None, _about("Number of rounds that were final when corruption was first proved.")]
    at: Annotated[float | None, _about("Time of the first proof, in seconds since 1970.")]
    since: Annotated[
        int | None, _about("First corrupt round by the cheapest explanation, which is likely but not proved.")
    ]
    blamed: Annotated[str | None, _about("The one source without which all others agree, if that is clear.")] = None
    assumes: Annotated[str, _about("What the proof assumes, in words.")] = ""
    up: Annotated[bool, _about("Whether corruption is proved that nobody has acknowledged.")] = False
    acknowledged: Annotated[AcknowledgementMade | None, _about("The last acknowledgement, if there is one.")] = None


class Bucket(msgspec.Struct, array_like=True):
    """Decisions and rewards in a stretch of time."""

    start: float
    """Beginning of the stretch, in seconds since 1970."""
    decisions: int = 0
    """Number of decisions made."""
    rewards: int = 0
    """Number of rewards that became final, defaults included."""
    total: float = 0.0
    """Sum of those rewards."""


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What a feature does to the reward: for one unit of a number, or for a label."""

    name: str
    effect: Annotated[float, _about("Change in the mean reward; every action has that of `(constant)`.")]
    standard_error: float


class SourceBelief(msgspec.Struct, frozen=True, kw_only=True):
    """How far a quorum believes a source. That is a vote, and no proof."""

    source: Annotated[
        str | None,
        _about("Its label, cut to 64 characters, with � for what can't be shown; null for visitors without a source."),
    ]
    pooled: Annotated[
        bool, _about("Whether it stands for all sources that came after `max_sources` others; its label is null.")
    ]
    weight: Annotated[Share, _about("How far its rewards are believed, newer ones counting more.")]
    since: Annotated[int | None, _about("Number of rewards that had been learnt when it came to be doubted, if it is.")]
    at: Annotated[float | None, _about("Time at which it came to be doubted, in seconds since 1970, if it is.")]
    rewards: Annotated[int, _about("Number of rewards that came from it.")]
    ruling: Annotated[str, Meta(extra_json_schema={"enum": ["", "trusted", "quarantined"]})]
    curve: Annotated[list[Share], _about("Its least weight from each of the `moments` to the next.")]


class Belief(msgspec.Struct, frozen=True, kw_only=True):
    """What a quorum believes of its sources."""

    doubted: Annotated[int, _about("Number of sources that are believed less than half.")]
    sources: Annotated[
        list[SourceBelief], _about("Up to 40 sources: the doubted first, then those with the most rewards.")
    ]
    more: Annotated[int, _about("Number of sources that are left out.")]
    learnt: Annotated[int, _about("Number of rewards learnt.")]
    moments: Annotated[
        list[tuple[int, float]],
        _about("The points of the curves: rewards learnt, and the time of the last of them in seconds since 1970."),
    ]


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """How a bandit is doing."""

    name: str
    settings: BanditSettings
    version: Annotated[int, _about("Version of the settings: 1 at first, and one more with every change.")] = 1
    archived: Annotated[bool, _about("Whether the bandit only keeps its log.")] = False
    imported: Annotated[int, _about("Number of rewards from outside that were learnt.")] = 0
    now: Annotated[float, _about("The service's time, in seconds since 1970.")]
    rounds: Annotated[int, _about("Number of decisions so far.")]
    pending: Annotated[int, _about("Number of decisions whose reward is not final.")]
    rewards: Annotated[int, _about("Number of rewards that came in time.")]
    defaults: Annotated[int, _about("Number of defaults that were applied because no reward came.")]
    lost: Annotated[int, _about("Number of decisions that got neither a reward nor a default.")]
    clipped: Annotated[int, _about("Number of rewards that were larger than `noise_range` allows, and were clipped.")]
    levels: Annotated[
        list[tuple[int, int]],
        _about("Each level of the policy and its number of decisions; level 0 alone if the policy has no levels."),
    ]
    estimate: Annotated[
        list[float],
        _about("Estimated worth of each feature, in units of reward for the feature as the policy sees it."),
    ]
    standard_error: Annotated[
        list[float], _about("Standard error of each estimate, if rewards are honest and linear in the features.")
    ]
    uncertainty: Annotated[
        list[float],
        _about("Half-width of the set in which the policy looks, by its `radius_scale`; often less than the error."),
    ]
    named: Annotated[
        list[Effect] | None, _about("What the estimate says of each feature by name, where the bandit has `features`.")
    ]
    unusual: Annotated[
        dict[str, dict[str, int]],
        _about("How often a value was clipped, unseen or missing, by column, of all actions on offer."),
    ]
    recent: Annotated[
        list[tuple[int, float]],
        _about("Round and reward of the decisions that became final last, with the latest at the end."),
    ]
    curves: Annotated[
        dict[str, list[Bucket]],
        _about(
            "Traffic by seconds, minutes and hours. Each bucket has its start, the number of decisions, the number of "
            "rewards that became final, and their sum."
        ),
    ]
    certificate: Alarm
    cut: Annotated[CutMade | None, _about("Where the log begins, if it was cut; null if it is whole.")] = None
    shadows: Annotated[list[ShadowReport], _about("The policies that watch, and never act.")] = []
    belief: Annotated[Belief | None, _about("How far a quorum believes each source; null for other policies.")] = None


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """The reason why a request was refused."""

    error: str
