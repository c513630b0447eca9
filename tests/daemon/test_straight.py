"""The same bytes into many sockets: who took all, who took a part, who is gone; compiled and not, the same."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator

import pytest

from engine import scan
from topics_daemon import straight
from topics_daemon.straight import AT_ONCE_MAX, GONE, write_all, write_each

WriteAll = Callable[[list[int], bytes], list[tuple[int, int]]]


@pytest.fixture(params=["compiled", "python"])
def write(request: pytest.FixtureRequest) -> Iterator[WriteAll]:
    if request.param == "python":
        yield write_each
        return
    if not straight.is_built() or not scan.is_built():
        pytest.skip("not compiled: there was no C compiler when topics was installed")
    before = scan.is_compiled()
    scan.choose(compiled=True)
    yield write_all
    scan.choose(compiled=before)


@pytest.fixture
def pairs() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    """Ours, which do not wait, and theirs."""
    with contextlib.ExitStack() as stack:
        made = [socket.socketpair() for _ in range(AT_ONCE_MAX)]
        for ours, theirs in made:
            stack.enter_context(ours)
            stack.enter_context(theirs)
            ours.setblocking(False)
        yield made


def descriptors(pairs: list[tuple[socket.socket, socket.socket]]) -> list[int]:
    return [ours.fileno() for ours, _ in pairs]


def test_all_are_given_the_same(write: WriteAll, pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    assert write(descriptors(pairs), b"one") == []
    assert write(descriptors(pairs), b"two") == []
    assert [theirs.recv(16) for _, theirs in pairs] == [b"onetwo"] * AT_ONCE_MAX


def test_it_is_said_who_did_not_take_all(write: WriteAll, pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    gone, full, part = 3, 7, AT_ONCE_MAX - 1
    pairs[gone][1].close()
    with contextlib.suppress(BlockingIOError):
        while True:
            pairs[full][0].send(bytes(65536))
    # Of a write that is larger than what there is room for, a part is taken.
    data = bytes(range(256)) * 16384
    short = write([descriptors(pairs)[index] for index in (0, gone, full, part)], data)
    assert [index for index, _ in short] == [0, 1, 2, 3]
    taken = [count for _, count in short]
    assert taken[1:3] == [GONE, 0]
    for index, count in ((0, taken[0]), (part, taken[3])):
        assert 0 < count < len(data)
        assert pairs[index][1].recv(len(data), socket.MSG_WAITALL | socket.MSG_PEEK)[:4096] == data[:4096]


def test_who_did_not_is_one_of_many(write: WriteAll, pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    pairs[3][1].close()
    assert write(descriptors(pairs), b"one") == [(3, GONE)]
    assert [theirs.recv(16) for _, theirs in (*pairs[:3], *pairs[4:])] == [b"one"] * (AT_ONCE_MAX - 1)


def test_nobody_is_written_to_where_one_is_no_descriptor() -> None:
    if not straight.is_built() or not scan.is_compiled():
        pytest.skip("not compiled: there was no C compiler when topics was installed")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        for sockets in ([ours.fileno(), -1], [ours.fileno(), 1 << 40], [ours.fileno()] * 257):
            with pytest.raises((ValueError, OverflowError)):
                write_all(sockets, b"one")
        with pytest.raises(BlockingIOError):
            theirs.recv(16)
