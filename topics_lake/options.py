"""Options of `format("topics")`, read once and handed to executors as a value. Spark makes their names lower case."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Final

import msgspec

from topics_lake.client import Daemon, key_of
from topics_lake.errors import LakeError

KNOWN: Final = frozenset(
    {
        "path",
        "url",
        "socket",
        "key_file",
        "topics",
        "from_seq",
        "to_seq",
        "since",
        "until",
        "on_corrupt",
        "data_type",
        "failondataloss",
        "startingoffsets",
        "maxrowspertrigger",
        "query_id",
        "chunk_rows",
    }
)

OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})
"""What a streaming sink is told and has no use for."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader or writer was asked for."""

    path: str = ""
    """Of a pin or backup…"""
    where: str = ""
    """…or a daemon's address or socket."""
    key: str = ""
    topics: tuple[str, ...]
    from_seq: int = 1
    to_seq: int = 2**63 - 1
    since_ms: int = 0
    until_ms: int = 2**63 - 1
    on_corrupt: str = "fail"
    data_type: str = "binary"
    fail_on_data_loss: bool = True
    starting: str = "earliest"
    rows_per_trigger: int = 0
    query_id: str = ""
    chunk_rows: int = 1000

    def daemon(self) -> Daemon:
        """A connection of one's own."""
        return Daemon(self.where, self.key)

    def chosen(self, names: list[str]) -> list[str]:
        """Those of `names` that are asked for; raises `LakeError` for one that is not there."""
        plain = [topic for topic in self.topics if not topic.endswith("*")]
        missing = sorted(set(plain) - set(names))
        if missing:
            raise LakeError(f"there is no topic {missing[0]!r}", "topic_not_found")
        return sorted(name for name in names if self.wants(name))

    def wants(self, name: str) -> bool:
        """Whether a topic is asked for."""
        return any(name == topic or (topic.endswith("*") and name.startswith(topic[:-1])) for topic in self.topics)


def read_options(given: Mapping[str, str]) -> Options:
    """Options from what Spark hands over. Raises `LakeError` for unknown, contradictory or impossible ones."""
    options = {name.lower(): value for name, value in given.items()}
    unknown = sorted(set(options) - KNOWN - OF_SPARK)
    if unknown:
        raise LakeError(f"there is no option {unknown[0]!r}", "usage", f"options: {', '.join(sorted(KNOWN))}")
    places = [name for name in ("path", "url", "socket") if options.get(name)]
    if len(places) != 1:
        raise LakeError("give exactly one of the options path, url and socket", "usage")
    topics = tuple(filter(None, (name.strip() for name in options.get("topics", "").split(","))))
    if not topics:
        raise LakeError("the option topics says which: names, 'prefix*', or several with commas", "usage")
    loss = options.get("failondataloss", "true").lower()
    on_corrupt, data_type = options.get("on_corrupt", "fail"), options.get("data_type", "binary")
    if loss not in ("true", "false") or on_corrupt not in ("fail", "gap") or data_type not in ("binary", "string"):
        raise LakeError("failOnDataLoss is true or false, on_corrupt fail or gap, data_type binary or string", "usage")
    return Options(
        path=options.get("path", ""),
        where=options.get("url") or options.get("socket", ""),
        key="" if options.get("path") else key_of(options.get("key_file")),
        topics=topics,
        from_seq=_number(options, "from_seq", 1),
        to_seq=_number(options, "to_seq", 2**63 - 1),
        since_ms=_time(options, "since", 0),
        until_ms=_time(options, "until", 2**63 - 1),
        on_corrupt=on_corrupt,
        data_type=data_type,
        fail_on_data_loss=loss == "true",
        starting=options.get("startingoffsets", "earliest"),
        rows_per_trigger=_number(options, "maxrowspertrigger", 0),
        query_id=options.get("query_id", ""),
        chunk_rows=min(max(_number(options, "chunk_rows", 1000), 1), 10_000),
    )


def _number(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name)
    if text is None:
        return default
    if not text.isdigit():
        raise LakeError(f"the option {name} is a number, not {text!r}", "usage")
    return int(text)


def _time(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name)
    if text is None:
        return default
    if text.isdigit():
        return int(text)
    try:
        when = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise LakeError(f"the option {name} is a time (ISO 8601) or milliseconds, not {text!r}", "usage") from error
    if when.tzinfo is None:
        when = when.replace(tzinfo=dt.UTC)
    return int(when.timestamp() * 1000)
