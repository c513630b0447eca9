"""`Engine`: the whole store in a script, without a daemon.

    from engine import Engine

    with Engine("data") as log:
        log.write("greetings", [{"hello": "world"}])
        for record in log.read("greetings"):
            print(record["$seq"], record["data"])

It drives `Core` by hand and blocks: every call returns when its class's condition holds. One process at a time owns a
data directory; where others need it too, run the daemon.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from engine.clock import OsClock
from engine.commands import Batch, DeleteSelector
from engine.core import Core, Ticket
from engine.core.reads import until_read
from engine.core.tending import tend
from engine.fs import OsFs
from engine.limits import EngineSettings, Limits
from engine.types import (
    AppendResult,
    ConfigChanges,
    DeleteResult,
    PageRequest,
    TopicDropped,
    TopicPut,
    TopicState,
    parse_match,
)

T = TypeVar("T")


class Engine:
    """A store that this process owns while it is open; a context manager."""

    def __init__(self, path: str, *, settings: EngineSettings | None = None, limits: Limits | None = None) -> None:
        """Open the store in the directory `path`, made if missing; recovers first. Raises `StoreError`."""
        self._fs = OsFs(path, create=True)
        try:
            self.core = Core.open(self._fs, OsClock(), settings, limits, pid=os.getpid())
        except BaseException:
            self._fs.shut()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop cleanly; everything is synced."""
        self.core.close()
        self._fs.shut()

    def create(self, topic: str, **config: Any) -> TopicPut:
        """Create a topic, or change the fields given; see `TopicConfig` for them."""
        return self._wait(self.core.put_topic(topic, msgspec.convert(config, ConfigChanges)))

    def drop(self, topic: str, *, if_empty: bool = False) -> TopicDropped:
        """Remove a topic and everything in it."""
        return self._wait(self.core.drop_topic(topic, if_empty=if_empty))

    def write(
        self,
        topic: str,
        values: list[Any],
        *,
        tag: str | None = None,
        node: str | None = None,
        key: str | None = None,
        ack_fsync: bool = False,
    ) -> AppendResult:
        """Write values, whole or not at all; `key` makes a repeated call harmless."""
        batch = Batch.of(values)
        if tag is not None:
            batch.tags = [tag] * len(values)
        if node is not None:
            batch.nodes = [node] * len(values)
        return self._wait(
            self.core.append(topic, batch, key=None if key is None else key.encode(), ack_fsync=ack_fsync)
        )

    def read(self, topic: str, *, from_seq: int = 0, tags: bool = True) -> Iterator[dict[str, Any]]:
        """Every record after `from_seq`, as objects with `$seq $ts data …`; a loss comes as `{"$tombstone": …}`."""
        while True:
            request = PageRequest(from_seq=from_seq, limit=1000, include_tags=tags)
            page = until_read(self.core, partial(self.core.page, topic, request), self._wait)
            self._tend()
            if page.tombstone is not None:
                yield {"$tombstone": msgspec.to_builtins(page.tombstone)}
            yield from msgspec.json.decode(b"[" + b"".join(page.pieces) + b"]")
            from_seq = page.next_from_seq
            if page.caught_up:
                return

    def delete(
        self,
        topic: str,
        *,
        before_seq: int | None = None,
        match: Any = None,
        seqs: list[int] | None = None,
    ) -> DeleteResult:
        """Delete records for good; what is given is ANDed."""
        selector = DeleteSelector(
            before_seq=before_seq,
            match=None if match is None else parse_match(match),
            seqs=None if seqs is None else tuple(seqs),
        )
        return self._wait(until_read(self.core, partial(self.core.delete, topic, selector), self._wait))

    def state(self, topic: str) -> TopicState:
        """What the topic holds now."""
        return self.core.state(topic)

    def topics(self, prefix: str = "") -> Iterator[TopicState]:
        """All topics whose names start with `prefix`, by name."""
        after: str | None = ""
        while after is not None:
            states, after = self.core.list_topics(prefix, 1000, after)
            yield from states

    def _wait(self, ticket: Ticket[T]) -> T:
        """Drive the engine until the ticket is answered."""
        self.core.turn()
        while not ticket.done:
            self._tend()
            self.core.turn()
        self._tend()
        return ticket.value()

    def _tend(self) -> None:
        """Run the background work that is due, here and now."""
        tend(self.core, self._fs)
