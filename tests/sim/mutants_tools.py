"""Planted bugs of the tools: backups, restores, recoveries and pins that are less than they say.

As in `mutants.py`, each names the play (or scenario) in which it has to show.
"""

from __future__ import annotations

from typing import Any

import msgspec

import engine.checkpoint.pin as pin_module
import engine.store.init as init_module
import engine.tools.backup as backup_module
import engine.tools.pieced as pieced_module
import engine.tools.rebuild as rebuild_module
import engine.tools.recover as recover_module
import engine.tools.unreadable as unreadable_module
from engine.checkpoint.pin import PinJob
from engine.core.salvage import Salvage
from engine.formats.export import MANIFEST_NAME
from engine.formats.manifest import STORE_PATH, StoreInfo, encode_meta
from engine.formats.snapshot import encode_sections, snapshot_path
from engine.fs import replace_file
from engine.store.recovery import OpenedStore
from engine.tools.pieced import _Files
from engine.tools.rebuild import Rebuild
from engine.tools.recover import Recovery
from engine.topic.rangeset import RangeSet
from tests.sim.mutants import Mutant, Patch, planting

TOOLS: list[Mutant] = []


_mutant = planting(TOOLS, "tool-")


# -- backup -----------------------------------------------------------------------------------------------------------


@_mutant("tool-backup@1")
def _copy_not_read_back(patch: Patch) -> None:
    patch.set(backup_module, "digest_of", lambda fs, file, moved: file.xxh3_128)


@_mutant("tool-backup@1")
def _manifest_written_before_the_files(patch: Patch) -> None:
    old = patch.set(backup_module, "_copy", None)

    def copy(source: Any, target: Any, file: Any, moved: Any) -> Any:
        if not target.exists(MANIFEST_NAME):
            manifest = pin_module.read_manifest(source)
            files = [one for one in manifest.files if one.xxh3_128 is not None]
            replace_file(target, MANIFEST_NAME, encode_meta(msgspec.structs.replace(manifest, files=files)))
        return old(source, target, file, moved)

    patch.set(backup_module, "_copy", copy)


@_mutant("tool-backup@1")
def _files_of_nobody_pass_for_a_backup(patch: Patch) -> None:
    old = patch.set(backup_module, "verify", None)

    def verify(fs: Any, names: Any, heard: Any) -> Any:
        listed = {file.path for file in pin_module.read_manifest(fs).files}
        return old(fs, [name for name in names if name in listed], heard)

    patch.set(backup_module, "verify", verify)
    patch.set(tools_module(), "verify", verify)


@_mutant("tool-backup@1")
def _digests_not_compared_by_verify(patch: Patch) -> None:
    old = patch.set(backup_module, "digest_of", None)

    def digest_of(fs: Any, file: Any, moved: Any) -> Any:
        old(fs, file, moved)
        return file.xxh3_128

    patch.set(backup_module, "digest_of", digest_of)


# -- new stores -------------------------------------------------------------------------------------------------------


@_mutant("tool-recover@1", "tool-restore@1")
def _store_named_before_it_is_whole(patch: Patch) -> None:
    old = patch.set(Rebuild, "run", None)

    def run(self: Any, wanted: Any) -> None:
        store = StoreInfo(store_id=self.store_id.hex(), format=1, created_ms=1)
        replace_file(self._target, STORE_PATH, encode_meta(store))
        old(self, wanted)

    patch.set(Rebuild, "run", run)


@_mutant("tool-recover@1", "tool-restore@1")
def _store_made_over_half_of_one(patch: Patch) -> None:
    """What a recovery that was killed had written was taken for an empty directory (found by hand)."""
    patch.set(recover_module, "begin_lock", lambda fs: None)
    patch.set(init_module, "_remains", lambda fs: iter(()))


@_mutant("tool-backup@1", "tool-recover@1", "tool-restore@1")
def _log_that_seems_to_reach_back(patch: Patch) -> None:
    """A restored store with a flipped bit in its snapshot was an empty one, and nothing called lost (found by hand)."""
    for module in (pin_module, rebuild_module):
        patch.set(module, "BEHIND_SNAPSHOT", 0)


@_mutant("tool-recover@1", "tool-restore@1")
def _store_made_over_empty_directories(patch: Patch) -> None:
    """Those of a recovery that was killed before its first file were taken for room for a new store (found by hand)."""
    patch.set(recover_module, "begin_lock", lambda fs: None)


@_mutant("tool-recover@1", "tool-restore@1")
def _deletes_not_taken_over(patch: Patch) -> None:
    old = patch.set(rebuild_module, "dump", None)

    def dump(*arguments: Any) -> Any:
        image = old(*arguments)
        image.deleted = []
        return image

    patch.set(rebuild_module, "dump", dump)
    patch.set(Rebuild, "_delete_rows", lambda self, topic, segment: None)


