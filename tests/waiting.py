"""Waiting for what comes by itself, on a machine that may be busy: never for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 60.0
"""Far beyond what anything takes that a test waits for: what has not come by then does not come."""


def until(condition: Callable[[], object], why: object = "it does not come", within_s: float = PATIENCE_S) -> None:
    """Wait until something holds; fail with `why` when it does not in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, why
        time.sleep(0.05)
