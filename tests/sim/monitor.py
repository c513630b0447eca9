"""The order monitor: rules about *when*, asserted during every run.

- A file is renamed only when all that was written to it is synced; but for those of a pin, which ends with its process.
- Nothing is acked before the condition of its class holds: what waits for the disk must be found in durable bytes
  behind durable names, what does not in the page cache; and before any ack, LOCK says `running` on the disk.
- From the moment that a sync of the log begins, nothing is written to a page that held anything then.
- A snapshot gets its name only when everything that it names is on the disk, with its name.
- A log file is removed only when each live record in it that somebody was told of lies durable in another one, or in
  files that both kept snapshots name; and MANIFEST on the disk says that the log begins later.
- A file of a segment, and a tails file, is removed only when neither kept snapshot names it; what lies in the cold
  tier, only when neither says that it does.

Records are found by the marks that `World` puts into each: the monitor needs no knowledge of formats.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from engine.formats.export import EXPORTS_DIR
from engine.formats.header import FILE_HEADER_LEN
from engine.formats.manifest import MANIFEST_PATH, Manifest, decode_meta
from engine.formats.snapshot import Snapshot, SnapshotDecoder
from engine.store.snapshots import named_files, segment_of
from tests.sim.cold import COLD_DIR
from tests.sim.disk import FakeDisk
from tests.sim.media import PAGE, Cut, Dir, File
from tests.sim.model import Record

MARK = re.compile(rb"mk[0-9]+-[0-9]+\.")


_COLD = f"{COLD_DIR}/"
_PINS = f"{EXPORTS_DIR}/"


class OrderError(AssertionError):
    """Something happened before what it depends on."""


class OrderMonitor:
    """Watches one disk through one process's life."""

    def __init__(self, disk: FakeDisk) -> None:
        self.events = 0
        self._told: set[bytes] = set()
        self._locked = False
        self._synced_to: dict[int, int] = {}
        self._logs: dict[str, File] = {}
        self.alive: Callable[[], set[bytes]] | None = None
        """The marks of what is live, as far as anybody was told; None: of everything that was ever written."""
        self.started(disk)

    def started(self, disk: FakeDisk) -> None:
        """A new process begins."""
        self._locked = False
        self._synced_to.clear()
        self._logs = _logs(disk)

    def stepped(self, disk: FakeDisk, what: str) -> None:
        """The disk changed."""
        self.events += 1
        word, _, rest = what.partition(" ")
        if word == "rename":
            self._renamed(disk, rest.split(" ")[1])
        elif word == "write":
            self._written(disk)
        elif word == "unlink" and rest.startswith("wal/"):
            self._unlinked(disk, rest)
        elif word == "unlink" and rest.startswith(("topics/", "meta/tails")):
            self._dropped(disk, rest)
        elif word == "unlink" and rest.startswith(_COLD) and not rest.endswith(".tmp"):
            self._dropped_cold(disk, rest)
        if word in ("create", "rename", "unlink", "link"):
            self._logs = _logs(disk)

    def _renamed(self, disk: FakeDisk, target: str) -> None:
        node = dict(disk.nodes())[target]
        is_passing = target.startswith(_PINS)
        if isinstance(node, File) and not is_passing and any(change.data for change in node.pending):
            raise OrderError(f"{target} was renamed into place before its data was synced")
        if isinstance(node, File) and target.startswith("meta/snapshot-"):
            durable = disk.tree_after(Cut(0))
            missing = sorted(path for path in _named(bytes(node.durable)) if durable.get(path) is None)
            missing += sorted(
                path
                for path, other in disk.nodes()
                if path in _named(bytes(node.durable)) and isinstance(other, File) and other.pending
            )
            missing += sorted(
                path
                for path in _cold(bytes(node.durable))
                if COLD_DIR in durable and not (durable.get(path) or durable.get(_COLD + path))
            )
            if missing:
                raise OrderError(f"{target} names {missing[:3]}, which are not on the disk")

    def _dropped(self, disk: FakeDisk, path: str) -> None:
        """A file of history is removed."""
        durable = disk.tree_after(Cut(0))
        for content in _snapshots(durable):
            if path in _named(content):
                raise OrderError(f"{path} is removed although a kept snapshot names it")
            if COLD_DIR in durable and path in _cold(content) and durable.get(_COLD + path) is None:
                raise OrderError(f"{path} is removed, and is not on the disk of the cold tier")

    def _dropped_cold(self, disk: FakeDisk, path: str) -> None:
        """A file in the cold tier is removed."""
        tree = disk.tree_after(Cut(0))
        for content in _snapshots(tree):
            if path.removeprefix(_COLD) in _cold(content) and path.removeprefix(_COLD) not in tree:
                raise OrderError(f"{path} is removed although a kept snapshot says that it is there")

    def sync_begins(self, shard: int) -> None:
        """A sync of a shard begins: no page that holds anything of it by now is written again."""
        for path, file in self._logs.items():
            if path.startswith(f"wal/shard-{shard:02d}/"):
                used = len(bytes(file.cache).rstrip(b"\0"))
                self._synced_to[file.number] = max(self._synced_to.get(file.number, 0), -(-used // PAGE) * PAGE)

    def _written(self, disk: FakeDisk) -> None:
        assert disk.last_write is not None
        file, offset, before, data, _ = disk.last_write
        bound = self._synced_to.get(file.number)
        if bound is None or offset >= bound or before == data:
            return
        raise OrderError(
            f"bytes {offset}… of log file f{file.number} are written after a sync of everything below {bound} began"
        )

    def _unlinked(self, disk: FakeDisk, path: str) -> None:
        gone = self._logs.get(path)
        if gone is None:
            return
        held = set(MARK.findall(bytes(gone.cache))) & self._told
        if self.alive is not None:
            held &= self.alive()
        for other, file in self._logs.items():
            if other != path:
                held -= set(MARK.findall(bytes(file.durable)))
        if held:
            durable = disk.tree_after(Cut(0))
            manifest = decode_meta(durable.get(MANIFEST_PATH) or b"", Manifest)
            shard, first_lsn = int(path[10:12]), int(path[17:37])
            entry = manifest.entry(shard)
            if entry is None or entry.start_lsn <= first_lsn:
                raise OrderError(f"{path} is removed, and MANIFEST does not say that the log begins behind it")
            snapshots = _snapshots(durable)
            kept = [
                {mark for named in _held_in(content) for mark in MARK.findall(durable.get(named) or b"")}
                for content in snapshots
            ]
            held -= set.intersection(*kept) if len(kept) == 2 else set()
        if held:
            raise OrderError(f"{path} is removed although only it holds {sorted(held)[:3]}")

    def acked(self, disk: FakeDisk, records: tuple[Record, ...], synced: bool, volatile: bool) -> None:
        """A command was answered with success."""
        if not self._locked:
            lock = disk.tree_after(Cut(0)).get("LOCK") or b""
            if b"running" not in lock:
                raise OrderError(f"an ack before LOCK is durable: {lock!r}")
            self._locked = True
        if volatile or not records:
            return
        marks = [mark for record in records for mark in MARK.findall(record.data)]
        if len(marks) > 64:
            marks = [marks[0], marks[-1]]
        if synced:
            durable = [content for path, content in disk.tree_after(Cut(0)).items() if content and "wal/" in path]
            missing = [mark for mark in marks if not any(mark in content for content in durable)]
        else:
            missing = [mark for mark in marks if not any(mark in file.cache for file in self._logs.values())]
        if missing:  # a retry may be answered long after what it wrote was sealed and the log trimmed
            tree = disk.tree_after(Cut(0))
            named = {path for content in _snapshots(tree) for path in _held_in(content)}
            missing = [mark for mark in missing if not any(mark in (tree.get(path) or b"") for path in named)]
        if missing:
            raise OrderError(f"acked {'as synced' if synced else ''} before it was: {missing[:3]}")
        self._told.update(marks)


def _snapshots(tree: dict[str, bytes | None]) -> list[bytes]:
    """The two newest snapshots that are on the disk."""
    names = sorted(
        (path for path in tree if path.startswith("meta/snapshot-") and path.endswith(".snap")), reverse=True
    )
    return [tree[path] or b"" for path in names[:2]]


def _decoded(content: bytes) -> Snapshot:
    decoder = SnapshotDecoder()
    decoder.feed(content[FILE_HEADER_LEN:])
    return decoder.finish()


def _named(content: bytes) -> set[str]:
    """The files that a snapshot names, itself not included."""
    return {path for path in named_files(_decoded(content)) if not path.startswith("meta/snapshot-")}


def _cold(content: bytes) -> set[str]:
    """The data that a snapshot says lies in the cold tier."""
    return {
        segment_of(image, entry).data_path
        for image, _ in _decoded(content).topics()
        for entry in image.segments
        if entry.cold
    }


def _held_in(content: bytes) -> set[str]:
    """Where the records of a snapshot lie."""
    cold = _cold(content)
    return _named(content) | cold | {_COLD + path for path in cold}


def _logs(disk: FakeDisk) -> dict[str, File]:
    return {
        path: node
        for path, node in disk.nodes()
        if path.startswith("wal/") and path.endswith(".log") and not isinstance(node, Dir)
    }
