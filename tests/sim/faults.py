"""A file system that fails when told to: `FaultFs` wraps any `Fs`.

A `Fault` names a kind of call, which call of that kind it hits, and what happens there. Faults may be combined; pairs
of them are what the gate enumerates. `calls` counts what went through, so that a first run without faults tells how
many places there are to fail at.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from engine.fs import Fs, OpenMode, Space
from tests.sim.disk import FakeDisk
from tests.sim.media import SECTOR


class Call(Enum):
    """The kinds of calls that can fail."""

    OPEN = "open"
    CREATE = "create"
    READ = "pread"
    WRITE = "pwritev"
    SYNC = "fdatasync"
    SYNC_DIR = "fsync_dir"
    RENAME = "rename"
    LINK = "link"
    UNLINK = "unlink"
    MKDIR = "mkdir"
    LIST = "list"
    ALLOCATE = "allocate"
    TRUNCATE = "truncate"


class Effect(Enum):
    """What happens at the call."""

    EIO = "EIO"
    ENOSPC = "ENOSPC"
    EDQUOT = "EDQUOT"
    EFBIG = "EFBIG"
    EMFILE = "EMFILE"
    EROFS = "EROFS"
    EACCES = "EACCES"
    ESTALE = "ESTALE"
    EINTR = "EINTR"
    SHORT = "short"
    """A write takes about half of its bytes, up to a sector's end, and says so."""
    PARTIAL_EIO = "partial-EIO"
    """Half of a write reaches the page cache, then EIO."""
    FAILED_SYNC = "failed-sync"
    """fdatasync fails, the pages are dropped clean, and every later sync succeeds (fsyncgate)."""
    SLOW = "slow"
    """The call succeeds after `on_slow` was called: the place to let time pass or to do other work."""


@dataclass(frozen=True, slots=True)
class Fault:
    """The `at`-th call (from 0) of a kind has this effect, and with `lasting` every later one too."""

    call: Call
    at: int
    effect: Effect
    lasting: bool = False
    path: str = ""
    """Only calls on paths (or files opened by paths) that hold this text are counted."""

    def token(self) -> str:
        """The fault as one word."""
        word = f"{self.call.value}@{self.at}={self.effect.value}"
        return word + ("+" if self.lasting else "") + (f":{self.path}" if self.path else "")

    @classmethod
    def parse(cls, token: str) -> Fault:
        """The fault that a token describes."""
        token, _, path = token.partition(":")
        place, _, effect = token.partition("=")
        call, _, at = place.partition("@")
        return cls(Call(call), int(at), Effect(effect.rstrip("+")), effect.endswith("+"), path)


