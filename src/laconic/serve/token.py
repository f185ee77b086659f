"""Whether a request bears the server's token."""

from __future__ import annotations

import hmac

__all__ = ["bears_token"]


def bears_token(authorization: str, token: bytes | None) -> bool:
    """Look at the header, empty where there is none. Without a token, everybody may ask."""
    if token is None:
        return True
    kind, _, given = authorization.partition(" ")
    return kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token)
