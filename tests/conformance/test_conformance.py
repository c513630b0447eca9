"""The suite under pytest, at all eight doors: TCP and the Unix socket, HTTP/1.1 and HTTP/2, without keys and with.

Every case is a test of its own at the first door that has what it needs, and is run again at all the others, where the
cases of a door are one test: it is the same code behind them, and what fails is named all the same.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.kit import Api, Case, Keys
from tests.conformance.local import DOORS, Doors, all_doors, doors_of, running
from tests.conformance.run import ONLY_HTTP1, run_all, run_case
from tests.conformance.sections import all_cases
from tests.conformance.sse import watch
from tests.conformance.wire import Connection


@pytest.fixture(scope="session")
def doors() -> Iterator[Doors]:
    """The daemons' doors by name."""
    with all_doors() as opened:
        yield opened


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{case.section}-{case.name}") for case in all_cases()])
def test_the_sentence_holds(doors: Doors, case: Case) -> None:
    """A case at the first door that it can be run at."""
    outcome = run_case(case, *doors[doors_of(case)[0]])
    assert outcome.skipped is None
    assert outcome.failure is None, f"§{case.section} says: {case.sentence}\nseen: {outcome.failure}"


@pytest.mark.slow
@pytest.mark.parametrize("door", DOORS[1:])
def test_all_sentences_hold_at_every_door(doors: Doors, door: str) -> None:
    """Whatever a door can say; what only HTTP/1.1 can say is asked there."""
    target, keys = doors[door]
    cases = [case for case in all_cases() if door in doors_of(case) and door != doors_of(case)[0]]
    outcomes = list(run_all(cases, target, keys))
    failed = [f"§{one.case.section} {one.case.name}: {one.failure}" for one in outcomes if one.failure]
    assert not failed, "\n".join(failed)
    unsaid = [one for one in outcomes if one.skipped]
    assert {(one.skipped, one.case.section) for one in unsaid} <= {(ONLY_HTTP1, "1 http")}
    assert (len(unsaid) > 0) == target.http2
    assert len(outcomes) - len(unsaid) >= 700


def test_every_case_is_run_somewhere() -> None:
    """No case needs something that no daemon has, and there are as many as there should be."""
    assert all(doors_of(case) for case in all_cases())
    assert len(all_cases()) >= 800
    assert len(DOORS) == 8


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
