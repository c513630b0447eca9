"""The real daemon on real disks: a file system that is really full, errors injected into its process, kills.

What the machine does not allow (mounting, a C compiler) is skipped, and says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.sim.sigkill import Daemon, cycles, read_all
from tests.sim.sigkill import ask as once
from tests.waiting import until

pytestmark = pytest.mark.slow

SHIM = Path(__file__).with_name("failing.c")


def write(daemon: Daemon, topic: str, count: int = 1, size: int = 20, **more: Any) -> tuple[int, Any]:
    """One write over a new connection."""
    body = {"records": [{"data": "x" * size} for _ in range(count)], **more}
    return once(daemon.socket_path, "POST", f"/v0/topics/{topic}", body)


def ask(daemon: Daemon, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """One other request."""
    return once(daemon.socket_path, method, path, body)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB of its own."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m,mode=0700", "tmpfs", str(place)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"this machine does not allow mounting a small file system: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.fixture
def failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The control file of errors that will be preloaded into daemons started from here."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler to build the library that injects errors")
    library = tmp_path / "failing.so"
    built = subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SHIM), "-ldl"], capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    control = tmp_path / "control"
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("FAILING_CONTROL", str(control))
    return control


@pytest.fixture
def daemons() -> Iterator[list[Daemon]]:
    """Daemons to be ended after the test, whatever it finds."""
    started: list[Daemon] = []
    yield started
    for daemon in started:
        if daemon.process.poll() is None:
            daemon.kill()


def start(daemons: list[Daemon], data: Path, socket_path: Path, *options: str) -> Daemon:
    """A daemon that answers."""
    daemon = Daemon(str(data), str(socket_path), options)
    daemons.append(daemon)
    daemon.wait_ready()
    return daemon


def test_F20_F21_a_full_file_system_gets_507_deletes_work_and_writing_resumes(
    small_disk: Path, tmp_path: Path, daemons: list[Daemon]
) -> None:
    daemon = start(daemons, small_disk / "data", tmp_path / "s")
    assert write(daemon, "t", 3)[0] == 201
    statuses: list[int] = []
    for _ in range(400):
        statuses.append(write(daemon, "t", 20, 8000)[0])
        if statuses[-1] == 507:
            break
    assert statuses[-1] == 507, f"never full: {statuses[-5:]}"
    assert set(statuses) == {200, 507}
    (small_disk / "ballast").write_bytes(bytes(max(shutil.disk_usage(small_disk).free - 4096, 0)))
    status, answer = ask(daemon, "POST", "/v0/topics/t/delete", {"before_seq": 3})
    assert (status, answer["deleted"]) == (200, 2)
    assert ask(daemon, "GET", "/v0/topics/t")[1]["earliest_seq"] == 3
    assert ask(daemon, "POST", "/v0/topics/t/diff", {"limit": 1})[0] == 200
    (small_disk / "ballast").unlink()
    subprocess.run(["mount", "-o", "remount,size=80m", str(small_disk)], check=True)
    until(lambda: write(daemon, "t", 20, 8000)[0] == 200)
    head = ask(daemon, "GET", "/v0/topics/t")[1]["head_seq"]
    daemon.kill()
    daemon = start(daemons, small_disk / "data", tmp_path / "s")
    state = ask(daemon, "GET", "/v0/topics/t")[1]
    assert (state["head_seq"], state["earliest_seq"]) == (head, 3)


def test_F22_without_inodes_every_answer_says_so_and_writing_resumes(
    small_disk: Path, tmp_path: Path, daemons: list[Daemon]
) -> None:
    subprocess.run(["mount", "-o", "remount,size=300m,nr_inodes=40", str(small_disk)], check=True)
    daemon = start(daemons, small_disk / "data", tmp_path / "s")
    assert write(daemon, "t", 3)[0] == 201
    made = 0
    with suppress(OSError):
        while True:
            (small_disk / f"ballast-{made}").touch()
            made += 1
    status, answer = ask(daemon, "POST", "/v0/admin/checkpoint")
    assert status == 503
    assert "no inodes left" in answer["error"]["message"]
    statuses: list[int] = []
    while not statuses or (statuses[-1] == 200 and len(statuses) < 400):
        status, answer = write(daemon, "t", 100, 8000)
        statuses.append(status)
    assert statuses[-1] == 507, f"never full: {statuses[-5:]}"
    assert "no inodes left" in answer["error"]["message"]
    read = ask(daemon, "GET", "/v0/topics/t")[1]["count"]
    assert ask(daemon, "POST", "/v0/topics/t/delete", {"before_seq": 3})[1]["deleted"] == 2
    daemon.kill()
    second = Daemon(str(small_disk / "data"), str(tmp_path / "s2"))
    daemons.append(second)
    assert second.process.wait(20) == 74, "recovery needs a file"
    for number in range(made):
        (small_disk / f"ballast-{number}").unlink()
    daemon = start(daemons, small_disk / "data", tmp_path / "s3")
    assert ask(daemon, "GET", "/v0/topics/t")[1]["count"] == read - 2
    assert ask(daemon, "POST", "/v0/admin/checkpoint")[0] == 200
    until(lambda: write(daemon, "t", 20, 8000)[0] == 200)


def test_F10_a_failed_sync_in_the_daemon_makes_it_read_only_with_reads_served(
    failing: Path, tmp_path: Path, daemons: list[Daemon]
) -> None:
    daemon = start(daemons, tmp_path / "data", tmp_path / "s")
    assert ask(daemon, "PUT", "/v0/topics/f", {"durability": "fsync"})[0] == 201
    assert write(daemon, "f", 2)[0] == 200
    failing.write_text("sync")
    status, answer = write(daemon, "f")
    assert (status, answer["error"]["code"]) == (503, "read_only")
    assert answer["error"]["detail"]["outcome"] == "unknown"
    failing.unlink()
    assert write(daemon, "f")[0] == 503, "the next sync would lie: nothing is retried"
    assert len(read_all(daemon.socket_path, "f")[0]) == 2
    assert ask(daemon, "GET", "/v0/ready")[0] == 503
    daemon.kill()
    daemon = start(daemons, tmp_path / "data", tmp_path / "s")
    assert len(read_all(daemon.socket_path, "f")[0]) in (2, 3)
    assert write(daemon, "f")[0] == 200


def test_history_that_the_disk_refuses_for_a_while_is_a_503_and_costs_nothing(
    failing: Path, tmp_path: Path, daemons: list[Daemon]
) -> None:
    daemon = start(daemons, tmp_path / "data", tmp_path / "s")
    for _ in range(5):
        assert write(daemon, "t", 100)[0] in (200, 201)
    assert ask(daemon, "POST", "/v0/admin/checkpoint")[0] == 200
    daemon.kill()
    daemon = start(daemons, tmp_path / "data", tmp_path / "s")
    failing.write_text("read")
    for _ in range(5):
        status, answer = ask(daemon, "POST", "/v0/topics/t/diff", {"limit": 1000})
        assert (status, answer["error"]["code"]) == (503, "not_ready")
        assert ".data" in answer["error"]["message"]
    assert write(daemon, "t", 3)[0] == 200, "nothing else waits for it"
    failing.unlink()
    records, stones = read_all(daemon.socket_path, "t")
    assert (len(records), stones) == (503, [])
    assert "damage" not in ask(daemon, "GET", "/v0/topics/t")[1]
    until(lambda: "the disk refuses" in daemon.log.read_text())
    assert daemon.log.read_text().count("lost when that lasts") == 1


def test_F09_a_failed_write_in_the_daemon_makes_it_read_only(
    failing: Path, tmp_path: Path, daemons: list[Daemon]
) -> None:
    daemon = start(daemons, tmp_path / "data", tmp_path / "s")
    assert write(daemon, "d", 2)[0] == 201
    failing.write_text("write")
    status, answer = write(daemon, "d")
    assert (status, answer["error"]["code"]) == (503, "read_only")
    assert len(read_all(daemon.socket_path, "d")[0]) == 2
    failing.unlink()
    daemon.kill()
    daemon = start(daemons, tmp_path / "data", tmp_path / "s")
    assert len(read_all(daemon.socket_path, "d")[0]) == 2
    assert write(daemon, "d")[0] == 200


def test_F12_a_hanging_sync_holds_up_nobody_who_does_not_wait_for_it(
    failing: Path, tmp_path: Path, daemons: list[Daemon]
) -> None:
    daemon = start(daemons, tmp_path / "data", tmp_path / "s")
    assert write(daemon, "d", 2)[0] == 201
    failing.write_text("hang")
    began = time.monotonic()
    for _ in range(20):
        assert write(daemon, "d")[0] == 200
    assert len(read_all(daemon.socket_path, "d")[0]) == 22
    assert time.monotonic() - began < 5
    failing.unlink()
    until(lambda: write(daemon, "d", ack="fsync")[0] == 200)


def test_F57_a_second_daemon_on_the_directory_or_the_socket_gives_up(tmp_path: Path, daemons: list[Daemon]) -> None:
    daemon = start(daemons, tmp_path / "data", tmp_path / "s")
    assert write(daemon, "t")[0] == 201
    same_data = Daemon(str(tmp_path / "data"), str(tmp_path / "s2"))
    daemons.append(same_data)
    assert same_data.process.wait(20) == 73
    same_socket = Daemon(str(tmp_path / "other"), str(tmp_path / "s"))
    daemons.append(same_socket)
    assert same_socket.process.wait(20) != 0
    assert write(daemon, "t")[0] == 200, "the first one has not noticed"


def test_F60_killed_daemons_lose_nothing_that_was_acked(tmp_path: Path) -> None:
    report = cycles(tmp_path, 6, seed=int(os.environ.get("TOPICS_TEST_SEED", "4")))
    assert report.cycles == 6
    assert not report.wrong, report.wrong
    assert report.acked > 50


def test_F02_F10_unknown_writes_are_settled_by_their_key(failing: Path, tmp_path: Path, daemons: list[Daemon]) -> None:
    daemon = start(daemons, tmp_path / "data", tmp_path / "s")
    assert ask(daemon, "PUT", "/v0/topics/f", {"durability": "fsync"})[0] == 201
    failing.write_text("sync")
    status, answer = write(daemon, "f", 2, idempotency_key="k")
    assert (status, answer["error"]["detail"]["outcome"]) == (503, "unknown")
    failing.unlink()
    daemon.kill()
    daemon = start(daemons, tmp_path / "data", tmp_path / "s")
    status, answer = write(daemon, "f", 2, idempotency_key="k")
    assert status == 200
    assert len(read_all(daemon.socket_path, "f")[0]) == 2, "once, whether it had been kept or not"
