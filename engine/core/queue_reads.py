"""What is only looked at of queues: which topic is one, whether it takes changes, the records of claimed jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from engine.core.host import Host
from engine.core.slot import Slot
from engine.errors import Code, Refused, TopicsError, topic_not_found
from engine.queue.dead_letter import check_chain
from engine.queue.events import Leased
from engine.topic.history import NotCached
from engine.topic.record import find_live, find_run
from engine.types import TopicConfig

if TYPE_CHECKING:
    from engine.core.core import Core

T = TypeVar("T")

READS_MAX: Final = 100_000
"""Reads that one decision may need."""


class QueueReads:
    """All queues of one store, to look at. `Queues` adds what changes them."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def check(self, name: str, config: TopicConfig) -> None:
        """Raise the 400 of a configuration whose dead letters would go round in a circle."""
        if config.dead_letter is not None:
            check_chain(name, config.dead_letter, self._dead_letter_of)

    def _dead_letter_of(self, name: str) -> str | None:
        slot = self._core.catalog.tip.get(name)
        return None if slot is None else slot.config.dead_letter

    def find(self, name: str) -> tuple[Slot, Host]:
        """The queue that is meant: 404 for none, 409 for a log."""
        slot = self._core.catalog.visible.get(name)
        if slot is None or slot.dropped:
            raise topic_not_found(name)
        if slot.host is None:
            raise Refused(Code.NOT_A_QUEUE, f"topic {name!r} is a log, and has no jobs", {"topic": name, "type": "log"})
        return slot, slot.host

    def _writable(self, name: str) -> tuple[Slot, Host]:
        """The same, where it takes changes; raises why it does not."""
        core = self._core
        slot = core.catalog.visible.get(name)
        if slot is None or slot.dropped or slot.host is None:
            return self.find(name)
        if core.closing or slot.moved is not None or core.wal.shards[slot.shard].failed is not None:
            core._check_writable(slot.shard, slot)
        return slot, slot.host

    def _read(self, decide: Callable[[], T]) -> T:
        """Decide, reading here and now what that needs: nobody is there who could wait for a read."""
        for _ in range(READS_MAX):
            try:
                return decide()
            except NotCached as missing:
                self._core.read_here(missing)
        raise RuntimeError("a decision does not get on, whatever is read for it")

    def _why_not(self, slot: Slot) -> TopicsError | None:
        if slot.dropped:
            return topic_not_found(slot.name)
        try:
            self._core._check_writable(slot.shard, slot)
        except TopicsError as error:
            return error
        return None

    def records(self, name: str, leased: Leased) -> list[bytes | None]:
        """The records of a claim's jobs, in their order; None for one that is gone again by now. Raises `NotCached`."""
        topic, jobs = self._core.catalog.reader(name).topic, leased.jobs
        now = self._core.now() if topic.config.ttl_ms else 0
        seqs = range(jobs[0][0], jobs[-1][0] + 1) if leased.fresh else [seq for seq, _ in jobs]
        return find_live(topic, seqs, now)

    def run(self, name: str, leased: Leased) -> tuple[bytes, list[int]] | None:
        """The same as the one text that they are where they lie together, and where each begins; None where not."""
        topic, jobs = self._core.catalog.reader(name).topic, leased.jobs
        if not leased.fresh:
            return None
        return find_run(topic, jobs[0][0], jobs[-1][0], self._core.now() if topic.config.ttl_ms else 0)
