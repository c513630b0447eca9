"""Refusals of the engine that several commands share."""

from __future__ import annotations

from engine.errors import Code, Refused, TopicsError, Unavailable, invalid
from engine.formats.moving import MoveBody, MoveState
from engine.topic.idempotency import Keys


def mismatch(key: bytes) -> Refused:
    """The 422 of a key that was used for other records."""
    return Refused(
        Code.IDEMPOTENCY_MISMATCH,
        "this idempotency_key was used for other records; use a new key for new records",
        {"idempotency_key": key.decode(errors="replace")},
    )


def check_key(key: bytes, bytes_max: int) -> None:
    """Raise the 400 of an idempotency key of a wrong size."""
    if not 0 < len(key) <= bytes_max:
        raise invalid(f"idempotency_key must hold 1 to {bytes_max} bytes", "idempotency_key")


def capped(limit: str, maximum: int) -> Refused:
    """The 429 of a bound on the whole store."""
    return Refused(Code.THROTTLED, f"{limit} is {maximum}; nothing was changed", {"limit": limit, "max": maximum})


def disk_full(why: OSError) -> Unavailable:
    """The 507 of a log that finds no space."""
    said = f"no space for the log ({why.strerror or why}); free some, writing resumes by itself"
    return Unavailable(Code.DISK_FULL, said)


def shutting_down() -> Unavailable:
    """The 503 of a store that is being closed."""
    return Unavailable(Code.SHUTTING_DOWN, "the daemon is stopping; nothing was written")


def elsewhere(name: str, move: MoveBody) -> TopicsError:
    """The error of a topic that takes no changes: 503 as long as it may come to stay, 409 when it has moved."""
    detail = {"topic": name, **moved_to(move)}
    if move.state is MoveState.LEAVING:
        return Unavailable(Code.TOPIC_MOVING, f"topic {name!r} is being sealed for {move.to}; try again", detail)
    if move.state is MoveState.TAKEN:
        return Refused(Code.TOPIC_MOVED, f"topic {name!r} has moved to {move.url or move.to}; go on there", detail)
    return Refused(
        Code.TOPIC_MOVED,
        f"topic {name!r} was detached to {move.to}; attach it where it is to go on, or cancel the detach here",
        detail,
    )


def moved_to(move: MoveBody) -> dict[str, str]:
    """Where a topic is to be found, or will be: a daemon where one is known, else the place."""
    return {"to": move.url or move.to, "place": move.to, "state": move.state.value, "token": move.token}


def check_key_count(keys: Keys, keys_max: int, now_ms: int) -> None:
    """Raise the refusal of one more idempotency key than a store keeps."""
    if keys.live >= keys_max:
        keys.expire(now_ms)
        if keys.live >= keys_max:
            raise capped("idempotency_keys", keys_max)
