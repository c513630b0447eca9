"""Rows of request and answer: writes of 1, 100 and 1000, pages of 1, 256 and 1000, an empty GET.

For each row the daemon starts in a fresh directory, the floor with answers of the same length, and the peers that the
row has; then they are loaded in turns (A B A B …), one at a time, while the others idle.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.bench import peers, servers
from tests.bench.bare import sequential_bytes_per_s, syncs_per_s
from tests.bench.figures import Row, Spread, Turn, spread_of
from tests.bench.load import Request, ask, ask_json, http_turn
from tests.bench.servers import BenchError, Server

TOPIC = "bench"
SYNCING = "floor with a sync a group"
"""What the goals of lone writes of `fsync` allow beside their multiple of the floor."""
# The compiled implementation of the same API (performance.md), server CPU in µs a request.
COMPILED = {
    ("POST 1", "disk"): 232.0,
    ("POST 1", "fsync"): 388.0,
    ("POST 100", "disk"): 789.0,
    ("POST 100", "fsync"): 887.0,
    ("diff 1", ""): 66.0,
    ("diff 256", ""): 204.0,
    ("diff 1000", ""): 619.0,
    ("GET", ""): 30.0,
}


@dataclass(frozen=True, slots=True)
class Plan:
    """How to run all rows: where the disk is, how many rounds of how many seconds."""

    where: Path
    rounds: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Peer:
    """A server beside: how it starts, how it is filled, what a turn is."""

    start: Callable[[Path], AbstractContextManager[Server]]
    prepare: Callable[[Server], None]
    turn: Callable[[Server, float], Turn]


@dataclass(frozen=True, slots=True)
class HttpRow:
    """One row: the request, how many parts (records) it moves, at how many connections."""

    name: str
    kind: str
    request: Request
    per: int
    connections: int
    durability: str = ""
    records: int = 0
    note: str = ""


def payload(size: int) -> str:
    """Text of `size` bytes that looks like an event's, the quotes included."""
    return ("GET /articles/2026 200 1.10 Mozilla/5.0 (X11; Linux x86_64) " * 20)[: size - 2]


def post(count: int, size: int, connections: int, durability: str) -> HttpRow:
    """A row of writes."""
    body = json.dumps({"records": [{"data": payload(size)}] * count}, separators=(",", ":")).encode()
    request = Request("POST", f"/v0/topics/{TOPIC}?return_seqs=false", body)
    name = f"POST {count} × {size} B {durability} {connections} conn"
    return HttpRow(name, f"POST {count}", request, count, connections, durability)


def diff(count: int) -> HttpRow:
    """A row of hot pages."""
    body = json.dumps({"from_seq": 500, "limit": count}).encode()
    request = Request("POST", f"/v0/topics/{TOPIC}/diff", body)
    return HttpRow(f"diff {count} hot", f"diff {count}", request, 1, 1, records=2000)


def all_rows() -> list[HttpRow]:
    """Every row of this kind, in the order of the table."""
    rows = [HttpRow(f"empty GET {n} conn", "GET", Request("GET", "/v0/health"), 1, n) for n in (1, 16)]
    rows += [post(1, 100, n, durability) for durability in ("disk", "fsync") for n in (1, 16, 64)]
    for count in (100, 1000):
        rows += [post(count, 200, n, durability) for n, durability in ((1, "disk"), (16, "disk"), (16, "fsync"))]
    rows.append(post(1000, 1024, 1, "disk"))
    return rows + [diff(count) for count in (1, 256, 1000)]


