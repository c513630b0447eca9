"""The entry of `topicsd`: command line → configuration → `lifecycle.run` → exit code.

Exit codes (operations.md): 0 done, 64 usage, 73 locked or cannot be made, 74 I/O, 76 damaged data, 77 permission,
78 configuration.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from engine.version import VERSION
from topics_daemon import config as settings
from topics_daemon.lifecycle import run
from topics_daemon.log import Log


def open_standard() -> None:
    """Let the standard streams that were closed lead nowhere.

    Else files of the store got their numbers, and what any library says on its stderr was written into one.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
            os.set_inheritable(number, True)
    if sys.stdout is None:  # Python's own word for a stream that is closed
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115  # for as long as we live
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115  # as above


def show(text: str) -> int:
    """Write a text to stdout, in whatever it is encoded there; returns the exit code."""
    encoding = sys.stdout.encoding
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except OSError as error:
        sys.stderr.write(f"topicsd: cannot write to stdout: {error.strerror}\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python tries again at its end
        return 74
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon with the arguments after the program's name; returns the exit code."""
    open_standard()
    try:
        wants = settings.parse_flags(sys.argv[1:] if argv is None else argv)
        if wants.help:
            return show(settings.help_text(settings.program_name()))
        if wants.version:
            return show(f"topicsd {VERSION}\n")
        config = settings.load(wants, os.environ)
    except settings.Mistakes as error:
        for line in error.lines:
            sys.stderr.write(f"topicsd: {line}\n")
        return error.exit_code
    if wants.print_config:
        for line in config.warnings:
            sys.stderr.write(f"topicsd: warning: {line}\n")
        return show(settings.print_config(config))
    as_text = {"auto": None, "text": True, "json": False}[config["log_format"]]
    log = Log(as_text=as_text, level=config["log_level"])
    return run(config, log, lambda: settings.load(wants, os.environ))


if __name__ == "__main__":
    sys.exit(main())
