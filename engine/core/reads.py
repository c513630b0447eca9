"""What may be asked of the engine without changing it: answered at once, from what is visible."""

from __future__ import annotations

from engine.core.catalog import Catalog
from engine.core.priority import effective_priority
from engine.core.slot import Slot
from engine.errors import Code, Refused
from engine.topic.page import read_page
from engine.topic.record import find_record
from engine.types import Page, PageRequest, TopicState, WhyGone


class Reads:
    """The reading half of `Core`."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    def now(self) -> int:
        """Engine time in milliseconds."""
        raise NotImplementedError

    def page(self, name: str, request: PageRequest) -> Page:
        """One page of what is visible (http-api.md §5)."""
        slot = self.catalog.reader(name)
        now = self.now()
        topic = slot.topic
        topic.last_read_ts = now
        limit = min(topic.head, slot.synced) if request.strong else None
        return read_page(topic, request, now, limit)

    def state(self, name: str, *, touch: bool = True) -> TopicState:
        """What a topic holds now; never creates."""
        slot = self.catalog.reader(name)
        now = self.now()
        if touch:
            slot.topic.last_read_ts = now
        return self._state(slot, now)

    def _state(self, slot: Slot, now: int) -> TopicState:
        topic = slot.topic
        view = topic.at(now)
        return TopicState(
            topic=topic.name,
            type=topic.config.type,
            epoch=topic.epoch,
            head_seq=topic.head,
            earliest_seq=view.earliest_seq,
            next_seq=topic.head + 1,
            count=view.count,
            bytes=view.bytes,
            config=topic.config,
            effective_priority=effective_priority(topic.config, topic.last_write_ts, topic.last_read_ts, now),
            last_write_ts=topic.last_write_ts,
            last_read_ts=topic.last_read_ts,
            damage=topic.damage() or None,
        )

    def list_topics(self, prefix: str, page_size: int, after: str) -> tuple[list[TopicState], str | None]:
        """Topics whose names start with `prefix`, by name, after `after`; and the last name when there are more."""
        slots, more = self.catalog.page(prefix, page_size, after)
        now = self.now()
        states = [self._state(slot, now) for slot in slots]
        return states, states[-1].topic if more else None

    def record(self, name: str, seq: int) -> bytes:
        """One record with its tag and meta, or the 404 that says why it cannot be read."""
        slot = self.catalog.reader(name)
        topic = slot.topic
        now = self.now()
        topic.last_read_ts = now
        found = find_record(topic, seq, now)
        if isinstance(found, WhyGone):
            raise Refused(
                Code.NOT_FOUND,
                f"record {seq} of topic {name!r} is not there: {found.value}",
                {"topic": name, "why": found.value, "earliest_seq": topic.at(now).earliest_seq, "head_seq": topic.head},
            )
        return found
