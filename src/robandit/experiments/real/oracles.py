"""Quorum as it would be if somebody told it who lies: how much of its loss is not for want of knowing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from robandit.policies import Quorum


@dataclass(kw_only=True, eq=False)
class QuorumToldLiars(Quorum):
    """Quorum that learns nothing from bots, which the lab leaves out for it."""

    told_liars: ClassVar[bool] = True
