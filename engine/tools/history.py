"""The part of a check that is about checkpoints: snapshots, segments and tails files, and what nothing names.

What a start takes for granted is looked at here: the payloads and indexes of all segments that the snapshot names, and
the older snapshot with its files, which is what would be needed if the newest one were bad tomorrow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from engine.core.catalog import Catalog
from engine.errors import StoreForeign
from engine.formats.snapshot import BadSnapshot, SegmentEntry, Snapshot, TopicImage, snapshot_path
from engine.fs import Fs
from engine.segment.reader import SegmentFiles
from engine.segment.segment import Segment
from engine.segment.tiers import ColdError, ColdMissingError
from engine.store.leftovers import checkpoint_files
from engine.store.snapshots import SNAPSHOTS_KEPT, Restorable, inspect, named_files, read_snapshot
from engine.tools.cold_side import ColdCounts, check_leftovers, check_sizes
from engine.tools.finding import Finding, FindingId, Severity
from engine.tools.segment_check import check_segment, cold_finding


class History:
    """One look at everything that checkpoints have made."""

    def __init__(
        self,
        fs: Fs,
        store_id: bytes,
        found: Callable[[Finding], None],
        heard: Callable[[str, float], None],
        *,
        quick: bool,
        subset: tuple[int, int] = (1, 1),
    ) -> None:
        """`subset` (n, m): only the payloads of each m-th topic, beginning with the n-th."""
        self.segments = 0
        self.bytes = 0
        """Of payloads that were read."""
        self.passed_over = 0
        """Segments whose payload was left out."""
        self.cold = ColdCounts()
        self.given_up: str | None = None
        """What the cold tier was not asked for, and why."""
        self._damaged: set[str] = set()
        """Files that were found to be damaged."""
        self._fs = fs
        self._store_id = store_id
        self._tell = found
        self._heard = heard
        self._quick = quick
        self._subset = subset

    def of_start(self, begin: Restorable | None, bad: list[str]) -> None:
        """What a start has found about the snapshots, and of the files that the one it takes names."""
        for path in bad:
            self._say(
                FindingId.SNAPSHOT,
                path,
                "the snapshot does not check; a start takes the older one, or the log alone",
                next_step="nothing is lost by this alone: the next checkpoint writes a new one",
            )
        if begin is None:
            return
        entries = {(image.id, entry.first): (image, entry) for image, entry in _entries(begin.snapshot)}
        for key, lost in begin.lost.items():
            image, entry = entries[key]
            self._say(
                _kind_of(lost.path),
                lost.path,
                f"{lost.why}; its records are a gap that readers meet",
                topic=image.name,
                seqs=(entry.first, entry.first + entry.count - 1),
                next_step="put the file back from a backup before anything is started, else `topics recover`",
            )

    def of_topics(self, catalog: Catalog) -> None:
        """Every segment that a start would read from."""
        work = [
            (slot.name, block.segment)
            for slot in catalog.by_id.values()
            for block in slot.topic.tail.blocks
            if block.segment is not None
        ]
        self.cold.segments = sum(segment.cold for _, segment in work)
        self._check(work)
        if self._quick:
            self.given_up = check_sizes(self._fs, work, self._found, self.cold)
        self.cold.orphans, self.cold.works = check_leftovers(self._fs, self._store_id, self._found)

    def of_others(self, taken: int, bad: list[str]) -> None:
        """The kept snapshots that a start does not take, and what only they name; `bad` ones are known."""
        numbers = sorted(
            (n for path, n in checkpoint_files(self._fs).items() if path == snapshot_path(n)), reverse=True
        )
        for number in numbers[:SNAPSHOTS_KEPT]:
            path = snapshot_path(number)
            if number == taken or path in bad:
                continue
            try:
                older = inspect(self._fs, self._store_id, read_snapshot(self._fs, number, self._store_id))
            except (BadSnapshot, StoreForeign) as error:
                what = f"the snapshot does not check ({error}); there is no other to fall back to"
                self._say(FindingId.SNAPSHOT, path, what, next_step="start it: `topics checkpoint` writes a new one")
                continue
            for lost in older.lost.values():
                if lost.path in self._damaged:
                    continue
                if number > taken:
                    what = f"{lost.why}; a start takes an older snapshot, or the log, and loses nothing"
                    self._say(_kind_of(lost.path), lost.path, what, next_step="put the file back from a backup")
                else:
                    what = f"{lost.why}; only the older snapshot needs it"
                    self._say(_kind_of(lost.path), lost.path, what, severity=Severity.WARNING)

    def of_nobody(self, also_named: Collection[str] = ()) -> None:
        """Files of checkpoints that no snapshot names, where that can be told. `also_named`: by frames of the log."""
        files = checkpoint_files(self._fs)
        named = {*also_named}
        numbers = sorted((n for path, n in files.items() if path == snapshot_path(n)), reverse=True)
        for number in numbers[:SNAPSHOTS_KEPT]:
            try:
                named |= named_files(read_snapshot(self._fs, number, self._store_id))
            except (BadSnapshot, StoreForeign):
                return
        for path in sorted(files):
            if path not in named and path != snapshot_path(files[path]):
                what = "a file that no snapshot names: what a crash left of a checkpoint"
                step = "nothing to do: a start removes it"
                self._say(FindingId.STRAY, path, what, severity=Severity.NOTE, next_step=step)

    # -- segments ------------------------------------------------------------------------------------------------------

    def _check(self, work: list[tuple[str, Segment]]) -> None:
        whole = max(sum(segment.data_len for _, segment in work), 1)
        with SegmentFiles(self._fs, self._store_id) as files:
            for name, segment in work:
                self.segments += 1
                wanted = self._is_wanted(segment)
                self.passed_over += not wanted

                def heard(length: int, path: str = segment.data_path) -> None:
                    self.bytes += length
                    self._heard(path, self.bytes / whole)

                bad = False

                def found(finding: Finding) -> None:
                    nonlocal bad
                    bad = bad or finding.id is FindingId.SEGMENT_DATA
                    self._found(finding)

                try:
                    try:
                        check_segment(self._fs, files, segment, name, found, heard, data=wanted)
                        self.cold.wrong += bad and segment.cold
                    except ColdError as error:
                        self.passed_over += 1
                        self.cold.missing += isinstance(error, ColdMissingError)
                        self.cold.unknown += not isinstance(error, ColdMissingError)
                        self._found(cold_finding(segment, name, error))
                        check_segment(self._fs, files, segment, name, self._found, data=False)
                except OSError as error:
                    what = f"it cannot be read: {error.strerror or error}"
                    self._say(FindingId.UNREADABLE, segment.data_path, what, topic=name)

    def _is_wanted(self, segment: Segment) -> bool:
        part, parts = self._subset
        return not self._quick and segment.topic_id % parts == part - 1

    def _found(self, finding: Finding) -> None:
        if finding.severity is Severity.DAMAGE:
            self._damaged.add(finding.file)
        self._tell(finding)

    def _say(
        self,
        kind: FindingId,
        file: str,
        what: str,
        *,
        severity: Severity = Severity.DAMAGE,
        topic: str | None = None,
        seqs: tuple[int, int] | None = None,
        next_step: str = "",
    ) -> None:
        self._found(
            Finding(severity=severity, id=kind, file=file, topic=topic, seqs=seqs, what=what, next_step=next_step)
        )


def _kind_of(path: str) -> FindingId:
    return FindingId.SEGMENT_DELETES if path.endswith(".del") else FindingId.SEGMENT_MISSING


def _entries(snapshot: Snapshot) -> list[tuple[TopicImage, SegmentEntry]]:
    return [(image, entry) for image, _ in snapshot.topics() for entry in image.segments]
