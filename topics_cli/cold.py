"""How long tools wait for a cold tier, and where they look for it when nobody says so.

A tier that hangs must not make a tool hang: each call has a thread of its own and a deadline, and a tier that missed
one is not asked again. What that means for the records is the tool's business: each file is named.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from topics_cli.exits import usage

if TYPE_CHECKING:
    from engine.tools.readonly import ReadOnlyFs

DEADLINE_S: Final = 30.0
"""How long one call may take: a disk that spins up, or a mount that comes back, and not more."""

T = TypeVar("T")


def with_tier(source: ReadOnlyFs, given: str | None) -> Any:
    """A store together with its cold tier (an `Fs`); where it is `given`, or the pin or the environment says."""
    from engine.tools.cold import tiered
    from topics_objects.place import open_bucket

    deadline = os.environ.get("TOPICS_COLD_DEADLINE_MS", "")
    seconds = int(deadline) / 1000 if deadline.isdigit() else DEADLINE_S
    usual = os.environ.get("TOPICS_COLD_URL") or os.environ.get("TOPICS_COLD_DIR")
    return tiered(source, given, usual, open_bucket, Patience(seconds))


def tier_of(given: str | None, store_id: bytes) -> Any:
    """The way to the cold tier of a store that is written to (a `ColdTier`)."""
    from topics_objects.place import tier_at

    place = given or os.environ.get("TOPICS_COLD_URL") or os.environ.get("TOPICS_COLD_DIR")
    if not place:
        raise usage("where is the cold tier?", "say --cold DIR, or --cold s3://bucket/prefix")
    return tier_at(place, store_id, Patience(DEADLINE_S))


class Patience:
    """Calls that may hang, each with a deadline; after the first that misses it none is made any more."""

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._hangs = False

    def __call__(self, call: Callable[[], T]) -> T:
        """What the call returns or raises. Raises `ColdError` when it takes too long."""
        from engine.tools.cold import too_slow

        if self._hangs:
            raise too_slow(self._deadline_s)
        result: list[T] = []
        failure: list[BaseException] = []

        def run() -> None:
            try:
                result.append(call())
            except BaseException as error:  # noqa: BLE001  # whatever it is, it is raised where it was asked for
                failure.append(error)

        thread = threading.Thread(target=run, name="cold", daemon=True)
        thread.start()
        thread.join(self._deadline_s)
        if thread.is_alive():
            self._hangs = True
            raise too_slow(self._deadline_s)
        if failure:
            raise failure[0]
        return result[0]
