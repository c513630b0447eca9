"""What exports cost: CPU a record of the decoder, of exports, and of plain copies of the same rows, in one run.

    python -m tests.bench.lake       RECORDS=1000000 SIZE=200; SPARK=1 adds the rows that start Spark, ROWS=… picks

Each row is a process of its own, and its CPU is that of all its processes; machines are noisy, so the ratios count. The
goals are in spark.md: the decoder alone at 5 million records a second of a core, an export on Spark at most the CPU of
Spark's own copy from Parquet to Parquet, and at most 1.6 times that of one plain pyarrow process.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

RECORDS = int(os.environ.get("RECORDS", "1000000"))
SIZE = int(os.environ.get("SIZE", "200"))
PIN = "00000000000000be"


def make(root: str) -> None:
    """The store, its pin, and the same rows as one Parquet file."""
    import pyarrow.parquet as pq

    from engine import Engine
    from engine.export.columns import SCHEMA
    from engine.export.decode import gathered
    from tests.export.pins import pin_path
    from topics_lake.pinned import open_pin

    step = min(10_000, max(1, 32_000_000 // SIZE))
    with Engine(f"{root}/store") as log:
        log.create("rows", durability="memory")
        for start in range(0, RECORDS, step):
            rows = [f"{number:012d}" + "x" * (SIZE - 14) for number in range(start, min(start + step, RECORDS))]
            log.write("rows", rows)
        path = pin_path(log, f"{root}/store", PIN)
        os.rename(path, f"{root}/pin")
    pin = open_pin(f"{root}/pin")
    os.makedirs(f"{root}/plain")
    with pq.ParquetWriter(f"{root}/plain/rows.parquet", SCHEMA, compression="zstd") as writer:
        for batch in gathered(pin.topic("rows").batches(1, 2**62)):
            writer.write_batch(batch)


def decoder(root: str) -> None:
    """The decoder alone."""
    from topics_lake.pinned import open_pin

    pin = open_pin(f"{root}/pin")
    rows = sum(batch.num_rows for batch in pin.topic("rows").batches(1, 2**62))
    assert rows == RECORDS


def export(root: str) -> None:
    """`topics export`, in this process."""
    _export(root, "here", None)


def _export(root: str, name: str, runner: object) -> None:
    from topics_lake.export import Export, Settings
    from topics_lake.lake import Lake

    lake = Lake(f"{root}/{name}")
    with lake.turn():
        settings = Settings(task_bytes=RECORDS * SIZE // 8)
        (done,) = Export(lake, f"{root}/pin", settings, runner).run(["rows"])  # type: ignore[arg-type]  # or None
    assert done.rows == RECORDS


def pyarrow_copy(root: str) -> None:
    """One plain pyarrow process: Parquet to Parquet."""
    import pyarrow.parquet as pq

    source = pq.ParquetFile(f"{root}/plain/rows.parquet")
    with pq.ParquetWriter(f"{root}/copy.parquet", source.schema_arrow, compression="zstd") as writer:
        for batch in source.iter_batches(65_536):
            writer.write_batch(batch)


def spark_export(root: str) -> None:
    """`topics spark-export`."""
    from topics_lake.spark import OnSpark, session

    spark = session("local[2]")
    _export(root, "spark", OnSpark(spark))
    spark.stop()


def spark_read(root: str) -> None:
    """`format("topics")` to Parquet, through the JVM."""
    from topics_lake.source import TopicsSource
    from topics_lake.spark import session

    spark = session("local[2]")
    spark.dataSource.register(TopicsSource)
    frame = spark.read.format("topics").options(path=f"{root}/pin", topics="rows").load()
    frame.write.parquet(f"{root}/spark-read", compression="zstd")
    spark.stop()


def spark_copy(root: str) -> None:
    """Spark's own copy: Parquet to Parquet."""
    from topics_lake.spark import session

    spark = session("local[2]")
    spark.read.parquet(f"{root}/plain").write.parquet(f"{root}/spark-copy", compression="zstd")
    spark.stop()


def spark_start(root: str) -> None:
    """A session that does nothing, which the three above contain."""
    from topics_lake.spark import session

    session("local[2]").stop()


ROWS: tuple[Callable[[str], None], ...] = (decoder, export, pyarrow_copy)
SPARK_ROWS: tuple[Callable[[str], None], ...] = (spark_start, spark_copy, spark_read, spark_export)


def main() -> None:
    """Run every row; one line each."""
    chosen = (*ROWS, *(SPARK_ROWS if os.environ.get("SPARK") else ()))
    names = os.environ.get("ROWS", "").split()
    print(f"{RECORDS} records of {SIZE} bytes")
    print(
        f"{'row':14} {'cpu s':>8} {'us/record':>10} {'records/cpu s':>14} {'MiB':>6} {'worker MiB':>11} {'JVM MiB':>8}"
    )
    with tempfile.TemporaryDirectory(prefix="topics-bench-") as root:
        _run(make, root)
        for row in chosen:
            if not names or row.__name__ in names:
                cpu, *peaks = _run(row, root)
                rate = f"{cpu / RECORDS * 1e6:10.3f} {RECORDS / cpu:14,.0f}"
                print(
                    f"{row.__name__:14} {cpu:8.2f} {rate} {peaks[0]:6.0f} {peaks[1]:11.0f} {peaks[2]:8.0f}", flush=True
                )


def _run(row: Callable[[str], None], root: str) -> list[float]:
    """CPU seconds of all processes of a row, less those of starting Python with its packages; most memory of the row's
    own process, of a worker of Spark, and of the JVM."""
    script = f"from tests.bench import lake; lake.measured(lake.{row.__name__}, {root!r})"
    done = subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[2], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return [float(word) for word in done.stdout.split()[-4:]]


def measured(row: Callable[[str], None], root: str) -> None:
    """Run one row in this process, and print what it took."""
    for module in ("engine.export.reader", "topics_lake.export", "pyarrow.compute", "pyarrow.parquet"):
        importlib.import_module(module)
    before = time.process_time()
    below = Below()
    if row in SPARK_ROWS:
        below.start()
    row(root)
    below.look()
    mine = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(time.process_time() - before + below.cpu, mine, below.peak("python"), below.peak("java"))


class Below(threading.Thread):
    """The processes that this one has started, and those that they have: looked at while they live, for nobody waits
    for workers of Spark."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._seen: dict[int, tuple[str, float, float]] = {}

    def run(self) -> None:
        """Look, again and again."""
        while True:
            self.look()
            time.sleep(0.2)

    def look(self) -> None:
        """Take down the CPU seconds and the most memory (MiB) of each."""
        ticks = os.sysconf("SC_CLK_TCK")
        for pid in _below(os.getpid()):
            with contextlib.suppress(OSError, ValueError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                status = Path(f"/proc/{pid}/status").read_text()
                name = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
                peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
                self._seen[pid] = (name, (int(fields[11]) + int(fields[12])) / ticks, peak)

    @property
    def cpu(self) -> float:
        return sum(cpu for _, cpu, _ in self._seen.values())

    def peak(self, kind: str) -> float:
        """Most memory of a process of some program."""
        return max((peak for name, _, peak in self._seen.values() if name.startswith(kind)), default=0)


def _below(pid: int) -> Iterator[int]:
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in path.read_text().split():
                yield int(child)
                yield from _below(int(child))


if __name__ == "__main__":
    main()
