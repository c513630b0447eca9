"""What the bench says: a line for each row while it runs, then JSON, a Markdown table and a plot in `docs/benchmarks/`.

The plot is SVG written by hand: for each row of request and answer a bar for the daemon beside the floor's and the
goal met or not; no library is worth having for that.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from tests.bench import ladder, pages
from tests.bench.figures import Row, Spread

INTRODUCTION = (
    "Made by `make bench`; medians of rounds taken in turns (daemon, floor, peers, daemon, …), the range in brackets.",
    "*Figure* is what the goal is about; CPU is user + system of the server process over the count. *Floor* is a",
    "server on the same loop library that answers a constant without parsing. *Compiled* is what the compiled",
    "implementation of this API took on the same kind of machine (stated, not measured here). Wall figures depend on",
    "what else the machine did.",
)
VERDICT = {True: "met", False: "**not met**", None: "–"}


def machine() -> dict[str, Any]:
    """What the figures were taken on, as far as a reader needs it."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "cpu": model,
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "taken": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }


def line_of(row: Row) -> str:
    """One row for the terminal."""
    parts = [f"{row.name:<48}", f"{row.figure.show():>22} {row.unit}"]
    if row.floor is not None and row.ratio is not None:
        parts.append(f"floor {row.floor.show()} ×{row.ratio:.2f}")
    parts += [f"{name} {spread.show()}" for name, spread in row.peers.items()]
    if row.rate is not None:
        parts.append(f"{row.rate.show(0)} {row.rate_unit}")
    if row.p50_us is not None and row.p99_us is not None:
        parts.append(f"p50 {row.p50_us:.0f} p99 {row.p99_us:.0f} µs")
    verdict = {True: "met", False: "NOT MET", None: "-"}[row.met]
    return "  ".join([*parts, f"goal {row.goal}: {verdict}", row.note]).rstrip()


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def markdown(rows: list[Row], facts: dict[str, Any]) -> str:
    """The table."""
    peers = [name for row in rows for name in row.peers]
    lines = [
        "# Benchmarks",
        "",
        *INTRODUCTION,
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in facts.items()),
        "",
        "| row | figure | floor | ratio | compiled | peers | goal | | rate | p50 / p99 µs | client CPU µs | note |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        beside = "<br>".join(f"{name}: {spread.show()}" for name, spread in row.peers.items()) or "–"
        latency = "–" if row.p50_us is None or row.p99_us is None else f"{row.p50_us:,.0f} / {row.p99_us:,.0f}"
        cells = [
            row.name,
            f"{row.figure.show()} {row.unit}",
            row.floor.show() if row.floor else "–",
            f"{row.ratio:.2f}" if row.ratio else "–",
            f"{row.compiled:g}" if row.compiled else "–",
            beside,
            row.goal,
            VERDICT[row.met],
            f"{row.rate.show(0)} {row.rate_unit}" if row.rate else "–",
            latency,
            f"{row.client_cpu_us:.1f}" if row.client_cpu_us is not None else "–",
            row.note or "–",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    met = sum(row.met is True for row in rows)
    asked = sum(row.met is not None for row in rows)
    lines += ["", f"{met} of {asked} goals met.", ""]
    if not peers:
        lines += ["No peer was installed.", ""]
    return "\n".join([*lines, "![CPU against the floor](cpu.svg)", ""])


def plot(rows: list[Row]) -> str:
    """Bars: CPU of the daemon and of the floor, for the rows that have both."""
    shown = [(row, row.floor.median) for row in rows if row.floor is not None and "CPU" in row.unit]
    step, width, left = 26, 900, 290
    height = step * len(shown) + 40
    scale = (width - left - 130) / max((max(row.figure.median, floor) for row, floor in shown), default=1.0)
    title = "Server CPU (µs): topicsd (blue; red where the goal is not met), floor (grey)"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<g font-size="12"><text x="10" y="18" font-weight="bold">{title}</text>',
    ]
    for index, (row, floor) in enumerate(shown):
        y = 32 + index * step
        value = row.figure.median
        colour = "#c0392b" if row.met is False else "#2e6da4"
        label = f"{value:.1f}{' a record' if 'record' in row.unit else ''}"
        parts += [
            f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{escape(row.name)}</text>',
            f'<rect x="{left}" y="{y + 2}" width="{max(1.0, value * scale):.1f}" height="10" fill="{colour}"/>',
            f'<rect x="{left}" y="{y + 12}" width="{max(1.0, floor * scale):.1f}" height="6" fill="#999"/>',
            f'<text x="{left + value * scale + 6:.1f}" y="{y + 12}">{label}</text>',
        ]
    return "\n".join([*parts, "</g></svg>", ""])


def save(rows: list[Row], directory: Path, loop_ms: list[float]) -> None:
    """Write the three files and the pages made of them, for the size ladder its own; `loop_ms` is what a fixed piece of
    Python took before each row."""
    directory.mkdir(parents=True, exist_ok=True)
    facts = machine()
    facts["load average"] = f"{os.getloadavg()[1]:.1f} (5 min, at the end; the bench alone makes about 1.5)"
    facts["a fixed Python loop, CPU ms"] = Spread.of(loop_ms).show() + "; the same instructions before every row"
    if rungs := [row for row in rows if ladder.is_ladder(row)]:
        ladder.save(rungs, facts, directory)
    rows = [row for row in rows if not ladder.is_ladder(row)]
    if not rows:
        return
    document = {"machine": facts, "rows": [dataclasses.asdict(row) for row in rows]}
    (directory / "results.json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    (directory / "README.md").write_text(markdown(rows, facts))
    (directory / "cpu.svg").write_text(plot(rows))
    if directory == pages.RESULTS.parent:
        pages.write()
