"""A launcher for `topicsd` whose recovery takes until a file is gone: `$HELD` is its path."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import topics_daemon.lifecycle as lifecycle
from engine.core import Core
from topics_daemon.main import main


class HeldLife(lifecycle.Life):
    """A life that begins late."""

    def _open(self) -> Core:
        while Path(os.environ["HELD"]).exists():
            time.sleep(0.01)
        return super()._open()


if __name__ == "__main__":
    setattr(lifecycle, "Life", HeldLife)  # noqa: B010  # the one place where a daemon's life is made
    sys.exit(main())
