"""The scripts of `sample/recipes/`, as users run them, with the daemon killed and started again in the middle."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.support import ROOT, Daemon, started, topics_program
from tests.waiting import until

pytestmark = pytest.mark.slow

RECIPES = ROOT / "sample/recipes"


@pytest.fixture
def shell(mortal: Daemon, tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Start a recipe, in an environment in which `topics` is a command."""
    program = topics_program(tmp_path / "bin")
    environment = mortal.environment(PATH=f"{program.parent}:{os.environ['PATH']}", TMPDIR=str(tmp_path))

    def start(name: str, *words: str, **more: str) -> subprocess.Popen[str]:
        return started(["bash", str(RECIPES / name), *words], {**environment, **more}, tmp_path)

    return start


Shell = Callable[..., subprocess.Popen[str]]


def _ended(process: subprocess.Popen[str], code: int = 0) -> str:
    out, said = process.communicate(timeout=90)
    assert process.returncode == code, (out, said)
    return out


def _interrupted(process: subprocess.Popen[str], daemon: Daemon, after_s: float = 0.4) -> None:
    """Let it end, with the daemon killed and started again on the way."""
    time.sleep(after_s)
    daemon.kill()
    time.sleep(0.5)
    daemon.start()
    _ended(process)


def test_every_recipe_is_strict_and_tested() -> None:
    tests = Path(__file__).read_text(encoding="utf-8")
    for path in sorted(RECIPES.iterdir()):
        text = path.read_text(encoding="utf-8")
        assert "set -euo pipefail" in text, path
        assert os.access(path, os.X_OK), path
        assert f'"{path.name}"' in tests, f"{path.name} is not tested"


def test_a_producer_of_cron_writes_once_a_minute_however_often_it_runs(mortal: Daemon, shell: Shell) -> None:
    mortal.kill()
    waiting = shell("produce.sh", "use", "2026-01-31T08:00")
    time.sleep(0.5)
    mortal.start()
    _ended(waiting)
    _ended(shell("produce.sh", "use", "2026-01-31T08:00"))
    mortal.kill()
    mortal.start()
    _ended(shell("produce.sh", "use", "2026-01-31T08:00"))
    _ended(shell("produce.sh", "use", "2026-01-31T08:01"))
    lines = mortal.ok("tail", "use", "--from", "0").decode().splitlines()
    assert [line[:25] for line in lines] == ['{"at":"2026-01-31T08:00",', '{"at":"2026-01-31T08:01",']


