"""`topics errors`: what exit codes and error codes mean, the daemon's and our own, without a daemon."""

from __future__ import annotations

from typing import Any

from engine.errors import RETRYABLE, STATUS, WHEN, Code
from topics_cli import exits
from topics_cli.exits import Failure
from topics_cli.listing import Column
from topics_cli.nearest import nearest
from topics_cli.output import API_FORMS
from topics_cli.own_codes import OWN
from topics_cli.screen import show_objects, show_rows
from topics_cli.session import Session


def errors(session: Session, values: dict[str, Any]) -> int:
    """Show all codes, or the one that was asked for."""
    wanted = values["code"]
    numbers = [number for number in exits.MEANINGS if wanted in (None, str(number))]
    own = [code for code in OWN if wanted in (None, code)]
    codes = [code for code in Code if wanted in (None, code.value)]
    if not numbers and not own and not codes:
        near = nearest(wanted, [*OWN, *(code.value for code in Code)])
        hint = f"did you mean {' or '.join(near)}?" if near else "topics errors lists them all"
        raise Failure(f"there is no code {wanted}", "not_found", hint, exits.NOTHING)
    if session.out.form in API_FORMS:
        objects: list[dict[str, Any]] = [{"exit_code": number, "meaning": exits.MEANINGS[number]} for number in numbers]
        objects += [{"code": code, "exit_code": OWN[code][0][0], "meaning": OWN[code][1]} for code in own]
        objects += [
            {
                "code": code.value,
                "status": STATUS[code],
                "exit_code": _exits_of(code)[0],
                "retryable": code in RETRYABLE,
                "meaning": _meaning(code),
            }
            for code in codes
        ]
        show_objects(session, objects)
        return exits.DONE
    rows = [[str(number), "exit code", exits.MEANINGS[number]] for number in numbers]
    rows += [[code, "command line", f"exit code {_either(OWN[code][0])}: {OWN[code][1]}"] for code in own]
    for code in codes:
        again = ", and the same request may succeed later" if code in RETRYABLE else ""
        rows.append(
            [code.value, f"HTTP {STATUS[code]}", f"exit code {_either(_exits_of(code))}{again}: {_meaning(code)}"]
        )
    show_rows(session, [Column("CODE"), Column("WHAT"), Column("MEANING")], rows)
    return exits.DONE


def _exits_of(code: Code) -> tuple[int, ...]:
    """The exit codes that a command ends with by a code of the daemon, the usual one first."""
    status = STATUS[code]
    if code is Code.NOT_FOUND:
        return exits.NOTHING, exits.FAILED
    if status in (401, 403):
        return (exits.NOT_ALLOWED,)
    if status in (429, 503):
        return (exits.TRY_AGAIN,)
    return (exits.FAILED,)


def _either(numbers: tuple[int, ...]) -> str:
    return " or ".join(map(str, numbers))


def _meaning(code: Code) -> str:
    return WHEN[code].replace("`", "")
