"""`topics doctor` on daemons that are well, away, ill and shut to us; what each check says of a reading."""

from __future__ import annotations

import json
import os
import re
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Daemon, run
from topics_cli.commands import doctor
from topics_cli.vitals import Reading

pytestmark = pytest.mark.slow


def _verdicts(out: bytes) -> dict[str, dict[str, str]]:
    return {check["name"]: check for check in map(json.loads, out.splitlines())}


def _reading(**values: float) -> Reading:
    return Reading({name: {"series": [{"labels": {}, "value": value}]} for name, value in values.items()}, 0.0)


def test_a_daemon_that_is_well_passes_every_check(shared: Daemon) -> None:
    done = shared.run("doctor", "-o", "ndjson", TOPICS_DATA_DIR=str(shared.directory / "data"))
    checks = _verdicts(done.stdout)
    wrong = [check for check in checks.values() if check["verdict"] == "wrong"]
    assert (done.returncode, wrong) == (0, []), done
    assert checks["daemon"]["verdict"] == checks["store"]["verdict"] == "ok"
    assert f"process {shared.process.pid if shared.process else 0} " in checks["store"]["found"]


def test_without_a_daemon_it_says_so_and_ends_with_69(tmp_path: Path) -> None:
    from tests.cli.support import clean_environment, run

    done = run("doctor", "-o", "ndjson", environment={**clean_environment(), "TOPICS_SOCKET": str(tmp_path / "none")})
    checks = _verdicts(done.stdout)
    assert done.returncode == 69
    assert (checks["daemon"]["verdict"], checks["log"]["verdict"]) == ("wrong", "skipped")
    assert "topics serve" in checks["daemon"]["fix"]


def test_without_a_daemon_the_disk_is_looked_at_and_fsck_is_named(mortal: Daemon) -> None:
    mortal.kill()
    path = str(mortal.directory / "data")
    checks = _verdicts(mortal.run("doctor", "-o", "ndjson", TOPICS_DATA_DIR=path).stdout)
    assert checks["store"]["verdict"] == "warning"
    assert "free" in checks["disk"]["found"]
    assert checks["damage"]["fix"] == f"topics fsck {path}"
    elsewhere = str(mortal.directory / "nowhere")
    checks = _verdicts(mortal.run("doctor", "-o", "ndjson", TOPICS_DATA_DIR=elsewhere).stdout)
    assert elsewhere in checks["store"]["found"]
    assert checks["disk"]["verdict"] == "skipped"


def test_a_key_that_may_not_read_metrics_is_no_clean_bill(mortal: Daemon) -> None:
    mortal.stop()
    other = Daemon(mortal.directory, TOPICS_API_KEYS="writer:write")
    try:
        other.start()
        done = other.run("doctor", "-o", "ndjson", TOPICS_KEY="writer")
        checks = _verdicts(done.stdout)
        assert (done.returncode, checks["metrics"]["verdict"], checks["disk"]["verdict"]) == (77, "wrong", "skipped")
    finally:
        other.stop()


def test_the_bundle_holds_no_payload_and_no_key_and_replaces_nothing(
    shared: Daemon, topic: str, tmp_path: Path
) -> None:
    shared.ok("write", topic, "the-payload", "--tag", "the-tag", "--meta", "k=the-meta")
    path = tmp_path / "report.tar.gz"
    done = shared.run("doctor", "--bundle", str(path), TOPICS_KEY="the-secret-key")
    assert done.returncode == 0, done
    assert path.stat().st_mode & 0o777 == 0o600
    texts = {}
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None
            texts[member.name] = file.read()
    assert set(texts) == {f"topics-doctor/{name}" for name in ("doctor.ndjson", "system.json", "metrics.json")}
    whole = b"".join(texts.values())
    assert topic.encode() in whole
    for secret in (b"the-payload", b"the-tag", b"the-meta", b"the-secret-key"):
        assert secret not in whole
    again = shared.run("doctor", "--bundle", str(path))
    assert again.returncode == 1
    assert b"not taken" in again.stderr


