"""A bucket as `SegmentStore`: objects in place of files, whatever library speaks to them.

    ObjectSegmentStore ─► Objects: one call, one request  (topics_objects.s3, a bucket of the simulator)
          │ tries again what may go well the next time, as long as the Budget lasts
          └ counts every attempt in Requests, which metrics and the estimate of what it costs are made from

An object is there whole or not at all, so nothing is written aside and renamed, and nothing is synced: what a put has
answered is durable. Whose bucket (or prefix in one) it is says its STORE object, which is made by a conditional put, so
that of two stores that begin there at the same time one gets an error. Listings are asked for by nobody but the sweep,
which takes no object for gone because a listing lacks it: they may lag behind.

An answer that is shorter than the object is a failed request, not the end of a file, and an object that is not there is
`FileNotFoundError`, not damage. Threads share all of this.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from itertools import chain
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from engine.formats.manifest import STORE_PATH
from engine.limits import MIB
from engine.segment.tiers import ColdError, check_owner, owned_by

PART_BYTES: Final = 8 * MIB
"""Up to this size an object is put by one request; larger ones in parts of it."""
PAUSES_S: Final = (0.05, 0.25, 1.0)
"""Between the attempts of one call, which are one more than these."""
BUDGET: Final = 20.0
"""Attempts beyond the first that all calls together may make before most fail at once…"""
BUDGET_BACK: Final = 0.1
"""…and how much of one each request that succeeds gives back: a store that fails gets a tenth more requests, not four
times as many."""
_STORE_BYTES_MAX: Final = 64 * 1024

T = TypeVar("T")


class Op(Enum):
    """What a request is counted as."""

    PUT = "put"
    GET = "get"
    HEAD = "head"
    LIST = "list"
    DELETE = "delete"


class ObjectError(OSError):
    """A request failed; `again`: another attempt may succeed."""

    def __init__(self, why: str, *, again: bool) -> None:
        super().__init__(errno.EREMOTEIO, why)
        self.again = again


class Got(NamedTuple):
    """An answer to a get."""

    data: bytes
    size: int
    """Of the whole object."""


class Listed(NamedTuple):
    """An answer to a list."""

    names: list[str]
    requests: int
    """How many pages it came in."""


class Objects(Protocol):
    """The objects below one prefix. Raises `ObjectError`, `FileNotFoundError` for an object that is not there."""

    def put(self, key: str, data: bytes, *, new: bool) -> None:
        """Keep an object. Raises `FileExistsError` when it is to be `new` and is there."""
        ...

    def put_parts(self, key: str, parts: Iterator[bytes]) -> int:
        """Keep a large object, of parts of `PART_BYTES`; returns how many requests that took."""
        ...

    def get(self, key: str, offset: int, length: int) -> Got:
        """Bytes of an object; none of what lies beyond its end."""
        ...

    def head(self, key: str) -> int:
        """The size of an object."""
        ...

    def list(self, prefix: str) -> Listed:
        """The names between `prefix` (which ends with `/`, or is empty) and the next `/`."""
        ...

    def delete(self, key: str) -> None:
        """Remove an object; one that is not there is fine."""
        ...


class Requests:
    """What was asked of a bucket, every attempt; counted when it is made, whatever comes of it."""

    def __init__(self, lock: AbstractContextManager[Any] | None = None) -> None:
        self.made = {op.value: 0 for op in Op}
        self.failed = {op.value: 0 for op in Op}
        self.bytes = {"get": 0, "put": 0}
        """Of objects, that came and that went."""
        self.retries = 0
        """How many were attempts beyond the first."""
        self._lock = lock if lock is not None else nullcontext()

    def add(self, op: Op, requests: int = 1, *, size: int = 0) -> None:
        """Requests that are made, or bytes of them."""
        with self._lock:
            self.made[op.value] += requests
            if size:
                self.bytes[op.value] += size

    def add_failed(self, op: Op, *, retried: bool) -> None:
        """One that failed; `retried`: it is made again, so that nothing has failed yet."""
        with self._lock:
            self.failed[op.value] += not retried
            self.retries += retried

    def cost(self, prices: Mapping[str, float]) -> dict[str, float]:
        """An estimate in dollars by operation; `prices`: dollars for a million requests."""
        return {op: made * prices.get(op, 0.0) / 1e6 for op, made in self.made.items()}


class Budget:
    """How many attempts beyond the first may be made; the threads that share it may overdraw it by one each."""

    def __init__(self) -> None:
        self._left = BUDGET

    def take(self) -> bool:
        """Whether one more may be made."""
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def give_back(self) -> None:
        """A request succeeded."""
        self._left = min(BUDGET, self._left + BUDGET_BACK)


class ObjectSegmentStore:
    """Objects as `SegmentStore`."""

    piece_bytes: Final = PART_BYTES

    def __init__(
        self,
        objects: Objects,
        store_id: bytes,
        *,
        may_begin: bool,
        requests: Requests | None = None,
        pause: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """Look whose it is; `may_begin`: a prefix without anything becomes ours. `pause` waits. Raises `OSError`."""
        self._objects = objects
        self._requests = requests if requests is not None else Requests()
        self._pause = pause
        self._budget = Budget()
        if self._is_ours(store_id):
            return
        if not may_begin:
            raise ColdError("it has no STORE object: is it the right bucket and prefix?")
        if self.list(""):
            raise ColdError("its prefix is not empty and has no STORE object")
        content = owned_by(store_id)
        try:
            self._ask(Op.PUT, STORE_PATH, lambda: objects.put(STORE_PATH, content, new=True))
        except FileExistsError:
            pass  # somebody was faster, perhaps an attempt of ours whose answer got lost
        # Read again: a server that knows no conditional put has let the later one win.
        if not self._is_ours(store_id):
            raise ColdError("its STORE object vanishes")

    def _is_ours(self, store_id: bytes) -> bool:
        """Whether STORE is there. Raises `ColdError` when it is not ours."""
        try:
            content = self.get_range(STORE_PATH, 0, _STORE_BYTES_MAX)
        except FileNotFoundError:
            return False
        check_owner(content, store_id, "object")
        return True

    # -- what a SegmentStore does --------------------------------------------------------------------------------------

    def put(self, name: str, pieces: Iterable[bytes | memoryview]) -> None:
        """Keep an object. `pieces` are gone through anew for each attempt, so an iterator is kept as a list."""
        again = list(pieces) if iter(pieces) is pieces else pieces

        def call() -> int:
            size = 0

            def parts_of() -> Iterator[bytes]:
                nonlocal size
                for part in _in_parts(again):
                    size += len(part)
                    yield part

            parts = parts_of()
            first, second = next(parts, b""), next(parts, None)
            if second is None:
                self._objects.put(name, first, new=False)
            else:
                # One of the requests is counted already.
                self._requests.add(Op.PUT, self._objects.put_parts(name, chain((first, second), parts)) - 1)
            return size

        self._requests.add(Op.PUT, 0, size=self._ask(Op.PUT, name, call))

    def make(self, name: str, content: bytes) -> None:
        try:
            self._ask(Op.PUT, name, lambda: self._objects.put(name, content, new=True))
        except FileExistsError:
            pass  # somebody was faster, perhaps an attempt of ours whose answer got lost
        else:
            self._requests.add(Op.PUT, 0, size=len(content))
        # Read again: a server that knows no conditional put has let the later one win.
        if self.get_range(name, 0, len(content) + 1) != content:
            raise FileExistsError(name)

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        def call() -> bytes:
            data, size = self._objects.get(name, offset, length)
            if len(data) != max(min(length, size - offset), 0):
                raise ObjectError("the answer is shorter than what was asked for", again=True)
            return data

        data = self._ask(Op.GET, name, call)
        self._requests.add(Op.GET, 0, size=len(data))
        return data

    def size(self, name: str) -> int:
        return self._ask(Op.HEAD, name, lambda: self._objects.head(name))

    def exists(self, name: str) -> bool:
        try:
            self.size(name)
        except FileNotFoundError:
            return False
        return True

    def list(self, prefix: str) -> list[str]:
        listed = self._ask(Op.LIST, prefix, lambda: self._objects.list(f"{prefix}/" if prefix else ""))
        self._requests.add(Op.LIST, listed.requests - 1)
        return listed.names

    def delete(self, name: str) -> None:
        self._ask(Op.DELETE, name, lambda: self._objects.delete(name))

    # -- how -----------------------------------------------------------------------------------------------------------

    def _ask(self, op: Op, key: str, call: Callable[[], T]) -> T:
        """Make a request, and make it again as long as that makes sense. Raises `OSError`."""
        for pause in (*PAUSES_S, None):
            self._requests.add(op)
            try:
                answer = call()
            except ObjectError as error:
                again = error.again and pause is not None and self._budget.take()
                self._requests.add_failed(op, retried=again)
                if not again:
                    raise
                assert pause is not None, "the last attempt is not made again"
                self._pause(pause)
                continue
            except (FileNotFoundError, FileExistsError):
                self._budget.give_back()
                raise
            self._budget.give_back()
            return answer
        raise AssertionError("the last attempt returns or raises")


def _in_parts(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """The same bytes in parts of `PART_BYTES`, of which the last is shorter."""
    held: list[bytes | memoryview] = []
    size = 0
    for piece in pieces:
        while size + len(piece) >= PART_BYTES:
            held.append(piece[: PART_BYTES - size])
            piece = piece[PART_BYTES - size :]
            yield b"".join(held)
            held, size = [], 0
        if piece:
            held.append(piece)
            size += len(piece)
    if held:
        yield b"".join(held)
