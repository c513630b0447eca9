"""The doors: a TCP listener on a loopback address, and a Unix socket; both speak the same protocol.

Rules (operations.md): without keys only loopback is served over TCP, unless somebody insists. The Unix socket has
mode 0600 in a directory of mode 0700; the umask is set around `bind`, so there is no moment in which others could
connect. A socket file that nobody listens on is replaced, but only by whoever holds the data directory's lock; a live
one is never touched: a default path then falls back to the data directory with a warning, an explicit one stops the
start. At the end only our own file is removed (same inode).
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import ipaddress
import os
import socket
import stat
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import Final

import msgspec

from topics_daemon.config import Config, Mistakes
from topics_daemon.log import Log

BACKLOG: Final = 1024
SOCKET_PATH_BYTES_MAX: Final = 107
"""What fits into sockaddr_un, with its final NUL."""
LINGER_S: Final = 3.0
"""How long what is still coming in is dropped before a connection closes, so that the last words can be read."""
ALONE_S_MAX: Final = 2.0
"""How long a start waits for another one that looks for a place for its socket in the same directory."""
TURNED_AWAY_MAX: Final = 16
"""Connections beyond a cap that may take their time to read why: a flood of them takes no descriptors from others."""
NO_LINGER: Final = struct.pack("ii", 1, 0)
"""SO_LINGER that makes a close drop what is unsent: the kernel would keep megabytes for a reader that takes none."""


class CannotListen(Exception):
    """A door cannot be opened; `exit_code` says what the process ends with (operations.md)."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class UnixDoor(msgspec.Struct, frozen=True):
    """A bound Unix socket, and which file is ours."""

    sock: socket.socket
    path: str
    inode: tuple[int, int]

    def remove(self) -> None:
        """Remove the socket's file, if it still is ours."""
        try:
            there = os.lstat(self.path)
            if (there.st_dev, there.st_ino) == self.inode:
                os.unlink(self.path)
        except OSError:
            # Somebody has removed it, or the directory is gone: there is nothing of ours left to remove.
            pass


def _exit_code_of(error: OSError) -> int:
    return 77 if error.errno in (errno.EACCES, errno.EPERM) else 73


