"""The pages that are made of `results.json` alone: `python -m tests.bench.pages` writes them again.

`docs/benchmarks/peers.md` puts what topicsd took beside what others took; a table in `docs/explanation/durability.md`,
between two marks, has what a durability class costs. No figure in them is written by hand, and a test holds them
against the results (`tests/bench/test_pages.py`).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
RESULTS: Final = ROOT / "docs/benchmarks/results.json"
PEERS_PAGE: Final = ROOT / "docs/benchmarks/peers.md"
CLASSES_PAGE: Final = ROOT / "docs/explanation/durability.md"
BEGIN: Final = "<!-- Made by `python -m tests.bench.pages` from docs/benchmarks/results.json; do not edit. -->\n"
END: Final = "<!-- End of what is made. -->\n"

_POST: Final = re.compile(r"POST (?P<batch>\d+) × (?P<size>\d+) B (?P<kind>disk|fsync) (?P<connections>\d+) conn")
_SAID: Final = {
    "Redis": "Redis: RESP instead of HTTP and JSON, in C; entries are not one atomic batch, and have no fields that "
    "the server reads. `disk` stands beside `appendfsync everysec`, which may lose a second, `fsync` beside `always`.",
    "NATS": "NATS JetStream: its own protocol, in Go; what it acks has not been synced (its interval is two minutes), "
    "so it stands beside `disk` only in part, and has no counterpart to `fsync` here.",
    "beanstalkd": "beanstalkd: its own protocol, in C; binlog synced every 10 ms, as the log of `disk` is.",
    "curl": "curl against the quick commands of `topics`, each a process of its own that starts, asks once and ends.",
    "redis-cli": "redis-cli, likewise, against a Redis of its own.",
}
"""What is not the same, by the first word of a peer's name."""


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"


def _spread(spread: dict[str, float]) -> str:
    return f"{_number(spread['median'])} ({_number(spread['low'])} … {_number(spread['high'])})"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in rows)]


def _is_rate(row: dict[str, Any]) -> bool:
    return re.search(r"MB ?/ ?s\b", row["unit"]) is not None


def _beside(row: dict[str, Any], other: float) -> str:
    """How many times what the other took topicsd takes; for rates, how many times as much it does."""
    return f"{row['figure']['median'] / other:.2f}" if other else "–"


def _less(row: dict[str, Any], other: float) -> bool:
    mine = row["figure"]["median"]
    return bool(mine > other if _is_rate(row) else mine < other)


def _first_word(peer: str) -> str:
    return peer.split(maxsplit=1)[0].rstrip(",")


def _peer_part(name: str, rows: list[dict[str, Any]]) -> list[str]:
    """The table of one peer, by the first word of its name."""
    pairs = [(row, peer, spread) for row in rows for peer, spread in row["peers"].items() if _first_word(peer) == name]
    if not pairs:
        return [f"## {name}", "", "Not in this run.", ""]
    ahead = sum(_less(row, spread["median"]) for row, _, spread in pairs)
    return [
        f"## {name}",
        "",
        f"{_SAID[name]} topicsd is ahead in {ahead} of {len(pairs)} rows.",
        "",
        *_table(
            ("row", "unit", "topicsd", "peer", "took", "topicsd ÷ peer"),
            [
                (
                    row["name"],
                    row["unit"],
                    _spread(row["figure"]),
                    peer,
                    _spread(spread),
                    _beside(row, spread["median"]),
                )
                for row, peer, spread in pairs
            ],
        ),
        "",
    ]


def _compiled_part(rows: list[dict[str, Any]]) -> list[str]:
    stated = [row for row in rows if row["compiled"] is not None]
    ahead = sum(_less(row, row["compiled"]) for row in stated)
    return [
        "## The compiled implementation of this API",
        "",
        "Its figures are stated, for a release build on the same kind of machine; they were not taken in this run, nor",
        f"in turns with it. topicsd, in Python, is ahead in {ahead} of {len(stated)} rows.",
        "",
        *_table(
            ("row", "unit", "topicsd", "compiled", "topicsd ÷ compiled"),
            [
                (
                    row["name"],
                    row["unit"],
                    _spread(row["figure"]),
                    f"{row['compiled']:g}",
                    _beside(row, row["compiled"]),
                )
                for row in stated
            ],
        ),
        "",
    ]


def peers_page(results: dict[str, Any]) -> str:
    """The comparison with Redis, NATS, beanstalkd and the compiled implementation."""
    facts, rows = results["machine"], results["rows"]
    return "\n".join(
        [
            BEGIN + "# Compared with others",
            "",
            "Servers of each kind took turns under the same payloads on one machine, each through its own fastest",
            "common client; a figure is the median of the turns with their range. CPU is user + system of the server",
            "process over the count: it says what an operation costs, not how many a second there are. Below 1.00 in",
            "the last column topicsd takes less (of MB/s: does less). All rows, goals and latencies are in",
            "[the benchmarks](README.md).",
            "",
            *_table(("", ""), [(name, str(value)) for name, value in facts.items()]),
            "",
            *(line for name in _SAID for line in _peer_part(name, rows)),
            *_compiled_part(rows),
        ]
    )


def classes_table(results: dict[str, Any]) -> str:
    """What `disk` and `fsync` took for the same writes."""
    found: dict[tuple[int, int, int], dict[str, dict[str, Any]]] = {}
    for row in results["rows"]:
        if match := _POST.fullmatch(row["name"]):
            key = (int(match["batch"]), int(match["size"]), int(match["connections"]))
            found.setdefault(key, {})[match["kind"]] = row
    rows = []
    for (batch, size, connections), kinds in sorted(found.items()):
        if {"disk", "fsync"} <= kinds.keys():
            cells = [
                f"{_number(kinds[kind]['figure']['median'])} µs, {_number(kinds[kind]['p50_us'] / 1000)} / "
                f"{_number(kinds[kind]['p99_us'] / 1000)} ms, {_number(kinds[kind]['rate']['median'])}/s"
                for kind in ("disk", "fsync")
            ]
            rows.append((f"{batch:,} × {size:,} B", str(connections), *cells))
    return "\n".join(_table(("a write", "connections", "`disk`", "`fsync`"), rows)) + "\n"


def with_table(page: str, table: str) -> str:
    """The page with what stands between its marks made anew."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError("the page has lost the marks around its table")
    return f"{head}{BEGIN}\n{table}\n{END}{tail}"


def pages(results: dict[str, Any]) -> dict[Path, str]:
    """Every page and its text."""
    return {
        PEERS_PAGE: peers_page(results),
        CLASSES_PAGE: with_table(CLASSES_PAGE.read_text(encoding="utf-8"), classes_table(results)),
    }


def write() -> list[Path]:
    """Make the pages again; which of them changed."""
    made = pages(json.loads(RESULTS.read_text(encoding="utf-8")))
    changed = [path for path, text in made.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in changed:
        path.write_text(made[path], encoding="utf-8")
    return changed


if __name__ == "__main__":
    sys.stdout.writelines(f"{path.relative_to(ROOT)}\n" for path in write())
