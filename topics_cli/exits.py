"""How a command ends: the exit codes of the command line, and the failures that lead to them.

    Failure             something was refused or failed: what, a code, what to do next, an exit code
    ├── ApiError        the daemon answered with an error; carries the body that it sent
    ├── NoDaemon        nobody answered where the daemon should be
    └── BadAnswer       something else answered there
    Stopped             SIGINT or SIGTERM; carries the signal
    OutputClosed        whoever read our output is gone; the end is silent

The numbers are stable and documented (`topics errors`). They are plain integers, because this module is on the path
of the commands that must start fast, where importing `enum` alone would cost a fifth of the budget.
"""

from __future__ import annotations

DONE = 0
FAILED = 1
USAGE = 2
NOTHING = 3
DAMAGE = 4
LOSS = 5
STALE = 6
GAP = 7
NO_DAEMON = 69
TRY_AGAIN = 75
NOT_ALLOWED = 77
CONFIGURATION = 78
CANNOT_EXECUTE = 126
COMMAND_NOT_FOUND = 127
INTERRUPTED = 130
CLOSED_PIPE = 141
TERMINATED = 143

MEANINGS = {
    DONE: "done",
    FAILED: "refused or failed: the message says which rule",
    USAGE: "usage",
    NOTHING: "nothing there: nothing new before the wait ended, no such record",
    DAMAGE: "damage found",
    LOSS: "finished, with loss that is listed",
    STALE: "a lease was stale or not ours",
    GAP: "a gap was met and --fail-on-gap was given",
    NO_DAEMON: "no daemon there",
    TRY_AGAIN: "try again: throttled or not ready after the retries ran out",
    NOT_ALLOWED: "not allowed",
    CONFIGURATION: "configuration",
    CANNOT_EXECUTE: "command not executable",
    COMMAND_NOT_FOUND: "command not found",
    INTERRUPTED: "SIGINT",
    CLOSED_PIPE: "the reader of the output is gone",
    TERMINATED: "SIGTERM",
}


class Failure(Exception):
    """A command cannot go on. `what` fits one line; `hint` says what to do; `code` is stable."""

    def __init__(self, what: str, code: str, hint: str = "", exit_code: int = FAILED) -> None:
        super().__init__(what)
        self.what = what
        self.code = code
        self.hint = hint
        self.exit_code = exit_code


class NoDaemon(Failure):
    """Nobody answers where the daemon should be."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what, "no_daemon", hint, NO_DAEMON)


class BadAnswer(Failure):
    """What answers is no daemon of ours: no JSON, or not what was asked for. `why` is our text, never the peer's."""

    def __init__(self, why: str, label: str = "") -> None:
        hint = "is that topicsd? topics status says which place is used, and why"
        what = f"{label or 'the daemon'} answered what topicsd would not: {why}"
        super().__init__(what, "bad_answer", hint, NO_DAEMON)
        self.why = why
        self.label = label
        """Who answered, "" where that was not known."""


class ApiError(Failure):
    """The daemon refused or failed a request; `body` is its answer, byte for byte."""

    def __init__(self, status: int, code: str, message: str, body: bytes, hint: str, exit_code: int) -> None:
        super().__init__(message, code, hint, exit_code)
        self.status = status
        self.body = body


class Stopped(Exception):
    """A signal asked us to end."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.exit_code = 128 + signum


class OutputClosed(Exception):
    """The reader of our output is gone."""


def usage(what: str, hint: str = "") -> Failure:
    """A mistake on the command line."""
    return Failure(what, "usage", hint, USAGE)
