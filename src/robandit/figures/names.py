"""What pictures call policies, attacks and scenarios: words that can stand in a paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from robandit.lab.attacks import ATTACKS
from robandit.lab.environments import ENVIRONMENTS
from robandit.lab.summary import Case

POLICY_NAMES: Mapping[str, str] = {
    "oful": "OFUL",
    "weighted-oful": "Weighted OFUL",
    "greedy": "Greedy",
    "robust-weighted-oful": "Robust weighted OFUL",
    "multi-level-weighted-oful": "Multi-level weighted OFUL",
    "cw-oful": "CW-OFUL",
    "variance-aware-cw-oful": "Variance-aware CW-OFUL",
    "robust-bandit": "RobustBandit",
    "stochastic-corral": "Stochastic CORRAL",
    "exp3p": "Exp3P",
    "cobe": "COBE",
    "save": "SAVE",
    "lin-ts": "LinTS",
    "robust-lin-ts": "Robust LinTS",
    "gadaoful": "GAdaOFUL",
    "discounted-lin-ucb": "Discounted LinUCB",
    "quorum": "Quorum",
}
"""The names of the registered policies."""
_SCENARIO_NAMES = {name: name.replace("-", " ") for name in (*ATTACKS, *ENVIRONMENTS)} | {
    "none": "no attack",
    "ace": "ACE",
    "top-n": "top-n",
    "per-action-noise": "per-action noise",
}
_SETTINGS = {"radius_scale": "scale", "corruption": "C =", "budget": "budget"}
_BLANK = "\xa0"  # keeps the words of a name on one line


def policy_names(labels: Iterable[str]) -> dict[str, str]:
    """The name of each policy, by its label in the table; a label that a user gave stays as it is.

    >>> list(policy_names(["multi-level-weighted-oful radius_scale=0.004", "Mine"]).values())
    ['Multi-level weighted OFUL, scale 0.004', 'Mine']
    """
    names = {label: _name(label, POLICY_NAMES) for label in labels}
    counts = Counter(names.values())
    return {label: name if counts[name] == 1 else label for label, name in names.items()}


def scenario_name(label: str) -> str:
    """The name of an attack or an environment.

    >>> scenario_name("random-flips"), scenario_name("flip first=5"), scenario_name("My attack")
    ('random flips', 'flip, first 5', 'My attack')
    """
    return _name(label, _SCENARIO_NAMES)


def _name(label: str, known: Mapping[str, str]) -> str:
    """The name of what is registered, with the settings that the label tells it apart by."""
    head, _, settings = label.partition(" ")
    pairs = [setting.partition("=") for setting in settings.split(", ") if setting]
    if head not in known or not all(equals for _, equals, _ in pairs):
        return label
    return ", ".join(
        [known[head], *(f"{_SETTINGS.get(key, key.replace('_', ' '))} {value}" for key, _, value in pairs)]
    )


def panel_titles(cases: Sequence[Case], *, corruption: bool = True) -> list[str]:
    """What tells each scenario from the others: its environment, its attack and its C, as far as they differ.

    >>> panel_titles([Case("paper", "none", "weak", 0.0), Case("paper", "flip", "weak", 60.0)])
    ['no\\xa0attack', 'C\\xa0=\\xa060']
    """
    places = {case.environment for case in cases}
    attacks = {case.attack for case in cases} - {"none"}
    return [_title(case, len(places) > 1, len(attacks) > 1 or not corruption, corruption) for case in cases]


def _title(case: Case, place: bool, attack: bool, corruption: bool) -> str:
    parts = [scenario_name(case.environment)] if place else []
    if case.attack == "none":
        parts.append(scenario_name("none"))
    else:
        parts += [scenario_name(case.attack)] if attack else []
        parts += [corruption_words(case)] if corruption else []
    return ", ".join(part.replace(" ", _BLANK) for part in parts)


def corruption_words(case: Case) -> str:
    """The C of a scenario."""
    return "C = ∞" if case.corruption is None else f"C = {case.corruption:.10g}"
