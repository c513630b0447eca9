"""The cold tier: where the `.data` of old segments lies when the disk is to be kept for new ones (storage.md §9).

    SegmentStore         what a place for whole files has to be able to do
    LocalSegmentStore    a directory, perhaps on another disk or the network, with a STORE file that says whose it is
    ObjectSegmentStore   a bucket (engine.segment.objects)
    ColdTier             the way to it, opened by the first job that needs it and never before
    TieredFs             an `Fs` that finds a segment's data in the tier when it is not here: what jobs read through

Cold may be slow, hang, or be gone. Nothing here is called from the loop, from a start, a checkpoint, or a write: only
jobs that read records which lie there, and jobs that move files. Every error of the tier is a `ColdError`, whatever the
tier says of its bytes: one that is not there today may be mounted tomorrow. Only bytes that came and fail their check
are damage. Where a file is in both places, the local one wins.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Final, Protocol, TypeVar

from xxhash import xxh3_64, xxh3_64_hexdigest

from engine.formats.header import FILE_HEADER_LEN, FORMAT_VERSION, parse_file_header
from engine.formats.manifest import LOCK_PATH, STORE_PATH, BadMeta, StoreInfo, decode_meta, encode_meta
from engine.fs import Fs, OpenMode, Space, read_file, replace_file, write_new
from engine.segment.segment import TOPICS_DIR
from engine.segment.write import remove_empty

PIECE: Final = 1 << 20
"""Bytes that are copied at once."""
HEADS_MAX: Final = 4096
"""Headers of files in the tier that are remembered (a quarter of a MiB)."""
_DATA: Final = ".data"
TMP: Final = ".tmp"


T = TypeVar("T")


class Caller(Protocol):
    """Makes a call, and may give up on one that takes too long. Raises what it raises, and `ColdError`."""

    def __call__(self, call: Callable[[], T]) -> T: ...


def at_once(call: Callable[[], T]) -> T:
    return call()


class ColdError(OSError):
    """The cold tier did not do what it was asked for; nothing is known of the bytes."""

    def __init__(self, why: str) -> None:
        super().__init__(errno.EHOSTUNREACH, f"the cold tier: {why}")


class ColdMissingError(ColdError):
    """The tier answers, and does not have the file."""


class RequestCounts(Protocol):
    """Requests of a bucket, by operation (`engine.segment.objects.Requests`)."""

    made: dict[str, int]
    failed: dict[str, int]
    bytes: dict[str, int]
    retries: int

    def cost(self, prices: Mapping[str, float]) -> dict[str, float]:
        """An estimate in dollars by operation; `prices`: dollars for a million requests."""
        ...


class SegmentStore(Protocol):
    """A place for files that are written once. Names are paths as in the data directory. Raises `OSError`."""

    @property
    def piece_bytes(self) -> int:
        """How much of a large file is best asked for at once."""
        ...

    def put(self, name: str, pieces: Iterable[bytes | memoryview]) -> None:
        """Keep a file, whole or not at all, and durably; one of that name is replaced. `pieces` may be gone through
        more than once."""
        ...

    def make(self, name: str, content: bytes) -> None:
        """Keep a small file of a name that nobody has yet. Raises `FileExistsError` when somebody has it, be it since
        just now: one alone succeeds. `content` says who that is, so that no two give the same."""
        ...

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        """Bytes of a file, fewer at its end."""
        ...

    def size(self, name: str) -> int:
        """Its length in bytes."""
        ...

    def exists(self, name: str) -> bool:
        """Whether it is there."""
        ...

    def list(self, prefix: str) -> list[str]:
        """The names in a directory."""
        ...

    def delete(self, name: str) -> None:
        """Remove a file; one that is not there is fine."""
        ...


def owned_by(store_id: bytes) -> bytes:
    """What STORE holds in the tier of this store."""
    return encode_meta(StoreInfo(store_id=store_id.hex(), format=FORMAT_VERSION, created_ms=0))


def check_owner(content: bytes, store_id: bytes, kind: str) -> None:
    """Whether STORE, which is a file or an object there (`kind`), says that the tier is this store's. Raises
    `ColdError`."""
    try:
        info = decode_meta(content, StoreInfo)
    except BadMeta as error:
        raise ColdError(f"its STORE {kind} is damaged: {error}") from error
    if info.store_id != store_id.hex():
        raise ColdError(f"its STORE {kind} says that it belongs to another store")
    if info.format > FORMAT_VERSION:
        raise ColdError(f"it has format {info.format}, newer than {FORMAT_VERSION}, the newest known")


class LocalSegmentStore:
    """A directory as `SegmentStore`."""

    piece_bytes: Final = PIECE

    def __init__(self, fs: Fs, store_id: bytes, *, may_begin: bool) -> None:
        """Look whose it is; `may_begin`: a directory without STORE becomes ours. Raises `OSError`."""
        self._fs = fs
        self._made: set[str] = set()
        if fs.exists(LOCK_PATH):
            raise ColdError("its directory is a data directory")
        if fs.exists(STORE_PATH):
            check_owner(read_file(fs, STORE_PATH), store_id, "file")
            return
        if not may_begin:
            raise ColdError("it has no STORE file: is its file system mounted?")
        if fs.list(""):
            raise ColdError("its directory is not empty and has no STORE file")
        replace_file(fs, STORE_PATH, owned_by(store_id))

    def put(self, name: str, pieces: Iterable[bytes | memoryview]) -> None:
        temporary = name + TMP
        self._write(temporary, pieces)
        self._fs.rename(temporary, name)
        self._fs.fsync_dir(name.rpartition("/")[0])

    def make(self, name: str, content: bytes) -> None:
        # No two write to one temporary file: what they have to say differs.
        temporary = f"{name}.{xxh3_64_hexdigest(content)}{TMP}"
        self._write(temporary, (content,))
        try:
            self._fs.link(temporary, name)
        finally:
            self._fs.unlink(temporary)
        self._fs.fsync_dir(name.rpartition("/")[0])

    def _write(self, temporary: str, pieces: Iterable[bytes | memoryview]) -> None:
        """Write a new file, and sync all but its name."""
        fs = self._fs
        self._make(temporary.rpartition("/")[0])
        if fs.exists(temporary):
            fs.unlink(temporary)
        write_new(fs, temporary, pieces)

    def _make(self, directory: str) -> None:
        """Make a directory and those above it, durably."""
        parent = ""
        for part in directory.split("/"):
            path = f"{parent}/{part}" if parent else part
            if path not in self._made:
                self._fs.mkdir(path)
                self._fs.fsync_dir(parent)
                self._made.add(path)
            parent = path

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        handle = self._fs.open(name, OpenMode.READ)
        try:
            return self._fs.pread(handle, length, offset)
        finally:
            self._fs.close(handle)

    def size(self, name: str) -> int:
        handle = self._fs.open(name, OpenMode.READ)
        try:
            return self._fs.size(handle)
        finally:
            self._fs.close(handle)

    def exists(self, name: str) -> bool:
        return self._fs.exists(name)

    def list(self, prefix: str) -> list[str]:
        return self._fs.list(prefix) if self._fs.exists(prefix) else []

    def delete(self, name: str) -> None:
        if not self._fs.exists(name):
            return
        directory = name.rpartition("/")[0]
        self._fs.unlink(name)
        self._fs.fsync_dir(directory)
        if remove_empty(self._fs, directory):
            self._made.discard(directory)


class ColdTier:
    """The way to a `SegmentStore`. Its methods may take for ever, unless `call` sees to it that they do not."""

    def __init__(
        self,
        open_store: Callable[[bool], SegmentStore],
        call: Caller = at_once,
        requests: RequestCounts | None = None,
    ) -> None:
        """`open_store(may_begin)` opens the store, and takes an empty place over when it may."""
        self.requests = requests
        """What was asked of it, where it is a bucket."""
        self._open = open_store
        self._call = call
        self._store: SegmentStore | None = None

    def store(self, *, may_begin: bool = False) -> SegmentStore:
        """The store. Raises `ColdError`."""
        if self._store is None:
            try:
                self._store = self._call(lambda: self._open(may_begin))
            except ColdError:
                raise
            except OSError as error:
                raise ColdError(str(error)) from error
        return self._store

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        """Bytes of a file. Raises `ColdError`."""
        return self._ask(name, lambda store: store.get_range(name, offset, length))

    def size(self, name: str) -> int:
        """Length of a file. Raises `ColdError`."""
        return self._ask(name, lambda store: store.size(name))

    def exists(self, name: str) -> bool:
        """Whether a file is there. Raises `ColdError`."""
        return self._ask(name, lambda store: store.exists(name))

    def list(self, prefix: str) -> list[str]:
        """The names in a directory. Raises `ColdError`."""
        return self._ask(prefix, lambda store: store.list(prefix))

    def make(self, name: str, content: bytes) -> None:
        """Keep a small file that nobody has yet. Raises `FileExistsError`, `ColdError`."""
        self._ask(name, lambda store: store.make(name, content))

    def put(self, name: str, pieces: Sequence[bytes | memoryview]) -> None:
        """Keep a file. Raises `ColdError`."""
        self._ask(name, lambda store: store.put(name, pieces))

    def delete(self, name: str) -> None:
        """Remove a file. Raises `ColdError`."""
        self._ask(name, lambda store: store.delete(name))

    def _ask(self, name: str, ask: Callable[[SegmentStore], T]) -> T:
        store = self.store()
        try:
            return self._call(lambda: ask(store))
        except (ColdError, FileExistsError):
            raise
        except FileNotFoundError as error:
            raise ColdMissingError(f"{name} is not there") from error
        except OSError as error:
            raise ColdError(f"{name}: {error.strerror or error}") from error


def no_tier(why: str, *, given_up: bool = False) -> ColdTier:
    """A tier of which nothing can be had: nobody knows where it is, or it is lost for good (`given_up`)."""

    def open_store(may_begin: bool) -> SegmentStore:
        raise ColdMissingError(why) if given_up else ColdError(why)

    return ColdTier(open_store)


class _Pieces:
    """A local file, as often as somebody goes through it.

    digest     of what the last one got
    failure    what the local disk has met
    """

    def __init__(self, fs: Fs, handle: int) -> None:
        self.size = fs.size(handle)
        self.digest = xxh3_64().intdigest()
        self.failure: OSError | None = None
        self._fs = fs
        self._handle = handle

    def __iter__(self) -> Iterator[bytes]:
        digest = xxh3_64()
        for offset in range(0, self.size, PIECE):
            try:
                piece = self._fs.pread(self._handle, min(PIECE, self.size - offset), offset)
            except OSError as error:
                self.failure = error
                raise
            digest.update(piece)
            self.digest = digest.intdigest()
            yield piece


def copy_to(tier: ColdTier, fs: Fs, path: str, *, may_begin: bool) -> None:
    """Copy a local file to the tier, and read it back. Raises `ColdError`, and `OSError` for the local disk."""
    store = tier.store(may_begin=may_begin)
    handle = fs.open(path, OpenMode.READ)
    try:
        source = _Pieces(fs, handle)
        try:
            store.put(path, source)
            same = _digest_of(store, path, source.size) == source.digest
        except OSError as error:
            if source.failure is not None:
                raise source.failure from None
            raise ColdError(f"{path}: {error.strerror or error}") from error
        if not same:
            raise ColdError(f"{path}: what was written does not read back")
    finally:
        fs.close(handle)


def put_to(tier: ColdTier, path: str, pieces: Sequence[bytes | memoryview]) -> None:
    """Write a file of the tier, and read it back. Raises `ColdError`."""
    digest = xxh3_64()
    for piece in pieces:
        digest.update(piece)
    tier.put(path, pieces)
    try:
        same = _digest_of(tier.store(), path, sum(map(len, pieces))) == digest.intdigest()
    except OSError as error:
        raise ColdError(f"{path}: {error.strerror or error}") from error
    if not same:
        raise ColdError(f"{path}: what was written does not read back")


def _digest_of(store: SegmentStore, path: str, size: int) -> int | None:
    """The XXH3-64 of a file of the tier; None when it has another size. Raises `OSError`."""
    digest, each = xxh3_64(), store.piece_bytes
    for offset in range(0, size, each):
        digest.update(store.get_range(path, offset, min(each, size - offset)))
    return digest.intdigest() if store.size(path) == size else None


class TieredFs:
    """An `Fs` for jobs: a segment's data that is not here is read from the tier. Handles of the tier are below -1."""

    def __init__(self, fs: Fs, tier: ColdTier) -> None:
        self.fs = fs
        self.tier = tier
        self._cold: dict[int, str] = {}
        self._heads: dict[str, bytes] = {}
        """Headers of files in the tier, which each job looks at: names are never used again for something else."""
        self._numbers = count(2)

    def open(self, path: str, mode: OpenMode) -> int:
        try:
            return self.fs.open(path, mode)
        except FileNotFoundError:
            if mode is not OpenMode.READ or not path.startswith(TOPICS_DIR) or not path.endswith(_DATA):
                raise
        # Several threads read through one of these: `next` is one step of the interpreter.
        handle = -next(self._numbers)
        self._cold[handle] = path
        return handle

    def close(self, handle: int) -> None:
        if handle < 0:
            del self._cold[handle]
        else:
            self.fs.close(handle)

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        if handle >= 0:
            return self.fs.pread(handle, length, offset)
        path = self._cold[handle]
        if offset or length != FILE_HEADER_LEN:
            return self.tier.get_range(path, offset, length)
        head = self._heads.get(path)
        if head is None:
            head = self.tier.get_range(path, 0, length)
            if len(self._heads) >= HEADS_MAX:
                self._heads.clear()
            if parse_file_header(head) is not None:
                self._heads[path] = head
        return head

    def pread_nowait(self, handle: int, length: int, offset: int) -> bytes | bytearray | None:
        return self.fs.pread_nowait(handle, length, offset) if handle >= 0 else None

    def size(self, handle: int) -> int:
        return self.fs.size(handle) if handle >= 0 else self.tier.size(self._cold[handle])

    # -- all else is the local disk's ----------------------------------------------------------------------------------

    def pwritev(self, handle: int, buffers: Sequence[bytes | memoryview], offset: int) -> int:
        return self.fs.pwritev(handle, buffers, offset)

    def fdatasync(self, handle: int) -> None:
        self.fs.fdatasync(handle)

    def fsync_dir(self, path: str) -> None:
        self.fs.fsync_dir(path)

    def rename(self, source: str, target: str) -> None:
        self.fs.rename(source, target)

    def link(self, source: str, target: str) -> None:
        self.fs.link(source, target)

    def unlink(self, path: str) -> None:
        self.fs.unlink(path)

    def mkdir(self, path: str) -> None:
        self.fs.mkdir(path)

    def rmdir(self, path: str) -> None:
        self.fs.rmdir(path)

    def list(self, path: str) -> list[str]:
        return self.fs.list(path)

    def exists(self, path: str) -> bool:
        return self.fs.exists(path)

    def allocate(self, handle: int, offset: int, length: int) -> None:
        self.fs.allocate(handle, offset, length)

    def truncate(self, handle: int, length: int) -> None:
        self.fs.truncate(handle, length)

    def lock(self) -> bool:
        return self.fs.lock()

    def same_root(self) -> bool:
        return self.fs.same_root()

    def space(self) -> Space:
        return self.fs.space()

    def boot_id(self) -> str:
        return self.fs.boot_id()

    def kind(self) -> str:
        return self.fs.kind()


def here(fs: Fs) -> Fs:
    """What of `fs` is on the local disk: all that a start looks at."""
    return fs.fs if isinstance(fs, TieredFs) else fs
