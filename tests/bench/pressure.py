"""Ask a daemon for twice what it can do, and draw what happens: `python -m tests.bench.pressure [SECONDS]`.

Three phases against a daemon of its own: as much as it takes (the capacity), twice that (open loop: whether answers
come or not), and a third of it (does it recover by itself?). Every write carries a number; at the end each record that
was acked is read again and compared, so that what is said of loss is a fact. Writes docs/benchmarks/pressure.svg, .md.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONNECTIONS = 128
TICK_S = 0.01
SAMPLE_S = 0.25
DRAIN_S = 60.0
"""How long what was sent may take to be answered after each phase."""
DEPTH = 8
"""Requests of a connection on their way while the capacity is measured."""


@dataclass
class Seen:
    """What one moment looked like."""

    at_s: float
    offered: int = 0
    acked: int = 0
    refused: int = 0
    latencies_ms: list[float] = field(default_factory=list)
    pressure: float | None = None
    """The highest that was seen; None where the daemon was not heard of."""


@dataclass
class Phase:
    """One of the three: when it began, when the last write was offered, when the last one was answered."""

    name: str
    begin_s: float
    end_s: float
    answered_s: float
    cpu_s: float
    """Processor time that the daemon took from the beginning until then."""


@dataclass
class Load:
    """All that is sent, and what became of it."""

    next_number: int = 0
    acked: dict[int, int] = field(default_factory=dict)
    """seq → number."""
    retry_after: set[int] = field(default_factory=set)
    moments: list[Seen] = field(default_factory=lambda: [Seen(0.0)])
    reasons: Counter[str] = field(default_factory=Counter)
    """Why writes were refused."""
    pressure: float = 0.0
    """As it was seen last."""
    others: int = 0
    """Answers that are neither 200, 201 nor 429."""
    unanswered: int = 0
    """Writes whose connection ended, or that had no answer in time."""


class Client(asyncio.Protocol):
    """One connection that pipelines writes."""

    def __init__(self, load: Load, *, closed: bool = False) -> None:
        self.load = load
        self.closed = closed
        """Whether an answer lets the next request go."""
        self.sent: deque[tuple[int, float]] = deque()
        self.buffer = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.load.unanswered += len(self.sent)
        self.sent.clear()

    def ask(self, count: int) -> None:
        """Send so many writes."""
        load, now, out = self.load, time.perf_counter(), []
        for _ in range(count):
            body = b'{"records":[{"data":%d}],"return_seqs":false}' % load.next_number
            head = b"POST /v0/topics/t HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            out.append(b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body))
            self.sent.append((load.next_number, now))
            load.next_number += 1
        load.moments[-1].offered += count
        self.transport.write(b"".join(out))

    def data_received(self, data: bytes) -> None:
        now, load = time.perf_counter(), self.load
        moment = load.moments[-1]
        answers = (self.buffer + data).split(b"HTTP/1.1 ")[1:]
        self.buffer = b"" if data.endswith(b"}}") else b"HTTP/1.1 " + answers.pop()
        for answer in answers:
            number, began = self.sent.popleft()
            if answer[:2] == b"20":
                at = answer.index(b'"first_seq":') + 12
                load.acked[int(answer[at : answer.index(b",", at)])] = number
                moment.acked += 1
                moment.latencies_ms.append((now - began) * 1000)
            elif answer[:3] == b"429":
                moment.refused += 1
                load.reasons["pressure" if b"retry_after_ms" in answer else "max_inflight_per_key"] += 1
                at = answer.index(b"retry-after: ") + 13
                load.retry_after.add(int(answer[at : answer.index(b"\r", at)]))
            else:
                load.others += 1
        answered = len(answers)
        if self.closed and answered:
            self.ask(answered)


def metric(port: int, name: str) -> float:
    """One figure of the daemon."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v0/metrics", timeout=30) as answer:
        text = answer.read().decode()
    return float(next(line for line in text.splitlines() if line.startswith(name + " ")).split()[1])


def keep_watch(port: int, out: str) -> None:
    """A process of its own, so that a busy client does not look away: time and pressure, a line each."""
    with open(out, "w", encoding="ascii", buffering=1) as file:
        while True:
            file.write(f"{time.perf_counter()} {metric(port, 'topics_pressure')}\n")
            time.sleep(SAMPLE_S / 2)


async def tick(load: Load, began: float) -> None:
    """A new moment every quarter of a second."""
    while True:
        await asyncio.sleep(SAMPLE_S)
        load.moments.append(Seen(time.perf_counter() - began))


def merge(load: Load, lines: list[str], began: float) -> None:
    """Give each moment the highest pressure that was seen in it."""
    for line in lines:
        at_s, pressure = float(line.split()[0]) - began, float(line.split()[1])
        moment = max((one for one in load.moments if one.at_s <= at_s), key=lambda one: one.at_s, default=None)
        if moment is not None:
            moment.pressure = max(moment.pressure or 0.0, pressure)
        load.pressure = pressure


