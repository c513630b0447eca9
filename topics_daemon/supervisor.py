"""What passes between the daemon and whoever supervises it: systemd's protocols, which others speak too.

Notification (sd_notify(3)): datagrams to `$NOTIFY_SOCKET` say when a request would succeed, how far a start is, that
it needs longer, and that the event loop is alive. Socket activation (sd_listen_fds(3)): `$LISTEN_FDS` sockets from
descriptor 3 on are already bound, and are served in place of those that the configuration names.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import MutableMapping
from typing import Final

from topics_daemon.listen import CannotListen

FIRST_FD: Final = 3
PASSED_MAX: Final = 64
"""Sockets that may be passed."""
FAMILIES: Final = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)
_NUMBER: Final = re.compile(r"[0-9]{1,18}", re.ASCII)


class Notifier:
    """systemd's notification socket, if there is one."""

    def __init__(self) -> None:
        address = os.environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        watchdog_us = os.environ.get("WATCHDOG_USEC", "")
        ours = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.watchdog_s = int(watchdog_us) / 1e6 if ours and _NUMBER.fullmatch(watchdog_us) else 0.0
        self._unsaid: dict[str, str] = {}
        """What the supervisor had no room for yet, the newest value of each variable."""

    def say(self, *, extend_s: float = 0.0, **variables: str) -> bool:
        """Send a message, and ask for more time; nobody hearing it is no reason to stop.

        False when the supervisor reads nothing at the moment: it is not waited for; the next message says this too.
        """
        if extend_s:
            variables["EXTEND_TIMEOUT_USEC"] = str(int(extend_s * 1e6))
        self._unsaid |= variables
        if not self._address or not self._unsaid:
            return True
        text = "\n".join(f"{name}={value}" for name, value in self._unsaid.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as sock:
                sock.connect(self._address)
                sock.send(text.encode())
        except BlockingIOError:
            return False
        except OSError:
            # The supervisor went away; the daemon serves all the same.
            pass
        self._unsaid.clear()
        return True


def passed_sockets(environ: MutableMapping[str, str]) -> list[socket.socket]:
    """The listening sockets that were passed to this process; their variables are removed, as they are used up.

    Raises `CannotListen` for a descriptor that is no listening socket of a kind that is served.
    """
    pid, count = environ.pop("LISTEN_PID", ""), environ.pop("LISTEN_FDS", "")
    environ.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or _NUMBER.fullmatch(count) is None:
        return []
    if int(count) > PASSED_MAX:
        raise CannotListen(f"{count} sockets were passed; at most {PASSED_MAX} are taken", 78)
    passed = []
    for fd in range(FIRST_FD, FIRST_FD + int(count)):
        try:
            os.set_inheritable(fd, False)
            sock = socket.socket(fileno=fd)
            listens = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        except OSError as error:
            raise CannotListen(f"descriptor {fd}, which was passed, is no socket: {error.strerror}", 78) from error
        if not listens or sock.type != socket.SOCK_STREAM or sock.family not in FAMILIES:
            raise CannotListen(f"descriptor {fd}, which was passed, is no listening socket of TCP or a Unix stream", 78)
        sock.setblocking(False)
        passed.append(sock)
    return passed
