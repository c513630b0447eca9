"""Pins that the tests of the export read: made by a real engine, of real segments and tails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine import Engine
from engine.checkpoint.pin import PinJob, export_dir
from engine.fs import OsFs
from engine.tools.readonly import ReadOnlyFs
from tests.extras import extra

extra("pyarrow")

from engine.export.reader import Pin  # noqa: E402 # pyarrow may be missing

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


def checkpoint(log: Engine) -> None:
    """Take a checkpoint, as a daemon would."""
    log._wait(log.core.checkpoint())


def pin(log: Engine, root: str, export_id: str = "00000000000000aa") -> Pin:
    """A pin of everything as it is now."""
    return Pin(ReadOnlyFs(pin_path(log, root, export_id)))


def pin_path(log: Engine, root: str, export_id: str = "00000000000000aa") -> str:
    """Make a pin; the directory of it."""
    checkpoint(log)
    job = PinJob(export_id, log.core.store.store_id, log.core.commit.now_ms, None, None)
    ticket = log.core.keeper.aside(job)
    while not ticket.done:
        log._tend()
    assert job.manifest is not None, ticket.error
    return f"{root}/{export_dir(export_id)}"


def rows_of(found: Pin, name: str, first: int = 1, last: int = 2**62, **options: Any) -> list[dict[str, Any]]:
    """All rows of a topic."""
    return [row for batch in found.topic(name).batches(first, last, **options) for row in batch.to_pylist()]


def told(log: Engine, name: str) -> list[dict[str, Any]]:
    """What a reader of the topic gets: records, with their data as JSON text that compares, and losses."""
    return list(log.read(name))


def compared(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in the shape of what a reader gets."""
    records = []
    for row in rows:
        record: dict[str, Any] = {"$seq": row["seq"], "$ts": row["ts_ms"]}
        if row["node"] is not None:
            record["$node"] = row["node"]
        record["data"] = json.loads(row["data"])
        if row["meta"] is not None:
            record["meta"] = json.loads(row["meta"])
        if row["tag"] is not None:
            record["$tag"] = row["tag"]
        records.append(record)
    return records


def fs_of(path: Path) -> OsFs:
    """A directory to write in."""
    return OsFs(str(path), create=True)
