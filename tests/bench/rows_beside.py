"""Rows of what others notice: single writes and live delivery beside 5,000 writes a second, with and without a trouble.

    cold hanging       readers of records that lie in a cold tier whose files never open
    stalled watchers   a thousand watchers that read nothing
    hostile client     the hostile corpus (`tests/hostile`), two hundred connections a second

Each round is measured without the trouble, with the same trouble at another daemon on this machine, and with it here.
Whoever takes a processor from everybody makes everybody's p99 worse, whichever daemon is asked: that is what the second
window shows, and what is ours is the third over the second. (For a cold tier that hangs there is no elsewhere: its
readers wait, and take nothing.) The row is the median of those ratios; the note has all three.

Who comes and goes is accepted, heard, answered and closed by the loop that serves the others, whatever it is told. What
that costs at least is shown beside it: a floor that answers a constant and closes, measured in the same way
(docs/adr/0049).
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.bench import rows_sse, servers
from tests.bench.figures import Row, Spread, by_chance
from tests.bench.load import ask_json
from tests.bench.rows_bulk import load, settle
from tests.bench.rows_history import Client, p99, post
from tests.bench.rows_http import Plan, payload
from tests.bench.servers import BenchError, Server
from tests.bench.steady import TOPIC, WRITES_PER_S, steady_writes
from tests.hanging import launcher

LONE_TOPIC = "beside"
WATCHERS = 10
COLD_READERS = 8
STALLED = 1000
STALL_S = 5.0
"""After this all buffers on the way to a watcher that reads nothing are full."""
STALL_RECORDS = 10_000
"""Written at once where nobody else writes, so that all buffers are full."""
GOAL = 1.1
SECONDS_MIN = 3.0

Trouble = Callable[[Server], AbstractContextManager[None]]
Seen = tuple[float, float]
"""The two p99s of a window."""


def others(server: Server, seconds: float, streams: Sequence[str] = ()) -> Seen:
    """The p99s that single writes and live delivery to ten watchers have now, in µs. A floor has no sessions, only
    `streams`."""
    latencies: list[float] = []
    done = threading.Event()

    def write() -> None:
        client = Client(server.port)
        request = post(f"/v0/topics/{LONE_TOPIC}", {"records": [{"data": payload(100)}]})
        while not done.is_set():
            latencies.append(client.ask(request))
            time.sleep(0.002)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        urls = list(streams) or rows_sse.sessions(server, WATCHERS)
        seen = rows_sse.round_of(server, urls, seconds, 0.0)
    finally:
        done.set()
        thread.join()
    return p99(latencies), seen["p99_us"]


@contextmanager
def cold_readers(server: Server) -> Iterator[None]:
    """Readers of records that lie in the cold tier; each asks again when it is told that the tier does not answer."""
    done = threading.Event()
    statuses: list[bytes] = []
    request = post("/v0/topics/bulk-0/diff", {"from_seq": 0, "limit": 10})

    def read() -> None:
        with socket.create_connection(("127.0.0.1", server.port), timeout=0.5) as sock:
            sock.sendall(request)
            while not done.is_set():
                try:
                    answer = sock.recv(1 << 16)
                except TimeoutError:
                    continue
                statuses.append(answer[9:12])
                sock.sendall(request)

    threads = [threading.Thread(target=read) for _ in range(COLD_READERS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()
    if set(statuses) - {b"503"}:
        raise BenchError(f"reads of a cold tier that hangs were answered {set(statuses)}")


@contextmanager
def stalled_watchers(server: Server) -> Iterator[None]:
    """A thousand watchers of what the steady writer writes, which read the head of their answer and nothing more."""
    socks: list[socket.socket] = []
    try:
        for _ in range(STALLED):
            url = ask_json(server, "POST", "/v0/watch", {"topics": {TOPIC: {"tail": True}}})["stream_url"]
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.settimeout(30)
            sock.connect(("127.0.0.1", server.port))
            sock.sendall(f"GET {url} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            sock.recv(16)
            socks.append(sock)
        time.sleep(STALL_S)
        yield
    finally:
        for sock in socks:
            sock.close()


@contextmanager
def stalled_elsewhere(server: Server) -> Iterator[None]:
    """The same at a daemon that nobody writes to any more once they have stalled: then they take no processor there."""
    with stalled_watchers(server):
        body = {"records": [{"data": payload(100)}] * STALL_RECORDS}
        ask_json(server, "POST", f"/v0/topics/{TOPIC}?return_seqs=false", body)
        time.sleep(1.0)
        yield


def hostile_client(server: Server) -> AbstractContextManager[None]:
    """A client that sends the hostile corpus, round and round."""
    return servers.beside("tests.hostile", server, "ATTACKING")


def run_hostile(plan: Plan) -> Iterator[Row]:
    """A client that means harm."""
    crowd = (rows_sse.TOPIC, TOPIC, LONE_TOPIC)
    with (
        servers.topicsd(plan.where) as server,
        servers.topicsd(plan.where) as other,
        servers.floor(180, crowd=crowd) as floor,
        servers.floor(180, crowd=crowd) as other_floor,
    ):
        ask_json(server, "PUT", f"/v0/topics/{TOPIC}", {})
        beneath = Pair(floor, partial(hostile_client, other_floor))
        yield from _rounds(
            "hostile client beside", server, hostile_client, plan, partial(hostile_client, other), beneath
        )


def run_cold_hanging(records: int, plan: Plan) -> Iterator[Row]:
    """A cold tier whose files never open."""
    with servers.scratch(plan.where) as directory:
        cold, sign = directory / "cold", directory / "hangs"
        cold.mkdir()
        options = ("--cold-dir", str(cold), "--hot-retain-segments", "1", "--cache-bytes", "4MiB")
        server = servers.spawn_topicsd(directory, options=options, launcher=launcher(sign, "topics_daemon.main"))
        try:
            load(server, records)
            _wait_for_moves(server, cold)
            sign.write_text(str(cold))
            yield from _rounds("cold store hanging, 8 readers in it", server, cold_readers, plan)
        finally:
            server.kill()


def _wait_for_moves(server: Server, cold: Path) -> None:
    """Until data was moved and what was moved is gone from here."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        settle(server)
        moved = list(cold.rglob("*.data"))
        assert server.directory is not None
        if moved and not any((server.directory / path.relative_to(cold)).exists() for path in moved):
            return
    raise BenchError("nothing was moved to the cold tier within two minutes")


