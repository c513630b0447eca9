"""`topics serve`: the daemon in the foreground; or, with `--embedded`, for as long as a command runs.

By itself the process becomes the daemon (exec): same pid, same terminal, same signals, and the command line never
imports it. With `--embedded CMD` the daemon is a child in a process group of its own, so that Ctrl-C is for the command
alone; it listens where nobody else looks unless its options say otherwise, and is stopped in order once the command has
ended. Without `--data-dir` it holds what the command did for no longer than that.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from topics_cli.client import Client
from topics_cli.exits import CANNOT_EXECUTE, FAILED, Failure, NoDaemon, usage
from topics_cli.launch import die_with_us, find_command
from topics_cli.session import Session
from topics_cli.signals import POLLIN
from topics_cli.talk import speaks_utf8
from topics_cli.where import Where

DAEMON: Final = "topics_daemon.main"
EMBEDDED: Final = "--embedded"
POLL_S: Final = 0.02
STOP_S_MAX: Final = 60.0
"""How long the daemon may take to end before it is killed: it has a checkpoint to finish."""

_EMBEDDED_HELP: Final = """Usage: topics serve [OPTIONS] [--embedded CMD...]

  --embedded CMD   run CMD with a daemon of its own, which ends with it, and end
                   with its exit status; without --data-dir nothing of it is left

What is left is topicsd's:

"""


def serve(session: Session, values: dict[str, Any]) -> int:
    """Become the daemon, with the words that followed; or be there for a command's life."""
    words: list[str] = values["words"]
    if EMBEDDED in words:
        at = words.index(EMBEDDED)
        command = words[at + 1 :]
        return _embedded(session, words[:at], command[1:] if command[:1] == ["--"] else command)
    if words in (["--help"], ["-h"]):
        session.out.write(_EMBEDDED_HELP.encode("utf-8" if speaks_utf8() else "ascii"))
        session.out.flush()
    try:
        os.execv(sys.executable, [sys.executable, "-m", DAEMON, *words])
    except OSError as error:
        raise Failure(f"the daemon cannot be started: {error.strerror}", "exec_failed", "", CANNOT_EXECUTE) from error


def _embedded(session: Session, options: list[str], command: list[str]) -> int:
    """Run a command beside a daemon; its exit status, 128 and the signal when it was killed."""
    if not command:
        raise usage("which command?", "topics serve [OPTIONS] --embedded CMD…")
    try:
        find_command(command[0])
    except Failure as failure:
        failure.hint = "no daemon was started; is its path right?"
        raise
    place = tempfile.mkdtemp(prefix="topics-")
    try:
        socket = _option(options, "--socket") or os.path.join(place, "topics.sock")
        more = [] if _option(options, "--socket") else ["--socket", socket]
        more += [] if _option(options, "--data-dir") else ["--data-dir", os.path.join(place, "data")]
        more += [] if _option(options, "--port") else ["--port", "none"]
        with _daemon([*options, *more], os.path.join(place, "log")) as daemon:
            wait_until_ready(session, daemon, socket, os.path.join(place, "log"))
            return _run(session, command, socket)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _option(words: list[str], name: str) -> str:
    """What an option of the daemon was given, "" when it was not."""
    for place, word in enumerate(words):
        if word == name and place + 1 < len(words):
            return words[place + 1]
        if word.startswith(name + "="):
            return word.removeprefix(name + "=")
    return ""


def spawn(words: list[str], log: str) -> subprocess.Popen[bytes]:
    """Start a daemon that ends when we do, whatever ends us; what it says is added to a file."""
    with open(log, "ab") as said:
        return subprocess.Popen(
            [sys.executable, "-m", DAEMON, *words],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            process_group=0,
            preexec_fn=die_with_us,  # noqa: PLW1509  # one system call, and we have no threads
        )


def end(daemon: subprocess.Popen[bytes]) -> None:
    """Stop a daemon in order, or at last by force."""
    daemon.terminate()
    try:
        daemon.wait(STOP_S_MAX)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


@contextmanager
def _daemon(words: list[str], log: str) -> Iterator[subprocess.Popen[bytes]]:
    daemon = spawn(words, log)
    try:
        yield daemon
    finally:
        end(daemon)


def wait_until_ready(session: Session, daemon: subprocess.Popen[bytes], socket: str, log: str) -> None:
    """Wait for as long as the daemon lives: it may have a log to read."""
    client = Client(Where(EMBEDDED, path=socket), "", 0, session.stop, session.talk)
    while True:
        session.stop.check()
        try:
            client.get("/v0/ready")
        except (NoDaemon, Failure):
            code = daemon.poll()
            if code is not None:
                with open(log, encoding="utf-8", errors="backslashreplace") as file:
                    lines = file.read().strip().splitlines()
                why = lines[-1] if lines else f"it ended with {code}"
                raise Failure(f"the daemon did not start: {why}", "daemon_failed", "", FAILED) from None
            session.stop.wait([], POLL_S)
        else:
            return


def _run(session: Session, command: list[str], socket: str) -> int:
    environment = {name: value for name, value in os.environ.items() if name != "TOPICS_URL"}
    process = subprocess.Popen(command, env={**environment, "TOPICS_SOCKET": socket})
    ended = os.pidfd_open(process.pid)
    passed_on = 0
    try:
        while not session.stop.wait([(ended, POLLIN)], None):
            if session.stop.signum and not passed_on:
                passed_on = session.stop.signum
                if passed_on == signal.SIGTERM:  # Ctrl-C has reached it by itself.
                    process.terminate()
    finally:
        os.close(ended)
    code = process.wait()
    return 128 - code if code < 0 else code
