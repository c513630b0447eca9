"""Who may be talking to us: fences against web pages that reach for a loopback address.

A browser can be made to send requests to 127.0.0.1 by any page. Two headers give it away, and both are judged before
routing:

- `Host`, over TCP: a name that was rebound to a loopback address by its DNS is not one of ours → 421.
- `Origin` and `Sec-Fetch-Site`, everywhere: another site's page → 403. `null` is foreign. We send no CORS headers.

Only the same origin passes: scheme and authority must be those that the request itself was sent to.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from engine.errors import Code, Refused
from topics_daemon.head import Head

_AUTHORITY: Final = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9.-]{1,253})(?::([0-9]{1,5}))?", re.ASCII)


class Hosts:
    """The set of acceptable `Host` headers; made from the configuration's list."""

    def __init__(self, entries: tuple[str, ...]) -> None:
        """Raises ValueError naming the entry that cannot be read."""
        self._names: set[tuple[str, str | None]] = set()
        self._networks: list[ipaddress.IPv4Network] = []
        for entry in entries:
            if "/" in entry:
                self._networks.append(ipaddress.IPv4Network(entry))
                continue
            found = _AUTHORITY.fullmatch(entry)
            if found is None:
                raise ValueError(f"{entry!r} is not a host")
            self._names.add((found[1].lower(), found[2]))

    def accepts(self, host: str) -> bool:
        """Whether a Host header names us."""
        found = _AUTHORITY.fullmatch(host)
        if found is None:
            return False
        name, port = found[1].lower(), found[2]
        if (name, None) in self._names or (name, port) in self._names:
            return True
        if not self._networks or not name[0].isdigit():
            return False
        try:
            address = ipaddress.IPv4Address(name)
        except ValueError:
            return False
        return any(address in network for network in self._networks)


def check(head: Head, hosts: Hosts | None) -> None:
    """Raise the 421 or 403 that `head` deserves. `hosts` is None on the Unix socket, where no name leads."""
    if hosts is not None and not hosts.accepts(head.host or ""):
        raise Refused(
            Code.MISDIRECTED,
            "the Host header names a host that is not served here; see TOPICS_ALLOWED_HOSTS",
        )
    if head.sec_fetch_site is not None and head.sec_fetch_site.lower() == "cross-site":
        raise Refused(Code.FORBIDDEN, "requests from pages of another site are refused")
    if head.origin is not None and not _same_origin(head):
        raise Refused(Code.FORBIDDEN, "requests from pages of another origin are refused")


def _same_origin(head: Head) -> bool:
    origin = (head.origin or "").lower()
    host = (head.host or "").lower()
    return bool(host) and origin in ("http://" + host, "https://" + host)
