"""The one seam to the operating system's files.

Everything that the engine does on a disk goes through `Fs`: the real one here, a simulated disk and a faulty one in
`tests/sim`. All paths are relative to the root that the implementation was made for, with `/` between parts; names
come from numbers only. All calls raise `OSError`; what it means is decided by the caller, never here.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol

IOV_MAX: Final = 1024
"""How many buffers one vectored write takes (Linux UIO_MAXIOV)."""
REFUSED: Final = (errno.EIO, errno.ENODATA, errno.EUCLEAN)
"""Errors of a read by which the disk refuses bytes: a bad sector (ENODATA says that too), a cable, a file system."""


class OpenMode(Enum):
    """How a file is opened; nothing is ever truncated by opening it."""

    READ = "read"
    WRITE = "write"
    CREATE = "create"
    """Read and write; the file must not exist yet."""


INODES_MANY: Final = 1 << 62


class Space(NamedTuple):
    """What is left on the file system of a root."""

    bytes_free: int
    bytes_total: int
    inodes_free: int
    """`INODES_MANY` where the file system makes them as they are needed."""


class Fs(Protocol):
    """File work, at the granularity at which it can fail."""

    def open(self, path: str, mode: OpenMode) -> int:
        """Open a regular file, never through a symbolic link; returns a handle for the other calls."""
        ...

    def close(self, handle: int) -> None:
        """Close a handle."""
        ...

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        """Read until `length` bytes or the end of the file; EINTR and short reads are retried."""
        ...

    def pread_nowait(self, handle: int, length: int, offset: int) -> bytes | bytearray | None:
        """As `pread`, but None when the disk would have to be asked; where the system cannot tell, it reads."""
        ...

    def pwritev(self, handle: int, buffers: Sequence[bytes | memoryview], offset: int) -> int:
        """One vectored write of at most `IOV_MAX` buffers; may be short; returns the bytes written."""
        ...

    def fdatasync(self, handle: int) -> None:
        """Make the file's data, and the metadata needed to read it, durable."""
        ...

    def fsync_dir(self, path: str) -> None:
        """Make the entries of the directory `path` durable ("" is the root)."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Replace `target` by `source`, atomically."""
        ...

    def link(self, source: str, target: str) -> None:
        """Give a file a second name."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a name."""
        ...

    def mkdir(self, path: str) -> None:
        """Make a directory with mode 0700; one that exists is fine."""
        ...

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        ...

    def exists(self, path: str) -> bool:
        """Whether a name is there; errors other than absence are raised, never taken for absence."""
        ...

    def size(self, handle: int) -> int:
        """The file's size in bytes."""
        ...

    def allocate(self, handle: int, offset: int, length: int) -> None:
        """Reserve blocks for a range and extend the size to its end; the range reads as zeros where not written."""
        ...

    def truncate(self, handle: int, length: int) -> None:
        """Set the size."""
        ...

    def lock(self) -> bool:
        """Take the root's exclusive lock without waiting; False when another process holds it."""
        ...

    def same_root(self) -> bool:
        """Whether the root's path still leads to the directory that was opened."""
        ...

    def space(self) -> Space:
        """Free and total space of the root's file system."""
        ...

    def boot_id(self) -> str:
        """The kernel's boot id, or "" when it cannot be read (which counts as another boot)."""
        ...

    def kind(self) -> str:
        """The type of the root's file system as the kernel calls it, or "" when it cannot be told."""
        ...


_FLAGS: Final = {
    OpenMode.READ: os.O_RDONLY,
    OpenMode.WRITE: os.O_RDWR,
    OpenMode.CREATE: os.O_RDWR | os.O_CREAT | os.O_EXCL,
}


