"""Where an export reads from: a pin of a running daemon, a pin or backup that is there, or a stopped store.

    --url / --socket   POST /v0/admin/exports, renewed while it is read, deleted at the end
    a directory        with manifest.json: as it is
                       with STORE: read, and pinned in a directory beside (engine.tools.pinning)

Whichever it is, what is read is a directory of files that do not change.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from engine.clock import OsClock
from engine.errors import StoreError
from engine.export.reader import Pin
from engine.formats.export import MANIFEST_NAME
from engine.fs import OsFs
from engine.tools.cold import tiered
from engine.tools.pinning import pin_stopped
from engine.tools.readonly import ReadOnlyFs
from topics_lake.client import Daemon
from topics_lake.errors import LakeError
from topics_objects.place import open_bucket

TTL_MS: Final = 3_600_000
RENEW_S: Final = 600.0


def _usual_cold() -> str | None:
    """Where the cold tier is when the pin does not say so."""
    return os.environ.get("TOPICS_COLD_URL") or os.environ.get("TOPICS_COLD_DIR")


@contextmanager
def pin_of_daemon(daemon: Daemon, topics: Sequence[str], prefix: str | None = None) -> Iterator[str]:
    """The directory of a pin that lives as long as the context. `topics`: these, else those of `prefix`, else all."""
    asked: dict[str, object] = {"ttl_ms": TTL_MS}
    if topics:
        asked["topics"] = list(topics)
    elif prefix is not None:
        asked["prefix"] = prefix
    export = daemon.call("POST", "/v0/admin/exports", asked)
    done = threading.Event()

    def renew() -> None:
        with Daemon(daemon.where, daemon.key) as mine:
            while not done.wait(RENEW_S):
                try:
                    mine.call("POST", "/v0/admin/exports", {"id": export["id"], "ttl_ms": TTL_MS})
                except LakeError:
                    continue  # whoever reads will notice, and say what is missing

    renewer = threading.Thread(target=renew, name="topics-pin", daemon=True)
    renewer.start()
    try:
        path = str(export["path"])
        if not os.path.isdir(path):
            hint = "run this where its data directory can be read, or give a backup"
            raise LakeError(f"the daemon has pinned {path}, which cannot be seen from here", "not_found", hint)
        yield path
    finally:
        done.set()
        # What was read is read: a pin that its daemon cannot be asked to let go of expires.
        with suppress(LakeError):
            daemon.call("DELETE", f"/v0/admin/exports/{export['id']}")


@contextmanager
def pin_of_directory(
    path: str, topics: Sequence[str], scratch: str | None = None, *, keep_going: bool = False
) -> Iterator[str]:
    """The directory of a pin of what lies at `path`: itself, or one made in the directory `scratch` (None: that of
    temporary files) for a stopped store.

    `keep_going`: damaged records of a stopped store are gaps. Raises `LakeError`.
    """
    if os.path.exists(os.path.join(path, MANIFEST_NAME)):
        yield path
        return
    if not os.path.exists(os.path.join(path, "STORE")):
        raise LakeError(f"{path} is neither a store nor a pin or backup", "not_found", "give a data directory")
    source = OsFs(path)
    if scratch is not None:
        os.makedirs(scratch, exist_ok=True)
    made = tempfile.mkdtemp(prefix="topics-pin-", dir=scratch)
    target = OsFs(made, create=True)
    try:
        if not source.lock():
            raise LakeError(f"a process has {path}", "store_locked", "name its daemon with --socket or --url")
        reading = ReadOnlyFs(path)
        try:
            store = tiered(reading, None, _usual_cold(), open_bucket)
            where = pin_stopped(store, target, OsClock(), frozenset(topics), lambda *_: None, keep_going=keep_going)
        except StoreError as error:
            raise LakeError(str(error), "store_damaged", "`topics fsck` says more") from error
        finally:
            reading.shut()
        yield os.path.join(made, where)
    finally:
        source.shut()
        target.shut()
        shutil.rmtree(made, ignore_errors=True)
        if scratch is not None:
            with suppress(OSError):
                os.rmdir(scratch)


@contextmanager
def pin_of(
    place: Daemon | str, words: Sequence[str], scratch: str | None = None, *, keep_going: bool = False
) -> Iterator[tuple[str, list[str]]]:
    """A pin of what is asked for, of a daemon or of a directory: its own directory, and the names of the topics.

    `words` are names, or `x*` for all that begin so. Raises `LakeError`.
    """
    plain = [word for word in words if not word.endswith("*")]
    prefixes = [word[:-1] for word in words if word.endswith("*")]
    if isinstance(place, Daemon):
        alone = prefixes[0] if len(prefixes) == 1 and not plain else None
        held = pin_of_daemon(place, [] if prefixes else plain, alone)
    else:
        held = pin_of_directory(place, [] if prefixes else plain, scratch, keep_going=keep_going)
    with held as path:
        names = [name for name in open_pin(path).names if name.startswith(tuple(prefixes))]
        yield path, sorted({*plain, *names})


def open_pin(path: str) -> Pin:
    """The pin in a directory, open as long as somebody holds it (its topics do not). Raises `LakeError`."""
    try:
        files = ReadOnlyFs(path)
        try:
            pin = Pin(tiered(files, None, _usual_cold(), open_bucket))
        except BaseException:
            files.shut()
            raise
        # Workers of Spark live long: what a pin holds open goes with it.
        weakref.finalize(pin, files.shut)
        return pin
    except (StoreError, OSError) as error:
        raise LakeError(str(error), "store_damaged", "give a whole pin or backup") from error
