"""Files of checkpoints that no kept snapshot names: what a crash left of one that was under way, or of tidying up.

Nothing was lost with them: a file becomes part of the store only when a snapshot names it. They are looked for after a
stop that was not in good order, and where few topics have files after any other; and removed only where everything that
names files could be read: a file that seems to be nobody's because its snapshot is damaged stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from engine.errors import StoreForeign
from engine.formats.snapshot import META_DIR, BadSnapshot, parse_snapshot_name, parse_tails_name, snapshot_path
from engine.fs import Fs
from engine.segment.segment import TOPICS_DIR, parse_segment_path
from engine.store.init import QUARANTINE_DIR
from engine.store.snapshots import SNAPSHOTS_KEPT, Start, named_files, read_snapshot

FEW_TOPICS: Final = 1000
"""Directories of topics up to which every start looks for leftovers."""
_TOPIC_DIR: Final = re.compile(r"[0-9a-f]{16}\Z")


class Leftovers:
    """What lies in the rooms of checkpoints, told apart."""

    def __init__(self, fs: Fs, store_id: bytes, start: Start, also_named: Collection[str] = ()) -> None:
        """Look; raises `OSError`. `also_named`: by frames of the log."""
        self.paths: list[str] = []
        """To be removed, in this order."""
        self.number = start.number
        """The greatest number of a checkpoint that there is a file of."""
        self.why_not: str | None = None
        """Why nothing is removed, if so."""
        files = checkpoint_files(fs)
        self.number = max([start.number, *files.values()])
        numbers = sorted((n for path, n in files.items() if path == snapshot_path(n)), reverse=True)
        if start.report:
            self.why_not = "not all of the store could be read"
            return
        named = {*also_named}
        for number in numbers[:SNAPSHOTS_KEPT]:
            try:
                named |= named_files(read_snapshot(fs, number, store_id))
            except (BadSnapshot, StoreForeign) as error:
                self.why_not = f"{snapshot_path(number)} cannot be read: {error}"
                return
        nobodys = [path for path in files if path not in named]
        # A snapshot goes before what it names, so that none is ever there without its files.
        self.paths = sorted(nobodys, key=lambda path: (path != snapshot_path(files[path]), path))


def worth_a_look(fs: Fs) -> bool:
    """Whether looking costs next to nothing. Raises `OSError`."""
    return not fs.exists(TOPICS_DIR) or len(fs.list(TOPICS_DIR)) <= FEW_TOPICS


def checkpoint_files(fs: Fs) -> dict[str, int]:
    """Every file of a checkpoint, and that checkpoint's number."""
    found: dict[str, int] = {}
    for name in fs.list(META_DIR) if fs.exists(META_DIR) else ():
        for parse in (parse_snapshot_name, parse_tails_name):
            if (number := parse(name)) is not None:
                found[f"{META_DIR}/{name}"] = number
    if fs.exists(TOPICS_DIR):
        for directory in fs.list(TOPICS_DIR):
            if _TOPIC_DIR.match(directory):
                for name in fs.list(f"{TOPICS_DIR}/{directory}"):
                    path = f"{TOPICS_DIR}/{directory}/{name}"
                    if (parsed := parse_segment_path(path)) is not None:
                        found[path] = parsed[2]
    return found


def set_aside(fs: Fs, start: Start, attempt: Callable[[str, Callable[[], None]], None]) -> None:
    """Move snapshots that do not check to quarantine, so that the next start need not look at them again.

    Not synced: one that comes back is looked at again.
    """
    for path in start.bad:
        attempt(path, partial(fs.rename, path, f"{QUARANTINE_DIR}/{path.rpartition('/')[2]}"))
