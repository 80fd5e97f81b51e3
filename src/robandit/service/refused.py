"""A request that was refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # `robandit key` needs neither
    from collections.abc import Sequence

    from robandit.rewards import Rewards
    from robandit.wire.types import Feedback


class Refused(Exception):  # noqa: N818 - it is what became of the request
    """A request was refused, with this HTTP status, and has changed nothing."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Gone(Refused):
    """The bandit was deleted. Another process may have made a new one of the name."""

    def __init__(self, name: str) -> None:
        super().__init__(404, f"there is no bandit {name!r} any more")


class LogCut(Refused):
    """The log was cut while somebody read it."""

    def __init__(self, name: str) -> None:
        super().__init__(409, f"the log of bandit {name!r} was cut while it was read: read it again")


def check_rewards(declared: Rewards | None, given: Sequence[Feedback]) -> None:
    """Refuse rewards beyond the declared range, before any of them counts."""
    if declared is None:
        return
    for one in given:
        try:
            declared.check(one.reward, f"the reward of {one.decision_id!r}")
        except ValueError as error:
            raise Refused(422, str(error)) from None
