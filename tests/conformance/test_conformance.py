"""The suite under pytest: real daemons in fresh directories, every case over TCP, over the Unix socket, and in HTTP/2.

Cases about scopes need keys, a few need a server without; what a case lacks at one door it finds at another, and the
last test makes sure that none was left out at all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.kit import Api, Case, Keys
from tests.conformance.local import Doors, all_doors, doors_of, running
from tests.conformance.run import run_case
from tests.conformance.sections import all_cases
from tests.conformance.sse import watch
from tests.conformance.wire import Connection

RUNS = [(door, case) for case in all_cases() for door in doors_of(case)]
# All but the first door are left out of `make quick`: it is the same code behind them.
PARAMETERS = [
    pytest.param(
        door,
        case,
        id=f"{case.section}-{case.name}-{door}",
        marks=[pytest.mark.slow] if not door.startswith("tcp") else [],
    )
    for door, case in RUNS
]


@pytest.fixture(scope="session")
def doors() -> Iterator[Doors]:
    """The daemons' doors by name."""
    with all_doors() as opened:
        yield opened


@pytest.mark.parametrize(("door", "case"), PARAMETERS)
def test_the_sentence_holds(doors: Doors, door: str, case: Case) -> None:
    """A case at a door."""
    outcome = run_case(case, *doors[door])
    if outcome.skipped is not None and door.startswith("http2"):
        assert case.section == "1 http"
        pytest.skip(outcome.skipped)
    assert outcome.skipped is None
    assert outcome.failure is None, f"§{case.section} says: {case.sentence}\nseen: {outcome.failure}"


def test_every_case_is_run_somewhere() -> None:
    """No case needs something that no daemon has, and there are as many as there should be."""
    assert {case.name for case in all_cases()} == {case.name for _, case in RUNS}
    assert len(all_cases()) >= 250


def test_a_stop_is_the_last_event() -> None:
    """§7: `error:"server_shutting_down"` is the last event at a stop."""
    with running(None) as daemon:
        api = Api(daemon.tcp, Keys())
        topic = api.topic()
        api.write(topic, 1)
        stream = watch(api, {topic: {}})
        stream.seek("caught-up")
        api.leave()
        daemon.ask_to_stop()
        with stream:
            event = stream.next_named("error")
            assert event.data["error"] == "server_shutting_down"
            assert stream.maybe_next() is None


def test_a_long_poll_is_answered_at_a_stop() -> None:
    """operations.md: a stop finishes what is in flight within the drain time; the poll is not just cut off."""
    with running(None) as daemon, Connection(daemon.tcp) as connection:
        api = Api(daemon.tcp, Keys())
        topic = api.topic()
        api.put(topic)
        connection.send(api.bytes_of("POST", f"/v0/topics/{topic}/diff", {"wait_ms": 20_000}))
        api.state(topic)
        api.leave()
        daemon.ask_to_stop()
        assert connection.read_response(8.0).status in (200, 503)