class OsFs:
    """`Fs` on a real directory, reached through one directory handle that is also what is locked."""

    def __init__(self, root: str, *, create: bool = False) -> None:
        self.root = os.path.abspath(root)
        if create:
            os.makedirs(self.root, mode=0o700, exist_ok=True)
        self._root = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._nowait = True
        """Until the system has said that it cannot tell whether a read would wait."""

    def shut(self) -> None:
        """Give the root's handle, and with it the lock, back."""
        os.close(self._root)

    def open(self, path: str, mode: OpenMode) -> int:
        # A pipe of that name would be waited for without end.
        flags = _FLAGS[mode] | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        handle = os.open(path, flags, 0o600, dir_fd=self._root)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise OSError(errno.EINVAL, "it is no regular file", path)
        return handle

    def close(self, handle: int) -> None:
        os.close(handle)

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        try:
            first = os.pread(handle, length, offset)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._path_of(handle)) from error
        if len(first) == length or not first:
            return first
        parts, have = [first], len(first)
        while have < length:
            part = os.pread(handle, length - have, offset + have)
            if not part:
                break
            parts.append(part)
            have += len(part)
        return b"".join(parts)

    def _path_of(self, handle: int) -> str | None:
        """What an error is about: people look for the file, not for a number."""
        try:
            return os.path.relpath(os.readlink(f"/proc/self/fd/{handle}"), self.root)
        except OSError:
            return None

    def pread_nowait(self, handle: int, length: int, offset: int) -> bytes | bytearray | None:
        buffer = bytearray(length)
        try:
            have = os.preadv(handle, (buffer,), offset, os.RWF_NOWAIT) if self._nowait else -1
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
            have = -1
        if have < 0:
            self._nowait = False
            return self.pread(handle, length, offset)
        if have < length and offset + have < self.size(handle):
            return None
        del buffer[have:]
        return buffer

    pwritev = staticmethod(os.pwritev)

    def fdatasync(self, handle: int) -> None:
        os.fdatasync(handle)

    def fsync_dir(self, path: str) -> None:
        handle = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._root)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target, src_dir_fd=self._root, dst_dir_fd=self._root)

    def link(self, source: str, target: str) -> None:
        os.link(source, target, src_dir_fd=self._root, dst_dir_fd=self._root, follow_symlinks=False)

    def unlink(self, path: str) -> None:
        os.unlink(path, dir_fd=self._root)

    def mkdir(self, path: str) -> None:
        try:
            os.mkdir(path, 0o700, dir_fd=self._root)
        except FileExistsError:
            pass

    def rmdir(self, path: str) -> None:
        os.rmdir(path, dir_fd=self._root)

    def list(self, path: str) -> list[str]:
        handle = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._root)
        try:
            return sorted(os.listdir(handle))
        finally:
            os.close(handle)

    def exists(self, path: str) -> bool:
        try:
            os.stat(path, dir_fd=self._root, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def size(self, handle: int) -> int:
        return os.fstat(handle).st_size

    def allocate(self, handle: int, offset: int, length: int) -> None:
        os.posix_fallocate(handle, offset, length)

    def truncate(self, handle: int, length: int) -> None:
        os.ftruncate(handle, length)

    def lock(self) -> bool:
        try:
            fcntl.flock(self._root, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN):
                return False
            raise
        return True

    def same_root(self) -> bool:
        try:
            there, here = os.stat(self.root), os.fstat(self._root)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino) and here.st_nlink > 0

    def space(self) -> Space:
        now = os.fstatvfs(self._root)
        # btrfs says that it has none at all: it makes them as they are needed.
        inodes = (now.f_favail or now.f_ffree) if now.f_files else INODES_MANY
        return Space(now.f_bavail * now.f_frsize, now.f_blocks * now.f_frsize, inodes)

    def boot_id(self) -> str:
        try:
            with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            return ""

    def kind(self) -> str:
        # Python has no statfs; the kernel says the same by name. The last mount of a device is as good as any.
        device = os.fstat(self._root).st_dev
        wanted = f"{os.major(device)}:{os.minor(device)}"
        try:
            with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
                mounts = [line.split() for line in file]
        except OSError:
            return ""
        kinds = [mount[mount.index("-") + 1] for mount in mounts if mount[2] == wanted and "-" in mount]
        return kinds[-1] if kinds else ""


class NoInodes(OSError):
    """The lack of space (ENOSPC) of a file system that can hold more bytes and no more files."""


def create(fs: Fs, path: str) -> int:
    """Open a file that must not be there yet; where the file system has run out of inodes, it raises `NoInodes`."""
    try:
        return fs.open(path, OpenMode.CREATE)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            try:
                space = fs.space()
            except OSError:
                raise error from None  # it stays what it is: lack of space, which may pass
            if space.inodes_free == 0:
                said = f"the file system has no inodes left ({space.bytes_free} bytes are free)"
                raise NoInodes(errno.ENOSPC, said, path) from error
        raise


def remedy(error: OSError) -> str:
    """What helps against an error of the disk that has kept something from being written, in a few words."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "remove files there" if isinstance(error, NoInodes) else "free some space there"
    if error.errno == errno.EROFS:
        return "mount it for writing (dmesg says why it is not)"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "look whose it is, and what its mode allows"
    return "look at the disk (dmesg)"


def write_whole(fs: Fs, handle: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
    """Write all of `buffers` at `offset`, completing short writes; any error is the caller's to judge."""
    pending = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer)]
    while pending:
        wrote = fs.pwritev(handle, pending[:IOV_MAX], offset)
        if wrote <= 0:
            raise OSError(errno.EIO, "write made no progress")
        offset += wrote
        while pending and wrote >= len(pending[0]):
            wrote -= len(pending.pop(0))
        if wrote:
            pending[0] = pending[0][wrote:]


def write_new(fs: Fs, path: str, pieces: Iterable[bytes | memoryview]) -> None:
    """Write a file that is not there, and sync what it holds; not its name."""
    handle = create(fs, path)
    try:
        offset = 0
        for piece in pieces:
            write_whole(fs, handle, (piece,), offset)
            offset += len(piece)
        fs.fdatasync(handle)
    finally:
        fs.close(handle)


def replace_file(fs: Fs, path: str, content: bytes) -> None:
    """Replace a small file whole or not at all, and durably: temporary file, sync, rename, sync of the directory."""
    temporary = path + ".tmp"
    if fs.exists(temporary):
        fs.unlink(temporary)
    write_new(fs, temporary, (content,))
    fs.rename(temporary, path)
    fs.fsync_dir(path.rpartition("/")[0])


def read_file(fs: Fs, path: str) -> bytes:
    """The whole content of a small file."""
    handle = fs.open(path, OpenMode.READ)
    try:
        return fs.pread(handle, fs.size(handle), 0)
    finally:
        fs.close(handle)
