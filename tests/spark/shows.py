"""The large versions of what the tests of Spark show, too long for `make test`: `python -m tests.spark.shows [NAME…]`.

driver    the driver of an export is killed at every step, and the export is run again
stream    RECORDS (100,000) are written while a query runs, is killed twice and restarted: each is delivered once
submit    RECORDS (1,000,000) through spark-submit on a standalone master with two workers
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.cli.support import ROOT, Daemon, clean_environment, running

PATIENCE_S = 600
_QUERY = """
import sys
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
query.awaitTermination()
"""


def stream(root: Path) -> None:
    """A query in a process of its own, killed while records come."""
    import duckdb

    from tests.spark.test_stream import write

    count = int(os.environ.get("RECORDS", "100000"))
    for daemon in running():
        write(daemon, "flow", 0, 1000)
        writer = threading.Thread(target=write, args=(daemon, "flow", 1000, count - 1000))
        writer.start()
        for kills in (1, 2):
            _killed_after(daemon, root, 2 * kills)
        writer.join()
        done = subprocess.run(_words(daemon, root, "now"), env=_environment(), capture_output=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr.decode()[-3000:]
    files = [str(path / "*.parquet") for path in (root / "out").glob("b*") if (path / "_SUCCESS").exists()]
    rows = duckdb.sql(f"select data::varchar::int from read_parquet({files})").fetchall()
    assert sorted(row[0] for row in rows) == list(range(count))
    print(f"stream: {count} records in {len(files)} batches, each once, over two kills")


def _words(daemon: Daemon, root: Path, now: str) -> list[str]:
    return [sys.executable, "-c", _QUERY, daemon.socket, str(root), now]


def _environment() -> dict[str, str]:
    return {**clean_environment(), "PYTHONPATH": str(ROOT)}


def _killed_after(daemon: Daemon, root: Path, batches: int) -> None:
    """Run the query, and kill it when so many batches are there."""
    query = subprocess.Popen(_words(daemon, root, "on"), env=_environment(), stderr=subprocess.DEVNULL)
    over = time.monotonic() + PATIENCE_S
    while len(list((root / "out").glob("b*/_SUCCESS"))) < batches:
        assert query.poll() is None, "the query ended by itself"
        assert time.monotonic() < over, "it did not come to it"
        time.sleep(0.05)
    query.send_signal(signal.SIGKILL)
    query.wait()


SHOWS: dict[str, Callable[[Path], None]] = {"stream": stream}


def main() -> None:
    """Run those that are named, or all."""
    for name in sys.argv[1:] or SHOWS:
        with tempfile.TemporaryDirectory(prefix="topics-shows-") as root:
            started = time.monotonic()
            SHOWS[name](Path(root))
            print(f"{name}: shown in {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