def peers_of(row: HttpRow) -> dict[str, Peer]:
    """The peers that can do what the row does, as far as they are installed."""
    found: dict[str, Peer] = {}
    data = payload(200).encode()
    if servers.installed("redis-server") and row.kind in ("POST 1", "POST 100"):
        policy, n = ("always" if row.durability == "fsync" else "everysec"), row.connections
        entry = data[: 100 if row.per == 1 else 200]
        found[f"Redis XADD, AOF {policy}"] = Peer(
            lambda where: servers.redis(where, policy),
            lambda server: None,
            lambda server, seconds: peers.xadd_turn(server, entry, row.per, n, seconds),
        )
    if servers.installed("redis-server") and row.kind == "diff 1000":
        found["Redis XRANGE"] = Peer(
            lambda where: servers.redis(where, "everysec"),
            lambda server: peers.fill_redis(server, data, 2000),
            lambda server, seconds: peers.xrange_turn(server, 1000, 1, seconds),
        )
    if (
        servers.installed("nats-server")
        and row.kind == "POST 100"
        and row.durability == "disk"
        and row.connections == 1
    ):
        found["NATS JetStream, file, no sync"] = Peer(
            servers.nats, peers.make_stream, lambda server, seconds: peers.publish_turn(server, data, 100, 1, seconds)
        )
    return found


