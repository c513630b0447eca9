"""Daemons for the tests of the command line: one that they share, and ones of their own for those that kill."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.support import STARTED, Daemon, running, short_directory

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def shared() -> Iterator[Daemon]:
    """A daemon for the whole run; tests use topics of their own."""
    yield from running()


@pytest.fixture
def mortal() -> Iterator[Daemon]:
    """A daemon of this test alone, to be killed and started again."""
    yield from running()


@pytest.fixture
def queues(shared: Daemon) -> Daemon:
    """The shared daemon, for tests of queues."""
    return shared


@pytest.fixture
def mortal_queues(mortal: Daemon) -> Daemon:
    """A daemon of this test alone, for tests of queues that kill it."""
    return mortal


@pytest.fixture(autouse=True)
def no_orphans() -> Iterator[None]:
    """Kill what a test that failed has left running."""
    yield
    while STARTED:
        process = STARTED.pop()
        if process.poll() is None:
            process.kill()
            process.wait(10)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{next(_NUMBERS)}"


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty directory with a short path."""
    yield from short_directory()
