"""Refusals: why a request gets an answer other than 200, and whether it bears the token."""

from __future__ import annotations

import hmac

from laconic.errors import LaconicError

__all__ = ["Refusal", "bad_request", "bears_token"]


class Refusal(LaconicError):  # noqa: N818 -- an answer like any other
    """Becomes the answer ``{"error": message}`` with this status; the server goes on."""

    def __init__(self, status: int, message: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


def bad_request(message: str) -> Refusal:
    """Make the refusal of a request that is wrong in itself: status 400."""
    return Refusal(400, message)


def bears_token(authorization: str, token: bytes | None) -> bool:
    """Whether this Authorization header, empty where there is none, has the token.

    A server without a token lets everybody in.
    """
    if token is None:
        return True
    kind, _, given = authorization.partition(" ")
    return kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token)
