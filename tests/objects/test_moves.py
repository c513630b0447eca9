"""A topic that moves through a bucket: the conditional put of the server decides who has it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.daemon.kit import Answer, clean_environment, daemon_process, post, request
from tests.daemon.test_moves import attach, detach, held, state
from tests.objects.server import ENVIRON, Server
from tests.waiting import until

pytestmark = pytest.mark.slow


def test_a_topic_moves_through_a_bucket_and_of_three_who_want_it_one_gets_it(bucket_server: Server) -> None:
    where = bucket_server.place("moves-test")
    environ = clean_environment(**ENVIRON)
    with (
        daemon_process(environ=environ) as old,
        daemon_process(environ=environ) as one,
        daemon_process(environ=environ) as other,
    ):
        for first in range(0, 1500, 500):
            old.write("t", *range(first, first + 500))
        assert old.ask(post("/v0/topics/t/delete", {"seqs": [3, 1400]})).status == 200
        before = held(old, "t")
        answer = detach(old, "t", where)
        assert (answer.status, answer.json["last_seq"]) == (200, 1500), answer
        asks: list[Callable[[], Answer]] = [
            lambda: attach(one, "t", where),
            lambda: attach(other, "t", where),
            lambda: old.ask(request("DELETE", "/v0/topics/t/detach")),
        ]
        with ThreadPoolExecutor(3) as pool:
            answers = [future.result() for future in [pool.submit(ask) for ask in asks]]
        assert sum(answer.status < 400 for answer in answers) == 1, answers
        owners = [daemon for daemon in (old, one, other) if state(daemon, "t") == "here"]
        assert len(owners) == 1
        assert held(owners[0], "t") == before
        assert owners[0].write("t", "on")["first_seq"] == 1501
        if owners[0] is old:
            assert detach(old, "t", where).status == 200
            assert attach(one, "t", where).status == 201
            assert held(one, "t") == {**before, 1501: "on"}
        until(lambda: state(old, "t") == "taken", "the old daemon never sees where its topic is")
        for daemon in (old, one, other):
            daemon.is_well()