class FaultFs:
    """`Fs` with faults in front of another one."""

    def __init__(self, below: Fs, faults: Sequence[Fault] = (), on_slow: Callable[[], None] = lambda: None) -> None:
        self.below = below
        self.faults = list(faults)
        self.calls: dict[Call, int] = {}
        self.struck: list[Fault] = []
        self._on_slow = on_slow
        self._counts = [0] * len(self.faults)
        self._paths: dict[int, str] = {}

    def over(self, below: Fs) -> FaultFs:
        """The same faults and counts over another view of the same disk."""
        twin = FaultFs(below, (), self._on_slow)
        twin.__dict__.update({**self.__dict__, "below": below})
        return twin

    def _effect(self, call: Call, path: str) -> Effect | None:
        self.calls[call] = self.calls.get(call, 0) + 1
        found = None
        for index, fault in enumerate(self.faults):
            if fault.call is not call or fault.path not in path:
                continue
            count = self._counts[index]
            self._counts[index] += 1
            if count == fault.at or (fault.lasting and count > fault.at):
                self.struck.append(fault)
                found = fault.effect
        return found

    def _strike(self, call: Call, path: str) -> Effect | None:
        """Raise the error that is due at this call, or return an effect that the caller plays."""
        effect = self._effect(call, path)
        if effect is Effect.SLOW:
            self._on_slow()
            return None
        if effect is None or effect in (Effect.SHORT, Effect.PARTIAL_EIO, Effect.FAILED_SYNC):
            return effect
        number = getattr(errno, effect.value)
        raise OSError(number, os.strerror(number), path)

    def open(self, path: str, mode: OpenMode) -> int:
        self._strike(Call.CREATE if mode is OpenMode.CREATE else Call.OPEN, path)
        handle = self.below.open(path, mode)
        self._paths[handle] = path
        return handle

    def close(self, handle: int) -> None:
        self._paths.pop(handle, None)
        self.below.close(handle)

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        self._strike(Call.READ, self._paths.get(handle, ""))
        return self.below.pread(handle, length, offset)

    def pread_nowait(self, handle: int, length: int, offset: int) -> bytes | bytearray | None:
        self._strike(Call.READ, self._paths.get(handle, ""))
        return self.below.pread_nowait(handle, length, offset)

    def pwritev(self, handle: int, buffers: Sequence[bytes | memoryview], offset: int) -> int:
        effect = self._strike(Call.WRITE, self._paths.get(handle, ""))
        if effect in (Effect.SHORT, Effect.PARTIAL_EIO):
            data = b"".join(buffers)
            # A file system stops between two blocks, never inside a sector.
            length = (offset + len(data) // 2) // SECTOR * SECTOR - offset
            if effect is Effect.PARTIAL_EIO:
                if length > 0:
                    self.below.pwritev(handle, (data[:length],), offset)
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            if length > 0:
                return self.below.pwritev(handle, (data[:length],), offset)
        return self.below.pwritev(handle, buffers, offset)

    def fdatasync(self, handle: int) -> None:
        try:
            effect = self._strike(Call.SYNC, self._paths.get(handle, ""))
        except OSError:
            self._fail_sync(handle)
            raise
        if effect is Effect.FAILED_SYNC:
            self._fail_sync(handle)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.below.fdatasync(handle)

    def _fail_sync(self, handle: int) -> None:
        forget = getattr(self.below, "fail_sync", None)
        if forget is not None:
            forget(handle)

    def fsync_dir(self, path: str) -> None:
        self._strike(Call.SYNC_DIR, path)
        self.below.fsync_dir(path)

    def rename(self, source: str, target: str) -> None:
        self._strike(Call.RENAME, target)
        self.below.rename(source, target)

    def link(self, source: str, target: str) -> None:
        self._strike(Call.LINK, target)
        self.below.link(source, target)

    def unlink(self, path: str) -> None:
        self._strike(Call.UNLINK, path)
        self.below.unlink(path)

    def rmdir(self, path: str) -> None:
        self.below.rmdir(path)

    def mkdir(self, path: str) -> None:
        self._strike(Call.MKDIR, path)
        self.below.mkdir(path)

    def list(self, path: str) -> list[str]:
        self._strike(Call.LIST, path)
        return self.below.list(path)

    def exists(self, path: str) -> bool:
        return self.below.exists(path)

    def size(self, handle: int) -> int:
        return self.below.size(handle)

    def allocate(self, handle: int, offset: int, length: int) -> None:
        self._strike(Call.ALLOCATE, self._paths.get(handle, ""))
        self.below.allocate(handle, offset, length)

    def truncate(self, handle: int, length: int) -> None:
        self._strike(Call.TRUNCATE, self._paths.get(handle, ""))
        self.below.truncate(handle, length)

    def lock(self) -> bool:
        return self.below.lock()

    def same_root(self) -> bool:
        return self.below.same_root()

    def space(self) -> Space:
        return self.below.space()

    def kind(self) -> str:
        return self.below.kind()

    def boot_id(self) -> str:
        return self.below.boot_id()


class FaultyProcess:
    """A world's `wrap`: the first process that it is given meets the faults, all later ones a sound disk."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = list(faults)
        self.first: FaultFs | None = None
        self.armed = True

    def __call__(self, fs: Fs) -> Fs:
        if self.first is None:
            self.first = FaultFs(fs, self.faults)
            return self.first
        if self.armed and not isinstance(fs, FakeDisk):
            return self.first.over(fs)
        return fs
