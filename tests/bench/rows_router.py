"""Rows of routers: one write at a time into a source with 1, 10 and 100 dests, and when its copy can be read.

The figure is the median time from a write's answer to a page of the last dest that has the copy (the request itself
makes the routers go on, as every request does that shows a dest). Beside it: the write's own answer, against that of a
topic without routers, the server's CPU for all copies of one record.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from tests.bench import servers
from tests.bench.figures import Row, Spread
from tests.bench.load import ask_json
from tests.bench.rows_http import Plan, payload
from tests.bench.servers import BenchError, Server

FANS = (1, 10, 100)
GOAL_MS = 1.0


def row_name(fan: int) -> str:
    """What the row is called."""
    return f"router fan-out {fan}"


def _turn(server: Server, source: str, dest: str, writes: int) -> tuple[list[float], list[float], float]:
    """Milliseconds of the answers, and from there until the copy was read; server CPU in seconds."""
    acks, seen = [], []
    body = {"records": [{"data": payload(100)}]}
    before = server.cpu_s()
    for _ in range(writes):
        began = time.perf_counter()
        head = ask_json(server, "POST", f"/v0/topics/{source}", body)["head_seq"]
        answered = time.perf_counter()
        page = ask_json(server, "POST", f"/v0/topics/{dest}/diff", {"from_seq": head - 1})
        if not page["records"]:
            raise BenchError(f"the copy of {source} {head} is not in {dest}")
        acks.append((answered - began) * 1000)
        seen.append((time.perf_counter() - answered) * 1000)
    return acks, seen, server.cpu_s() - before


def run_all(fans: Iterable[int], plan: Plan) -> Iterator[Row]:
    """A row for each fan-out."""
    for fan in fans:
        with servers.topicsd(plan.where) as server:
            for number in range(fan):
                ask_json(server, "PUT", f"/v0/routers/r{number}", {"source": "source", "dest": f"d{number}"})
            writes = max(50, 200 * plan.seconds // max(fan // 10, 1))
            ask_json(server, "POST", "/v0/topics/alone", {"records": [{"data": 0}]})
            rounds = [_turn(server, "source", f"d{fan - 1}", writes) for _ in range(plan.rounds)]
            alone = [_turn(server, "alone", "alone", writes) for _ in range(plan.rounds)]
        medians = [sorted(seen)[len(seen) // 2] for _, seen, _ in rounds]
        plain = Spread.of([sorted(seen)[len(seen) // 2] for _, seen, _ in alone])
        figure = Spread.of(medians)
        acked = Spread.of([sorted(acks)[len(acks) // 2] for acks, _, _ in rounds])
        acked_alone = Spread.of([sorted(acks)[len(acks) // 2] for acks, _, _ in alone])
        cpu = Spread.of([(own[2] - other[2]) / writes * 1e6 for own, other in zip(rounds, alone, strict=True)])
        yield Row(
            name=row_name(fan),
            unit="ms from ack to copy",
            figure=figure,
            goal=f"≤ {GOAL_MS:.0f} ms",
            met=figure.median <= GOAL_MS,
            floor=plain,
            note=f"ack {acked.median:.2f} ms, without routers {acked_alone.median:.2f} ms",
            extra={"cpu_us_all_copies": cpu.median, "ack_ms": acked.median, "ack_alone_ms": acked_alone.median},
        )
