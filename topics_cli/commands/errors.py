"""`topics errors`: what exit codes and error codes mean, without a daemon."""

from __future__ import annotations

from typing import Any

from engine.errors import RETRYABLE, STATUS, Code
from topics_cli import exits
from topics_cli.exits import Failure
from topics_cli.listing import Column
from topics_cli.screen import show_rows
from topics_cli.session import Session


def errors(session: Session, values: dict[str, Any]) -> int:
    """Show all codes, or the one that was asked for."""
    wanted = values["code"]
    rows: list[list[str]] = []
    for number, meaning in exits.MEANINGS.items():
        if wanted in (None, str(number)):
            rows.append([str(number), "exit code", meaning])
    for code in Code:
        if wanted in (None, code.value):
            again = "; the same request may succeed later" if code in RETRYABLE else ""
            rows.append([code.value, f"HTTP {STATUS[code]}", f"exit code {_exit_of(code)}{again}"])
    if not rows:
        raise Failure(f"there is no code {wanted}", "not_found", "topics errors lists them", exits.NOTHING)
    show_rows(session, [Column("CODE"), Column("WHAT"), Column("MEANING")], rows)
    return exits.DONE


def _exit_of(code: Code) -> int:
    status = STATUS[code]
    if status in (401, 403):
        return exits.NOT_ALLOWED
    if status in (429, 503):
        return exits.TRY_AGAIN
    return exits.FAILED
