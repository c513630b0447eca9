"""`topics spark-export` for `spark-submit`, with the same options:

spark-submit --py-files topics-spark.zip topics_export_job.py TOPIC… --to DIR (--url URL | --socket PATH | --dir DIR)
"""

from __future__ import annotations

import argparse
import re
import sys
from functools import partial
from typing import Any

import msgspec


def _size(word: str) -> int:
    """Bytes from `4096`, `64MiB`, `1G`."""
    found = re.fullmatch(r"(\d+)([KMGT]?)(?:i?B)?", word, re.IGNORECASE)
    if found is None:
        raise argparse.ArgumentTypeError(f"{word!r} is not a size such as 4096, 64KiB or 2GiB")
    return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[found[2].upper()]


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(description="Export topics with Spark.", allow_abbrev=False)
    made.add_argument("topics", nargs="+", metavar="TOPIC", help="names; 'x*' for those that begin so, '*' for all")
    made.add_argument("--to", required=True, metavar="DIR")
    place = made.add_mutually_exclusive_group()
    for name in ("--url", "--socket", "--dir"):
        place.add_argument(name)
    made.add_argument("--key-file", metavar="FILE")
    made.add_argument("--format")
    made.add_argument("--compression", choices=("zstd", "snappy", "gzip", "none"))
    made.add_argument("--partition-by")
    since = made.add_mutually_exclusive_group()
    since.add_argument("--since-last", action="store_true", help="go on where the last export ended (the default)")
    since.add_argument("--full", action="store_true", default=None)
    made.add_argument("--from", dest="from_seq", type=int, metavar="SEQ")
    made.add_argument("--until", dest="until_seq", type=int, metavar="SEQ")
    made.add_argument("--max-rows", type=int, metavar="N")
    made.add_argument("--max-file-bytes", type=_size, metavar="SIZE")
    made.add_argument("--task-bytes", type=_size, metavar="SIZE", help="payload of a task, about")
    made.add_argument("--on-corrupt")
    made.add_argument("--schema", metavar="FILE")
    made.add_argument("--select", metavar="SQL")
    made.add_argument("--verify", action="store_true", help="check DIR instead: every file, every count")
    made.add_argument("--dry-run", action="store_true")
    return made


def _say(kind: str, value: dict[str, Any]) -> None:
    print(msgspec.json.encode({"type": kind, **value}).decode(), flush=True)


def _verify(asked: argparse.Namespace) -> int:
    from topics_lake.lake import Lake
    from topics_lake.verify import verify

    lake, wrong = Lake(asked.to), 0
    prefixes = tuple(word[:-1] for word in asked.topics if word.endswith("*"))
    names = [name for name in lake.topics() if name in asked.topics or name.startswith(prefixes)]
    for checked in verify(lake, names):
        wrong += len(checked.wrong)
        _say("topic", msgspec.to_builtins(checked))
    return 1 if wrong or not names else 0


def _export(asked: argparse.Namespace) -> None:
    from topics_lake.client import Daemon, key_of
    from topics_lake.errors import LakeError
    from topics_lake.export import Export, Settings
    from topics_lake.lake import Lake
    from topics_lake.pinned import pin_of

    given = {name: getattr(asked, name) for name in Settings.__struct_fields__ if getattr(asked, name) is not None}
    settings = Settings(**given)
    settings.check()
    where = asked.dir or asked.url or asked.socket
    if not where:
        raise LakeError("from where?", "usage", "say --url URL, --socket PATH or --dir DIR")
    place = where if asked.dir else Daemon(where, key_of(asked.key_file))
    lake = Lake(asked.to)
    scratch = asked.to + ".scratch"
    with pin_of(place, asked.topics, scratch, keep_going=settings.on_corrupt == "gap") as (path, names):
        if asked.dry_run:
            done = [Export(lake, path, settings).plan(name) for name in names]
        else:
            with lake.turn():
                done = list(_with_spark(asked, lake, path, settings, names))
    for topic in done:
        _say("topic", msgspec.to_builtins(topic))
    total = {name: sum(getattr(topic, name) for topic in done) for name in ("rows", "deleted", "in_gaps", "bytes")}
    _say("summary", {"topics": len(done), **total, "dry_run": asked.dry_run})


def _with_spark(asked: argparse.Namespace, lake: Any, path: str, settings: Any, names: list[str]) -> Any:
    from pyspark.sql import SparkSession

    from topics_lake.export import Export
    from topics_lake.frames import OnFrames
    from topics_lake.spark import OnSpark

    spark = SparkSession.builder.appName("topics-export").getOrCreate()
    try:
        runner: Any = OnSpark(spark)
        if asked.select or asked.schema:
            say = partial(print, file=sys.stderr)
            runner = OnFrames(spark, lake, select=asked.select, schema=asked.schema, say=say)
        yield from Export(lake, path, settings, runner).run(names)
    finally:
        spark.stop()


def main() -> int:
    """Export, or check; a line of JSON for each topic, and a summary. Exit status 1 says that something is wrong."""
    from topics_lake.errors import LakeError

    asked = parser().parse_args()
    try:
        if asked.verify:
            return _verify(asked)
        _export(asked)
    except LakeError as error:
        print(f"topics: {error.what} ({error.code})", error.hint, sep="\n  ", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
