"""`topics serve`: the daemon in the foreground.

The process becomes the daemon (exec): same pid, same terminal, same signals, and the command line never imports it.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from topics_cli.exits import CANNOT_EXECUTE, Failure
from topics_cli.session import Session

DAEMON = "topics_daemon.main"


def serve(_session: Session, values: dict[str, Any]) -> int:
    """Become the daemon, with the words that followed."""
    try:
        os.execv(sys.executable, [sys.executable, "-m", DAEMON, *values["words"]])
    except OSError as error:
        raise Failure(f"the daemon cannot be started: {error.strerror}", "exec_failed", "", CANNOT_EXECUTE) from error
