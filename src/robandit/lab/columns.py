"""The data dictionary of results: what every column means. It is also in the Parquet file, with each column."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

DESCRIPTIONS: Mapping[str, str] = {
    "policy": "Label of the policy.",
    "environment": "Label of the environment.",
    "attack": "Label of the attack.",
    "strength": "What the attack knows: `weak` attacks lie before the action is drawn, `strong` ones see it first.",
    "C": "Corruption with which the attack is labelled: its budget, or 2k for k flipped rounds. Null without a limit.",
    "trial": "Number of the trial. A trial draws the same randomness for every policy.",
    "round": "Number of the round. Sums and counts are up to and including it.",
    "regret": "Sum of what the best actions would have earned on average, less the same of the actions played.",
    "reward": "Sum of the clean rewards of the actions played, before any lie.",
    "c_sup": "Corruption spent, by the paper's definition: sum over rounds of the largest lie / (R + 1).",
    "c_play": "Corruption spent on the actions played: sum over rounds of |lie|, in units of reward.",
    "lies": "Rounds in which the reward reported was not the true one.",
    "gap": "Gap of this round: mean of the best action less that of the next best.",
    "smallest_gap": "Smallest gap of all rounds so far.",
    "updates": "Rewards that have reached the policy.",
    "proved": "Part of c_play that the monitor had proved when it last looked. Null without a monitor.",
    "level_use": "Rounds in which each level of the policy was drawn, from level 1 on. Empty for policies without.",
    "source": "Number of the source that this round's visitor came from, or -1 where sources have no names.",
    "lies_by_source": "Lies told in the name of each source so far, from source 0 on.",
    "empty": "Rounds in which the confidence set of the level that was drawn was empty.",
    "cascade": "Levels climbed because of empty confidence sets, summed over rounds.",
    "votes": "Votes that Quorum has held.",
    "doubted": "Sources that Quorum doubts.",
    "dismissed": "Rewards that Quorum does not believe.",
}
"""The meaning of the columns by name."""
_ELSE = "Told by the policy in `Decision.info`: its count so far, or the sum of what its rounds told."
_KEY = b"description"


def described(schema: pa.Schema) -> pa.Schema:
    """The schema with the meaning of each column in its metadata."""
    return pa.schema([_describe(field) for field in schema], schema.metadata)


def _describe(field: pa.Field) -> pa.Field:
    return field.with_metadata({_KEY: DESCRIPTIONS.get(field.name, _ELSE)})


def descriptions(schema: pa.Schema) -> dict[str, str]:
    """What each column means, by name; results of older versions, which do not say it themselves, included.

    >>> descriptions(pa.schema({"trial": pa.int64()}))
    {'trial': 'Number of the trial. A trial draws the same randomness for every policy.'}
    """
    told = {field.name: (field.metadata or {}).get(_KEY) for field in schema}
    return {name: text.decode() if text else DESCRIPTIONS.get(name, _ELSE) for name, text in told.items()}
