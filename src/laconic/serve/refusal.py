"""A request that gets an answer other than 200, and why."""

from __future__ import annotations

from laconic.errors import LaconicError

__all__ = ["Refusal"]


class Refusal(LaconicError):  # noqa: N818 -- an answer like any other
    """Becomes ``{"error": message}`` with this status; the server goes on."""

    def __init__(self, status: int, message: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s
