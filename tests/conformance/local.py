"""A daemon of the suite's own: `topicsd` of this environment, on a free port and a socket, in a temporary directory.

For `make conformance` without a URL and for pytest. There are two, because some cases need a server with keys of
several scopes and some need one without.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.conformance.kit import Case, Keys
from tests.conformance.wire import Connection, Target, render_request

READY_WITHIN_S = 20.0
STOPPED_WITHIN_S = 30.0
KEYS = Keys("conf-full-key", "conf-read-key", "conf-write-key", "conf-prefix-key", "conf-limited-")
KEY_ENTRIES = (
    "conf-full-key,conf-read-key:read,conf-write-key:write,conf-prefix-key:read+write+delete+admin:conf-limited-"
)
DOORS = tuple(f"{door}{keys}" for keys in ("", " with keys") for door in ("tcp", "unix", "http2", "http2 over unix"))

Doors = dict[str, tuple[Target, Keys]]


class NoDaemon(Exception):
    """The daemon did not start or did not stop as it should."""


@dataclass(slots=True)
class Daemon:
    """A running daemon and its two doors."""

    process: subprocess.Popen[bytes]
    tcp: Target
    unix: Target
    _is_asked: bool = False

    def ask_to_stop(self) -> None:
        """SIGTERM, once: a second one would mean "at once"."""
        if not self._is_asked:
            self._is_asked = True
            self.process.send_signal(signal.SIGTERM)


@contextmanager
def running(keys: str | None) -> Iterator[Daemon]:
    """A daemon that is ready; stopped by SIGTERM at the end, which must give exit status 0."""
    with tempfile.TemporaryDirectory(prefix="topics-conf-") as name:
        daemon = _start(Path(name), keys)
        try:
            yield daemon
        finally:
            daemon.ask_to_stop()
            try:
                status = daemon.process.wait(STOPPED_WITHIN_S)
            except subprocess.TimeoutExpired as error:
                daemon.process.kill()
                raise NoDaemon(f"topicsd did not stop within {STOPPED_WITHIN_S} s of SIGTERM") from error
        if status != 0:
            raise NoDaemon(f"topicsd exited with {status} after SIGTERM")


def _start(directory: Path, keys: str | None) -> Daemon:
    command = Path(sys.executable).with_name("topicsd")
    if not command.exists():
        raise NoDaemon(f"{command} is not there: make setup")
    port_file, socket_path, log = directory / "port", directory / "s" / "topics.sock", directory / "log"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}
    environ["TOPICS_PORT_FILE"] = str(port_file)
    if keys is not None:
        environ["TOPICS_API_KEYS"] = keys
    arguments = [str(command), "--data-dir", str(directory / "data"), "--socket", str(socket_path), "--port", "0"]
    with log.open("wb") as stderr:
        process = subprocess.Popen(arguments, env=environ, stderr=stderr)
    deadline = time.monotonic() + READY_WITHIN_S
    while not (port_file.exists() and port_file.read_text().strip() and socket_path.exists()):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise NoDaemon(f"topicsd did not get ready: {log.read_text()[-2000:]}")
        time.sleep(0.02)
    tcp = Target("127.0.0.1", int(port_file.read_text()), None)
    while not _is_ready(tcp):
        if time.monotonic() > deadline:
            process.kill()
            raise NoDaemon("topicsd answers, but does not get ready")
        time.sleep(0.02)
    return Daemon(process, tcp, Target("localhost", 0, str(socket_path)))


def _is_ready(target: Target) -> bool:
    with Connection(target) as connection:
        connection.send(render_request("GET", "/v0/ready", target.host_header))
        return connection.read_response().status == 200


@contextmanager
def all_doors() -> Iterator[Doors]:
    """Both daemons, over TCP and the Unix socket, in HTTP/1.1 and HTTP/2."""
    with ExitStack() as stack:
        daemons = [
            (stack.enter_context(running(entries)), keys) for entries, keys in ((None, Keys()), (KEY_ENTRIES, KEYS))
        ]
        yield dict(
            zip(
                DOORS,
                [(door, keys) for daemon, keys in daemons for door in _doors(daemon.tcp, daemon.unix)],
                strict=True,
            )
        )


def _doors(tcp: Target, unix: Target) -> tuple[Target, ...]:
    return tcp, unix, replace(tcp, http2=True), replace(unix, http2=True)


def doors_of(case: Case) -> list[str]:
    """Where a case can be run: at all doors that have what it needs."""
    targets = _doors(Target("127.0.0.1", 1, None), Target("localhost", 0, "/x"))
    kinds = zip(DOORS, [(target, keys) for keys in (Keys(), KEYS) for target in targets], strict=True)
    return [door for door, kind in kinds if case.missing(*kind) is None]
