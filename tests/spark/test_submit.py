"""The job under spark-submit: a standalone master, two workers, the packages from topics-spark.zip alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine import Engine
from tests.cli.support import ROOT, clean_environment, die_with_us
from tests.export.pins import pin_path
from tests.extras import extra

pyspark = extra("pyspark", "spark")
extra("pyarrow")

from tests.lake.making import plain  # noqa: E402 # pyarrow may be missing
from topics_lake.archive import write_archive  # noqa: E402 # pyarrow may be missing
from topics_lake.errors import LakeError  # noqa: E402 # pyarrow may be missing
from topics_lake.spark import java_home  # noqa: E402 # pyarrow may be missing

HOME = Path(pyspark.__file__).parent
RECORDS = 60_000
PATIENCE_S = 300


@contextmanager
def process(log: Path, environment: dict[str, str], *words: str) -> Iterator[None]:
    """A process of Spark's that lives as long as the context."""
    with log.open("wb") as out:
        running = subprocess.Popen(
            words,
            env=environment,
            stdout=out,
            stderr=out,
            preexec_fn=die_with_us,  # noqa: PLW1509 # one system call
        )
    try:
        yield
    finally:
        running.terminate()
        try:
            running.wait(30)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait(30)


def said(log: Path, pattern: str) -> str:
    """Wait for a line in a log; its first group."""
    over = time.monotonic() + PATIENCE_S
    while time.monotonic() < over:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found is not None:
            return found[1]
        time.sleep(0.2)
    raise AssertionError(log.read_text(errors="replace"))


def test_two_workers_of_a_standalone_master_export_every_record_once(tmp_path: Path) -> None:
    environment = {
        **clean_environment(),
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_WORKER_DIR": str(tmp_path / "work"),
    }
    try:
        environment["JAVA_HOME"] = java_home() or os.environ.get("JAVA_HOME", "")
    except LakeError as error:
        if os.environ.get("SPARK_REQUIRED"):
            raise
        pytest.skip(f"{error.what}: {error.hint}")
    if not environment["JAVA_HOME"]:
        del environment["JAVA_HOME"]
    with Engine(str(tmp_path / "store")) as log:
        for start in range(0, RECORDS, 10_000):
            log.write("big", list(range(start, start + 10_000)))
            log._wait(log.core.checkpoint())
        pin = pin_path(log, str(tmp_path / "store"))
        write_archive(str(tmp_path / "topics-spark.zip"))
        spark_class = str(HOME / "bin" / "spark-class")
        deploy = "org.apache.spark.deploy"
        ports = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        with process(tmp_path / "master.log", environment, spark_class, f"{deploy}.master.Master", *ports):
            url = said(tmp_path / "master.log", r"Starting Spark master at (spark://\S+)")
            words = (spark_class, f"{deploy}.worker.Worker", *ports, "--cores", "1", "--memory", "700m", url)
            with (
                process(tmp_path / "one.log", environment, *words),
                process(tmp_path / "two.log", environment, *words),
            ):
                for name in ("one.log", "two.log"):
                    said(tmp_path / name, r"(Successfully registered with master)")
                done = subprocess.run(
                    [
                        str(HOME / "bin" / "spark-submit"),
                        *("--master", url, "--executor-memory", "500m", "--driver-memory", "450m"),
                        *("--conf", "spark.ui.enabled=false", "--py-files", str(tmp_path / "topics-spark.zip")),
                        str(ROOT / "packaging/spark/topics_export_job.py"),
                        *("big", "--to", str(tmp_path / "lake"), "--dir", pin, "--task-bytes", "100000"),
                    ],
                    cwd=tmp_path,
                    env={**environment, "PYTHONPATH": ""},
                    capture_output=True,
                    timeout=2 * PATIENCE_S,
                )
    assert done.returncode == 0, done.stderr.decode()
    (topic,) = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]
    assert (topic["rows"], topic["files"] >= 2) == (RECORDS, True)
    assert [seq for _, seq, _ in plain(tmp_path / "lake")] == list(range(1, RECORDS + 1))
    for name in ("one.log", "two.log"):
        assert "Asked to launch executor" in (tmp_path / name).read_text(errors="replace")
