"""A daemon's topics as a stream of Spark. Import this where pyspark is known to be there.

An offset is `{topic: {"epoch": e, "seq": s}}`: everything up to `s` of that epoch has been delivered. It only ever says
how far; nothing is acknowledged to the daemon, for Spark does not call `commit()` for the last batch of a query that
ends.

What a query was to get and cannot any more (evicted, expired, damaged, dropped, recreated) fails it, or with
`failOnDataLoss=false` is logged, and it reads on behind.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from topics_lake.errors import LakeError
from topics_lake.options import Options
from topics_lake.pages import DataLoss, State, names_of, pages, state_of

HEADS_S: Final = 0.2
"""How long heads are believed: a query without a pause between batches asks fifty times a second."""
PARTITION_SEQS: Final = 20_000
_log: Final = logging.getLogger("topics")

Offset = dict[str, dict[str, int]]


class TopicsStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's reader, on the driver; `read` runs on executors."""

    def __init__(self, asked: Options) -> None:
        self._asked = asked
        self._initial: Offset | None = None
        self._heads: dict[str, State] = {}
        self._heads_at = float("-inf")
        self._target: Offset | None = None

    # -- how far -------------------------------------------------------------------------------------------------------

    def initialOffset(self) -> Offset:
        """Where a new query begins. Spark asks twice, and `latest` must not move in between."""
        if self._initial is None:
            heads = self._now(fresh=True)
            if self._asked.starting == "earliest":
                # What was lost before the query began is not lost by it.
                self._initial = {
                    name: {"epoch": state.epoch, "seq": max(state.earliest_seq - 1, 0)} for name, state in heads.items()
                }
            elif self._asked.starting == "latest":
                self._initial = {name: _end(state) for name, state in heads.items()}
            else:
                raise LakeError("the option startingOffsets is earliest or latest", "usage")
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        """At most `maxRowsPerTrigger` a batch."""
        rows = self._asked.rows_per_trigger
        return ReadMaxRows(rows) if rows else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix where a query ends that reads what there is now."""
        self._target = {name: _end(state) for name, state in self._now(fresh=True).items()}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Where the next batch ends: at the heads, or so far that there are at most so many records in it."""
        if self._target is not None:
            target = self._target
        else:
            target = {name: _end(state) for name, state in self._now().items()}
        left = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = dict(start)
        for name in sorted(set(start) - set(target)):
            # Told once: the next offset does not know the topic any more.
            self._lose(name, start[name]["seq"] + 1, start[name]["seq"] + 1, "dropped")
            del end[name]
        for name, reach in sorted(target.items()):
            begin = _begin(start, name, reach["epoch"])
            seq = max(reach["seq"], begin)
            if left is not None:
                seq = min(seq, begin + left)
                left -= seq - begin
            if seq > begin or name in start:
                end[name] = {"epoch": reach["epoch"], "seq": seq}
        return end

    def reportLatestOffset(self) -> Offset:
        """For the query's progress."""
        return {name: _end(state) for name, state in self._now().items()}

    def _now(self, *, fresh: bool = False) -> dict[str, State]:
        if fresh or time.monotonic() - self._heads_at > HEADS_S:
            with self._asked.daemon() as daemon:
                names = {name for topic in self._asked.topics for name in names_of(daemon, topic.rstrip("*"))}
                found = [state_of(daemon, name) for name in sorted(names) if self._asked.wants(name)]
            self._heads = {state.topic: state for state in found if state is not None}
            self._heads_at = time.monotonic()
        return self._heads

    # -- what ----------------------------------------------------------------------------------------------------------

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Stretches of what lies between two offsets."""
        parts: list[InputPartition] = []
        for name, reach in sorted(end.items()):
            before = start.get(name)
            if before is not None and before["epoch"] != reach["epoch"]:
                self._lose(name, before["seq"] + 1, before["seq"] + 1, "recreated")
            first = _begin(start, name, reach["epoch"]) + 1
            for at in range(first, reach["seq"] + 1, PARTITION_SEQS):
                last = min(at + PARTITION_SEQS - 1, reach["seq"])
                parts.append(InputPartition((name, reach["epoch"], at, last)))
        return parts

    def _lose(self, topic: str, first: int, last: int, reason: str) -> None:
        if self._asked.fail_on_data_loss:
            raise DataLoss(topic, first, last, reason)
        _log.warning("topic %r, from seq %d on: %s", topic, first, reason)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The records of one stretch."""
        from topics_lake.source import exact

        if partition.value is None:
            return
        topic, epoch, first, last = partition.value

        def lost(low: int, high: int, reason: str) -> None:
            if self._asked.fail_on_data_loss:
                raise DataLoss(topic, low, high, reason)
            _log.warning("topic %r, seqs %d-%d are lost: %s", topic, low, high, reason)

        with self._asked.daemon() as daemon:
            for batch in pages(daemon, topic, epoch, first, last, lost):
                yield exact(batch, self._asked.data_type)

    def commit(self, end: Offset) -> None:
        """Nothing to do: what was read stays until the topic lets go of it."""

    def stop(self) -> None:
        """Nothing is held."""


def _end(state: State) -> dict[str, int]:
    return {"epoch": state.epoch, "seq": state.head_seq}


def _begin(start: Offset, topic: str, epoch: int) -> int:
    """The last seq that was delivered of this epoch."""
    before = start.get(topic)
    return before["seq"] if before is not None and before["epoch"] == epoch else 0
