"""API keys as they are configured: entries → digests, scopes, prefixes (operations.md, "Access").

    entry     secret[:scopes[:prefixes]]      split at the first two colons only, so that prefixes may hold colons
    scopes    read write delete admin (r w d a, or several letters: rw), joined with +; none = all
    prefixes  beginnings of names, joined with |; none = all names

Entries are separated by commas in a variable, by lines in a file. A secret is turned into its SHA-256 digest as soon
as it is read, and is kept nowhere; what is compared later are digests of one length, in constant time. A malformed
entry is a mistake that is told by its number alone: whatever stands in it may be part of a secret.

Pure, but for `read_key_file`.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable
from enum import IntFlag
from typing import Final

import msgspec

KEYS_MAX: Final = 1000
"""Keys of one daemon: a presented key is compared with all of them, 0.2 µs each."""
KEY_FILE_BYTES_MAX: Final = 1024 * 1024
"""A larger file is none of keys."""
CREDENTIAL: Final = "api-keys"
"""The name of the systemd credential (systemd.exec(5), LoadCredential=)."""

_SECRET: Final = re.compile(r"[!-9;-~]{1,512}", re.ASCII)
"""What an Authorization header can carry, and no colon."""
_PREFIX: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:>-]{0,254}", re.ASCII)
"""A beginning of a name; the sign > occurs in names of routers."""
_BEARER: Final = re.compile(rb"[Bb][Ee][Aa][Rr][Ee][Rr] +([!-~]+)")


class Scope(IntFlag):
    """What a key may do (http-api.md §13)."""

    NONE = 0
    READ = 1
    WRITE = 2
    DELETE = 4
    ADMIN = 8


ALL_SCOPES: Final = Scope.READ | Scope.WRITE | Scope.DELETE | Scope.ADMIN
_WORDS: Final = {"read": Scope.READ, "write": Scope.WRITE, "delete": Scope.DELETE, "admin": Scope.ADMIN}
_LETTERS: Final = {word[0]: scope for word, scope in _WORDS.items()}


def scope_names(scopes: Scope) -> str:
    """`read+write`, as an entry would say it."""
    return "+".join(word for word, scope in _WORDS.items() if scope & scopes)


class Key(msgspec.Struct, frozen=True):
    """One configured key. It has no secret any more, and does not show its digest either."""

    digest: bytes
    scopes: Scope
    prefixes: tuple[str, ...]
    """Disjoint, sorted; empty = all names."""

    def __repr__(self) -> str:
        return "<key>"

    __str__ = __repr__


def digest_of(secret: bytes) -> bytes:
    """What is kept of a secret, and compared."""
    return hashlib.sha256(secret).digest()


NO_CREDENTIAL: Final = bytes(32)
"""Stands for an Authorization header that presents no key: no secret has this digest."""


def presented(authorization: bytes) -> bytes:
    """The digest of the key that an Authorization header presents."""
    found = _BEARER.fullmatch(authorization)
    return digest_of(found[1]) if found is not None else NO_CREDENTIAL


def parse_entry(text: str) -> Key:
    """Read one entry; raises ValueError whose text holds nothing of it."""
    secret, _, rest = text.partition(":")
    scopes, _, prefixes = rest.partition(":")
    if _SECRET.fullmatch(secret) is None or not secret.strip("*"):
        raise ValueError("its secret must be 1 to 512 visible ASCII characters, and more than asterisks")
    return Key(digest_of(secret.encode("ascii")), _parse_scopes(scopes), _parse_prefixes(prefixes))


def _parse_scopes(text: str) -> Scope:
    if not text:
        return ALL_SCOPES
    scopes = Scope.NONE
    for word in text.split("+"):
        if word in _WORDS:
            scopes |= _WORDS[word]
        elif word and _LETTERS.keys() >= set(word):
            for letter in word:
                scopes |= _LETTERS[letter]
        else:
            raise ValueError("its scopes must be of read, write, delete, admin (r, w, d, a), joined with +")
    return scopes


def _parse_prefixes(text: str) -> tuple[str, ...]:
    if not text:
        return ()
    prefixes = sorted(set(text.split("|")))
    if not all(_PREFIX.fullmatch(prefix) for prefix in prefixes):
        raise ValueError("its prefixes must be beginnings of names, joined with |")
    kept: list[str] = []
    for prefix in prefixes:
        # Sorted, so one that covers this prefix is the last one kept.
        if not kept or not prefix.startswith(kept[-1]):
            kept.append(prefix)
    return tuple(kept)


def parse_list(text: str) -> tuple[Key, ...]:
    """The keys of a variable: entries with commas between them."""
    return _parse_all("entry", enumerate(text.split(","), 1)) if text.strip() else ()


def parse_lines(content: bytes) -> tuple[Key, ...]:
    """The keys of a file: an entry a line; blank lines are passed over."""
    lines = content.decode("latin-1").split("\n")
    return _parse_all("line", ((number, line) for number, line in enumerate(lines, 1) if line.strip()))


def _parse_all(unit: str, numbered: Iterable[tuple[int, str]]) -> tuple[Key, ...]:
    keys = []
    for number, entry in numbered:
        try:
            keys.append(parse_entry(entry.strip(" \t\r")))
        except ValueError as error:
            raise ValueError(f"{unit} {number} is malformed: {error}") from None
    return tuple(keys)


def merged(keys: Iterable[Key]) -> tuple[Key, ...]:
    """All keys, each once; raises ValueError where one secret was given different rights, or for too many."""
    by_digest: dict[bytes, Key] = {}
    for key in keys:
        if by_digest.setdefault(key.digest, key) != key:
            raise ValueError("one secret is there twice, with different scopes or prefixes")
    if len(by_digest) > KEYS_MAX:
        raise ValueError(f"there may be {KEYS_MAX} keys")
    return tuple(by_digest.values())


def read_key_file(path: str) -> tuple[tuple[Key, ...], str | None]:
    """The keys of a file, and a warning about its mode or None; raises OSError, or ValueError for its content."""
    with open(path, "rb") as file:
        found = os.fstat(file.fileno())
        content = file.read(KEY_FILE_BYTES_MAX + 1)
    if len(content) > KEY_FILE_BYTES_MAX:
        raise ValueError(f"is larger than {KEY_FILE_BYTES_MAX} bytes")
    if not content and not stat.S_ISREG(found.st_mode):
        raise ValueError("is no file, and gives nothing: what comes from a pipe cannot be read again")
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o022 and stat.S_ISREG(found.st_mode):
        raise ValueError(f"can be written by others (mode {mode:03o}); chmod 600 it")
    warning = f"{path} can be read by others (mode {mode:03o})" if mode & 0o044 else None
    return parse_lines(content), warning
