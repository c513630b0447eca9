"""A queue that is recovered: its counters, its deliveries and its dead letters come along."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine import Engine
from engine.limits import KIB, EngineSettings
from engine.queue.commands import Ack, Claim, Nack
from engine.types import TopicType
from tests.cli.support import clean_environment, run

pytestmark = pytest.mark.slow


def counters(engine: Engine) -> dict[str, Any]:
    found = engine.core.state("q").queue
    assert found is not None
    return {name: value for name, value in found.items() if name != "oldest_ready_ms"}


def test_recover_keeps_the_counters_and_what_is_known_of_each_job(tmp_path: Path) -> None:
    with Engine(str(tmp_path / "data")) as engine:
        engine.create("q", type=TopicType.QUEUE, lease_ms=3_600_000, dead_letter="dead")
        engine.write("q", list(range(10)), ack_fsync=True)
        queues = engine.core.queues
        engine._wait(queues.claim("q", Claim(node="n", max=4), 0).ticket)
        engine._wait(queues.ack("q", Ack(node="n", seqs=[1, 2])))
        engine._wait(queues.nack("q", Nack(node="n", seqs=[3], dead_letter=True, reason="no")))
        engine._wait(queues.nack("q", Nack(node="n", seqs=[4], reason="later")))
        before = counters(engine)
    assert (before["written"], before["acked"], before["dead_lettered"], before["ready"]) == (10, 2, 1, 7)
    done = run("recover", str(tmp_path / "data"), "--to", str(tmp_path / "new"), environment=clean_environment())
    assert done.returncode == 0, done.stderr
    with Engine(str(tmp_path / "new")) as engine:
        assert counters(engine) == before
        assert engine.core.state("dead").count == 1
        waiter = engine.core.queues.claim("q", Claim(node="n", max=1), 0)
        leased = engine._wait(waiter.ticket).leased
        assert leased is not None
        assert leased.jobs == ((4, 2),), "it had been delivered once"


def test_recover_saves_a_queue_of_which_no_snapshot_says_that_it_is_one(tmp_path: Path) -> None:
    data = tmp_path / "data"
    settings = EngineSettings(wal_file_bytes=64 * KIB, wal_fill_bytes=16 * KIB)
    with Engine(str(data), settings=settings) as engine:
        engine.create("q", type=TopicType.QUEUE, lease_ms=3_600_000, dead_letter="dead")
        engine.create("dead", type=TopicType.QUEUE)
        for _ in range(3):
            engine.write("q", ["x" * 20_000] * 10, ack_fsync=True)
            engine._wait(engine.core.checkpoint())
        queues = engine.core.queues
        engine._wait(queues.claim("q", Claim(node="n", max=4), 0).ticket)
        engine._wait(queues.ack("q", Ack(node="n", seqs=[1, 2])))
        engine._wait(queues.nack("q", Nack(node="n", seqs=[3], dead_letter=True, reason="no")))
    for path in (data / "meta").glob("snapshot-*"):
        content = bytearray(path.read_bytes())
        content[300] ^= 1
        path.write_bytes(content)
    done = run("recover", str(data), "--to", str(tmp_path / "new"), "--keep-doubtful", environment=clean_environment())
    assert done.returncode == 5, done.stderr
    assert b"'salvaged-1' was a queue: its jobs are the records of a log now" in done.stdout
    with Engine(str(tmp_path / "new")) as engine:
        kept = [record["$seq"] for record in engine.read("salvaged-1", from_seq=0) if "$seq" in record]
        assert kept == list(range(4, 31)), "what was acked or moved does not come back"
        assert engine.core.state("salvaged-2").count == 1
