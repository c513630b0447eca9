"""A daemon with a cold directory: what backs it up, checks it and saves it reads that too, and names what it lacks."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import Engine
from tests.cli.support import PYTHON, Daemon
from tests.daemon.kit import post
from tests.hanging import launcher

pytestmark = pytest.mark.slow

RECORDS = 400


@pytest.fixture
def cold(place: Path) -> Iterator[Daemon]:
    """A daemon whose older segments lie in the cold directory alone."""
    daemon = Daemon(
        place,
        TOPICS_COLD_DIR=str(place / "cold"),
        TOPICS_HOT_RETAIN_SEGMENTS="1",
        TOPICS_SEGMENT_MAX_EVENTS="100",
    )
    daemon.start()
    try:
        for first in range(0, RECORDS, 100):
            daemon.run("write", "orders", *(f"order {number}" for number in range(first, first + 100)))
            _checkpoint(daemon)
        end = time.monotonic() + 60
        while len(list(place.glob("data/topics/*/*.data"))) > 1:
            assert time.monotonic() < end, "nothing moves"
            daemon.run("write", "other", "x")
            _checkpoint(daemon)
        yield daemon
    finally:
        daemon.stop()


def _checkpoint(daemon: Daemon) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as door:
        door.connect(daemon.socket)
        door.sendall(post("/v0/admin/checkpoint", {}))
        assert b" 200 " in door.recv(4096)


def _orders(path: Path) -> list[object]:
    with Engine(str(path)) as log:
        return [record for record in log.read("orders") if "$seq" in record]


def _file(place: Path) -> Path:
    return min(place.glob("cold/topics/*/*.data"))


def test_a_backup_holds_what_is_cold_and_comes_back_without_the_tier(cold: Daemon, place: Path) -> None:
    made = cold.run("backup", "--to", str(place / "backup"))
    assert made.returncode == 0, made
    assert cold.run("fsck", str(place / "data")).returncode == 0
    cold.stop()
    os.rename(place / "cold", place / "gone")
    restored = cold.run("restore", str(place / "backup"), "--to", str(place / "new"))
    assert restored.returncode == 0, restored
    assert len(_orders(place / "new")) == RECORDS


def test_a_missing_and_a_lying_file_are_named_and_a_tier_that_is_away_is_not_taken_for_lost(
    cold: Daemon, place: Path
) -> None:
    cold.stop()
    data, tier = str(place / "data"), ("--cold", str(place / "cold"))
    checked = cold.run("fsck", data, *tier)
    assert (checked.returncode, b"skipped" in checked.stderr) == (0, False), checked
    file = _file(place)
    content = file.read_bytes()
    file.write_bytes(content.replace(b'order 3"', b'order 8"', 1))
    found = cold.run("fsck", data, *tier)
    assert found.returncode == 4
    assert b"segment-data" in found.stdout
    assert file.name.encode() in found.stdout
    file.unlink()
    found = cold.run("fsck", data, *tier)
    assert found.returncode == 4
    assert b"cold" in found.stdout
    assert file.name.encode() in found.stdout
    saved = cold.run("recover", data, "--to", str(place / "saved"), *tier)
    assert saved.returncode == 5, saved
    assert len(_orders(place / "saved")) == RECORDS - 100
    away = cold.run("recover", data, "--to", str(place / "away"), "--cold", str(place / "nowhere"))
    assert away.returncode == 1, away
    assert file.name.encode() in away.stderr
    assert not list((place / "away").glob("*"))
    given_up = cold.run("recover", data, "--to", str(place / "given-up"), "--cold-lost")
    assert given_up.returncode == 5, given_up
    assert len(_orders(place / "given-up")) == 100


def test_F68_a_tier_that_hangs_ends_a_check_with_a_finding(cold: Daemon, place: Path) -> None:
    cold.stop()
    sign = place / "hangs"
    sign.write_text(str(place / "cold"))
    command = [PYTHON, str(launcher(sign, "topics_cli")), "fsck", str(place / "data"), "--cold", str(place / "cold")]
    environment = cold.environment(TOPICS_COLD_DEADLINE_MS="300")
    found = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False)
    assert found.returncode == 4
    assert b"does not answer within 0.3 s" in found.stdout