def is_loopback(host: str) -> bool:
    """Whether an address is reachable from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def abort(transport: asyncio.Transport) -> None:
    """Close a connection at once, and drop what the other side has not taken, in the kernel too."""
    sock = transport.get_extra_info("socket")
    if sock is not None:
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        except (OSError, ValueError):
            # It is closed already, which uvloop knows as descriptor −1.
            pass
    transport.abort()


class Stuck:
    """Whether the other side of a connection takes what waits for it."""

    __slots__ = ("_since_s", "waiting")

    def __init__(self) -> None:
        self.waiting = 0
        """Bytes that waited at the last look."""
        self._since_s = 0.0

    def lasts(self, waiting: int, now_s: float, stall_s: float) -> bool:
        """Whether of what waits nothing was taken for too long."""
        if waiting == 0 or waiting != self.waiting:
            self.waiting = waiting
            self._since_s = now_s
            return False
        return now_s - self._since_s > stall_s


def hold_little(transport: asyncio.Transport, unsent_bytes: int) -> None:
    """Let the kernel take no more than this ahead of what it can send: for who reads slowly it would hold megabytes.

    What is on its way does not count, so a fast reader that is far away is served as before. Unix sockets hold little
    anyway.
    """
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError, ValueError):  # it is closed already
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, unsent_bytes)


def peer_of(transport: asyncio.BaseTransport) -> str:
    """Where a connection comes from: an address, or the same for all of the Unix socket."""
    name = transport.get_extra_info("peername")
    return str(name[0]) if isinstance(name, tuple) else "unix"


def is_own_user(sock: socket.socket | None) -> bool:
    """Whether the other side of a Unix connection runs as the daemon's own user (SO_PEERCRED, as numbers)."""
    if sock is None:
        return False
    size = struct.calcsize("iII")
    _, uid, _ = struct.unpack("iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return bool(uid == os.geteuid())


def check_exposure(config: Config, hosts: list[str]) -> None:
    """Refuse to serve the world at one of `hosts` without keys, and nobody at all for want of them."""
    if config.wants_keys and not config.keys:
        raise Mistakes(["api_keys_file holds no key: nobody could do anything; leave it out for no authentication"])
    if config.keys or config["allow_insecure_no_auth"]:
        return
    for host in hosts:
        if not is_loopback(host):
            mistake = (
                f"host {host} is not loopback and no keys are configured: anyone who can reach it could read and "
                "write everything; set TOPICS_ALLOW_INSECURE_NO_AUTH=1 if that is meant"
            )
            raise Mistakes([mistake])


def bind_tcp(config: Config) -> list[socket.socket]:
    """The TCP listeners (a name may stand for an IPv4 and an IPv6 address); [] for `none`."""
    if config["port"] == "none":
        return []
    host, port = config["host"].strip("[]"), int(config["port"])
    bound: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            if bound and port == 0:
                break
            sock = socket.socket(family, kind, protocol)
            bound.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind(address)
            sock.listen(BACKLOG)
            sock.setblocking(False)
    except OSError as error:
        for sock in bound:
            sock.close()
        code = 78 if isinstance(error, socket.gaierror) else _exit_code_of(error)
        raise CannotListen(f"cannot listen on {host} port {port}: {error.strerror or error}", code) from error
    return bound


def write_port_file(path: str, port: int) -> None:
    """Tell whoever started us which port it is: whole, or not at all."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "w", encoding="ascii") as file:
            file.write(f"{port}\n")
        os.replace(temporary, path)
    except OSError as error:
        raise CannotListen(f"cannot write the port file {path}: {error.strerror}", _exit_code_of(error)) from error


def default_socket_path(data_dir: str, environ: Mapping[str, str]) -> str:
    """Where the socket is when nobody says so."""
    runtime = environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return os.path.join(runtime, "topics", "topics.sock")
    if os.geteuid() == 0:
        return "/run/topics/topics.sock"
    return os.path.join(data_dir, "topics.sock")


def bind_unix(config: Config, log: Log, environ: Mapping[str, str]) -> UnixDoor | None:
    """The Unix socket, or None for `none`. Call only while holding the data directory's lock."""
    path: str = config["socket"]
    if path == "none":
        return None
    data_dir = os.path.abspath(config["data_dir"])
    if path:
        return _bind_path(os.path.abspath(path), data_dir)
    fallback = os.path.join(data_dir, "topics.sock")
    wanted = default_socket_path(data_dir, environ)
    if wanted == fallback:
        return _bind_path(fallback, data_dir)
    try:
        return _bind_path(wanted, data_dir)
    except CannotListen as error:
        log.warning("socket falls back to the data directory", why=str(error), socket=fallback)
        return _bind_path(fallback, data_dir)


def _bind_path(path: str, data_dir: str) -> UnixDoor:
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
        raise CannotListen(f"the socket path {path} is longer than {SOCKET_PATH_BYTES_MAX} bytes", 73)
    directory = os.path.dirname(path)
    _prepare_directory(directory)
    with nullcontext() if os.path.samefile(directory, data_dir) else _alone_in(directory):
        _clear_stale(path)
        return _bound(path)


@contextmanager
def _alone_in(directory: str) -> Iterator[None]:
    """Keep other daemons that start just now from the sockets of a directory.

    Else two that find the same stale one would both replace it, and one of them would be reached by nobody. Who has
    locked it for longer than a start takes is none that starts (it is the data directory of another daemon, say).
    """
    handle = -1
    with suppress(OSError):
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    until_s = time.monotonic() + ALONE_S_MAX
    try:
        while handle >= 0:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until_s:
                    break
                time.sleep(0.01)
            except OSError:
                break  # no locks on this file system
        yield
    finally:
        if handle >= 0:
            os.close(handle)


def _bound(path: str) -> UnixDoor:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        sock.bind(path)
    except OSError as error:
        sock.close()
        raise CannotListen(f"cannot bind the socket {path}: {error.strerror}", _exit_code_of(error)) from error
    finally:
        os.umask(before)
    sock.listen(BACKLOG)
    sock.setblocking(False)
    ours = os.lstat(path)
    return UnixDoor(sock, path, (ours.st_dev, ours.st_ino))


def _prepare_directory(directory: str) -> None:
    """Make the socket's directory with mode 0700, or check that the one there is fit for it."""
    try:
        if not os.path.isdir(directory):
            os.makedirs(os.path.dirname(directory), exist_ok=True)
            os.mkdir(directory, 0o700)
        found = os.stat(directory)
    except OSError as error:
        raise CannotListen(f"cannot use {directory} for the socket: {error.strerror}", _exit_code_of(error)) from error
    mode = stat.S_IMODE(found.st_mode)
    sticky_for_all = bool(mode & stat.S_ISVTX)
    if found.st_uid not in (os.geteuid(), 0) or (mode & 0o022 and not sticky_for_all):
        raise CannotListen(f"{directory} can be written by others: a socket there could be replaced", 77)


def _clear_stale(path: str) -> None:
    """Remove a socket file that nobody listens on; raise for a live one, or for a file of another kind."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise CannotListen(f"cannot look at {path}: {error.strerror}", _exit_code_of(error)) from error
    if not stat.S_ISSOCK(found.st_mode):
        raise CannotListen(f"{path} is there and is not a socket", 73)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except FileNotFoundError:
            return
        except OSError as error:
            raise CannotListen(f"cannot tell whether {path} is in use: {error}", 73) from error
    raise CannotListen(f"another daemon listens on {path}", 73)
