"""`topics errors`: what exit codes and error codes mean, without a daemon."""

from __future__ import annotations

from typing import Any

from engine.errors import RETRYABLE, STATUS, Code
from topics_cli import exits
from topics_cli.exits import Failure
from topics_cli.session import Session


def errors(session: Session, values: dict[str, Any]) -> int:
    """Show all codes, or the one that was asked for."""
    wanted = values["code"]
    found = False
    for number, meaning in exits.MEANINGS.items():
        if wanted in (None, str(number)):
            found = True
            session.out.line(f"{number}\texit code\t{meaning}")
    for code in Code:
        if wanted in (None, code.value):
            found = True
            again = "; the same request may succeed later" if code in RETRYABLE else ""
            session.out.line(f"{code.value}\tHTTP {STATUS[code]}\texit code {_exit_of(code)}{again}")
    if not found:
        raise Failure(f"there is no code {wanted}", "not_found", "topics errors lists them", exits.NOTHING)
    return exits.DONE


def _exit_of(code: Code) -> int:
    status = STATUS[code]
    if status in (401, 403):
        return exits.NOT_ALLOWED
    if status in (429, 503):
        return exits.TRY_AGAIN
    return exits.FAILED
