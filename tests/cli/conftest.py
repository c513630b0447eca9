"""Daemons for the tests of the command line: one that they share, and ones of their own for those that kill."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.support import Daemon, short_directory

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def shared() -> Iterator[Daemon]:
    """A daemon for the whole run; tests use topics of their own."""
    for directory in short_directory():
        daemon = Daemon(directory)
        daemon.start()
        yield daemon
        daemon.stop()


@pytest.fixture
def mortal() -> Iterator[Daemon]:
    """A daemon of this test alone, to be killed and started again."""
    for directory in short_directory():
        daemon = Daemon(directory)
        daemon.start()
        yield daemon
        daemon.stop()


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{next(_NUMBERS)}"


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty directory with a short path."""
    yield from short_directory()
