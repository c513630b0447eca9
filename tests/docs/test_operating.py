"""What docs/how-to/operating.md says beside its console blocks: units, a full disk, a restart, moving, exit codes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.cli.support import PYTHON, Daemon, clean_environment, finish, running, short_directory
from tests.style.sources import ROOT

pytestmark = pytest.mark.slow

PACKAGING: Final = ROOT / "packaging"


@pytest.fixture
def mortal() -> Iterator[Daemon]:
    """A daemon of a test alone, to be stopped and started again."""
    yield from running()


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty directory with a short path."""
    yield from short_directory()


def _run(*words: str, **environ: str) -> str:
    if shutil.which(words[0]) is None:
        pytest.skip(f"there is no {words[0]} on this machine")
    done = subprocess.run(
        words, env={**os.environ, **environ}, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """A root of a file system with the units where the wheel puts them."""
    for kind, source in (("system", PACKAGING), ("user", PACKAGING / "user")):
        place = tmp_path / "usr/lib/systemd" / kind
        place.mkdir(parents=True)
        for unit in (*source.glob("*.service"), *source.glob("*.socket")):
            shutil.copy(unit, place)
    for kind in ("sysusers.d", "tmpfiles.d"):
        shutil.copytree(PACKAGING / kind, tmp_path / "usr/lib" / kind)
    (tmp_path / "etc").mkdir()
    return tmp_path


def test_the_units_can_be_enabled(system: Path) -> None:
    _run("systemctl", f"--root={system}", "enable", "topicsd")
    assert _run("systemctl", f"--root={system}", "is-enabled", "topicsd").strip() == "enabled"
    assert (system / "etc/systemd/system/multi-user.target.wants/topicsd.service").is_symlink()
    _run("systemctl", f"--root={system}", "--global", "enable", "topicsd")
    assert (system / "etc/systemd/user/default.target.wants/topicsd.service").is_symlink()


@pytest.mark.parametrize("kind", ["system", "user"])
def test_systemd_finds_nothing_wrong_with_a_unit(system: Path, kind: str, tmp_path: Path) -> None:
    unit = system / f"usr/lib/systemd/{kind}/topicsd.service"
    text = unit.read_text(encoding="utf-8")
    program = next(line for line in text.splitlines() if line.startswith("ExecStart="))
    checked = tmp_path / "checked" / "topicsd.service"
    checked.parent.mkdir()
    checked.write_text(text.replace(program, "ExecStart=/bin/true"), encoding="utf-8")
    run = tmp_path / "run"
    run.mkdir(mode=0o700)
    said = _run("systemd-analyze", f"--{kind}", "verify", str(checked), XDG_RUNTIME_DIR=str(run))
    assert "topicsd" not in said, said


def test_users_and_directories_are_as_systemd_reads_them(system: Path) -> None:
    assert "topics" in _run("systemd-sysusers", f"--root={system}", "--dry-run", "topics.conf")
    if os.geteuid() != 0:
        pytest.skip("only root may give files away")
    _run("systemd-sysusers", f"--root={system}", "topics.conf")
    assert "\ntopics:" in "\n" + (system / "etc/passwd").read_text(encoding="utf-8")
    _run("systemd-tmpfiles", f"--root={system}", "--create", "topics.conf")
    assert (system / "etc/topics").stat().st_mode & 0o777 == 0o750


def test_room_is_made_on_a_full_disk_in_the_order_of_harm(mortal: Daemon) -> None:
    mortal.ok("write", "t", stdin=b"x\n" * 300)
    assert mortal.ok("ls", "--fields", "topic,bytes,count") == b"t\t900\t300\n"
    assert mortal.ok("delete", "t", "--before", "100", "--dry-run") == b"t\t99 records would be deleted\n"
    assert mortal.ok("delete", "t", "--before", "100", "--yes") == b"t\t99 records deleted\n"
    assert mortal.ok("set", "t", "cap_bytes=10GiB", "--dry-run") == b"t\tcap_bytes would be 10737418240, is 0\n"
    assert mortal.ok("set", "t", "cap_bytes=300") == b"t\tchanged\n"
    assert mortal.ok("set", "t", "ttl_ms=7d") == b"t\tchanged\n"
    assert mortal.ok("ls", "--fields", "topic,bytes,count") == b"t\t300\t100\n"
    assert b"would be dropped" in mortal.ok("drop", "t", "--dry-run")
    assert b"dropped" in mortal.ok("drop", "t", "--yes")
    assert mortal.ok("ls") == b""


def test_a_restart_is_waited_for_by_a_command_that_writes(mortal: Daemon) -> None:
    mortal.ok("write", "t", "before")
    assert mortal.process is not None
    writer = mortal.start_command("write", "t", stdin=subprocess.PIPE)
    assert writer.stdin is not None
    writer.stdin.write(b"one\n")
    writer.stdin.flush()
    while mortal.ok("tail", "t") != b"before\none\n":
        pass
    mortal.process.send_signal(signal.SIGTERM)
    assert mortal.process.wait(20) == 0
    writer.stdin.write(b"two\n")
    writer.stdin.flush()
    mortal.start()
    writer.stdin.close()
    writer.stdin = None
    assert finish(writer)[0] == 0
    assert mortal.ok("tail", "t") == b"before\none\ntwo\n"
    assert b"daemon 0." in mortal.ok("version")


def test_a_store_moves_with_tar(mortal: Daemon, place: Path) -> None:
    mortal.ok("write", "t", "a", "b", "--idempotency-key", "once")
    mortal.ok("cursor", "set", "t", "reader", "1")
    mortal.ok("delete", "t", "--seq", "1", "--yes")
    mortal.stop()
    _run("tar", "-C", str(mortal.directory), "-cf", str(place / "store.tar"), "data")
    _run("tar", "-C", str(place), "-xf", str(place / "store.tar"))
    there = Daemon(place)
    there.start()
    try:
        assert there.ok("tail", "t", "-o", "ndjson", "--fields", "seq,data") == b'{"seq":2,"data":"b"}\n'
        assert b"reader\t1\t1\t" in there.ok("cursor", "ls", "t")
        assert there.ok("write", "t", "a", "b", "--idempotency-key", "once") == b"t 1-2\n"
    finally:
        there.stop()


@pytest.mark.parametrize("code", [73, 76, 77, 78])
def test_a_daemon_that_does_not_start_says_why_and_changes_nothing(mortal: Daemon, code: int) -> None:
    mortal.ok("write", "t", "x")
    data = mortal.directory / "data"
    more: dict[str, str] = {}
    if code != 73:
        mortal.stop()
    if code == 76:
        for file in (data / "wal").rglob("*.log"):
            file.write_bytes(b"\0" * 64 + file.read_bytes()[64:])
        shutil.rmtree(data / "meta")
    if code == 77:
        data.chmod(0o777)
    if code == 78:
        more["TOPICS_SYNC_INTERVAL_MS"] = "soon"
    before = _files(data)
    environ = {**clean_environment(), "TOPICS_DATA_DIR": str(data), "TOPICS_PORT": "none", **more}
    environ["TOPICS_SOCKET"] = str(mortal.directory / "other.sock")
    done = subprocess.run(
        [PYTHON, "-m", "topics_daemon.main"], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == code, done.stderr
    said = {73: "process ", 76: "", 77: "can be written by others", 78: "sync_interval_ms"}[code]
    assert said in done.stderr
    assert done.stderr, "it says why"
    if code == 73:
        assert mortal.ok("tail", "t") == b"x\n", "whoever has the directory goes on"
    else:
        assert _files(data) == before


def _files(directory: Path) -> dict[str, bytes]:
    """Every file of a store that a start may not change, and what is in it."""
    found = sorted(path for path in directory.rglob("*") if path.is_file() and path.name != "LOCK")
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}
