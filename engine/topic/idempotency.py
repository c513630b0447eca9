"""Idempotency: which keys a topic has seen lately, and what their writes were.

A key counts for `idempotency_window_ms` of engine time after its write; `find` is exact about that, forgetting is
lazy. Each topic has a `Window`, whose two containers exist only once a key was used; `Keys` counts the live keys of
the whole store and knows which windows hold any, so that the bound on them (http-api.md §1) can be enforced.
"""

from __future__ import annotations

import struct
from collections import deque
from itertools import islice
from typing import Final

import msgspec
import xxhash

from engine.commands import Batch
from engine.types import AppendResult

FULL_EXPIRY_MS: Final = 1000
"""How often the windows of all topics are looked at when there are too many keys."""


class Used(msgspec.Struct, frozen=True, gc=False):
    """The write that a key stands for."""

    first_seq: int
    count: int
    digest: bytes
    ts: int

    def again(self, topic: str, head_seq: int, epoch: int) -> AppendResult:
        """The answer to a retry of it, in a topic whose head is there by now."""
        return AppendResult(
            topic=topic,
            first_seq=self.first_seq,
            last_seq=self.first_seq + self.count - 1,
            head_seq=head_seq,
            count=self.count,
            created=False,
            deduped=True,
            epoch=epoch,
        )


class Keys:
    """The live keys of one store, counted."""

    __slots__ = ("_next_full_ms", "_windows", "live")

    def __init__(self) -> None:
        self.live = 0
        self._windows: dict[Window, None] = {}
        self._next_full_ms = 0

    def expire(self, now_ms: int) -> None:
        """Forget, in every topic, what is past its window; at most once in `FULL_EXPIRY_MS`, since it looks at all."""
        if now_ms >= self._next_full_ms:
            self._next_full_ms = now_ms + FULL_EXPIRY_MS
            self.expire_some(now_ms, len(self._windows))

    def expire_some(self, now_ms: int, windows: int = 256) -> None:
        """The same for so many topics, taking turns: whoever drives the engine calls it now and then."""
        for window in list(islice(self._windows, windows)):
            del self._windows[window]
            self._windows[window] = None
            window.expire(now_ms)

    def note(self, window: Window) -> None:
        """The window holds something from now on."""
        self._windows[window] = None

    def forget(self, window: Window) -> None:
        """The window holds nothing any more."""
        self._windows.pop(window, None)


class Window:
    """The keys of one topic."""

    __slots__ = ("_by_key", "_order", "store", "window_ms")

    def __init__(self, store: Keys, window_ms: int) -> None:
        self.store = store
        self.window_ms = window_ms
        self._by_key: dict[bytes, Used] | None = None
        self._order: deque[tuple[int, bytes]] | None = None

    def __len__(self) -> int:
        return len(self._by_key) if self._by_key else 0

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def entries(self) -> list[tuple[bytes, Used]]:
        """All entries that are not forgotten, oldest first."""
        return sorted((self._by_key or {}).items(), key=lambda entry: entry[1].first_seq)

    def add(self, key: bytes, used: Used) -> None:
        """Remember a key; one whose window passed is replaced."""
        if self._by_key is None or self._order is None:
            self._by_key, self._order = {}, deque()
            self.store.note(self)
        self.store.live += key not in self._by_key
        self._by_key[key] = used
        self._order.append((used.ts, key))

    def find(self, key: bytes, now_ms: int) -> Used | None:
        """The write that used `key` inside the window, or None."""
        if self._by_key is None:
            return None
        used = self._by_key.get(key)
        return used if used is not None and now_ms - used.ts < self.window_ms else None

    def expire(self, now_ms: int) -> None:
        """Forget what is as old as the window or older."""
        order, by_key = self._order, self._by_key
        if order is None or by_key is None:
            return
        while order and now_ms - order[0][0] >= self.window_ms:
            ts, key = order.popleft()
            used = by_key.get(key)
            if used is not None and used.ts == ts:
                del by_key[key]
                self.store.live -= 1
        if not order:
            self._by_key = self._order = None
            self.store.forget(self)

    def release(self) -> None:
        """Forget everything: the topic is gone."""
        self.store.live -= len(self)
        self._by_key = self._order = None
        self.store.forget(self)


def batch_digest(batch: Batch) -> bytes:
    """XXH3-128 over `data meta node tag` of every record, each length-prefixed; 16 bytes.

    An absent `meta`, `node` or `tag` differs from an empty one; a column that no record has counts like one that is
    not there at all. To be called after node defaulting.
    """
    columns = [list[bytes | None](batch.datas), batch.metas, _encoded(batch.nodes), _encoded(batch.tags)]
    parts: list[bytes] = []
    for column in columns:
        if column is None or not any(value is not None for value in column):
            parts.append(b"\0")
            continue
        lens = [0 if value is None else len(value) + 1 for value in column]
        parts.append(struct.pack(f"<B{len(lens)}I", 1, *lens))
        parts += [value for value in column if value]
    return xxhash.xxh3_128_digest(b"".join(parts))


def _encoded(texts: list[str | None] | None) -> list[bytes | None] | None:
    return None if texts is None else [None if text is None else text.encode() for text in texts]
