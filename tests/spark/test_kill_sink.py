"""SIGKILL of a driver and of its JVM while a frame or a stream is written into a topic, and the same once more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import ROOT, Daemon, clean_environment, die_with_us
from tests.extras import extra

extra("pyarrow")
extra("pyspark", "spark")

from tests.spark.test_stream import PATIENCE_S, stored, write  # noqa: E402 # pyarrow may be missing
from topics_lake.client import Daemon as Client  # noqa: E402 # pyarrow may be missing
from topics_lake.pages import state_of  # noqa: E402 # pyarrow may be missing

ROWS = 40_000
STREAMED = 24_000
"""Three batches, of which the second is cut short: each costs Spark a second."""
FRAME = f"""
def run(spark, socket, directory):
    frame = spark.range(0, {ROWS}, 1, 2).selectExpr("cast(id as string) as data")
    sink = frame.write.format("topics").mode("append")
    sink.options(socket=socket, topics="frame", query_id="frame", chunk_rows="50").save()
"""
STREAM = """
def run(spark, socket, directory):
    read = spark.readStream.format("topics").options(socket=socket, topics="from.KIND.*", data_type="string")
    sink = read.option("maxRowsPerTrigger", "8000").load().select("data", "tag").writeStream.format("topics")
    sink = sink.options(socket=socket, topics="to.KIND", chunk_rows="50").option("checkpointLocation", directory)
    assert sink.trigger(availableNow=True).start().awaitTermination(240)
"""
_MAIN = """
import sys
from topics_lake.source import TopicsSource
from topics_lake.spark import session

spark = session("local[2]", **{"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
spark.dataSource.register(TopicsSource)
run(spark, *sys.argv[1:])
"""


def head(daemon: Daemon, topic: str) -> int:
    with Client(daemon.socket) as client:
        state = state_of(client, topic)
    return 0 if state is None else state.head_seq


def java_of(driver: int) -> int:
    """The JVM that a driver has started: a child, or a child of the shell that became it."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                parent = int(Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[1])
                if parent == driver and os.readlink(f"/proc/{name}/exe").endswith("java"):
                    return int(name)
            except OSError:
                continue
    raise AssertionError("the driver has no JVM")


def killed(daemon: Daemon, script: str, directory: Path, topic: str, records: int, rows: int, *, jvm: bool) -> None:
    """Run a script, and kill its driver, or its JVM, when the topic has so many records of its rows."""
    driver = subprocess.Popen(
        [sys.executable, "-c", script + _MAIN, daemon.socket, str(directory)],
        env={**clean_environment(), "PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
        preexec_fn=die_with_us,  # noqa: PLW1509 # one system call
    )
    try:
        over = time.monotonic() + PATIENCE_S
        while head(daemon, topic) < records:
            assert driver.poll() is None, "it ended by itself"
            assert time.monotonic() < over, "it did not come to it"
            time.sleep(0.01)
        os.kill(java_of(driver.pid) if jvm else driver.pid, signal.SIGKILL)
        assert driver.wait(PATIENCE_S) != 0
    finally:
        driver.kill()
        driver.wait()
    assert head(daemon, topic) < rows, "it was killed too late"


def again(spark: Any, daemon: Daemon, script: str, directory: Path) -> None:
    """Run a script in the session of these tests, to its end."""
    names: dict[str, Any] = {}
    exec(script, names)
    names["run"](spark, daemon.socket, str(directory))


def test_a_frame_whose_driver_is_killed_is_written_once_and_in_order(
    spark: Any, daemon: Daemon, tmp_path: Path
) -> None:
    killed(daemon, FRAME, tmp_path, "frame", ROWS // 8, ROWS, jvm=False)
    again(spark, daemon, FRAME, tmp_path)
    found = [record["data"] for record in stored(daemon, "frame")]
    assert sorted(found) == list(range(ROWS))
    for first in (0, ROWS // 2):
        part = [number for number in found if first <= number < first + ROWS // 2]
        assert part == sorted(part)


@pytest.mark.parametrize("kind", ["driver", "jvm"])
def test_a_streaming_sink_that_is_killed_writes_each_row_once_and_in_order(
    spark: Any, daemon: Daemon, tmp_path: Path, kind: str
) -> None:
    script = STREAM.replace("KIND", kind)
    write(daemon, f"from.{kind}.a", 0, STREAMED // 2)
    write(daemon, f"from.{kind}.b", STREAMED // 2, STREAMED // 2)
    # In the middle of the second batch.
    killed(daemon, script, tmp_path, f"to.{kind}", 10_000, STREAMED, jvm=kind == "jvm")
    again(spark, daemon, script, tmp_path)
    found = [record["data"] for record in stored(daemon, f"to.{kind}")]
    assert sorted(found) == list(range(STREAMED))
    for first in (0, STREAMED // 2):
        part = [number for number in found if first <= number < first + STREAMED // 2]
        assert part == sorted(part)