@_mutant("tool-recover@1", "tool-restore@1")
def _floors_not_taken_over(patch: Patch) -> None:
    old = patch.set(rebuild_module, "dump", None)

    def dump(*arguments: Any) -> Any:
        image = old(*arguments)
        image.floor = None
        return image

    patch.set(rebuild_module, "dump", dump)


@_mutant("tool-recover-damaged@1")
def _doubtful_records_come_back(patch: Patch) -> None:
    patch.set(Recovery, "_drop_doubtful", lambda self, replay, now_ms: None)


@_mutant("tool-recover-damaged@1", "tool-recover-no-snapshot@1")
def _bad_bytes_thrown_away(patch: Patch) -> None:
    patch.set(Recovery, "_keep", lambda self, target: None)


@_mutant("tool-recover-damaged@1")
def _lost_deletes_not_minded(patch: Patch) -> None:
    from engine.tools import recover

    patch.set(recover._Careful, "hole", Salvage.hole)


@_mutant("tool-recover-refused@1")
def _what_is_refused_reads_as_zeros(patch: Patch) -> None:
    patch.set(unreadable_module, "_FILL", bytes(unreadable_module.BLOCK))
    patch.set(Recovery, "_unread_behind", lambda self, view, opened: {})


@_mutant("tool-recover-refused@1")
def _refused_log_taken_for_a_torn_write(patch: Patch) -> None:
    """The block in which the last synced write began was refused, and cut as if it had never been whole (found by the
    test of this)."""
    patch.set(Recovery, "_unread_behind", lambda self, view, opened: {})


@_mutant("tool-recover-refused@1")
def _refused_places_not_told(patch: Patch) -> None:
    patch.set(Recovery, "_note_unread", lambda self: None)


@_mutant("tool-recover-no-snapshot@1")
def _deleted_a_second_time(patch: Patch) -> None:
    """Rows without a record count as live once what is doubtful is taken out beside a hole (found by this play)."""
    old = patch.set(_Files, "_entry", None)
    patch.set(_Files, "_entry", lambda self, segment, deleted: old(self, segment, RangeSet()))


@_mutant("tool-recover-no-snapshot@1")
def _nobody_says_what_may_be_missing(patch: Patch) -> None:
    old = patch.set(pieced_module, "Pieced", None)
    patch.set(pieced_module, "Pieced", lambda path, content, ids, bad, whole: old(path, content, ids, bad, True))


# -- pins -------------------------------------------------------------------------------------------------------------


@_mutant("history-pinned@0")
def _pin_of_more_than_was_asked_for(patch: Patch) -> None:
    patch.set(PinJob, "_wants", lambda self, name: True)


@_mutant("history-pinned@0")
def _pin_without_deletes(patch: Patch) -> None:
    patch.set(pin_module, "read_deletes", lambda *_: [])


@_mutant("history-pinned@0")
def _pin_that_stands_in_the_log(patch: Patch) -> None:
    """Its topics begin where the store's log was, and its own log is empty."""

    def snapshot(self: Any, below: Any, chosen: Any, globals_: Any) -> None:
        content = b"".join(encode_sections(chosen, globals_, self._store_id))
        self._put(below, snapshot_path(self.number), content)

    patch.set(PinJob, "_snapshot", snapshot)


@_mutant("history-pinned@0")
def _pin_that_is_never_let_go_of(patch: Patch) -> None:
    patch.set(pin_module, "remove_export", lambda fs, export_id: None)


@_mutant("tool-recover-first@1")
def _log_that_begins_where_the_store_did_counts_as_whole(patch: Patch) -> None:
    """A store whose only snapshot was bad, and some of its log, was given up (found by histories that were drawn)."""
    old = patch.set(pieced_module, "all_log", None)
    patch.set(pieced_module, "all_log", lambda directory, store_id: (old(directory, store_id)[0], None))


@_mutant("tool-restore@1")
def _new_store_goes_on_with_one_snapshot(patch: Patch) -> None:
    """Until the first checkpoint, five minutes later, one flipped bit cost the start (found by reading)."""
    patch.set(OpenedStore, "_is_alone", False)


@_mutant("history-pinned@0")
def _pin_takes_the_files_with_it(patch: Patch) -> None:
    """Names are moved, not linked."""
    old = patch.set(PinJob, "_link", None)

    def link(self: Any, fs: Any, below: Any, path: str, segment: Any) -> None:
        was = path in self._files
        old(self, fs, below, path, segment)
        if not was and path.endswith(".tags"):
            fs.unlink(path)

    patch.set(PinJob, "_link", link)


def tools_module() -> Any:
    """The module of the plays, which has its own name of what is patched."""
    from tests.sim import tools

    return tools