def test_a_bundle_without_a_name_gets_one(shared: Daemon, tmp_path: Path) -> None:
    done = run("doctor", "--bundle", environment=shared.environment(), cwd=tmp_path)
    (path,) = tmp_path.iterdir()
    assert re.fullmatch(r"topics-doctor-\d{8}-\d{6}\.tar\.gz", path.name)
    assert path.name.encode() in done.stderr
    assert shared.run("doctor", "report.tar.gz").returncode == 2, "a file without --bundle is a mistake"


def test_an_open_socket_is_a_warning(mortal: Daemon) -> None:
    os.chmod(mortal.socket, 0o666)
    os.chmod(mortal.directory, 0o755)
    checks = _verdicts(mortal.run("doctor", "-o", "ndjson").stdout)
    assert checks["socket"]["verdict"] == "warning"
    assert "chmod" in checks["socket"]["fix"]


@pytest.mark.parametrize(
    ("look", "values", "verdict"),
    [
        (doctor._code, {}, "skipped"),
        (doctor._log, {"topics_wal_read_only": 1}, "wrong"),
        (doctor._log, {"topics_wal_read_only": 0}, "ok"),
        (doctor._disk, {"topics_disk_free_bytes": 1 << 20}, "wrong"),
        (doctor._disk, {"topics_disk_free_bytes": 1 << 30}, "warning"),
        (doctor._disk, {"topics_disk_free_bytes": 1 << 40}, "ok"),
        (doctor._disk, {"topics_disk_free_bytes": 1 << 40, "topics_disk_free_inodes": 1 << 62}, "ok"),
        (doctor._disk, {"topics_disk_free_bytes": 1 << 40, "topics_disk_free_inodes": 0}, "wrong"),
        (doctor._disk, {"topics_disk_free_bytes": 1 << 40, "topics_wal_full": 1}, "wrong"),
        (doctor._checkpoint, {"topics_checkpoint_failing": 1}, "wrong"),
        (doctor._checkpoint, {"topics_checkpoint_uncovered_bytes": 4 << 30}, "warning"),
        (doctor._damage, {"topics_damage_ranges": 2}, "wrong"),
        (doctor._loop, {"topics_loop_lag_seconds": 3}, "warning"),
        (doctor._files, {"process_open_fds": 95, "process_max_fds": 100}, "warning"),
        (doctor._files, {"process_open_fds": 95, "process_max_fds": 65536}, "ok"),
        (doctor._files, {}, "skipped"),
        (doctor._clock, {"process_start_time_seconds": time.time() - 5000, "topics_uptime_seconds": 10}, "warning"),
    ],
)
def test_a_check_says_what_a_reading_means(look: Any, values: dict[str, float], verdict: str) -> None:
    check = look(_reading(**values))
    assert check.verdict == verdict
    assert bool(check.fix) == (verdict in ("wrong", "warning"))


def test_slow_syncs_are_told_from_the_buckets() -> None:
    def reading(counts: dict[str, int]) -> Reading:
        series = [{"labels": {"le": bound}, "value": count, "part": "bucket"} for bound, count in counts.items()]
        return Reading({"topics_wal_sync_seconds": {"series": series}}, 0.0)

    assert doctor._sync(reading({"0.001": 90, "0.5": 100, "+Inf": 100})).verdict == "ok"
    assert doctor._sync(reading({"0.001": 10, "0.5": 100, "+Inf": 100})).verdict == "warning"
    assert doctor._sync(reading({"0.001": 0, "+Inf": 0})).verdict == "skipped"


def test_it_says_whether_the_daemon_runs_its_compiled_part(mortal: Daemon) -> None:
    mortal.stop()
    pure = Daemon(mortal.directory, TOPICS_PURE="1")
    try:
        pure.start()
        check = _verdicts(pure.run("doctor", "-o", "ndjson").stdout)["code"]
        assert check["verdict"] == "ok", "a choice, and no reason for monitoring to complain"
        assert "TOPICS_PURE" in check["found"]
    finally:
        pure.stop()
    series = [{"labels": {"version": "1", "compiled": "1"}, "value": 1}]
    assert doctor._code(Reading({"topics_build_info": {"series": series}}, 0.0)).found.startswith("compiled")
