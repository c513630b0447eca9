"""SIGKILL of workers and of the driver inside the write of an export on Spark, with a reader that never stops."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine import Engine
from tests.cli.support import ROOT, clean_environment
from tests.extras import extra

extra("pyarrow")
extra("pyspark", "spark")
extra("duckdb", "lake")

from tests.lake.making import export_pin, new_pin, plain  # noqa: E402 # pyarrow may be missing
from topics_lake import export as exporting  # noqa: E402 # pyarrow may be missing
from topics_lake import files  # noqa: E402 # pyarrow may be missing
from topics_lake.export import Task, TaskDone  # noqa: E402 # pyarrow may be missing
from topics_lake.lake import BATCH_FILE, Lake  # noqa: E402 # pyarrow may be missing
from topics_lake.spark import OnSpark  # noqa: E402 # pyarrow may be missing

RUN = 3000


def deadly(task: Task, at: str, once: str | None = None) -> TaskDone:
    """A task whose worker is killed: with half a file written, with a file that was not closed, or when all is done;
    each time, or where that file is not there yet."""
    if task.number != 0 or (once is not None and os.path.exists(once)):
        return exporting.run_task(task)
    if once is not None:
        Path(once).touch()
    if at in ("write", "close"):
        whole = getattr(files.FileWriter, at)

        def cut(self: files.FileWriter, *given: Any) -> None:
            if at == "write":
                whole(self, *given)
            self._file.flush()
            os.kill(os.getpid(), signal.SIGKILL)

        setattr(files.FileWriter, at, cut)
    exporting.run_task(task)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("nobody gets here")


class Deadly(OnSpark):
    """Tasks of which the first one kills the process that it runs in."""

    def __init__(self, spark: Any, at: str, once: str | None = None) -> None:
        super().__init__(spark)
        self._how = at, once

    def run(self, tasks: Sequence[Task]) -> Iterator[TaskDone]:
        how = self._how
        yield from (
            self._spark.sparkContext.parallelize(tasks, len(tasks)).map(lambda task: deadly(task, *how)).collect()
        )


@contextmanager
def watched(lake: Path) -> Iterator[None]:
    """A reader that never stops: it sees whole runs, each seq once, and never fewer than before."""
    stop, wrong, seen = threading.Event(), list[object](), [0, 0]

    def read() -> None:
        while not stop.is_set():
            seqs = [seq for _, seq, _ in plain(lake)]
            if seqs != list(range(1, len(seqs) + 1)) or len(seqs) % RUN or len(seqs) < seen[0]:
                wrong.append((len(seqs), seqs[:3], seqs[-3:]))
            seen[:] = len(seqs), seen[1] + 1
            stop.wait(0.05)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield
    finally:
        stop.set()
        reader.join()
    assert not wrong
    assert seen[1] > 3


def filled(log: Engine) -> None:
    for start in range(0, RUN, 1000):
        log.write("t", list(range(start, start + 1000)))
        log._wait(log.core.checkpoint())


def whole(lake: Path, runs: int) -> None:
    """The lake has so many runs and nothing else, and staging is empty."""
    assert [seq for _, seq, _ in plain(lake)] == list(range(1, runs * RUN + 1))
    names = {path.name.partition("-")[0] for path in lake.rglob("*") if path.is_file()}
    assert names == {"part", BATCH_FILE}
    assert os.listdir(f"{lake}.staging") == ["LOCK"]
    assert [first for _, first in Lake(str(lake)).starts("t")] == list(range(1, runs * RUN + 1, RUN))


def test_workers_that_are_killed_cost_a_run_and_nothing_else(spark: Any, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with Engine(str(tmp_path / "store")) as log, watched(lake):
        for number, at in enumerate(("write", "close", "done")):
            filled(log)
            pin = new_pin(log, tmp_path / "store")
            with pytest.raises(Exception, match=r"Python worker exited unexpectedly|crashed|Job aborted"):
                export_pin(pin, lake, ["t"], runner=Deadly(spark, at), task_bytes=1)
            assert len(plain(lake)) == number * RUN, at
            export_pin(pin, lake, ["t"], runner=OnSpark(spark), task_bytes=1)
            whole(lake, number + 1)


RETRIED = """
import sys
from tests.spark.test_kill_inside import Deadly
from topics_lake.export import Export, Settings
from topics_lake.lake import Lake
from topics_lake.spark import session

pin, lake, once = sys.argv[1:]
spark = session("local[2,3]", **{"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
into = Lake(lake)
with into.turn():
    list(Export(into, pin, Settings(task_bytes=1), Deadly(spark, "done", once)).run(["t"]))
"""


def test_a_worker_that_is_killed_costs_a_task_where_tasks_are_tried_again(tmp_path: Path) -> None:
    """`local[2]` never tries a task again, `local[2,3]` does: what the first attempt wrote is in no batch."""
    lake, once = tmp_path / "lake", tmp_path / "once"
    with Engine(str(tmp_path / "store")) as log:
        filled(log)
        words = [sys.executable, "-c", RETRIED, new_pin(log, tmp_path / "store"), str(lake), str(once)]
        environment = {**clean_environment(), "PYTHONPATH": str(ROOT)}
        done = subprocess.run(words, env=environment, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert once.exists()
    whole(lake, 1)


SCRIPT = """
import os, signal, sys
from topics_lake.export import Export, Settings
from topics_lake.lake import Lake
from topics_lake.spark import OnSpark, session
from topics_lake import spark as on

pin, lake, at = sys.argv[1:]
spark = session("local[2]", **{"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
def kill(name):
    if name == at:
        os.kill(os.getpid(), signal.SIGKILL)
if at == "running":
    # The tasks are at work in their workers when the driver goes.
    import threading, time
    def watch():
        while not any(name.startswith("part") for _, _, names in os.walk(lake + ".staging") for name in names):
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGKILL)
    threading.Thread(target=watch, daemon=True).start()
into = Lake(lake)
with into.turn():
    list(Export(into, pin, Settings(task_bytes=1), OnSpark(spark), kill).run(["t"]))
"""


def driver_killed(root: Path, steps: Sequence[str]) -> None:
    """The driver is killed at each of the steps, and the export is run again at once, while its workers may live."""
    lake = root / "lake"
    environment = {**clean_environment(), "PYTHONPATH": str(ROOT)}
    with Engine(str(root / "store")) as log, watched(lake):
        for number, at in enumerate(steps):
            filled(log)
            pin = new_pin(log, root / "store")
            words = [sys.executable, "-c", SCRIPT, pin, str(lake), at]
            killed = subprocess.run(words, env=environment, capture_output=True, timeout=300)
            assert killed.returncode == -signal.SIGKILL, (at, killed.stderr[-2000:])
            export_pin(pin, lake, ["t"], task_bytes=1)
            whole(lake, number + 1)


def test_a_driver_that_is_killed_while_its_tasks_write_costs_a_run_and_nothing_else(spark: Any, tmp_path: Path) -> None:
    driver_killed(tmp_path, ["running"])
