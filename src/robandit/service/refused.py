"""A request that was refused."""

from __future__ import annotations


class Refused(Exception):  # noqa: N818 - it is what became of the request
    """A request was refused, with this HTTP status, and has changed nothing."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
