"""How the daemon starts and stops.

    lock ─► bind ─► recover (in a thread, while probes are answered and everything else gets 503) ─► ready
    SIGTERM/SIGINT ─► stop accepting ─► finish what is in flight ─► close the store ─► exit 0
    a second signal ─► exit at once (128 + signal); recovery loses nothing that was acked

The lock on the data directory comes first: whoever has it may replace a stale socket, and a second daemon stops
before it has touched anything. `READY=1` goes to systemd only when a request would succeed.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import resource
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NoReturn

import msgspec

from engine import scan
from engine.clock import OsClock
from engine.core import Core
from engine.errors import StoreError
from engine.fs import OsFs
from engine.version import VERSION
from topics_daemon.config import CONNECTIONS_MAX, SEGMENT_HANDLES, Config, Mistakes
from topics_daemon.daemon import Daemon, Door
from topics_daemon.guard import Hosts
from topics_daemon.http1 import Connection
from topics_daemon.listen import (
    BACKLOG,
    CannotListen,
    UnixDoor,
    bind_tcp,
    bind_unix,
    check_exposure,
    write_port_file,
)
from topics_daemon.log import Log, describe
from topics_daemon.supervisor import Notifier, passed_sockets

FDS_RESERVED: Final = SEGMENT_HANDLES + 192
"""Descriptors kept for open segments (and 64 of them for a checkpoint), the log and the process itself:
connections stop before a file could not be opened (faults.md F24)."""
GC_THRESHOLDS: Final = (20_000, 20, 50)
"""What is there after recovery stays; a request makes a few objects that know each other, so the young generation may
be large before it is looked through."""
PROGRESS_S: Final = 1.0
"""How often the progress of recovery is told."""
STEP_S_MAX: Final = 30.0
"""How long the supervisor is asked to wait for the next sign of life while the daemon starts or stops."""
KEEPS_SOCKETS: Final[dict[str, Any]] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
"""That a loop leaves the files of Unix sockets alone, as it did before Python 3.13: one that was passed is not ours."""
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
TELL_AGAIN_S: Final = 0.1
"""When a supervisor that had no room for a message gets it again."""
LAST_BYTES_S: Final = 1.0
"""How long connections may take to send what was written when the drain time is over."""


class CannotStart(Exception):
    """The daemon cannot start; `exit_code` says what the process ends with (operations.md)."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class LockContent(msgspec.Struct):
    """What of the LOCK file names the owner."""

    pid: int | None = None


def open_root(config: Config) -> OsFs:
    """Make and open the data directory, check whose it is, and lock it."""
    path: str = config["data_dir"]
    try:
        fs = OsFs(path, create=True)
    except PermissionError as error:
        raise CannotStart(f"cannot use the data directory {path}: {error.strerror}", 77) from error
    except OSError as error:
        raise CannotStart(f"cannot make or open the data directory {path}: {error.strerror}", 73) from error
    found = os.stat(fs.root)
    if found.st_uid != os.geteuid():
        raise CannotStart(f"the data directory {fs.root} belongs to another user", 77)
    if stat.S_IMODE(found.st_mode) & 0o022:
        raise CannotStart(f"the data directory {fs.root} can be written by others; chmod 700 it", 77)
    try:
        locked = fs.lock()
    except OSError as error:
        raise CannotStart(f"cannot lock the data directory {fs.root}: {error.strerror}", 74) from error
    if not locked:
        raise CannotStart(f"the data directory {fs.root} is in use by {_owner(fs.root)}", 73)
    return fs


def _owner(root: str) -> str:
    """Who holds the lock, as far as the LOCK file says."""
    try:
        with open(os.path.join(root, "LOCK"), "rb") as file:
            content = file.read(4096)
        pid = msgspec.json.decode(content[: content.rfind(b"}") + 1], type=LockContent).pid
    except (OSError, msgspec.MsgspecError):
        pid = None
    return f"process {pid}" if pid is not None else "another process"


