"""`topics errors`: what exit codes and error codes mean, without a daemon."""

from __future__ import annotations

from typing import Any

from engine.errors import RETRYABLE, STATUS, WHEN, Code
from topics_cli import exits
from topics_cli.exits import Failure
from topics_cli.listing import Column
from topics_cli.output import API_FORMS
from topics_cli.screen import show_objects, show_rows
from topics_cli.session import Session


def errors(session: Session, values: dict[str, Any]) -> int:
    """Show all codes, or the one that was asked for."""
    wanted = values["code"]
    numbers = [number for number in exits.MEANINGS if wanted in (None, str(number))]
    codes = [code for code in Code if wanted in (None, code.value)]
    if not numbers and not codes:
        hint = "topics errors lists those of the daemon, and the exit codes; others say all that they mean"
        raise Failure(f"the daemon has no code {wanted}", "not_found", hint, exits.NOTHING)
    if session.out.form in API_FORMS:
        objects: list[dict[str, Any]] = [{"exit_code": number, "meaning": exits.MEANINGS[number]} for number in numbers]
        objects += [
            {
                "code": code.value,
                "status": STATUS[code],
                "exit_code": _exit_of(code),
                "retryable": code in RETRYABLE,
                "meaning": _meaning(code),
            }
            for code in codes
        ]
        show_objects(session, objects)
        return exits.DONE
    rows = [[str(number), "exit code", exits.MEANINGS[number]] for number in numbers]
    for code in codes:
        again = ", and the same request may succeed later" if code in RETRYABLE else ""
        rows.append([code.value, f"HTTP {STATUS[code]}", f"exit code {_exit_of(code)}{again}: {_meaning(code)}"])
    show_rows(session, [Column("CODE"), Column("WHAT"), Column("MEANING")], rows)
    return exits.DONE


def _exit_of(code: Code) -> int:
    status = STATUS[code]
    if code is Code.NOT_FOUND:
        return exits.NOTHING
    if status in (401, 403):
        return exits.NOT_ALLOWED
    if status in (429, 503):
        return exits.TRY_AGAIN
    return exits.FAILED


def _meaning(code: Code) -> str:
    return WHEN[code].replace("`", "")
