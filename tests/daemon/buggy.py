"""A launcher for `topicsd` with bugs in what makes answers of the engine's: where a topic is called `bug` there is none
yet, and where it is called `late` it is there already. A stream of lines to `bug` meets one with its first batch.

`buggy.py ARGS…`: as `topicsd ARGS…`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from topics_daemon.exchange import Exchange
from topics_daemon.intake import Intake
from topics_daemon.main import main
from topics_daemon.routes import delete, queue, write


def give_bugs(kind: Any, method: str) -> None:
    """Give a kind of exchange the bugs."""
    really = getattr(kind, method)

    def answered(self: Exchange, ticket: Any) -> None:
        assert self.head is not None
        if self.head.name == "bug":
            raise KeyError("s3cret")
        really(self, ticket)
        if self.head.name == "late":
            raise KeyError("s3cret")

    setattr(kind, method, answered)


def results(self: Intake, really: Any = Intake._results) -> bytes:
    """Those of a stream, with a bug in the first ones."""
    if self._head.name == "bug" and self._said is not None:
        self._said = None
        raise KeyError("s3cret")
    return bytes(really(self))


if __name__ == "__main__":
    for one in (write.WriteExchange, delete.DeleteExchange, queue.SettleExchange):
        give_bugs(one, "answered")
    give_bugs(queue.ClaimExchange, "answered")
    setattr(Intake, "_results", results)  # noqa: B010  # in front of its own
    sys.exit(main())
