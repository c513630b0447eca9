"""The large versions of what the tests of Spark show, too long for `make test`: `python -m tests.spark.shows [NAME…]`.

stream    RECORDS (100,000) are written while a query runs, is stopped, killed twice and restarted: each comes once
cluster   RECORDS (1,000,000) through spark-submit on a standalone master with two workers
executor  the same, and an executor is killed while it writes
archives  RECORDS (100,000) likewise, with executors whose Python has no library, and an archive that has them
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from engine import Engine
from tests.cli.support import ROOT, Daemon, clean_environment, running
from tests.export.pins import pin_path
from tests.spark.cluster import Cluster, bare_python, cluster, packed_environment
from tests.spark.test_stream import write

PATIENCE_S = 600
_QUERY = """
import os, sys
from topics_lake.spark import session
from topics_lake.source import TopicsSource

socket, directory, now = sys.argv[1:]
spark = session("local[2]", **{"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
spark.dataSource.register(TopicsSource)

def keep(frame, number):
    frame.write.mode("overwrite").parquet(f"{directory}/out/b{number}")

read = spark.readStream.format("topics").options(socket=socket, topics="flow", maxRowsPerTrigger="5000")
write = read.load().writeStream.foreachBatch(keep).option("checkpointLocation", f"{directory}/state")
query = (write.trigger(availableNow=True) if now == "now" else write).start()
while not query.awaitTermination(0.2):
    if os.path.exists(f"{directory}/stop"):
        query.stop()
"""


def stream(root: Path) -> None:
    """A query in a process of its own, that ends in all ways while records come."""
    import duckdb

    count = int(os.environ.get("RECORDS", "100000"))
    ways = ("stop", "kill", "kill")
    part = count // (len(ways) + 1)
    for daemon in running():
        for number, way in enumerate(ways):
            _leg(daemon, root, way, number * part, part)
        write(daemon, "flow", len(ways) * part, count - len(ways) * part)
        done = subprocess.run(_words(daemon, root, "now"), env=_environment(), capture_output=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr.decode()[-3000:]
    files = [str(path.parent / "*.parquet") for path in _batches(root)]
    rows = duckdb.sql(f"select data::varchar::int from read_parquet({files})").fetchall()
    assert sorted(row[0] for row in rows) == list(range(count))
    print(f"stream: {count} records in {len(files)} batches, each once, over a stop and two kills")


def _leg(daemon: Daemon, root: Path, way: str, first: int, count: int) -> None:
    """Records come before a query runs, while it does, and when it has ended."""
    steps = [first + count * quarter // 4 for quarter in range(5)]
    before = len(_batches(root))
    write(daemon, "flow", steps[0], steps[1] - steps[0])
    query = subprocess.Popen(_words(daemon, root, "on"), env=_environment(), stderr=subprocess.DEVNULL)
    over = time.monotonic() + PATIENCE_S
    while len(_batches(root)) == before:
        assert query.poll() is None, "the query ended by itself"
        assert time.monotonic() < over, "it did not come to it"
        time.sleep(0.05)
    for start in range(steps[1], steps[3], 500):
        write(daemon, "flow", start, min(500, steps[3] - start))
        time.sleep(0.05)
    assert query.poll() is None, "the query ended by itself"
    if way == "kill":
        query.send_signal(signal.SIGKILL)
        query.wait()
    else:
        (root / "stop").touch()
        assert query.wait(PATIENCE_S) == 0
        (root / "stop").unlink()
    print(f"stream: {way} after {len(_batches(root)) - before} batches", flush=True)
    write(daemon, "flow", steps[3], steps[4] - steps[3])


def _batches(root: Path) -> list[Path]:
    return list((root / "out").glob("b*/_SUCCESS"))


def _words(daemon: Daemon, root: Path, now: str) -> list[str]:
    return [sys.executable, "-c", _QUERY, daemon.socket, str(root), now]


def _environment() -> dict[str, str]:
    return {**clean_environment(), "PYTHONPATH": str(ROOT)}


def clustered(root: Path) -> None:
    """Two workers of a standalone master, the packages from topics-spark.zip."""
    with _pinned(root, 1_000_000) as (pin, count), cluster(root) as workers:
        done, topic, _ = workers.export(pin, "big", root / "lake", "--task-bytes", "20MiB")
        assert done.returncode == 0, done.stderr.decode()[-3000:]
        assert workers.executors() == 2
    _exported(root / "lake", count)
    print(f"cluster: {count} records in {topic['files']} files, by executors on two workers")


def executor(root: Path) -> None:
    """As `clustered`, and an executor is killed while it writes."""
    with _pinned(root, 1_000_000) as (pin, count), cluster(root) as workers:
        killed: list[bool] = []
        killer = threading.Thread(target=lambda: killed.append(_at_work(workers, root / "lake")))
        killer.start()
        done, topic, _ = workers.export(pin, "big", root / "lake", "--task-bytes", "20MiB")
        killer.join()
        assert killed == [True]
        assert done.returncode == 0, done.stderr.decode()[-3000:]
    _exported(root / "lake", count)
    print(f"executor: {count} records in {topic['files']} files, though one executor was killed")


def _at_work(workers: Cluster, lake: Path) -> bool:
    """Kill an executor once one has begun a file."""
    over = time.monotonic() + PATIENCE_S
    while not list(Path(f"{lake}.staging").rglob("part-*")):
        assert time.monotonic() < over, "it did not come to it"
        time.sleep(0.01)
    return workers.kill_an_executor() and not list(lake.rglob("*.parquet"))


def archives(root: Path) -> None:
    """As `clustered`, and executors have nothing but what is sent along."""
    with _pinned(root, 100_000) as (pin, count), cluster(root) as workers:
        done, *_ = workers.export(pin, "big", root / "lake", python=bare_python(root / "bare"))
        assert (done.returncode, b"No module named 'msgspec'" in done.stderr) == (1, True), done.stderr.decode()[-3000:]
        archive = packed_environment(root / "environment")
        done, topic, _ = workers.export(
            *(pin, "big", root / "lake", "--task-bytes", "2MiB"),
            python="./environment/bin/python",
            archives=f"{archive}#environment",
        )
        assert done.returncode == 0, done.stderr.decode()[-3000:]
    _exported(root / "lake", count)
    size = archive.stat().st_size >> 20
    print(f"archives: {count} records in {topic['files']} files; no task starts without the archive of {size} MiB")


@contextmanager
def _pinned(root: Path, records: int) -> Iterator[tuple[str, int]]:
    """A pin of RECORDS records of about 200 bytes that hold their number."""
    count = int(os.environ.get("RECORDS", records))
    with Engine(str(root / "store")) as log:
        log.create("big", durability="memory")
        for start in range(0, count, 10_000):
            rows = [{"n": number, "text": "x" * 180} for number in range(start, min(start + 10_000, count))]
            log.write("big", rows)
        yield pin_path(log, str(root / "store")), count


def _exported(lake: Path, count: int) -> None:
    """The lake has each record once, with its own number."""
    import duckdb

    right = (
        "count(*), count(distinct seq), min(seq), max(seq), bool_and((decode(data)::json ->> 'n')::bigint = seq - 1)"
    )
    found = duckdb.sql(f"select {right} from read_parquet('{lake}/**/*.parquet')").fetchall()
    assert found == [(count, count, 1, count, True)], found


SHOWS: dict[str, Callable[[Path], None]] = {
    "stream": stream,
    "cluster": clustered,
    "executor": executor,
    "archives": archives,
}


def main() -> None:
    """Run those that are named, or all."""
    for name in sys.argv[1:] or SHOWS:
        with tempfile.TemporaryDirectory(prefix="topics-shows-") as root:
            started = time.monotonic()
            SHOWS[name](Path(root))
            print(f"{name}: shown in {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
