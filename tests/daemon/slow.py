"""A launcher for `topicsd` whose replay of the log is slow: every report of its progress takes `$SLOW_S` seconds."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import topics_daemon.lifecycle as lifecycle
from topics_daemon.main import main


class SlowLife(lifecycle.Life):
    """A life whose log lies on a slow disk."""

    def _note_progress(self, progress: float) -> None:
        super()._note_progress(progress)
        time.sleep(float(os.environ["SLOW_S"]))


if __name__ == "__main__":
    setattr(lifecycle, "Life", SlowLife)  # noqa: B010  # the one place where a daemon's life is made
    sys.exit(main())
