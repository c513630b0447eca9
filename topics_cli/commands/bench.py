"""`topics bench`: load on a daemon, from here, and how it takes it.

Topics of its own, under a prefix, are made before and dropped after, whatever ends it but SIGKILL. The load comes from
processes that are forked off (`load`), so that several cores can make it; their reports are gathered here.
"""

from __future__ import annotations

import json
import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from topics_cli import exits
from topics_cli.client import NDJSON, Client, topic_path
from topics_cli.exits import Failure, Stopped, usage
from topics_cli.forked import Crew
from topics_cli.load import MODES, QUEUE, READ, TAIL, TAIL_RATE, WRITE, Load, Process, payload
from topics_cli.loaded import Endpoint, Seen, brief, show
from topics_cli.output import API_FORMS
from topics_cli.session import Session, check_name
from topics_cli.signals import POLLIN, Stop

if TYPE_CHECKING:
    from collections.abc import Iterator

RUN: Final = "run"
"""The mode that runs a scenario (`bench_run`)."""
SECONDS: Final = 5.0
SECONDS_MAX: Final = 24 * 3600.0
CONNECTIONS: Final = 4
CONNECTIONS_MAX: Final = 1000
PROCESSES_MAX: Final = 64
BATCH: Final = {WRITE: 100, READ: 100, TAIL: 1, QUEUE: 10}
BATCH_MAX: Final = 1000
SIZE: Final = 200
SIZE_MAX: Final = 1 << 20
BATCH_BYTES_MAX: Final = 8 << 20
FILL_BYTES: Final = 16 << 20
"""What readers find in a topic, at most …"""
FILL_RECORDS: Final = 10_000
"""… and how many records."""
BUSY: Final = 0.9
"""A process that used so much of a core may have been the limit itself."""
TICK_S: Final = 0.1
GRACE_S: Final = 2.0
"""How long processes may take to end after their time."""


def bench(session: Session, values: dict[str, Any]) -> int:
    """Put load on the daemon, mode after mode; shows what was seen, also when it was stopped in the middle."""
    if values["mode"] == RUN:
        from topics_cli.commands.bench_run import bench_run

        return bench_run(session, values)
    if values["file"]:
        raise usage("a FILE is a scenario, which is run by itself", f"topics bench run {values['file']}")
    modes = [values["mode"]] if values["mode"] else list(MODES)
    shape = _Shape(values)
    runs: list[Seen] = []
    endpoint = Endpoint(values["prometheus"], runs) if values["prometheus"] is not None else None
    stopped: Stopped | None = None
    try:
        for mode in modes:
            _run(session, shape, mode, runs, endpoint)
    except Stopped as caught:
        stopped = caught
    finally:
        if endpoint is not None:
            endpoint.server_close()
        session.talk.clear()
    if session.out.form in API_FORMS:
        for seen in runs:
            session.out.line(json.dumps(shape.as_object(seen), separators=(",", ":")))
    else:
        show(session, runs)
    for seen in runs:
        if seen.cpu_s > BUSY * seen.seconds * shape.processes:
            session.talk.note(
                f"topics: {seen.mode}: what made the load was busy itself; more --processes may show more of the daemon"
            )
    session.out.flush()
    return stopped.exit_code if stopped is not None else exits.DONE


