"""`topics spark-export` for `spark-submit`:

spark-submit --py-files topics-spark.zip topics_export_job.py TOPIC… --to DIR (--url URL | --socket PATH | --dir DIR)
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import Any

import msgspec


def _shaping(spark: Any, lake: Any, asked: argparse.Namespace) -> Any:
    from topics_lake.frames import OnFrames

    say = partial(print, file=sys.stderr)
    return OnFrames(spark, lake, select=asked.select, schema=asked.schema, say=say)


def main() -> int:
    """Export; a line of JSON for each topic."""
    from pyspark.sql import SparkSession

    from topics_lake.client import Daemon, key_of
    from topics_lake.errors import LakeError
    from topics_lake.export import Export, Settings
    from topics_lake.lake import Lake
    from topics_lake.pinned import pin_of_daemon, pin_of_directory
    from topics_lake.spark import OnSpark

    parser = argparse.ArgumentParser(description="Export topics with Spark.")
    parser.add_argument("topics", nargs="+")
    parser.add_argument("--to", required=True)
    place = parser.add_mutually_exclusive_group(required=True)
    for name in ("--url", "--socket", "--dir"):
        place.add_argument(name)
    parser.add_argument("--format", default="parquet")
    parser.add_argument("--partition-by", default="none")
    parser.add_argument("--on-corrupt", default="fail")
    parser.add_argument("--task-bytes", type=int, default=Settings().task_bytes)
    parser.add_argument("--select")
    parser.add_argument("--schema")
    parser.add_argument("--key-file")
    asked = parser.parse_args()
    spark = SparkSession.builder.appName("topics-export").getOrCreate()
    settings = Settings(
        format=asked.format,
        partition_by=asked.partition_by,
        on_corrupt=asked.on_corrupt,
        task_bytes=asked.task_bytes,
    )
    if asked.dir:
        held = pin_of_directory(asked.dir, asked.topics, asked.to + ".scratch", keep_going=asked.on_corrupt == "gap")
    else:
        held = pin_of_daemon(Daemon(asked.url or asked.socket, key_of(asked.key_file)), asked.topics)
    try:
        lake = Lake(asked.to)
        runner = OnSpark(spark) if not (asked.select or asked.schema) else _shaping(spark, lake, asked)
        with held as path, lake.turn():
            for done in Export(lake, path, settings, runner).run(asked.topics):
                print(msgspec.json.encode(done).decode(), flush=True)
    except LakeError as error:
        print(f"topics: {error.what} ({error.code})", error.hint, sep="\n  ", file=sys.stderr)
        return 1
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
