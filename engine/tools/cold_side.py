"""What a check says of the cold tier: whether each file of a kept snapshot is there in its size, and what else is.

A full check reads the data anyway, through the reader that the daemon has; this costs a request a segment, and a
listing a topic, and reads nothing. Leftovers are told of a whole store alone: a pin knows one snapshot, and the daemon
that made it may have moved more since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from engine.formats.export import MANIFEST_NAME
from engine.formats.snapshot import BadSnapshot, snapshot_path
from engine.fs import Fs
from engine.segment.segment import TOPICS_DIR, Segment, parse_segment_path
from engine.segment.tiers import TMP, ColdError, ColdMissingError, ColdTier, TieredFs
from engine.store.leftovers import checkpoint_files
from engine.store.snapshots import SNAPSHOTS_KEPT, read_snapshot, segment_of
from engine.tools.finding import Finding, FindingId, Severity
from engine.tools.segment_check import cold_finding, damage_at

Found = Callable[[Finding], None]


def check_sizes(fs: Fs, segments: Iterable[tuple[str, Segment]], found: Found) -> str | None:
    """Look for the data of cold segments; why that was given up, or None."""
    if not isinstance(fs, TieredFs):
        return None
    for topic, segment in segments:
        if not segment.cold:
            continue
        try:
            size = fs.tier.size(segment.data_path)
        except ColdMissingError as error:
            found(cold_finding(segment, topic, error))
        except ColdError as error:
            return f"the data of cold segments: {error.strerror}"
        else:
            if size != segment.data_size:
                what = f"in the cold tier it has {size} bytes, and had {segment.data_size} when it was moved"
                step = "put the file back from a backup; `topics fsck` without --quick says which records are hit"
                seqs = (segment.first_seq, segment.first_seq + segment.count - 1)
                found(damage_at(FindingId.COLD, segment.data_path, what, topic, seqs, step))
    return None


def check_leftovers(fs: Fs, store_id: bytes, found: Found) -> None:
    """Say what lies in the tier and belongs to nobody; nothing where that cannot be told."""
    if not isinstance(fs, TieredFs) or fs.exists(MANIFEST_NAME):
        return
    named = _named(fs, store_id)
    if not named:
        return
    try:
        strays = [path for path in _listed(fs.tier) if path not in named]
    except ColdError:
        return
    for path in strays:
        found(
            Finding(
                severity=Severity.NOTE,
                id=FindingId.STRAY,
                file=path,
                what="a file in the cold tier that no snapshot names: what a crash left of a move or a removal",
                next_step="nothing to do: the daemon removes it, once it has made two checkpoints",
            )
        )


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
