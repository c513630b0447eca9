"""What the tests of the lake share: a store that is written to, pins of it, and plain readers of the lake."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine import Engine
from tests.export.pins import pin_path
from topics_lake.export import Export, Runner, Settings, TopicDone
from topics_lake.lake import Lake

_IDS = itertools.count(0xAB00)
LONG = b'"' + b'\\"' * 524_000 + b'"'
"""A record that readers of CSV do not take at once, half as long again with its quotes doubled."""


def export(
    log: Engine,
    root: Path,
    lake: Path,
    topics: list[str],
    *,
    runner: Runner | None = None,
    step: Callable[[str], None] = lambda name: None,
    **settings: Any,
) -> list[TopicDone]:
    """Pin a store as it is, and export from the pin."""
    return export_pin(new_pin(log, root), lake, topics, runner=runner, step=step, **settings)


def new_pin(log: Engine, root: Path) -> str:
    """The directory of a new pin."""
    return pin_path(log, str(root), f"{next(_IDS):016x}")


def export_pin(
    path: str,
    lake: Path,
    topics: list[str],
    *,
    runner: Runner | None = None,
    step: Callable[[str], None] = lambda name: None,
    **settings: Any,
) -> list[TopicDone]:
    """Export from a pin."""
    into = Lake(str(lake))
    with into.turn():
        return list(Export(into, path, Settings(**settings), runner, step).run(topics))


def plain(lake: Path, form: str = "parquet") -> list[tuple[int, int, bytes]]:
    """(epoch, seq, data) of every row that DuckDB finds, sorted."""
    import duckdb

    ending = {"parquet": "parquet", "json": "ndjson", "csv": "csv"}[form]
    if not list(lake.rglob(f"*.{ending}")):
        return []
    read = {
        "parquet": "read_parquet('{}')",
        "json": "read_json('{}', format='newline_delimited', columns={{epoch:'BIGINT',seq:'BIGINT',data:'VARCHAR'}},"
        " maximum_object_size=20000000)",
        "csv": "read_csv('{}', header=true, max_line_size=20000000, quote='\"', escape='\"',"
        " types={{'data': 'VARCHAR'}})",
    }[form].format(f"{lake}/**/*.{ending}")
    with duckdb.connect() as db:
        rows = db.sql(f"select epoch, seq, data from {read} order by epoch, seq").fetchall()
    return [(epoch, seq, data if isinstance(data, bytes) else data.encode()) for epoch, seq, data in rows]
