"""Sync elision: each sync call in the engine, taken away alone, must be missed.

A site is a line of the engine that calls `fdatasync` or `fsync_dir`; for the shared helper of `engine/fs.py` it is
that line together with the line that called the helper. What is synced on behalf of a topic that moves is a site of
its own, with the step that asked for it at its end: others need the same lines for other reasons. `sites_in_sources`
finds them by reading the code, a dry run finds which are reached; `Elided` is a world's `wrap` under which one of them
does nothing.

What is not caught needs a written reason in `ARGUED`; a site that is neither fails the gate.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from engine.fs import Fs

ENGINE = Path(__file__).resolve().parents[2] / "engine"
HELPERS = ("finish_log_file",)
"""Functions outside of `fs.py` that sync on behalf of several callers."""
SYNCS = ("fdatasync", "fsync_dir")
PASSED_ON = tuple(f"{path}:{call}" for path in ("fs.py", "segment/tiers.py", "checkpoint/pin.py") for call in SYNCS)
"""File systems, which pass a sync on for whoever called it."""
STEPS = ("export", "arrive")
"""Modules of engine/move/ whose functions are the steps of a move."""
BUCKET = Path(__file__).with_name("bucket.py")
"""What syncs there is a server's business and nobody's to take away."""

ARGUED: dict[str, str] = {
    "fs.py:replace_file:fsync_dir@7 < wal/prepare.py:run": (
        "MANIFEST is a witness of damage, not a source of truth: after a power failure an older one names an older or "
        "shorter newest file, and everything is still found through the directory, whose entries are synced before the "
        "file is used. Without this sync a file that vanishes *and* a power failure before the next MANIFEST would go "
        "unnoticed: two faults, which the simulator does not combine."
    ),
    "store/execute.py:_begin_run:fdatasync": (
        "`finish_log_file` syncs the same file again before it gets its name. This first sync is there so that what is "
        "read back comes from a file whose write errors have already shown. (Without both: `copy-not-synced`.)"
    ),
    "wal/prepare.py:finish_log_file:fdatasync@2 < store/execute.py:_begin_run": (
        "The other half of the above: `_begin_run` has just synced the same file, and nothing is written in between. "
        "(Without both: `copy-not-synced`.)"
    ),
    "checkpoint/jobs.py:_take_back:fsync_dir": (
        "Met only when the disk fails late in a checkpoint: the snapshot goes before the files that it names. Without "
        "it a power failure right after that error could bring the snapshot back without them, and the start would go "
        "back to the older one: two faults, which the simulator does not combine."
    ),
    "fs.py:replace_file:fsync_dir@7 < segment/tiers.py:__init__": (
        "STORE is written into an empty tier by the job that then makes topics/ there, and syncs the same directory "
        "for it before anything lies in it (`_make`)."
    ),
    "segment/tiers.py:delete:fsync_dir": (
        "A file that comes back to the tier after a power failure is one that nothing names: nobody reads it, and it "
        "is swept away later."
    ),
    "segment/tiers.py:make:fsync_dir": (
        "A work that vanishes in a power failure is that of a process that ended there: what else it has put is no "
        "topic's, and swept away by its names. Others that make a file need the sync: who owns what is said by it."
    ),
    "segment/tiers.py:_make:fsync_dir@7 < move/export.py:put_offer": (
        "The export lies in the same directories, which were synced with it; this place was opened anew and does not "
        "know that."
    ),
    "segment/tiers.py:_make:fsync_dir@7 < move/export.py:take": (
        "OFFER lies in the same directory, durably, before anybody can take it."
    ),
    "segment/write.py:__init__:fsync_dir": (
        "meta/ is made with the store, and synced then; only a directory that somebody else makes a store of lacks it."
    ),
    "store/execute.py:_set_aside:fsync_dir": (
        "What is set aside in quarantine/ is evidence for people; no state depends on it. The sync keeps that evidence "
        "through a power failure right after the recovery."
    ),
    "fs.py:write_new:fdatasync@8 < fs.py:replace_file:from@5 < tools/rebuild.py:_finish:from@13": (
        "A LOCK that does not check counts as a power failure, and that takes nothing of a new store, all of which is "
        "synced and whose log is empty."
    ),
    "fs.py:replace_file:fsync_dir@7 < tools/rebuild.py:_finish:from@13": (
        "LOCK lies in the root, which STORE syncs next; without LOCK see the line above."
    ),
    "fs.py:write_new:fdatasync@8 < tools/recover.py:put_report:from@6": (
        "report.txt says in words what report.json does, which is synced right before it."
    ),
    "tools/backup.py:back_up:fsync_dir@25": (
        "The manifest lies in the root, which is synced with it. One that arrives before a directory beside it is that "
        "of a backup that lacks files, which `verify` refuses, and nobody was told that it is done."
    ),
    "tools/rebuild.py:run:fsync_dir": "LOCK syncs the root again before STORE is there; until then there is no store.",
    "tools/recover.py:_keep:fsync_dir": "The report is put into the same directory, which syncs it again.",
    "tools/recover.py:write:fsync_dir": "The new store begins in the same root, and syncs it first.",
}
"""Site (or the beginning of several) → why nothing is lost without it."""

LIKELY: dict[str, str] = {
    "fs.py:replace_file:fsync_dir@7 < store/execute.py:run": "history-unfinished@0",
    "fs.py:replace_file:fsync_dir@7 < store/init.py:write_lock": "first-start-two-shards@0",
    "wal/prepare.py:_sync_in_use:fdatasync": "oversize@0",
    "wal/shard.py:run:fdatasync@3": "rotation-unsynced@0",
}
"""Site (or the beginning of several) → where it shows that one is missing, so that it is tried there first."""


DEAR = (
    "store/init.py:_make:",
    "fs.py:replace_file:fsync_dir@7 < store/init.py:_make",
    "fs.py:replace_file:fsync_dir@7 < store/execute.py:run",
    "wal/prepare.py:_sync_in_use:",
)
"""Sites (or their beginnings) that are missed in few images only: 7 to 38 CPU seconds each, where others take one at
most. They come after those."""


def sites_in_sources() -> set[str]:
    """Every line of the engine that calls a sync, as `file:function:call`."""
    found = set()
    for path in sorted(ENGINE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef):
                found |= {f"{path.relative_to(ENGINE)}:{function.name}:{call}" for call in _sync_calls(function)}
    return {site for site in found if not site.startswith(PASSED_ON)}


def _sync_calls(function: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SYNCS:
            yield f"{node.func.attr}@{node.lineno - function.lineno}"


def caller_site(call: str) -> str | None:
    """The site that is calling a sync now: `file:function:call@line in function`, and the helper's caller; None for a
    server's."""
    frame: FrameType | None = sys._getframe(2)
    parts: list[str] = []
    ended = False
    step = ""
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path == BUCKET:
            return None
        if path.parent == ENGINE / "move" and path.stem in STEPS:
            step = f" < move/{path.name}:{frame.f_code.co_name}"
        if not ended and path.is_relative_to(ENGINE) and frame.f_code.co_name not in SYNCS:
            name = str(path.relative_to(ENGINE))
            line = frame.f_lineno - frame.f_code.co_firstlineno
            parts.append(f"{name}:{frame.f_code.co_name}:{call if not parts else 'from'}@{line}")
            ended = name != "fs.py" and frame.f_code.co_name not in HELPERS
        frame = frame.f_back
    return (" < ".join(parts) or "outside") + step


class Elided:
    """A world's `wrap`: `site` does nothing, all other syncs work; `reached` counts every site that was met."""

    def __init__(self, site: str | None = None) -> None:
        self.site = site
        self.reached: dict[str, int] = {}

    def __call__(self, fs: Fs) -> Fs:
        return _ElidedFs(fs, self)  # type: ignore[return-value]  # the other calls are passed on by __getattr__


class _ElidedFs:
    """`Fs` without one of its syncs."""

    def __init__(self, below: Fs, plan: Elided) -> None:
        self._below = below
        self._plan = plan

    def __getattr__(self, name: str) -> object:
        return getattr(self._below, name)

    def _skips(self, call: str) -> bool:
        site = caller_site(call)
        if site is None:
            return False
        self._plan.reached[site] = self._plan.reached.get(site, 0) + 1
        return site == self._plan.site

    def fdatasync(self, handle: int) -> None:
        if not self._skips("fdatasync"):
            self._below.fdatasync(handle)

    def fsync_dir(self, path: str) -> None:
        if not self._skips("fsync_dir"):
            self._below.fsync_dir(path)
