"""Topics and records for tests, in few words."""

from __future__ import annotations

from typing import Any

from engine.commands import Batch
from engine.fragment import Rendered, render
from engine.topic.cache import Cache
from engine.topic.state import Topic
from engine.types import TopicConfig

HARD = [
    b'{"n":12345678901234567890}',
    b'{"price":1.10,"rate":1e3,"tiny":1E-7,"z":-0,"zz":-0.0}',
    b'{"huge":1e400}',
    b'""',
    b"[]",
    b'{"path":"a\\/b","u":"\\u0041","q":"\\"","bs":"\\\\"}',
    b'"\\ud83d\\ude00"',
    '"\U0001f600"'.encode(),
    b'"\\u0000"',
    '{"ls":"\u2028","bom":"\ufeff","combining":"e\u0301"}'.encode(),
    b'{"a":1,"a":2}',
    b'{"":1," ":2,"$seq":9,"$ts":"mine","data":{"data":1}}',
    b'{ "a" : [ 1 , 2 ,3 ] , "b":{ } }',
    b'{"$tombstone":{"gap_from":1}}',
    b'[{},{"$seq":1,"$ts":2}]',
    b'"},{\\"$seq\\":"',
    b'{"x":1},'[:-1],
    b'{"tag":"t","$tag":"t"}',
    b'[{"d":1,"$tag":"t"},{"$seq":5}]',
    b"[" * 100 + b"]" * 100,
    b'"' + b"x" * 5000 + b'"',
]
"""Values that break careless code."""


class Log:
    """Stands in for the log: gives back what was rendered, and counts how often it was asked."""

    def __init__(self) -> None:
        self.frames: dict[tuple[int, int], Rendered] = {}
        self.reads = 0

    def load(self, shard: int, lsn: int) -> Rendered:
        self.reads += 1
        return self.frames[shard, lsn]


class Made:
    """A topic with a log and a cache."""

    def __init__(self, cache_bytes: int = 0, **config: Any) -> None:
        self.log = Log()
        self.cache = Cache(cache_bytes, self.log.load)
        self.topic = Topic(7, "t", 1, TopicConfig(**config), self.cache)

    def write(self, *datas: bytes, ts: int = 1000, shard: int = 0, logged: bool = True, **columns: Any) -> None:
        """One batch."""
        batch = Batch(list(datas), **columns)
        rendered = render(batch, self.topic.head + 1, ts)
        location = (shard, len(self.log.frames) * 8)
        self.log.frames[location] = rendered
        self.topic.apply_append(self.topic.head + 1, rendered, ts, location if logged else None)

    def cool(self) -> None:
        """Make every block cold."""
        for block in self.topic.tail.blocks:
            if block.data is not None:
                self.cache.cool(block)
