"""A disk in memory that keeps what is durable apart from what is only pending.

`FakeDisk` implements `engine.fs.Fs`. A write changes the page cache at once and the disk never, until `fdatasync` of
that file; creating, renaming, linking and unlinking change a directory's cache, and its disk only at `fsync_dir`. Every
change has a step number, so that a crash can be described as "these steps arrived, that sector did not": a `Cut`
(`media`), of which `images` enumerates all that are legal.

A failed sync is modelled as Linux does it: the pages become clean, no later sync writes them again, reads still show
them, and whether they reached the disk is open (`fail_sync`). A killed process leaves cache and pending state as they
are (`killed`); a power failure leaves a tree (`powered_off`) under another boot id.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from typing import cast

from engine.fs import Fs, OpenMode, Space
from tests.sim.media import (
    ALL,
    PAGE,
    SECTOR,
    Change,
    Cut,
    Dir,
    Entry,
    File,
    Tree,
    apply_entry,
    content_after,
    entries_after,
    keep_lost_pages,
    new_stamp,
    sectors_of,
    walk,
)


class FakeDisk:
    """`Fs` in memory. `on_step(disk, what)` is called after every change: that is where crashes are tried."""

    def __init__(self, *, capacity: int = 1 << 40, inodes: int = 1 << 30, boot: str = "boot-1") -> None:
        self.capacity = capacity
        self.inodes = inodes
        self.boot = boot
        self.root = Dir(0)
        self.step = 0
        self.on_step: Callable[[FakeDisk, str], None] | None = None
        self.locked = False
        self.page_cache = True
        """Whether a read that must not wait is answered."""
        self.refused: set[int] = set()
        """Numbers of files of which no byte can be read; the next process finds that mended."""
        self.last_write: tuple[File, int, bytes, bytes, int] | None = None
        """The write that was the last step: file, offset, the bytes before, the bytes after, the size before."""
        self._numbers = 0
        self._handles: dict[int, tuple[File, bool]] = {}
        self._next_handle = 3
        self._used = 0
        self._files = 0

    # -- paths --------------------------------------------------------------------------------------------------------

    def _node(self, path: str) -> File | Dir:
        node: File | Dir = self.root
        for part in path.split("/") if path else ():
            if not isinstance(node, Dir):
                raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            if part not in node.cache:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            node = node.cache[part]
        return node

    def _dir(self, path: str) -> Dir:
        node = self._node(path)
        if not isinstance(node, Dir):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _file(self, path: str) -> File:
        node = self._node(path)
        if not isinstance(node, File):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def _parent(self, path: str) -> tuple[Dir, str]:
        parent, _, name = path.rpartition("/")
        return self._dir(parent), name

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _stepped(self, what: str) -> None:
        if self.on_step is not None:
            self.on_step(self, what)

    def _enter(self, parent: Dir, name: str, node: File | Dir | None, needs: int = 0) -> int:
        """Change one entry in the cache, and note the change as pending."""
        self.step += 1
        self.last_write = None
        if node is None:
            del parent.cache[name]
        else:
            parent.cache[name] = node
        parent.pending.append(Entry(self.step, name, node, needs))
        return self.step

    def _drop_name(self, node: File | Dir) -> None:
        if isinstance(node, File):
            node.names -= 1
            if not node.names and all(file is not node for file, _ in self._handles.values()):
                self._used -= node.blocks
                self._files -= 1
                node.blocks = 0

    # -- Fs: names ----------------------------------------------------------------------------------------------------

    def open(self, path: str, mode: OpenMode) -> int:
        if mode is OpenMode.CREATE:
            parent, name = self._parent(path)
            if name in parent.cache:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            if self._files >= self.inodes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            file = File(self._number())
            self._files += 1
            self._enter(parent, name, file)
            self._stepped(f"create {path}")
        else:
            file = self._file(path)
        handle = self._next_handle
        self._next_handle += 1
        self._handles[handle] = (file, mode is not OpenMode.READ)
        return handle

    def close(self, handle: int) -> None:
        file, _ = self._open_file(handle)
        del self._handles[handle]
        if not file.names:
            file.names = 1
            self._drop_name(file)

    def rename(self, source: str, target: str) -> None:
        (parent, old), (to, new) = self._parent(source), self._parent(target)
        node = self._file(source)
        replaced = to.cache.get(new)
        if replaced is node:
            return
        if isinstance(replaced, Dir):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
        entered = self._enter(to, new, node)
        del parent.cache[old]
        # In one directory both entries change in one step; across two, the old name can outlive the new one's arrival,
        # but the file is never without a name.
        if parent is to:
            parent.pending.append(Entry(entered, old, None))
        else:
            self.step += 1
            parent.pending.append(Entry(self.step, old, None, needs=entered))
        if replaced is not None:
            self._drop_name(replaced)
        self._stepped(f"rename {source} {target}")

    def link(self, source: str, target: str) -> None:
        node = self._file(source)
        parent, name = self._parent(target)
        if name in parent.cache:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        node.names += 1
        self._enter(parent, name, node)
        self._stepped(f"link {source} {target}")

    def unlink(self, path: str) -> None:
        node = self._file(path)
        parent, name = self._parent(path)
        self._enter(parent, name, None)
        self._drop_name(node)
        self._stepped(f"unlink {path}")

    def mkdir(self, path: str) -> None:
        parent, name = self._parent(path)
        there = parent.cache.get(name)
        if there is None:
            self._enter(parent, name, Dir(self._number()))
            self._stepped(f"mkdir {path}")

    def rmdir(self, path: str) -> None:
        parent, name = self._parent(path)
        there = parent.cache.get(name)
        if not isinstance(there, Dir):
            raise NotADirectoryError(errno.ENOTDIR, path)
        if there.cache:
            raise OSError(errno.ENOTEMPTY, path)
        self._enter(parent, name, None)
        self._stepped(f"rmdir {path}")

    def list(self, path: str) -> list[str]:
        return sorted(self._dir(path).cache)

    def exists(self, path: str) -> bool:
        try:
            self._node(path)
        except FileNotFoundError:
            return False
        return True

    # -- Fs: content --------------------------------------------------------------------------------------------------

    def _open_file(self, handle: int) -> tuple[File, bool]:
        if handle not in self._handles:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._handles[handle]

    def file_of(self, handle: int) -> File:
        """The file behind a handle (for the wrappers of this package)."""
        return self._open_file(handle)[0]

    def _writable(self, handle: int) -> File:
        file, writable = self._open_file(handle)
        if not writable:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return file

    def _claim(self, file: File, end: int) -> int:
        """Take space so that `file` may reach `end`; returns how far it may reach."""
        wanted = -(-end // PAGE) * PAGE
        if wanted > file.blocks:
            free = (self.capacity - self._used) // PAGE * PAGE
            taken = min(wanted - file.blocks, max(free, 0))
            file.blocks += taken
            self._used += taken
        return min(end, max(file.blocks, len(file.cache)))

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        file = self._open_file(handle)[0]
        if file.number in self.refused:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return bytes(memoryview(file.cache)[offset : offset + length])

    def pread_nowait(self, handle: int, length: int, offset: int) -> bytes | None:
        return self.pread(handle, length, offset) if self.page_cache else None

    def pwritev(self, handle: int, buffers: Sequence[bytes | memoryview], offset: int) -> int:
        file = self._writable(handle)
        data = b"".join(buffers)
        reach = self._claim(file, offset + len(data))
        if reach <= offset and data:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        data = data[: reach - offset]
        self._write(file, offset, data)
        self._stepped(f"write f{file.number} {offset}+{len(data)}")
        return len(data)

    def _write(self, file: File, offset: int, data: bytes) -> None:
        self.step += 1
        size_before = len(file.cache)
        before = bytes(file.cache[offset : offset + len(data)])
        if len(file.cache) < offset + len(data):
            file.cache.extend(bytes(offset + len(data) - len(file.cache)))
        file.cache[offset : offset + len(data)] = data
        file.pending.append(Change(self.step, offset, data, len(file.cache)))
        file.stamp = new_stamp()
        self.last_write = (file, offset, before.ljust(len(data), b"\0"), data, size_before)

    def allocate(self, handle: int, offset: int, length: int) -> None:
        file = self._writable(handle)
        had = file.blocks
        if self._claim(file, offset + length) < offset + length:
            self._used -= file.blocks - had
            file.blocks = had
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if offset + length > len(file.cache):
            self._resize(file, offset + length)
            self._stepped(f"allocate f{file.number} {offset}+{length}")

    def truncate(self, handle: int, length: int) -> None:
        file = self._writable(handle)
        kept = min(file.blocks, -(-length // PAGE) * PAGE)
        self._used -= file.blocks - kept
        file.blocks = kept
        self._resize(file, length)
        self._stepped(f"truncate f{file.number} {length}")

    def _resize(self, file: File, length: int) -> None:
        self.step += 1
        self.last_write = None
        if length < len(file.cache):
            del file.cache[length:]
        else:
            file.cache.extend(bytes(length - len(file.cache)))
        file.pending.append(Change(self.step, length, None, length))
        file.stamp = new_stamp()

    def size(self, handle: int) -> int:
        return len(self._open_file(handle)[0].cache)

    # -- Fs: durability -----------------------------------------------------------------------------------------------

    def fdatasync(self, handle: int) -> None:
        self.sync_file(handle, ALL)

    def sync_file(self, handle: int, upto: int) -> None:
        """`fdatasync` that began right after step `upto`: later writes are as pending as before."""
        file = self._open_file(handle)[0]
        synced = [change for change in file.pending if change.step <= upto and not change.lost]
        if synced:
            last = synced[-1].step
            covered = {sector for change in synced for sector in sectors_of(change)}
            content = content_after(file, last, {})
            if any(change.lost and change.step < last for change in file.pending):
                keep_lost_pages(file, content, covered, last)
            file.durable = content
            file.pending = [
                change
                for change in file.pending
                if change.step > last or (change.lost and not covered.intersection(sectors_of(change)))
            ]
            file.stamp = new_stamp()
        self.step += 1
        self.last_write = None
        self._stepped(f"fdatasync f{file.number}")

    def fail_sync(self, handle: int) -> None:
        """What a failed `fdatasync` leaves: pending pages are clean, on the disk or not, and never written again."""
        file = self._open_file(handle)[0]
        torn: list[Change] = []
        for change in file.pending:
            if change.data is None or change.lost:
                torn.append(change)
                continue
            view, start = memoryview(change.data), change.offset
            while start < change.offset + len(change.data):
                end = min((start // SECTOR + 1) * SECTOR, change.offset + len(change.data))
                part = bytes(view[start - change.offset : end - change.offset])
                torn.append(Change(change.step, start, part, change.size_after, lost=True))
                start = end
        file.pending = torn
        file.stamp = new_stamp()
        self.step += 1
        self.last_write = None
        self._stepped(f"failed fdatasync f{file.number}")

    def fsync_dir(self, path: str) -> None:
        directory = self._dir(path)
        for needed in [entry.needs for entry in directory.pending if entry.needs]:
            for _, other in [("", self.root), *self.nodes()]:
                if isinstance(other, Dir) and any(entry.step == needed for entry in other.pending):
                    _commit(other, needed)
        _commit(directory, ALL)
        self.step += 1
        self.last_write = None
        self._stepped(f"fsync_dir {path}")

    # -- Fs: the root -------------------------------------------------------------------------------------------------

    def lock(self) -> bool:
        if self.locked:
            return False
        self.locked = True
        return True

    def same_root(self) -> bool:
        return True

    def space(self) -> Space:
        return Space(self.capacity - self._used, self.capacity, self.inodes - self._files)

    def boot_id(self) -> str:
        return self.boot

    def kind(self) -> str:
        return "ext4"

    def free(self, nbytes: int) -> None:
        """Make the disk larger (somebody cleaned up)."""
        self.capacity += nbytes

    # -- crashes ------------------------------------------------------------------------------------------------------

    def begin_sync(self) -> Fs:
        """This disk for a sync job that starts now: its `fdatasync` covers what is written by now, and no more."""
        return cast(Fs, SyncView(self, self.step))

    def nodes(self) -> Iterator[tuple[str, File | Dir]]:
        """Every path that reads can see, with its node, parents first."""
        yield from walk(self.root, "", lambda directory: directory.cache)

    def cached_tree(self) -> Tree:
        """What reads see."""
        return {path: bytes(node.cache) if isinstance(node, File) else None for path, node in self.nodes()}

    def tree_after(self, cut: Cut) -> Tree:
        """What the disk holds after a power failure that let `cut` through."""
        holes: dict[int, dict[int, int]] = {}
        for number, sector, cap in cut.sectors:
            holes.setdefault(number, {})[sector] = cap
        sizes = dict(cut.sizes)
        tree: Tree = {}
        for path, node in walk(self.root, "", lambda directory: entries_after(directory, cut)):
            if isinstance(node, Dir):
                tree[path] = None
            elif not node.pending:
                tree[path] = bytes(node.durable)
            else:
                content = content_after(node, cut.upto, holes.get(node.number, {}), sizes.get(node.number))
                tree[path] = bytes(content)
        return tree

    def powered_off(self, cut: Cut, boot: str = "boot-2") -> FakeDisk:
        """The disk that a machine finds after a power failure."""
        return FakeDisk.of_tree(self.tree_after(cut), boot=boot, capacity=self.capacity, inodes=self.inodes)

    @classmethod
    def of_tree(cls, tree: Tree, *, boot: str, capacity: int = 1 << 40, inodes: int = 1 << 30) -> FakeDisk:
        """A disk on which exactly `tree` is durable. Names that are links of one file become copies."""
        disk = cls(capacity=capacity, inodes=inodes, boot=boot)
        for path in sorted(tree):
            content = tree[path]
            parent, name = disk._parent(path)
            node: File | Dir
            if content is None:
                node = Dir(disk._number())
            else:
                node = File(disk._number(), bytearray(content), bytearray(content))
                node.blocks = -(-len(content) // PAGE) * PAGE
                disk._used += node.blocks
                disk._files += 1
            parent.cache[name] = parent.durable[name] = node
        return disk

    def killed(self, wrote: int | None = None) -> FakeDisk:
        """The disk that the next process finds after SIGKILL: cache and pending state live on, handles do not.

        With `wrote`, the kill hit the write that is the last step after that many of its bytes.
        """
        disk = FakeDisk(capacity=self.capacity, inodes=self.inodes, boot=self.boot)
        disk.step, disk._numbers, disk._used, disk._files = self.step, self._numbers, self._used, self._files
        copies: dict[int, File | Dir] = {}

        def copy(node: File | Dir) -> File | Dir:
            if node.number in copies:
                return copies[node.number]
            if isinstance(node, File):
                twin: File | Dir = File(
                    node.number,
                    bytearray(node.cache),
                    bytearray(node.durable),
                    [Change(c.step, c.offset, c.data, c.size_after, c.lost) for c in node.pending],
                    node.blocks,
                    node.names,
                    node.stamp,
                )
                copies[node.number] = twin
                return twin
            twin = Dir(node.number)
            copies[node.number] = twin
            twin.cache = {name: copy(child) for name, child in node.cache.items()}
            twin.durable = {name: copy(child) for name, child in node.durable.items()}
            twin.pending = [Entry(e.step, e.name, e.node and copy(e.node), e.needs) for e in node.pending]
            return twin

        root = copy(self.root)
        assert isinstance(root, Dir)
        disk.root = root
        if wrote is not None:
            assert self.last_write is not None, "only a write can be cut"
            file, offset, before, data, size_before = self.last_write
            twin = copies[file.number]
            assert isinstance(twin, File)
            twin.cache[offset + wrote : offset + len(data)] = before[wrote:]
            del twin.cache[max(size_before, offset + wrote) :]
            twin.stamp = new_stamp()
            change = twin.pending.pop()
            if wrote:
                twin.pending.append(Change(change.step, offset, data[:wrote], len(twin.cache)))
        return disk


class SyncView:
    """A disk as a sync that began at an earlier step sees it: everything else is passed on."""

    def __init__(self, disk: FakeDisk, upto: int) -> None:
        self._disk = disk
        self._upto = upto

    def fdatasync(self, handle: int) -> None:
        self._disk.sync_file(handle, self._upto)

    def __getattr__(self, name: str) -> object:
        return getattr(self._disk, name)


def _commit(directory: Dir, upto: int) -> None:
    """Make the entries up to a step durable."""
    for entry in directory.pending:
        if entry.step <= upto:
            apply_entry(directory.durable, entry)
    directory.pending = [entry for entry in directory.pending if entry.step > upto]
