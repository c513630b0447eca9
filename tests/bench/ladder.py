"""The page of the size ladder, made of `docs/benchmarks/ladder.json` alone: a table, and a plot with both axes
logarithmic. `python -m tests.bench --rows ladder --save` measures and writes all three.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any, Final

from tests.bench.figures import Row
from tests.bench.rows_ladder import GOAL_FROM
from topics_cli.harness.charts import HEIGHT, WIDTH, chart
from topics_cli.harness.report import STYLE

PREFIX: Final = "ladder "
DIRECTORY: Final = Path(__file__).resolve().parents[2] / "docs" / "benchmarks"
_MADE: Final = "<!-- Made by `python -m tests.bench --rows ladder --save`; do not edit. -->\n"
_VERDICT: Final = {True: "met", False: "**not met**", None: "–"}
_LEGEND_PX: Final = 24
_MARGIN_PX: Final = 12
_TITLE: Final = "MB/s of payload, by bytes of a record"


def is_ladder(row: Row) -> bool:
    """Whether a row is one of the ladder's."""
    return row.name.startswith(PREFIX)


def save(rows: list[Row], facts: dict[str, Any], directory: Path = DIRECTORY) -> None:
    """Write the three files."""
    document = {"machine": facts, "rows": [dataclasses.asdict(row) for row in rows]}
    (directory / "ladder.json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for name, text in pages(document).items():
        (directory / name).write_text(text, encoding="utf-8")


def pages(document: dict[str, Any]) -> dict[str, str]:
    """The files that are made of the results, by name."""
    return {"ladder.md": _page(document), "ladder.svg": _plot(document["rows"])}


def _rows_of(rows: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["name"].startswith(f"{PREFIX}{kind} ")]


def _spread(spread: dict[str, float]) -> str:
    digits = 0 if spread["median"] >= 100 else 1 if spread["median"] >= 10 else 2
    return "{:,.{d}f} ({:,.{d}f} … {:,.{d}f})".format(spread["median"], spread["low"], spread["high"], d=digits)


def _table(rows: list[dict[str, Any]], limits: dict[str, str]) -> list[str]:
    heads = ["bytes", "MB/s", "records/s", "µs CPU a record", *limits.values(), "÷ limit", "goal"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---:|" * (len(heads) - 1) + "---|"]
    first = next(iter(limits))
    for row in rows:
        extra = row["extra"]
        cells = [f"{extra['size']:,}", _spread(row["figure"]), _spread(row["rate"]), _spread(extra["cpu_us"])]
        cells += [_spread(extra["limits"][limit]) for limit in limits]
        cells += [f"{row['figure']['median'] / extra['limits'][first]['median']:.2f}", _VERDICT[row["met"]]]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _page(document: dict[str, Any]) -> str:
    facts, rows = document["machine"], document["rows"]
    return "\n".join(
        [
            _MADE + "# The size ladder",
            "",
            "Appends and a streaming read with records of six sizes. MB are payload (the records' data alone) over",
            "wall time; a figure is the median of turns with their range, and limits were measured in turns with it.",
            f"The goal, from {GOAL_FROM:,} bytes up: at least half of the limit.",
            "",
            "![MB/s by size, with the limits of disk and memory](ladder.svg)",
            "",
            "## Append",
            "",
            "One request of at most 1 MiB or 1000 records as NDJSON after the other, on two connections; class `disk`.",
            "The limit is the disk's: blocks of 1 MiB into a file and a sync at its end, as `dd conv=fdatasync` does.",
            "",
            *_table(_rows_of(rows, "append"), {"disk": "disk MB/s"}),
            "",
            "## Streaming read",
            "",
            "One stream of events (`GET /v0/watch/…`) from the first record on, out of the daemon's memory, to a",
            "client that only counts bytes. The limit is memory's as a server can reach it: a process that sends the",
            "same bytes over and over to another one on a loopback connection. Beside it is what copying within one",
            "process does. A stream sends more than payload: 50 to 60 bytes around each record.",
            "",
            *_table(_rows_of(rows, "read"), {"loopback": "loopback MB/s", "memory": "copying MB/s"}),
            "",
            "## Taken on",
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in facts.items()),
            "",
        ]
    )


def _plot(rows: list[dict[str, Any]]) -> str:
    """The chart of a report as a picture of its own: with its style and its legend inside, on white."""
    appends, reads = _rows_of(rows, "append"), _rows_of(rows, "read")
    sizes = [float(row["extra"]["size"]) for row in appends]
    lines = [
        ("append", [row["figure"]["median"] for row in appends]),
        ("streaming read", [row["figure"]["median"] for row in reads]),
        ("disk", [row["extra"]["limits"]["disk"]["median"] for row in appends]),
        ("loopback", [row["extra"]["limits"]["loopback"]["median"] for row in reads]),
        ("copying", [row["extra"]["limits"]["memory"]["median"] for row in reads]),
    ]
    labels = [f"{size:,.0f}" for size in sizes]
    figure = chart(
        "MB/s of payload by bytes of a record", "MB/s", sizes, lines, x_unit="B", is_log=True, x_labels=labels
    )
    inside = re.sub(r"^.*?<svg[^>]*>|</svg>.*$", "", figure, flags=re.DOTALL)
    style = STYLE.split("@media", 1)[0] + "".join(
        re.findall(r"^\.(?:grid|line|s1|s6|column).*\n?", STYLE, re.MULTILINE)
    )
    legend, x = [], 10
    for place, (name, _) in enumerate(lines, 1):
        legend.append(f'<path class="line s{place}" d="M{x} {HEIGHT + 10}h14"/>')
        legend.append(f'<text class="axis" x="{x + 19}" y="{HEIGHT + 14}">{name}</text>')
        x += 34 + round(6.2 * len(name))
    width, height = WIDTH + _MARGIN_PX, HEIGHT + 2 * _LEGEND_PX
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{2 * width}" '
        f'height="{2 * height}" font-family="sans-serif"><style>{style}</style>'
        f'<rect width="{width}" height="{height}" fill="#fff"/><text class="axis" x="10" y="16">{_TITLE}</text>'
        f'<g transform="translate(0 {_LEGEND_PX})">{inside}{"".join(legend)}</g></svg>\n'
    )
