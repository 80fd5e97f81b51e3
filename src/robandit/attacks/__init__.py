"""The attacks, one file each, and the ledger of what they spend."""

from robandit.attacks.ace import ACE
from robandit.attacks.adversary import Adversary, Plot
from robandit.attacks.base import Attack, Flips, Targeted
from robandit.attacks.bursts import Bursts
from robandit.attacks.click_fraud import ClickFraud
from robandit.attacks.context import ContextAttack
from robandit.attacks.first_impressions import FirstImpressions
from robandit.attacks.flip import Flip
from robandit.attacks.garcelon_adaptive import GarcelonAdaptive
from robandit.attacks.garcelon_simplified import GarcelonSimplified
from robandit.attacks.late import Late
from robandit.attacks.ledger import Ledger
from robandit.attacks.none import NoAttack
from robandit.attacks.oracle_target import OracleTarget
from robandit.attacks.periodic import Periodic
from robandit.attacks.random_flips import RandomFlips
from robandit.attacks.stealth import Stealth
from robandit.attacks.suppress_best import SuppressBest
from robandit.attacks.top_n import TopN

ATTACKS: dict[str, type[Attack]] = {
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
"""Every attack by its name."""

__all__ = [
    "ACE",
    "ATTACKS",
    "Adversary",
    "Attack",
    "Bursts",
    "ClickFraud",
    "ContextAttack",
    "FirstImpressions",
    "Flip",
    "Flips",
    "GarcelonAdaptive",
    "GarcelonSimplified",
    "Late",
    "Ledger",
    "NoAttack",
    "OracleTarget",
    "Periodic",
    "Plot",
    "RandomFlips",
    "Stealth",
    "SuppressBest",
    "Targeted",
    "TopN",
]
