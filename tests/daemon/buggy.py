"""A launcher for `topicsd` with bugs in what makes answers of what was done: where a topic is called `bug` (or else an
idempotency key) there is none yet, and where it is called `late` it is there already. A stream of lines to `bug` meets
one with its first batch.

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
from topics_daemon.routes import delete, exports, moves, queue, write


def give_bugs(kind: Any) -> None:
    """Give a kind of exchange the bugs."""
    really = kind.answered

    def answered(self: Exchange, ticket: Any) -> None:
        assert self.head is not None
        if "bug" in (self.head.name, self.head.idempotency_key):
            raise KeyError("s3cret")
        really(self, ticket)
        if self.head.name == "late":
            raise KeyError("s3cret")

    kind.answered = answered


def results(self: Intake, really: Any = Intake._results) -> bytes:
    """Those of a stream, with a bug in the first ones."""
    if self._head.name == "bug" and self._said is not None:
        self._said = None
        raise KeyError("s3cret")
    return bytes(really(self))


if __name__ == "__main__":
    for kind in (
        write.WriteExchange,
        delete.DeleteExchange,
        queue.SettleExchange,
        queue.ClaimExchange,
        exports.ExportExchange,
        moves.DetachExchange,
    ):
        give_bugs(kind)
    setattr(Intake, "_results", results)  # noqa: B010  # in front of its own
    sys.exit(main())
