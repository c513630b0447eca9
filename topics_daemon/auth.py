"""Who a request comes from, and what they may do.

A `Caller` is whoever presents one key; with it go the key's scopes and prefixes, and what they have open at the
moment. A verdict on a request depends on its head and the keys alone, so it is reached once for each distinct head
and set of keys, and stored in the head (`routes.table`); the requests of the hot path pay nothing for it. Names in
bodies are checked by the routes that read them.

When the keys change (SIGHUP), callers whose key stays are given its present rights, the others lose all of theirs at
once: the heads are forgotten, and whatever is open is judged again (`Daemon.change_keys`). Without any key configured
everybody may do everything; that is why an address which is not loopback is refused then (`listen`). Once keys were
there, nothing short of a restart opens the door again: an emptied key file lets nobody in.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from engine.errors import Code, Refused, TopicsError
from engine.types import TopicConfig
from topics_daemon.keys import ALL_SCOPES, Key, Scope, scope_names


def unauthorized() -> Refused:
    """The 401, the same for no key and for any wrong one."""
    return Refused(Code.UNAUTHORIZED, "this needs a known API key, as Authorization: Bearer KEY")


NAMING: Final = ("topic", "source", "dest", "router", "routers", "cycle")
"""Members of an error's `detail` that hold names of topics and routers: one, or a list of them."""


def forbidden_name() -> Refused:
    """The 403 of a prefix; it says nothing of the name, which may or may not exist."""
    return Refused(Code.FORBIDDEN, "this key is limited to other names")


class Caller:
    """Whoever presents one key; or everybody, where no key is asked for."""

    __slots__ = ("inflight", "keyed", "prefixes", "scopes", "sessions", "streams")

    def __init__(self, scopes: Scope, prefixes: tuple[str, ...], *, keyed: bool) -> None:
        self.scopes = scopes
        self.prefixes = prefixes
        """Beginnings of the names that it may use, disjoint and sorted; empty = all."""
        self.keyed = keyed
        """Whether it is a key: only then the caps on streams and sessions per key apply."""
        self.inflight = 0
        self.streams = 0
        self.sessions = 0

    def lacks(self, scopes: Scope) -> Refused | None:
        """The 401 of a key that was removed, or the 403 of scopes that it lacks; None when all is well."""
        missing = scopes & ~self.scopes
        if not self.scopes:
            return unauthorized()
        if not missing:
            return None
        return Refused(Code.FORBIDDEN, f"this key lacks the scope {scope_names(missing)}")

    def require(self, scopes: Scope) -> None:
        """Raise what `lacks` finds."""
        refusal = self.lacks(scopes)
        if refusal is not None:
            raise refusal.anew()

    def allows(self, name: str) -> bool:
        """Whether it may use a name."""
        return not self.prefixes or name.startswith(self.prefixes)

    def check(self, name: str) -> None:
        """Raise the 403 for a name that it may not use."""
        if self.prefixes and not name.startswith(self.prefixes):
            raise forbidden_name()

    def refusal(self, names: Iterable[str]) -> Refused | None:
        """Why it may not (any more) read all of these, or None: for what stays open while keys change."""
        return self.lacks(Scope.READ) or (None if all(map(self.allows, names)) else forbidden_name())

    def ranges(self, prefix: str) -> Sequence[str]:
        """What to list instead of `prefix`: disjoint beginnings of names in ascending order."""
        if not self.prefixes:
            return (prefix,)
        return [
            prefix if prefix.startswith(own) else own
            for own in self.prefixes
            if own.startswith(prefix) or prefix.startswith(own)
        ]

    def shown(self, config: TopicConfig) -> TopicConfig:
        """A configuration as it may be shown: without the name of a dead letter topic that is not for these eyes."""
        if config.dead_letter is None or self.allows(config.dead_letter):
            return config
        return msgspec.structs.replace(config, dead_letter=None)

    def masked(self, error: TopicsError) -> TopicsError:
        """A refusal as it may be shown: where it names what is not for these eyes it does not say what this is."""
        detail = error.detail
        if not self.prefixes or not detail:
            return error
        named = [detail[member] for member in NAMING if member in detail]
        if all(map(self.allows, (name for one in named for name in ([one] if isinstance(one, str) else one)))):
            return error
        kept = {member: value for member, value in detail.items() if member not in NAMING}
        return type(error)(error.code, "this conflicts with topics or routers that the key may not use", kept or None)


class Gate:
    """The keys of the daemon."""

    def __init__(self, keys: Iterable[Key], *, closed: bool, probe_auth: bool) -> None:
        """`closed`: whether keys are asked for at all; `probe_auth`: whether probes need one too."""
        self.closed = closed
        self.probe_auth = probe_auth
        self.anybody = Caller(ALL_SCOPES, (), keyed=False)
        """Everybody, while no keys are asked for."""
        self.nobody = Caller(Scope.NONE, (), keyed=False)
        """Whoever asks a probe without a key, where keys are asked for elsewhere."""
        self.peer = Caller(ALL_SCOPES, (), keyed=False)
        """The daemon's own user on the Unix socket, where `socket_auth` lets it in without a key."""
        self._digests: list[bytes] = []
        self._callers: list[Caller] = []
        self.change(keys)

    def __len__(self) -> int:
        return len(self._digests)

    @property
    def inflight(self) -> int:
        """Requests of all callers that wait for their answers."""
        return sum(caller.inflight for caller in (self.anybody, self.nobody, self.peer, *self._callers))

    def change(self, keys: Iterable[Key]) -> int:
        """Take these keys instead; returns how many of the old ones are gone. The door never opens by this."""
        gone = dict(zip(self._digests, self._callers, strict=True))
        self._digests, self._callers = [], []
        for key in keys:
            caller = gone.pop(key.digest, None) or Caller(Scope.NONE, (), keyed=True)
            caller.scopes, caller.prefixes = key.scopes, key.prefixes
            self._digests.append(key.digest)
            self._callers.append(caller)
        for caller in gone.values():
            caller.scopes = Scope.NONE
        self.closed = self.closed or bool(self._digests)
        if self.closed:
            self.anybody.scopes = Scope.NONE
        return len(gone)

    def find(self, credential: bytes | None, *, trusted: bool) -> Caller | None:
        """Who presents a key (as its digest), or None. `trusted`: the connection is that of the daemon's own user.

        The digest is compared with every configured one, whether or not it was found before, each in constant time.
        """
        if not self.closed:
            return self.anybody
        if credential is None:
            return self.peer if trusted else None
        found: Caller | None = None
        for digest, caller in zip(self._digests, self._callers, strict=True):
            if hmac.compare_digest(digest, credential):
                found = caller
        return found
