"""A launcher for `topicsd` as it runs where there is no wheel of uvloop: on asyncio's own loop."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.modules["uvloop"] = None  # type: ignore[assignment]  # importing it fails, as it does where it is not installed

from topics_daemon.main import main  # noqa: E402  # after uvloop was hidden

if __name__ == "__main__":
    sys.exit(main())