class _Shape:
    """What the options say, within bounds."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.seconds = _bounded("--duration", values["duration"], SECONDS * 1000, 100, SECONDS_MAX * 1000) / 1000
        self.connections = int(_bounded("--connections", values["connections"], CONNECTIONS, 1, CONNECTIONS_MAX))
        self.processes = int(_bounded("--processes", values["processes"], 1, 1, PROCESSES_MAX))
        self.size = int(_bounded("--size", values["size"], SIZE, 1, SIZE_MAX))
        self.batch = int(_bounded("--batch", values["batch"], 0, 1, BATCH_MAX)) if values["batch"] is not None else None
        self.records: int | None = values["records"]
        self.rate: float | None = values["rate"]
        self.durability: str | None = values["durability"]
        self.prefix = check_name((values["prefix"] or "bench") + "-" + os.urandom(4).hex())

    def batch_of(self, mode: str) -> int:
        """Records of a request."""
        batch = self.batch or BATCH[mode]
        if batch * self.size > BATCH_BYTES_MAX:
            raise usage(f"{batch} records of {self.size} bytes are more than {BATCH_BYTES_MAX} bytes a request")
        return batch

    def loads(self, mode: str, topics: list[str]) -> Iterator[Load]:
        """What each process does."""
        batch, parts = self.batch_of(mode), self.processes
        rate = self.rate / batch / parts if self.rate else TAIL_RATE if mode == TAIL else None
        for place, topic in enumerate(topics):
            connections = max(1, self.connections // parts + (place < self.connections % parts))
            records = None if self.records is None else max(1, -(-self.records // parts))
            yield Load(mode, topic, connections, batch, self.size, self.seconds, records, rate)

    def as_object(self, seen: Seen) -> dict[str, Any]:
        """A mode and how it was run, for programs."""
        return {
            **seen.as_object(),
            "connections": self.connections,
            "processes": self.processes,
            "batch": self.batch_of(seen.mode),
            "size": self.size,
            "rate": self.rate,
            "durability": self.durability or "disk",
        }


def _bounded(name: str, given: float | None, default: float, low: float, high: float) -> float:
    value = default if given is None else given
    if not low <= value <= high:
        raise usage(f"{name} is {low:g} to {high:g}{' ms' if name == '--duration' else ''}")
    return value


def _run(session: Session, shape: _Shape, mode: str, runs: list[Seen], endpoint: Endpoint | None) -> None:
    """One mode, on topics that are there for it only."""
    topics = [f"{shape.prefix}-{mode}-{place}" for place in range(1, shape.processes + 1)]
    batch = shape.batch_of(mode)
    made: list[str] = []
    try:
        for topic in topics:
            config: dict[str, Any] = {"type": "queue"} if mode == QUEUE else {}
            if shape.durability:
                config["durability"] = shape.durability
            request = session.client.request("PUT", topic_path(topic), json.dumps(config).encode())
            made.append(topic)
            session.client.call(request)
            if mode == READ:
                _fill(session.client, topic, shape.size, batch)
        seen = Seen(mode)
        runs.append(seen)
        _gather(session, list(shape.loads(mode, topics)), seen, endpoint)
    finally:
        _drop(session, made)


def _fill(client: Client, topic: str, size: int, batch: int) -> None:
    left = max(batch, min(FILL_RECORDS, FILL_BYTES // size))
    each = max(1, min(1000, BATCH_BYTES_MAX // size))
    while left > 0:
        body = (payload(size) + b"\n") * min(each, left)
        path = topic_path(topic) + "?return_seqs=false"
        client.call(client.request("POST", path, body, content_type=NDJSON))
        left -= each


def _drop(session: Session, topics: list[str]) -> None:
    """Drop what was made, through signals; what cannot be is named."""
    if not session.client.was_answered:
        return
    left = []
    for topic in topics:
        try:
            session.client.call(session.client.request("DELETE", topic_path(topic)), through_signals=True)
        except (Failure, Stopped) as failure:
            if getattr(failure, "code", "") != "topic_not_found":
                left.append(topic)
    if left:
        session.talk.say(f"topics: still there: {' '.join(left)}; topics drop removes them")


def _work(session: Session, load: Load, stop: Stop, far: int) -> None:
    Process(session.client.twin(stop), load, far).run()


def _gather(session: Session, loads: list[Load], seen: Seen, endpoint: Endpoint | None) -> None:
    """Fork the processes, and add up what they report until they end."""
    begun = time.monotonic()
    crew = Crew(session)
    try:
        for load in loads:
            crew.start(seen.mode, partial(_work, session, load))
        while crew.is_at_work and time.monotonic() <= begun + loads[0].seconds + GRACE_S:
            session.stop.check()
            watch = crew.watch + ([(endpoint.fileno(), POLLIN)] if endpoint is not None else [])
            ready = session.stop.wait(watch, TICK_S)
            now = time.monotonic()
            if endpoint is not None and endpoint.fileno() in ready:
                endpoint.handle_request()
            for _, report in crew.take(ready):
                seen.take(report, int((now - begun) * 10))
            seen.seconds = min(now - begun, loads[0].seconds)
            if session.talk.is_live:
                session.talk.progress(brief(seen, now - begun))
    finally:
        crew.kill()
        seen.cpu_s += crew.cpu_s
    if crew.failure is not None:
        raise crew.failure
