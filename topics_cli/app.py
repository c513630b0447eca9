"""The program: reads the command line, runs one command, and turns whatever happens into an exit code.

Plain command lines are read by the small parser and run at once, so that the hot commands start fast and the others
not slowly, and so is help that is asked for plainly; whatever is left (mistakes above all) goes through Typer, which is
imported only then. All end in the same functions with the same values.
"""

from __future__ import annotations

import os
import sys

from topics_cli import exits
from topics_cli.exits import Failure, OutputClosed, Stopped, usage
from topics_cli.parse import maybe_parse
from topics_cli.session import Session
from topics_cli.table_quick import COMMON, QUICK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from topics_cli.options import Command


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    words = sys.argv[1:] if argv is None else argv
    hold_streams()
    try:
        plain = maybe_parse(words, QUICK, COMMON)
        if plain is None:
            from topics_cli.table import COMMANDS

            plain = maybe_parse(words, COMMANDS, COMMON)
        if plain is None:
            from topics_cli.help import maybe_help

            plain = maybe_help(words)
        if plain is not None:
            return run(*plain)
        _have_site()
        from topics_cli.full import run_full

        return run_full(words)
    except KeyboardInterrupt:
        return exits.INTERRUPTED


def hold_streams() -> None:
    """Take the places of standard streams that we were started without, with files that refuse.

    Otherwise the next thing that is opened (a pipe of ours, the connection to the daemon) would be standard input or
    output, and be read or written as such.
    """
    for handle in (0, 1, 2):
        try:
            os.fstat(handle)
        except OSError:
            os.open(os.devnull, os.O_WRONLY if handle == 0 else os.O_RDONLY)


def _have_site() -> None:
    """Do what our interpreter left out at its start (`-S`): the libraries of the full program may need it."""
    if "site" not in sys.modules:
        import site

        site.main()


def run(command: Command, values: dict[str, Any]) -> int:
    """Run one command with its values."""
    if not command.is_light:
        _have_site()
    session = Session(values)
    session.stop.install()
    try:
        with session.understood():
            code = command.load()(session, values)
            session.out.flush()
        return code
    except Failure as failure:
        return _with_output(session, session.report(failure))
    except UnicodeEncodeError:
        # Bytes that are no text can only have come from the command line, as a tag, node or name.
        return _with_output(session, session.report(usage("an argument is not UTF-8", "only data may be anything")))
    except Stopped as stopped:
        return _with_output(session, stopped.exit_code)
    except OutputClosed:
        silence_stdout()
        return exits.CLOSED_PIPE
    finally:
        session.talk.clear()


def _with_output(session: Session, code: int) -> int:
    """Bring out what was already said to be done, whatever the end."""
    try:
        session.out.flush()
    except (Failure, Stopped, OutputClosed):
        pass
    return code


def silence_stdout() -> None:
    """Keep the interpreter from complaining about a closed stdout while it ends."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except OSError:
        pass


if __name__ == "__main__":
    sys.exit(main())