def test_a_log_is_followed_over_a_restart_and_a_rotation(mortal: Daemon, shell: Shell, tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_text("".join(f"line {n}\n" for n in range(200)))
    process = shell("follow-log.sh", str(log), "app")
    try:
        until(lambda: mortal.run("tail", "app", "--from", "0").stdout.count(b"\n") == 200)
        mortal.kill()
        with log.open("a") as file:
            file.writelines(f"line {n}\n" for n in range(200, 400))
        mortal.start()
        until(lambda: mortal.run("tail", "app", "--from", "0").stdout.count(b"\n") == 400)
        log.rename(tmp_path / "app.log.1")
        log.write_text("line 400\n")
        until(lambda: mortal.run("tail", "app", "--from", "0").stdout.count(b"\n") == 401)
    finally:
        os.killpg(process.pid, 15)
        process.communicate(timeout=30)
    lines = mortal.ok("tail", "app", "--from", "0").decode().splitlines()
    assert lines == [f"line {n}" for n in range(401)]


def test_workers_do_every_job_though_the_daemon_dies_under_them(mortal: Daemon, shell: Shell, tmp_path: Path) -> None:
    mortal.ok("create", "jobs-dead", "--type", "queue")
    mortal.ok(
        "create", "jobs", "--type", "queue", "--max-deliveries", "5", "--dead-letter", "jobs-dead", "--lease", "3s"
    )
    mortal.ok("write", "jobs", stdin=b"".join(b"job %d\n" % n for n in range(40)))
    script = tmp_path / "handle"
    script.write_text(
        f'#!/bin/sh\nread -r job; sleep 0.05; echo "$job" >>{tmp_path}/done; [ "$job" != "job 7" ] || exit 65\n'
    )
    script.chmod(0o755)
    _interrupted(shell("work.sh", "jobs", str(script)), mortal)
    done = (tmp_path / "done").read_text().splitlines()
    assert set(done) == {f"job {n}" for n in range(40)}
    state = mortal.ok("info", "jobs", "--fields", "count").decode().strip()
    assert state == "0"
    assert mortal.ok("tail", "jobs-dead", "--from", "0") == b"job 7\n"


def test_the_nights_exports_together_are_the_topic(mortal: Daemon, shell: Shell, tmp_path: Path) -> None:
    place = tmp_path / "exports"
    kept = b""
    for night in range(3):
        mortal.ok("write", "orders", "--json", stdin=b"".join(b'{"n": %d.10}\n' % n for n in range(3000)))
        _interrupted(shell("export-night.sh", "orders", str(place)), mortal, 0.2)
        if night == 1:
            # As if this run had died between its two renames: the next one does it again, into the same file.
            (place / ".orders.place").write_bytes(kept)
        kept = (place / ".orders.place").read_bytes()
    _ended(shell("export-night.sh", "orders", str(place)))
    files = sorted(place.glob("*.ndjson"))
    assert b"".join(path.read_bytes() for path in files) == mortal.ok("tail", "orders", "--from", "0", "-o", "raw")
    assert len(files) == 2
    assert not list(place.glob("*.part"))


def test_the_alarm_is_raised_by_what_doctor_says_of_the_disk(mortal: Daemon, shell: Shell, tmp_path: Path) -> None:
    _ended(shell("disk-alarm.sh", "alarms"))
    assert mortal.run("info", "alarms").returncode == 1
    doctor = tmp_path / "bin/topics"
    real = doctor.read_text().splitlines()[1]
    row = '{"name":"disk","verdict":"wrong","found":"3 MiB free","fix":"free space"}'
    doctor.write_text(
        f'#!/bin/sh\nif [ "$1" = doctor ]; then\n  if [ "$2" = -o ]; then echo \'{row}\'; else\n'
        f"    printf 'disk\\twrong\\t3 MiB free\\tfree space\\n'; fi\n  exit 1\nfi\n{real}\n"
    )
    mortal.kill()
    process = shell("disk-alarm.sh", "alarms")
    time.sleep(0.5)
    mortal.start()
    _ended(process, code=1)
    assert mortal.ok("tail", "alarms") == b"the disk of topics: 3 MiB free\n"


def test_dead_letters_are_shown_and_those_of_one_tag_go_back(mortal: Daemon, shell: Shell) -> None:
    mortal.ok("create", "q-dead", "--type", "queue")
    mortal.ok("create", "q", "--type", "queue", "--dead-letter", "q-dead")
    for tag in ("mended", "other"):
        mortal.ok("write", "q", "--tag", tag, tag)
    seqs = mortal.ok("claim", "q", "-n", "2")
    mortal.run("nack", "q", "--dead", "--reason", "no such file", "-", stdin=seqs)
    mortal.kill()
    process = shell("review-dead-letters.sh", "q", "mended")
    time.sleep(0.5)
    mortal.start()
    out = _ended(process)
    assert out.count("no such file") == 2
    assert mortal.ok("tail", "q-dead", "--from", "0") == b"other\n"
    assert mortal.ok("claim", "q", "--fields", "data") == b'{"data":"mended"}\n'


def test_a_replay_copies_whole_records_and_goes_on_where_it_was(mortal: Daemon, shell: Shell) -> None:
    mortal.ok("write", "a", "--tag", "t", "--meta", "k=v", "--json", stdin=b'{"x": 1.10}\n"two"\n')
    mortal.ok("write", "a", stdin=b"".join(b"%d\n" % n for n in range(2500)))
    _interrupted(shell("replay.sh", "a", "b"), mortal, 0.7)
    _ended(shell("replay.sh", "a", "b"))
    mortal.ok("write", "a", "last")
    _ended(shell("replay.sh", "a", "b"))

    def values(topic: str) -> list[bytes]:
        return mortal.ok("tail", topic, "--from", "0", "-o", "raw").splitlines()

    copied = values("b")
    assert list(dict.fromkeys(copied)) == values("a"), "nothing is missing, and the order is kept"
    assert len(copied) <= len(values("a")) + 1000
    assert mortal.ok("tail", "b", "--from", "0", "--max", "1", "--fields", "tag,meta") == b't\t{"k":"v"}\n'


def test_a_backup_is_one_that_restores(mortal: Daemon, shell: Shell, tmp_path: Path) -> None:
    mortal.ok("write", "t", stdin=b"".join(b"%d\n" % n for n in range(5000)))
    place = tmp_path / "backups"
    mortal.kill()
    process = shell("backup.sh", str(place), "2026-01-01")
    time.sleep(0.5)
    mortal.start()
    _ended(process)
    for day in range(2, 8):
        shutil.copytree(place / "2026-01-01", place / f"2026-01-0{day}")
    for day in (8, 9):
        _ended(shell("backup.sh", str(place), f"2026-01-0{day}"))
    assert sorted(path.name for path in place.iterdir()) == [f"2026-01-0{day}" for day in range(3, 10)]
    mortal.ok("restore", str(place / "2026-01-09"), "--to", str(tmp_path / "new"))
    other = Daemon(
        mortal.directory, TOPICS_DATA_DIR=str(tmp_path / "new"), TOPICS_SOCKET=str(mortal.directory / "o.sock")
    )
    other.socket = str(mortal.directory / "o.sock")
    try:
        other.start()
        assert other.ok("tail", "t", "--from", "0") == mortal.ok("tail", "t", "--from", "0")
    finally:
        other.stop()


def test_the_check_of_a_monitoring_system(mortal: Daemon, shell: Shell) -> None:
    assert _ended(shell("check.sh")).startswith("OK - ")
    os.chmod(mortal.socket, 0o666)
    os.chmod(mortal.directory, 0o755)
    assert _ended(shell("check.sh"), code=1).startswith("WARNING - socket: ")
    mortal.kill()
    assert _ended(shell("check.sh"), code=2) == "CRITICAL - no daemon\n"
    mortal.start()


def test_a_directory_of_files_goes_in_byte_for_byte_and_once(mortal: Daemon, shell: Shell, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    contents = {f"file {n:02}": bytes([n]) * n + b"\n\0\xff\r\n" for n in range(15)} | {"empty": b"", "-dash": b"x"}
    for name, data in contents.items():
        (spool / name).write_bytes(data)
    _interrupted(shell("import-directory.sh", str(spool), "files"), mortal, 1.0)
    # As if it had died after a write and before the move.
    (spool / "done/file 03").rename(spool / "file 03")
    _ended(shell("import-directory.sh", str(spool), "files"))
    tags = mortal.ok("tail", "files", "--from", "0", "--fields", "tag").decode().splitlines()
    assert sorted(tags) == sorted(contents)
    for place, tag in enumerate(tags, 1):
        words = ("tail", "files", "--from", str(place - 1), "--max", "1", "--length")
        size, _, data = mortal.ok(*words).partition(b"\n")
        assert (int(size), data) == (len(contents[tag]), contents[tag]), tag
    assert sorted(path.name for path in (spool / "done").iterdir()) == sorted(contents)
