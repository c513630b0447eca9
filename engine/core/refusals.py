"""Refusals of the engine that several commands share."""

from __future__ import annotations

from engine.errors import Code, Refused, Unavailable


def mismatch(key: bytes) -> Refused:
    """The 422 of a key that was used for other records."""
    return Refused(
        Code.IDEMPOTENCY_MISMATCH,
        "this idempotency_key was used for other records; use a new key for new records",
        {"idempotency_key": key.decode(errors="replace")},
    )


def capped(limit: str, maximum: int) -> Refused:
    """The 429 of a bound on the whole store."""
    return Refused(Code.THROTTLED, f"{limit} is {maximum}; nothing was changed", {"limit": limit, "max": maximum})


def shutting_down() -> Unavailable:
    """The 503 of a store that is being closed."""
    return Unavailable(Code.SHUTTING_DOWN, "the daemon is stopping; nothing was written")
