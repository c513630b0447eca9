"""What a check says of the cold tier: whether each file of a kept snapshot is there in its size, and what else is.

A full check reads the data anyway, through the reader that the daemon has; this costs a request a segment, and a
listing a topic, and reads nothing. Leftovers are told of a whole store alone: a pin knows one snapshot, and the daemon
that made it may have moved more since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from engine.core.mover import works_in
from engine.formats.export import MANIFEST_NAME
from engine.formats.snapshot import BadSnapshot, snapshot_path
from engine.formats.work import Work
from engine.fs import Fs
from engine.segment.segment import TOPICS_DIR, Segment, parse_segment_path
from engine.segment.tiers import TMP, ColdError, ColdMissingError, ColdTier, TieredFs
from engine.store.leftovers import checkpoint_files
from engine.store.snapshots import SNAPSHOTS_KEPT, read_snapshot, segment_of
from engine.tools.finding import Finding, FindingId, Severity
from engine.tools.segment_check import cold_finding, damage_at

Found = Callable[[Finding], None]


class ColdCounts(msgspec.Struct, kw_only=True):
    """Segments of which the data lies in the cold tier, and what else is there."""

    segments: int = 0
    missing: int = 0
    """The tier answers, and does not have them."""
    wrong: int = 0
    """They are there, and not as they were."""
    unknown: int = 0
    """The tier did not answer."""
    orphans: int = 0
    """Files that nobody has."""
    works: int = 0
    """What somebody began to join, and did not end."""


def check_sizes(fs: Fs, segments: Iterable[tuple[str, Segment]], found: Found, counts: ColdCounts) -> str | None:
    """Look for the data of cold segments; why that was given up, or None."""
    if not isinstance(fs, TieredFs):
        return None
    for topic, segment in segments:
        if not segment.cold:
            continue
        try:
            size = fs.tier.size(segment.data_path)
        except ColdMissingError as error:
            counts.missing += 1
            found(cold_finding(segment, topic, error))
        except ColdError as error:
            counts.unknown = counts.segments
            return f"the data of cold segments: {error.strerror}"
        else:
            if size != segment.data_size:
                counts.wrong += 1
                what = f"in the cold tier it has {size} bytes, and had {segment.data_size} when it was moved"
                step = "put the file back from a backup; `topics fsck` without --quick says which records are hit"
                seqs = (segment.first_seq, segment.first_seq + segment.count - 1)
                found(damage_at(FindingId.COLD, segment.data_path, what, topic, seqs, step))
    return None


class Leftovers(NamedTuple):
    """What lies in the tier and belongs to nobody."""

    strays: list[str]
    works: dict[str, Work | None]
    """What somebody began to join, by its path; None for one that does not check."""
    named: set[str]
    """What is somebody's."""


def leftovers(fs: Fs, store_id: bytes) -> Leftovers | None:
    """What nobody has in the tier; None where that cannot be told. Raises `ColdError`."""
    if not isinstance(fs, TieredFs) or fs.exists(MANIFEST_NAME):
        return None
    named = _named(fs, store_id)
    if not named:
        return None
    works = {path: work for path, (_, work) in works_in(fs.tier).items()}
    return Leftovers([path for path in _listed(fs.tier) if path not in named], works, named)


def check_leftovers(fs: Fs, store_id: bytes, found: Found) -> tuple[int, int]:
    """Say what lies in the tier and belongs to nobody, nothing where that cannot be told: how many files and works."""
    try:
        left = leftovers(fs, store_id)
    except ColdError:
        return 0, 0
    if left is None:
        return 0, 0
    for path in left.strays:
        what = "a file in the cold tier that no snapshot names: what a crash left of a move, a join or a removal"
        _say(found, FindingId.STRAY, path, what)
    for path, work in left.works.items():
        _say(found, FindingId.WORK, path, _said_of(work, left.named))
    return len(left.strays), len(left.works)


def _say(found: Found, kind: FindingId, path: str, what: str) -> None:
    step = "nothing to do: the daemon removes it, once it has made two checkpoints, and so does `topics cold sweep`"
    found(Finding(severity=Severity.NOTE, id=kind, file=path, what=what, next_step=step))


def _said_of(work: Work | None, named: set[str]) -> str:
    """How far it is."""
    if work is None:
        return "a work of the cold tier that does not check: somebody began to join segments"
    begun = f"{len(work.old)} segments of topic #{int(work.topic, 16):x}, seqs {work.first}-{work.last}, are to be one"
    if work.new not in named:
        return f"{begun}: {work.state.value}, and no snapshot names the new one, so the old ones count"
    left = sum(path in named for path in work.old)
    still = f"a kept snapshot still names {left} of the old ones" if left else "the old ones are to be removed"
    return f"{begun}: a snapshot names the new one; {still}"


def _named(fs: Fs, store_id: bytes) -> set[str]:
    """What may be in the tier by the kept snapshots; empty where one of them cannot be read, or nothing is cold."""
    numbers = sorted((n for path, n in checkpoint_files(fs).items() if path == snapshot_path(n)), reverse=True)
    named: set[str] = set()
    any_cold = False
    for number in numbers[:SNAPSHOTS_KEPT]:
        try:
            snapshot = read_snapshot(fs, number, store_id)
        except BadSnapshot:
            return set()
        for image, _ in snapshot.topics():
            for entry in image.segments:
                segment = segment_of(image, entry)
                any_cold = any_cold or segment.cold
                named.update((segment.data_path, segment.idx_path, segment.tags_path))
    return named if any_cold else set()


def _listed(tier: ColdTier) -> list[str]:
    paths = []
    for directory in tier.list(TOPICS_DIR):
        for name in tier.list(f"{TOPICS_DIR}/{directory}"):
            path = f"{TOPICS_DIR}/{directory}/{name}"
            if parse_segment_path(path.removesuffix(TMP)) is not None:
                paths.append(path)
    return paths
