"""Policies that are told what nobody knows outside a simulation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from robandit.policies import OFUL, Quorum


@dataclass(kw_only=True, eq=False)
class OFULToldLiars(OFUL):
    """OFUL that learns nothing from visitors who belong to the attack (`Attack.owns`).

    Any policy whose class has ``told_liars = True`` is treated so: `robandit simulate --policy mine.py:MineToldLiars`.
    """

    told_liars: ClassVar[bool] = True


@dataclass(kw_only=True, eq=False)
class QuorumToldLiars(Quorum):
    """Quorum that learns nothing from visitors who belong to the attack: what a vote could reach at best."""

    told_liars: ClassVar[bool] = True
