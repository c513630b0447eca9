"""A launcher for `topicsd` that is hard pressed whenever a file says so.

`pressed.py ARGS…`: as `topicsd ARGS…`. While `$FAULTS/pressed` exists, the governor sees a loop that is ten seconds
late; everything that follows from it is the daemon's own.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from engine.delivery import Governor, Observed
from topics_daemon import daemon
from topics_daemon.main import main

PRESSED = Path(os.environ["FAULTS"]) / "pressed"


class PressedGovernor(Governor):
    """A governor that sees what the file wants."""

    def observe(self, seen: Observed, now_s: float) -> None:
        super().observe(msgspec.structs.replace(seen, lag_s=10.0, busy=1.0) if PRESSED.exists() else seen, now_s)


daemon.Governor = PressedGovernor  # type: ignore[attr-defined]  # the name that the daemon takes it by

if __name__ == "__main__":
    sys.exit(main())
