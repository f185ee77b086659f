"""A request that gets an answer other than 200, and why."""

from __future__ import annotations

import hmac

from laconic.errors import LaconicError

__all__ = ["Refusal", "bad_request", "bears_token"]


class Refusal(LaconicError):  # noqa: N818 -- an answer like any other
    """Becomes ``{"error": message}`` with this status; the server goes on."""

    def __init__(self, status: int, message: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


def bad_request(message: str) -> Refusal:
    """Refuse with 400 what is wrong about the request itself."""
    return Refusal(400, message)


def bears_token(authorization: str, token: bytes | None) -> bool:
    """Look at the header, empty where there is none. Without a token, everybody may ask."""
    if token is None:
        return True
    kind, _, given = authorization.partition(" ")
    return kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token)