def run_stalled(plan: Plan) -> Iterator[Row]:
    """A thousand watchers that read nothing."""
    with servers.topicsd(plan.where) as server, servers.topicsd(plan.where) as other:
        for one in (server, other):
            ask_json(one, "PUT", f"/v0/topics/{TOPIC}", {})
        elsewhere = partial(stalled_elsewhere, other)
        yield from _rounds(f"{STALLED:,} stalled watchers", server, stalled_watchers, plan, elsewhere)


class Pair(NamedTuple):
    """A floor, and the same trouble at another one."""

    floor: Server
    control: Callable[[], AbstractContextManager[None]]


def _rounds(
    name: str,
    server: Server,
    trouble: Trouble,
    plan: Plan,
    control: Callable[[], AbstractContextManager[None]] | None = None,
    beneath: Pair | None = None,
) -> Iterator[Row]:
    """The rows of one trouble; `control` is the same trouble elsewhere."""
    ask_json(server, "PUT", f"/v0/topics/{rows_sse.TOPIC}", {"durability": "disk"})
    quiet: list[Seen] = []
    elsewhere: list[Seen] = []
    troubled: list[Seen] = []
    floors: list[Seen] = []
    seconds = max(SECONDS_MIN, float(plan.seconds))
    with steady_writes(server):
        others(server, 2.0)  # warms up
    for _ in range(plan.rounds):
        with steady_writes(server):
            quiet.append(others(server, seconds))
            if control is not None:
                with control():
                    elsewhere.append(others(server, seconds))
            with trouble(server):
                troubled.append(others(server, seconds))
        if beneath is not None:
            floors.append(_beneath(beneath, trouble, seconds))
    against, than = (elsewhere, "the same elsewhere") if control is not None else (quiet, "without")
    for at, what in enumerate(("write", "live delivery")):
        pairs = [one[at] / two[at] for one, two in zip(troubled, against, strict=True)]
        ratios = Spread.of(pairs)
        floor = Spread.of([ratio[at] for ratio in floors]) if floors else None
        shown = [f"here {_p99s(troubled, at)}"]
        if control is not None:
            shown.append(f"elsewhere {_p99s(elsewhere, at)}")
        note = f"p99 in µs: {'; '.join([*shown, f'without {_p99s(quiet, at)}'])}; all beside {WRITES_PER_S:,} writes/s"
        note += f"; so far apart by chance: {by_chance(pairs):.2f}"
        overall = Spread.of([one[at] / two[at] for one, two in zip(troubled, quiet, strict=True)])
        if control is not None:
            note += f"; here / without {overall.show()}"
        row = f"{name}: {what} p99 / {than}"
        yield Row(row, "ratio", ratios, f"≤ {GOAL}", ratios.median <= GOAL, floor=floor, note=note)


def _beneath(pair: Pair, trouble: Trouble, seconds: float) -> Seen:
    """The ratios of a floor: its p99s with the trouble over those with the same elsewhere."""
    streams = [f"/{number}" for number in range(WATCHERS)]
    with steady_writes(pair.floor):
        with pair.control():
            elsewhere = others(pair.floor, seconds, streams)
        with trouble(pair.floor):
            here = others(pair.floor, seconds, streams)
    return here[0] / elsewhere[0], here[1] / elsewhere[1]


def _p99s(windows: list[Seen], at: int) -> str:
    """Median and range of one p99 over the windows."""
    return Spread.of([one[at] for one in windows]).show(0)
