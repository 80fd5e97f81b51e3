"""The attacks, one file each, the adversary that runs them, and the ledger of what they spend."""

from robandit.lab.attacks.ace import ACE
from robandit.lab.attacks.adversary import Adversary, Attackers, Plot
from robandit.lab.attacks.base import Attack, Flips, Targeted
from robandit.lab.attacks.bots import Bots
from robandit.lab.attacks.bursts import Bursts
from robandit.lab.attacks.by_source import BySource, SourceFlip, SourceNoise, SourcePromote, SourceSuppress
from robandit.lab.attacks.click_fraud import ClickFraud
from robandit.lab.attacks.context import ContextAttack
from robandit.lab.attacks.first_impressions import FirstImpressions
from robandit.lab.attacks.flip import Flip
from robandit.lab.attacks.garcelon_adaptive import GarcelonAdaptive
from robandit.lab.attacks.garcelon_simplified import GarcelonSimplified
from robandit.lab.attacks.insider import Framing, InsideTolerance
from robandit.lab.attacks.late import Late
from robandit.lab.attacks.ledger import Ledger
from robandit.lab.attacks.none import NoAttack
from robandit.lab.attacks.oracle_target import OracleTarget
from robandit.lab.attacks.periodic import Periodic
from robandit.lab.attacks.random_flips import RandomFlips
from robandit.lab.attacks.recorded import Recorded
from robandit.lab.attacks.stealth import Stealth
from robandit.lab.attacks.suppress_best import SuppressBest
from robandit.lab.attacks.top_n import TopN

ON_ALL_TRAFFIC: dict[str, type[Attack]] = {
    "none": NoAttack,
    "flip": Flip,
    "random-flips": RandomFlips,
    "periodic": Periodic,
    "late": Late,
    "bursts": Bursts,
    "stealth": Stealth,
    "suppress-best": SuppressBest,
    "click-fraud": ClickFraud,
    "oracle-target": OracleTarget,
    "garcelon-simplified": GarcelonSimplified,
    "garcelon-adaptive": GarcelonAdaptive,
    "ace": ACE,
    "top-n": TopN,
    "context": ContextAttack,
    "first-impressions": FirstImpressions,
}
"""The attacks that do not look at sources, by name."""

BY_SOURCE: dict[str, type[Attack]] = {
    "source-promote": SourcePromote,
    "source-suppress": SourceSuppress,
    "source-flip": SourceFlip,
    "source-noise": SourceNoise,
    "inside-tolerance": InsideTolerance,
    "framing": Framing,
}
"""The attacks of some sources of traffic, by name."""

BOUGHT: dict[str, type[Attack]] = {"bots": Bots}
"""The fraud that is injected into replays of real data, by name."""

PLAYED: dict[str, type[Attack]] = {"recorded": Recorded}
"""The attacks that were played by hand, by name."""

ATTACKS = {**ON_ALL_TRAFFIC, **BY_SOURCE, **BOUGHT, **PLAYED}
"""Every attack by its name."""

__all__ = [
    "ACE",
    "ATTACKS",
    "BOUGHT",
    "BY_SOURCE",
    "ON_ALL_TRAFFIC",
    "PLAYED",
    "Adversary",
    "Attack",
    "Attackers",
    "Bots",
    "Bursts",
    "BySource",
    "ClickFraud",
    "ContextAttack",
    "FirstImpressions",
    "Flip",
    "Flips",
    "Framing",
    "GarcelonAdaptive",
    "GarcelonSimplified",
    "InsideTolerance",
    "Late",
    "Ledger",
    "NoAttack",
    "OracleTarget",
    "Periodic",
    "Plot",
    "RandomFlips",
    "Recorded",
    "SourceFlip",
    "SourceNoise",
    "SourcePromote",
    "SourceSuppress",
    "Stealth",
    "SuppressBest",
    "Targeted",
    "TopN",
]
