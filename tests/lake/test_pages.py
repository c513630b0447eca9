"""Records of a running daemon as Arrow batches: the same bytes, also where msgspec would not read them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.support import HARD, Daemon, running
from tests.extras import extra

extra("pyarrow")

from topics_lake import pages  # noqa: E402 # pyarrow may be missing
from topics_lake.client import Daemon as Client  # noqa: E402 # pyarrow may be missing
from topics_lake.errors import LakeError  # noqa: E402 # pyarrow may be missing
from topics_lake.pinned import pin_of  # noqa: E402 # pyarrow may be missing

pytestmark = pytest.mark.slow


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    yield from running()


def test_every_byte_comes_through_pages_and_losses_are_heard(daemon: Daemon) -> None:
    with Client(daemon.socket) as client:
        records = b",".join(b'{"data":%b,"tag":"t","meta":{"k":1.10}}' % data for data in HARD)
        client.fetch("POST", "/v0/topics/hard", b'{"records":[%b]}' % records)
        state = pages.state_of(client, "hard")
        assert state is not None
        lost: list[tuple[int, int, str]] = []

        def read(first: int, last: int, epoch: int = state.epoch) -> list[bytes]:
            batches = pages.pages(client, "hard", epoch, first, last, lambda *what: lost.append(what))
            return [row["data"] for batch in batches for row in batch.to_pylist()]

        assert read(1, state.head_seq) == HARD
        assert read(3, 5) == HARD[2:5]
        assert read(1, 3, state.epoch + 1) == []
        daemon.run("set", "hard", f"cap_records={len(HARD) - 4}")
        assert read(1, state.head_seq) == HARD[4:]
        daemon.run("drop", "hard", "--yes")
        assert read(2, 9) == []
        assert lost == [(1, 3, "recreated"), (1, 4, "cap"), (2, 9, "dropped")]
        assert pages.state_of(client, "hard") is None
        for name in ("p.a", "p.b", "q"):
            daemon.run("write", name, "1")
        assert pages.names_of(client, "p.") == ["p.a", "p.b"]


def test_what_a_pin_gave_is_no_failure_because_the_daemon_is_gone_at_its_end(daemon: Daemon) -> None:
    daemon.run("write", "t", "1")
    with pin_of(Client(daemon.socket, retry_s=0.1), ["t"]) as (_, names):
        daemon.stop()
    assert names == ["t"]
    with pytest.raises(LakeError, match="nobody answers"), pin_of(Client(daemon.socket, retry_s=0.1), ["t"]):
        raise AssertionError


def test_nobody_there_is_said_after_the_patience_is_over(daemon: Daemon) -> None:
    daemon.stop()
    with pytest.raises(LakeError, match="nobody answers") as error:
        Client(daemon.socket, retry_s=0.1).call("GET", "/v0/topics/t")
    assert error.value.code == "no_daemon"