async def offer(clients: list[Client], rate: float, seconds: float) -> None:
    """Send at a rate, whatever comes back."""
    began, sent = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - began) < seconds:
        due = int(rate * elapsed) - sent
        each, more = divmod(due, len(clients))
        for index, client in enumerate(clients):
            if (count := each + (index < more)) and not client.transport.is_closing():
                client.ask(count)
        sent += due
        await asyncio.sleep(TICK_S)


async def drain(load: Load, clients: list[Client]) -> None:
    """Wait until everything is answered, but not for ever; what is not then is given up, connection and all."""
    deadline = time.perf_counter() + DRAIN_S
    while any(client.sent for client in clients) and time.perf_counter() < deadline:  # noqa: ASYNC110  # a few times
        await asyncio.sleep(0.05)
    for client in clients:
        if client.sent:
            client.transport.abort()
            load.unanswered += len(client.sent)
            client.sent.clear()


def cpu_s(pid: int) -> float:
    """Processor time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def run(port: int, pid: int, seconds: float) -> tuple[Load, float, float, list[Phase]]:
    """The three phases; returns what was seen, when it began, the capacity, and the phases."""
    load, began, loop = Load(), time.perf_counter(), asyncio.get_running_loop()
    took_s = cpu_s(pid)
    sampler = asyncio.ensure_future(tick(load, began))
    clients = [Client(load, closed=True) for _ in range(CONNECTIONS)]
    for client in clients:
        await loop.create_connection(lambda one=client: one, "127.0.0.1", port)  # type: ignore[misc]  # bound early
        client.ask(DEPTH)
    await asyncio.sleep(seconds / 4)
    capacity = len(load.acked) / (time.perf_counter() - began)
    for client in clients:
        client.closed = False
    end_s = time.perf_counter() - began
    await drain(load, clients)
    phases = [Phase("what it takes", 0.0, end_s, time.perf_counter() - began, cpu_s(pid) - took_s)]
    for name, rate, share in (("twice that", 2 * capacity, 0.25), ("a third of it", capacity / 3, 0.5)):
        begin_s, took_s = time.perf_counter() - began, cpu_s(pid)
        await offer(clients, rate, seconds * share)
        end_s = time.perf_counter() - began
        await drain(load, clients)
        phases.append(Phase(name, begin_s, end_s, time.perf_counter() - began, cpu_s(pid) - took_s))
    await asyncio.sleep(5.0)
    sampler.cancel()
    return load, began, capacity, phases


def check(port: int, load: Load) -> int:
    """Read everything, and compare what was acked; returns how many were."""
    at, left = 0, dict(load.acked)
    while True:
        body = json.dumps({"from_seq": at, "limit": 1000}).encode()
        asked = urllib.request.Request(  # our own daemon
            f"http://127.0.0.1:{port}/v0/topics/t/diff", body, {"content-type": "application/json"}
        )
        with urllib.request.urlopen(asked, timeout=60) as answer:
            page = json.load(answer)
        for record in page["records"]:
            if record["$seq"] in left:
                assert left.pop(record["$seq"]) == record["data"], "a record is another than was acked"
        at = page["next_from_seq"]
        if page["caught_up"]:
            assert not left, f"{len(left)} acked records are lost"
            return len(load.acked)


def plot(load: Load, phases: list[Phase]) -> str:
    """Pressure, and the rates beside it, over time."""
    width, height, top, left = 900, 320, 24, 60
    base, last = height - 60, phases[-1].answered_s + 2.0
    # A busy client's moments are longer, and the last one is not whole.
    took = {one.at_s: after.at_s - one.at_s for one, after in pairwise(load.moments)}
    moments = [moment for moment in load.moments[:-1] if moment.at_s <= last]
    most = max(max(one.acked, one.refused, one.offered) / took[one.at_s] for one in moments) or 1.0

    def across(at_s: float) -> float:
        return left + at_s / last * (width - left - 10)

    def line(values: list[float | None], colour: str) -> str:
        points = " ".join(
            f"{across(moment.at_s):.1f},{base - value * (base - top):.1f}"
            for moment, value in zip(moments, values, strict=True)
            if value is not None
        )
        return f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{points}"/>'

    def rate(what: str, colour: str) -> str:
        return line([getattr(moment, what) / took[moment.at_s] / most for moment in moments], colour)

    said = f"pressure red; writes a second ({most:.0f} at the top): offered grey, acked green, 429 orange"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<g font-size="12"><text x="{left}" y="14">{said}</text>',
        f'<polyline fill="none" stroke="#999" points="{left},{top} {left},{base} {width - 10},{base}"/>',
        f'<text x="{left - 20}" y="{top + 8}">1</text><text x="{left - 20}" y="{base}">0</text>',
        rate("offered", "#bbb"),
        rate("acked", "#2a2"),
        rate("refused", "#e90"),
        line([moment.pressure for moment in moments], "#c22"),
    ]
    for phase in phases:
        x = across(phase.begin_s)
        dashed = f'stroke="#999" stroke-dasharray="4" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{base + 18}"'
        parts.append(f'<line {dashed}/><text x="{x + 4:.1f}" y="{base + 16}">{phase.name}</text>')
    parts += [f'<text x="{across(at):.1f}" y="{base + 36}">{at} s</text>' for at in range(0, int(last), 5)]
    return "\n".join([*parts, "</g></svg>", ""])


def quantile(moments: list[Seen], share: float) -> float:
    """A latency of what was acked in some moments, in milliseconds."""
    times = sorted(time_ms for moment in moments for time_ms in moment.latencies_ms)
    return times[int(share * (len(times) - 1))] if times else 0.0


def tell(load: Load, capacity: float, phases: list[Phase], compared: int) -> str:
    """The page beside the plot."""
    lines = [
        "# Under twice the load that it takes",
        "",
        "Made by `python -m tests.bench.pressure`; the load's client ran on the same machine.",
        "",
        "![pressure](pressure.svg)",
        "",
        "| phase | offered /s | acked /s | acked | 429 | acked a CPU s | answered after | p50 ms | p99 ms | pressure |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for phase in phases:
        took_s = phase.end_s - phase.begin_s
        moments = [moment for moment in load.moments if phase.begin_s <= moment.at_s < phase.end_s] or [Seen(0.0)]
        whole = [moment for moment in load.moments if phase.begin_s <= moment.at_s < phase.answered_s] or moments
        offered, acked = (sum(getattr(moment, what) for moment in moments) / took_s for what in ("offered", "acked"))
        total, refused = (sum(getattr(moment, what) for moment in whole) for what in ("acked", "refused"))
        highest = max(moment.pressure or 0.0 for moment in whole)
        rest_s = phase.answered_s - phase.end_s
        lines.append(
            f"| {phase.name} | {offered:.0f} | {acked:.0f} | {total} | {refused} | {total / phase.cpu_s:.0f}"
            f" | {rest_s:.1f} s | {quantile(whole, 0.5):.0f} | {quantile(whole, 0.99):.0f} | {highest:.2f} |"
        )
    lines += [
        "",
        "Rates are of the time in which writes were offered; all else, latencies of what was acked too, is of the time",
        "until the last of them was answered. Writes are sent whether answers come or not, so under twice that most",
        "wait in their connections; what is refused is told when to come back. A CPU s is a second of processor",
        "time of the daemon, all threads: what else runs on the machine, the client too, takes from the rates alone.",
        "Pressure is the highest that was seen.",
    ]
    after = ", ".join(map(str, sorted(load.retry_after))) or "none"
    lines += [
        "",
        f"Capacity measured: {capacity:.0f} writes/s on {CONNECTIONS} connections. `Retry-After` seen: {after} (s).",
        f"Acked writes read again and compared: {compared}, none lost. Answers but 200, 201 and 429: {load.others}.",
        f"Writes without an answer: {load.unanswered}.",
        f"Refused by: {dict(load.reasons) or 'nothing'}. Pressure at the end: {load.pressure:.2f}.",
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 40.0
    with tempfile.TemporaryDirectory(prefix="topics-pressure-") as name:
        port_file = Path(name) / "port"
        command = [sys.executable, "-m", "topics_daemon.main", "--data-dir", f"{name}/data", "--socket", "none"]
        daemon = subprocess.Popen([*command, "--port", "0", "--port-file", str(port_file), "--log-level", "error"])
        try:
            deadline = time.monotonic() + DRAIN_S
            while not port_file.exists() or not port_file.read_text():
                assert daemon.poll() is None, "the daemon has ended"
                assert time.monotonic() < deadline, "the daemon does not start"
                time.sleep(0.05)
            port = int(port_file.read_text())
            while metric(port, "topics_ready") != 1:
                assert time.monotonic() < deadline, "the daemon does not get ready"
                time.sleep(0.05)
            watcher = multiprocessing.Process(target=keep_watch, args=(port, f"{name}/seen"), daemon=True)
            watcher.start()
            try:
                load, began, capacity, phases = asyncio.run(
                    asyncio.wait_for(run(port, daemon.pid, seconds), 4 * seconds + 240)
                )
            finally:
                watcher.terminate()
            merge(load, Path(f"{name}/seen").read_text().splitlines(), began)
            compared = check(port, load)
        finally:
            daemon.terminate()
            try:
                daemon.wait(60)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
    directory = ROOT / "docs/benchmarks"
    (directory / "pressure.svg").write_text(plot(load, phases))
    (directory / "pressure.md").write_text(text := tell(load, capacity, phases, compared))
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
