"""A queue that is recovered: its counters, its deliveries and its dead letters come along."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine import Engine
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