def prepare(server: Server, row: HttpRow) -> int:
    """Make the topic, fill it, ask once; how many bytes an answer's body has."""
    if row.durability:
        ask_json(server, "PUT", f"/v0/topics/{TOPIC}", {"durability": row.durability})
    for _ in range(row.records // 1000):
        ask_json(server, "POST", f"/v0/topics/{TOPIC}", {"records": [{"data": payload(200)}] * 1000})
    status, answer = ask(server, row.request)
    if status >= 300:
        raise BenchError(f"{row.name}: {status} {answer[:300]!r}")
    return len(answer)


def measure(row: HttpRow, plan: Plan) -> dict[str, list[Turn]]:
    """All turns of a row, by server."""
    with ExitStack() as stack:
        daemon = stack.enter_context(servers.topicsd(plan.where))
        answer_bytes = prepare(daemon, row)
        floor = stack.enter_context(servers.floor(answer_bytes))
        running: dict[str, tuple[Server, Callable[[Server, float], Turn]]] = {}

        def load(server: Server, seconds: float) -> Turn:
            return http_turn(server, row.request, row.connections, seconds)

        running["topicsd"], running["floor"] = (daemon, load), (floor, load)
        if row.kind == "POST 1" and row.durability == "fsync":
            directory = stack.enter_context(servers.scratch(plan.where))
            running[SYNCING] = (stack.enter_context(servers.floor(answer_bytes, sync=directory)), load)
        for name, peer in peers_of(row).items():
            server = stack.enter_context(peer.start(plan.where))
            peer.prepare(server)
            running[name] = (server, peer.turn)
        turns: dict[str, list[Turn]] = {name: [] for name in running}
        for round_number in range(plan.rounds + 1):
            for name, (server, turn) in running.items():
                seen = turn(server, plan.seconds)
                if round_number:  # the first round only warms up
                    turns[name].append(seen)
        return turns


def goal_of(
    row: HttpRow, floor_us: float, syncing_us: float, raw_syncs: float, figure: float
) -> tuple[str, bool | None]:
    """The goal of performance.md for the row's CPU figure, in its unit; where it has two bounds the looser counts."""
    if row.kind == "POST 1" and row.durability == "disk":
        bound = max(2.0 * floor_us, {1: 60.0, 16: 30.0, 64: 30.0}[row.connections])
        return f"≤ {bound:.0f} µs (2 × floor or 60/30/30)", figure <= bound
    if row.kind == "POST 1":
        sync_us = syncing_us - floor_us
        bound = 2.5 * floor_us + sync_us
        said = f"2.5 × floor, and {sync_us:.1f} for one sync a group; raw disk {raw_syncs:,.0f} syncs/s"
        return f"≤ {bound:.0f} µs ({said})", figure <= bound
    if row.kind == "POST 100":
        return "≤ 2.0 µs a record", figure <= 2.0
    if row.kind == "POST 1000" and not is_large(row):
        return "≤ 1.5 µs a record (then 1.0)", figure <= 1.5
    if row.kind.startswith("diff"):
        bound = 1.5 * floor_us + 0.05 * int(row.kind.split()[1])
        return f"≤ {bound:.0f} µs (1.5 × floor + 0.05 a record)", figure <= bound
    if row.kind == "POST 1000":
        return "MB/s ≥ 50 % of the raw disk's (note)", None
    return "none of its own (prototype 11–16 µs)", None


def is_large(row: HttpRow) -> bool:
    """Whether the row is the one about bytes: records of 1 KiB."""
    return row.request.body is not None and len(row.request.body) > 1_000_000


def note_of(row: HttpRow, turns: dict[str, list[Turn]], plan: Plan, disk_rates: dict[int, float]) -> str:
    """What else the row's goal asks for, and what is not the same at the peers."""
    rate = Spread.of([turn.rate for turn in turns["topicsd"]]).median
    notes = []
    if row.kind == "POST 1" and row.durability == "disk":
        disk_rates[row.connections] = rate
    if row.kind == "POST 1" and row.durability == "fsync" and row.connections == 64:
        syncs = syncs_per_s(plan.where)
        share = rate / disk_rates[64] if 64 in disk_rates else float("nan")
        notes.append(f"acks are {rate / syncs:.1f} × the raw disk's syncs (goal 20) or {share:.0%} of disk (goal 70 %)")
    if is_large(row):
        raw, got = sequential_bytes_per_s(plan.where), rate * len(row.request.body or b"")
        notes.append(f"{got / 1e6:.0f} MB/s, raw disk {raw / 1e6:.0f} MB/s: {got / raw:.0%} (goal 50 %)")
    if any(name.startswith("Redis XADD") for name in turns) and row.per == 1:
        notes.append("Redis: RESP over one connection each, no HTTP, no JSON, no record fields (goal: factor ≤ 3)")
    elif any(name.startswith("Redis XADD") for name in turns):
        notes.append("Redis: RESP, 100 XADD pipelined, each its own entry (not one atomic batch)")
    if any(name.startswith("NATS") for name in turns):
        notes.append("NATS 2.9 acks before any sync (interval 2 min), 100 publishes pipelined")
    if any(name.startswith("Redis XRANGE") for name in turns):
        notes.append("Redis: RESP arrays from memory")
    return "; ".join(notes)


def run(row: HttpRow, plan: Plan, raw_syncs: float, disk_rates: dict[int, float]) -> Row:
    """Measure a row and hold it against its goal."""
    turns = measure(row, plan)
    mine = turns["topicsd"]
    figure, floor = spread_of(mine, row.per), spread_of(turns["floor"], row.per)
    syncing = spread_of(turns[SYNCING], row.per) if SYNCING in turns else floor
    goal, met = goal_of(row, floor.median, syncing.median, raw_syncs, figure.median)
    compiled = COMPILED.get((row.kind, row.durability))
    return Row(
        name=row.name,
        unit="CPU µs / record" if row.per > 1 else "CPU µs / request",
        figure=figure,
        goal=goal,
        met=met,
        floor=floor,
        peers={name: spread_of(seen, row.per) for name, seen in turns.items() if name not in ("topicsd", "floor")},
        compiled=compiled / row.per if compiled else None,
        rate=Spread.of([turn.rate for turn in mine]),
        p50_us=Spread.of([turn.p50_us for turn in mine]).median,
        p99_us=Spread.of([turn.p99_us for turn in mine]).median,
        client_cpu_us=Spread.of([turn.client_cpu_s / turn.count * 1e6 for turn in mine]).median,
        note=note_of(row, turns, plan, disk_rates),
    )


def run_all(rows: list[HttpRow], plan: Plan) -> Iterator[Row]:
    """Every row, one after the other."""
    if not rows:
        return
    raw_syncs = syncs_per_s(plan.where)
    disk_rates: dict[int, float] = {}
    for row in rows:
        yield run(row, plan, raw_syncs, disk_rates)