class Life:
    """One run of the daemon."""

    def __init__(self, config: Config, log: Log, loop: asyncio.AbstractEventLoop, fs: OsFs) -> None:
        self.config = config
        self.log = log
        self.loop = loop
        self.fs = fs
        self.daemon = Daemon(config, log, loop)
        self.daemon.die = self._die
        self.notifier = Notifier()
        self._telling: asyncio.TimerHandle | None = None
        self._servers: list[asyncio.AbstractServer] = []
        self._unix: UnixDoor | None = None
        self._port_file = ""
        """The one that was written: until then it is another daemon's."""
        self._stop = asyncio.Event()
        self._hangups = self._taken_over = 0

    # -- start -----------------------------------------------------------------------------------------------------

    async def bind(self) -> None:
        """Open the doors."""
        config, daemon = self.config, self.daemon
        try:
            hosts = Hosts(config["allowed_hosts"])
        except ValueError as error:
            raise Mistakes([f"allowed_hosts: {error}"]) from error
        passed = passed_sockets(os.environ)
        if passed:
            # Whoever holds the sockets has decided what is listened on; addresses of our own would be a surprise.
            tcp = [sock for sock in passed if sock.family != socket.AF_UNIX]
            unix = [sock for sock in passed if sock.family == socket.AF_UNIX]
            check_exposure(config, [sock.getsockname()[0] for sock in tcp])
        else:
            check_exposure(config, [] if config["port"] == "none" else [config["host"]])
            tcp = bind_tcp(config)
            self._unix = bind_unix(config, self.log, os.environ)
            unix = [self._unix.sock] if self._unix is not None else []
        door = Door(daemon, hosts)
        for sock in tcp:
            self._servers.append(
                await self.loop.create_server(lambda: Connection(daemon, door), sock=sock, backlog=BACKLOG)
            )
        own = Door(daemon, None, trusted=True) if config["socket_auth"] == "peer" else None
        inner = Door(daemon, None, inner=own)
        for sock in unix:
            self._servers.append(
                await self.loop.create_unix_server(
                    lambda: Connection(daemon, inner), sock=sock, backlog=BACKLOG, **KEEPS_SOCKETS
                )
            )
        if not self._servers:
            raise Mistakes(["neither a port nor a socket to listen on"])
        port = tcp[0].getsockname()[1] if tcp else None
        if config["port_file"] and port is not None:
            write_port_file(config["port_file"], port)
            self._port_file = config["port_file"]
        self.log.info(
            "listening",
            host=tcp[0].getsockname()[0] if tcp else None,
            port=port,
            socket=unix[0].getsockname() if unix else None,
            passed=len(passed),
        )

    async def recover(self) -> None:
        """Open the store in a thread, telling how far it is; raises what `Core.open` raises."""
        began = time.monotonic()
        opening = self.loop.run_in_executor(None, self._open)
        while True:
            done, _ = await asyncio.wait({opening}, timeout=PROGRESS_S)
            if done:
                break
            self._tell(STATUS=f"recovering, {self.daemon.progress:.0%}", extend_s=STEP_S_MAX)
            self.log.info("recovering", progress=round(self.daemon.progress, 3))
        core = opening.result()
        for line in core.store.report:
            self.log.warning("recovery", said=line)
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        self.daemon.adopt(core, self.fs)
        self.log.info("ready", topics=len(core.catalog.tip), took_ms=int((time.monotonic() - began) * 1000))
        self._tell(READY="1", STATUS="serving")
        self._feed_watchdog()

    def _open(self) -> Core:
        config = self.config
        return Core.open(
            self.fs,
            OsClock(),
            config.engine_settings(),
            config.limits(),
            self._note_progress,
            pid=os.getpid(),
        )

    def _note_progress(self, progress: float) -> None:
        self.daemon.progress = progress

    def _feed_watchdog(self) -> None:
        if self.notifier.watchdog_s:
            self._tell(WATCHDOG="1")
            self.loop.call_later(self.notifier.watchdog_s / 3, self._feed_watchdog)

    def _tell(self, *, extend_s: float = 0.0, **variables: str) -> None:
        """Tell the supervisor, as soon as it listens."""
        if not self.notifier.say(extend_s=extend_s, **variables) and self._telling is None:
            self._telling = self.loop.call_later(TELL_AGAIN_S, self._tell_again)

    def _tell_again(self) -> None:
        self._telling = None
        self._tell()

    # -- stop ------------------------------------------------------------------------------------------------------

    def on_signal(self, number: int) -> None:
        """The first signal begins the stop, the second ends everything at once."""
        if self._stop.is_set():
            self._stop_at_once(number)
        self.log.info("stopping", signal=number)
        self._stop.set()
        # Not through the loop any more: while the store is closed it does not turn, for as long as that takes.
        for each in STOP_SIGNALS:
            signal.signal(each, lambda number, _frame: self._stop_at_once(number))

    def _stop_at_once(self, number: int) -> NoReturn:
        try:
            self.log.warning("stopped at once", signal=number)
        finally:  # the signal may have come in the middle of another line
            os._exit(128 + number)

    def on_hangup(self, reread: Callable[[], Config]) -> None:
        """SIGHUP: take keys and log level over from the configuration, and say what else would need a restart.

        It is read in a thread: a pipe that nobody writes to, or a file system that hangs, must not hold up the loop.
        """
        self._hangups += 1
        number = self._hangups

        def read() -> None:
            found: Config | Exception
            try:
                found = reread()
            except Exception as error:  # noqa: BLE001  # mistakes, and bugs, are told in the loop's thread
                found = error
            with suppress(RuntimeError):  # the loop has ended meanwhile
                self.loop.call_soon_threadsafe(self._take_over, number, found)

        threading.Thread(target=read, name="configuration", daemon=True).start()

    def _take_over(self, number: int, config: Config | Exception) -> None:
        """Go by what was read at a hangup, unless a later one was quicker.

        A configuration with a mistake in it changes nothing: keys that were there stay.
        """
        if number < self._taken_over:
            return
        self._taken_over = number
        if isinstance(config, Mistakes):
            for line in config.lines:
                self.log.error("configuration", error=line)
            return
        if isinstance(config, Exception):
            self.daemon.internal_error(config)
            return
        self.log.set_level(config["log_level"])
        gone = self.daemon.change_keys(config)
        self.log.info("configuration read again", log_level=config["log_level"], keys=len(config.keys), keys_gone=gone)
        if self.daemon.gate.closed and not config.keys:
            self.log.warning("no keys are left", means="every request is refused until there are some")
        for name, value in config.values.items():
            if name not in ("log_level", "max_connections", "api_keys", "api_keys_file") and value != self.config[name]:
                self.log.warning("needs a restart", setting=name)

    def on_exception(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Something escaped into the loop: say it in our log, under an id."""
        error = context.get("exception")
        if isinstance(error, (ConnectionError, TimeoutError)):
            self.log.debug("connection lost", why=error)
        elif isinstance(error, BaseException):
            self.daemon.internal_error(error)
        else:
            self.log.error("internal error", said=context.get("message"))

    async def stopped(self) -> None:
        """Wait for the signal."""
        await self._stop.wait()

    async def drain(self) -> None:
        """Stop accepting, and let what is in flight end within the drain time."""
        daemon = self.daemon
        self._tell(STOPPING="1", extend_s=self.config["drain_ms"] / 1000 + STEP_S_MAX)
        for server in self._servers:
            server.close()
        daemon.draining = True
        daemon.serving = False
        daemon.pump.shut()
        until = self.loop.time() + self.config["drain_ms"] / 1000
        while True:
            for connection in list(daemon.connections):
                connection.drain()
            if not daemon.connections or self.loop.time() >= until:
                break
            await asyncio.sleep(0.01)
        for connection in list(daemon.connections):
            connection.transport.close()
        last = self.loop.time() + LAST_BYTES_S
        while daemon.connections and self.loop.time() < last:  # noqa: ASYNC110  # once, at the very end
            await asyncio.sleep(0.01)
        for connection in list(daemon.connections):
            connection.cut()

    def close(self) -> int:
        """Close the store and remove the socket; returns the exit code."""
        code, patience_s = 0, self.config["drain_ms"] / 1000 + 1
        if hanging := self.daemon.halt(patience_s):
            threads = " ".join(hanging)
            self.log.error(
                "the disk does not answer; the store is left as after a crash", threads=threads, s=patience_s
            )
            code = 74
        elif self.daemon.core is not None:
            try:
                self.daemon.core.close()
                if why := self.daemon.core.read_only:
                    self.log.error("the store had become read-only; it is left as after a crash", why=why)
                    code = 74
            except Exception as error:  # noqa: BLE001  # a bug, too, must neither be silent nor keep the socket
                self.log.error("the store could not be closed cleanly", said=error, **describe(error))
                code = 74
        self.unbind()
        if code == 0:
            self.fs.shut()
        self.log.info("stopped", code=code)
        return code

    def unbind(self) -> None:
        """Close the listeners and remove what they left on disk."""
        for server in self._servers:
            server.close()
        if self._unix is not None:
            self._unix.remove()
        if self._port_file:
            try:
                os.unlink(self._port_file)
            except OSError:
                # It was a courtesy to whoever started us; they may have removed it.
                pass

    def _die(self, code: int) -> None:
        if self._unix is not None:
            self._unix.remove()
        os._exit(code)


async def serve(config: Config, log: Log, reread: Callable[[], Config]) -> int:
    """Run the daemon until it is told to stop; returns the exit code. Raises what keeps it from starting."""
    loop = asyncio.get_running_loop()
    fs = open_root(config)
    life = Life(config, log, loop, fs)
    loop.set_exception_handler(life.on_exception)
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, life.on_signal, number)
    loop.add_signal_handler(signal.SIGHUP, life.on_hangup, reread)
    try:
        await life.bind()
        opening = asyncio.ensure_future(life.recover())
        stopping = asyncio.ensure_future(life.stopped())
        await asyncio.wait({opening, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not opening.done():
            # Recovery writes nothing before its verdict and may be repeated at any point: leaving it is safe.
            log.info("stopped while recovering")
            life.unbind()
            os._exit(0)
        opening.result()
        await stopping
    except BaseException:
        life.unbind()
        raise
    await life.drain()
    return life.close()


def raise_file_limit(config: Config, log: Log) -> None:
    """Ask for as many descriptors as the connections may need; say so when they cannot be had."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    asked = config["max_connections"]
    wanted = (asked or CONNECTIONS_MAX) + FDS_RESERVED
    reach = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < reach:
        resource.setrlimit(resource.RLIMIT_NOFILE, (reach, hard))
    config.values["max_connections"] = max(1, reach - FDS_RESERVED)
    if asked and reach < wanted:
        log.warning("fewer connections than configured", max_connections=config["max_connections"], files=reach)


def run(config: Config, log: Log, reread: Callable[[], Config]) -> int:
    """Run the daemon in this process; returns the exit code. `reread` reads the configuration anew, for SIGHUP."""
    os.umask(0o077)
    raise_file_limit(config, log)
    scan.choose(compiled=not config["pure"])
    where = os.path.abspath(config["data_dir"])
    log.info("starting", version=VERSION, pid=os.getpid(), data_dir=where, compiled=scan.is_compiled())
    for warning in config.warnings:
        log.warning("configuration", said=warning)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(serve(config, log, reread))
    except StoreError as error:
        log.error("cannot open the store", error=error)
        return 77 if isinstance(error.__cause__, PermissionError) else error.exit_code
    except (CannotStart, CannotListen) as error:
        log.error("cannot start", error=error)
        return error.exit_code
    except Mistakes as error:
        for line in error.lines:
            log.error("configuration", error=line)
        return error.exit_code
    except OSError as error:
        code = 77 if error.errno in (errno.EACCES, errno.EPERM) else 74
        log.error("ended by an error of the system", code=code, said=error, **describe(error))
        return code
    except Exception as error:  # noqa: BLE001  # the last line of defence: logged, and an exit code
        log.error("ended by an internal error", code=74, **describe(error), text=str(error))
        return 74


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop where it is installed; asyncio's own loop does the same, slower."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    factory: Any = uvloop.new_event_loop
    return factory  # type: ignore[no-any-return]  # uvloop's stubs leave the loop's type open
