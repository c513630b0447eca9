"""A launcher for `topicsd` in which whatever goes in slices rests for a tenth of a second after each: what comes in
between two steps of a write that is not small has all the time to.

`resting.py ARGS…`: as `topicsd ARGS…`. With `REST_ENDS` in its environment each rest is over as soon as somebody has
been told of it, as one is that ends between two questions.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import tests.daemon.thin_slices  # noqa: F401  # its slices, too
from topics_daemon import daemon, shares
from topics_daemon.main import main

REST_NS = 100_000_000


class Resting(shares.Shares):
    """Rests, however little was done."""

    def renew(self) -> None:
        if self._began_ns:
            self._rests_until_ns = time.perf_counter_ns() + REST_NS
        super().renew()

    def spent(self) -> bool:
        is_spent = super().spent()
        if is_spent and not self._until_ns and "REST_ENDS" in os.environ:
            self._rests_until_ns = 0
        return is_spent


vars(daemon)["Shares"] = Resting  # in front of the one that it would make

if __name__ == "__main__":
    sys.exit(main())
