"""What may be asked of the engine without changing it: answered at once, from what is visible.

A read that needs records of a segment that are not at hand raises `NotCached`. Whoever drives the engine runs its job,
hands it to `read_done`, and when that ticket is answered asks again, with what it has got so far put back
(`read_again`); so it gets on even where the cache holds nothing. `until_read` is that loop for who may block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from engine.core.catalog import Catalog
from engine.core.damage import Found, is_current, is_still_there, lose, topic_of, why_unread
from engine.core.jobs import outcome
from engine.core.priority import effective_priority
from engine.core.refusals import elsewhere, moved_to
from engine.core.slot import Slot
from engine.core.ticket import Ticket
from engine.errors import Code, Refused, cold_unavailable
from engine.formats.moving import MoveState
from engine.fs import Fs
from engine.segment.segment import Segment
from engine.topic.damaged import DamagedFrames
from engine.topic.history import NotCached, ReadJob
from engine.topic.page import read_newest, read_page, weight
from engine.topic.record import find_record
from engine.types import Durability, Page, PageRequest, TopicState, WhyGone

T = TypeVar("T")


class Reads:
    """The reading half of `Core`."""

    def __init__(self, catalog: Catalog, fs: Fs) -> None:
        self.catalog = catalog
        self.fs = fs

    def now(self) -> int:
        """Engine time in milliseconds."""
        raise NotImplementedError

    def page(self, name: str, request: PageRequest) -> Page:
        """One page of what is visible (http-api.md §5). Raises `NotCached`."""
        slot = self.catalog.reader(name)
        now = self.now()
        topic = slot.topic
        topic.last_read_ts = now
        # Nothing that is ephemeral is ever synced: to hold it back would be for good.
        strong = request.strong and slot.config.durability is not Durability.EPHEMERAL
        limit = min(topic.head, slot.synced) if strong else None
        page = read_page(topic, request, now, limit)
        census = self.catalog.census
        census.read += page.count
        if page.tombstone is not None:
            census.told[page.tombstone.reason] += 1
        elif slot.moved is not None and slot.moved.state is MoveState.TAKEN and not page.count and page.caught_up:
            # All that is here was read: what comes next is there.
            raise elsewhere(name, slot.moved)
        return page

    def weighs(self, name: str, request: PageRequest, enough: int) -> int:
        """About how many bytes `page` would look at, or any number above `enough`."""
        slot = self.catalog.visible.get(name)
        return 0 if slot is None else weight(slot.topic, request, enough)

    def newest(self, name: str, request: PageRequest, cursor: int, epoch: int) -> tuple[bytes, int] | None:
        """What was just written, for a live reader at `cursor` whose request is `whole`: the records, joined by
        commas, and the head, which is the seq of the last one. None says only that `page` has to be asked."""
        slot = self.catalog.visible.get(name)
        if slot is None or slot.topic.epoch != epoch:
            return None
        topic = slot.topic
        records = read_newest(topic, request, cursor)
        if records is None:
            return None
        topic.last_read_ts = topic.last_write_ts
        self.catalog.census.read += topic.head - cursor
        return records, topic.head

    def state(self, name: str, *, touch: bool = True) -> TopicState:
        """What a topic holds now; never creates."""
        slot = self.catalog.reader(name)
        now = self.now()
        if touch:
            slot.topic.last_read_ts = now
        state = self._state(slot, now)
        host = slot.host
        return state if host is None else replace(state, queue=host.counters(now))

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
            moved=None if slot.moved is None else moved_to(slot.moved),
        )

    def list_topics(self, prefix: str, page_size: int, after: str) -> tuple[list[TopicState], str | None]:
        """Topics whose names start with `prefix`, by name, after `after`; and the last name when there are more."""
        slots, more = self.catalog.page(prefix, page_size, after)
        now = self.now()
        states = [self._state(slot, now) for slot in slots]
        return states, states[-1].topic if more else None

    def record(self, name: str, seq: int) -> bytes:
        """One record with its tag and meta, or the 404 that says why it cannot be read. Raises `NotCached`."""
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

    # -- what had to be waited for ---------------------------------------------------------------------------------

    def read_done(self, job: ReadJob, error: OSError | None) -> Ticket[bool]:
        """The outcome of the job of a `NotCached`. When the ticket is answered it is time to ask again; its error is
        the answer otherwise."""
        ticket: Ticket[bool] = Ticket()
        failure = why_unread(job, error)
        if failure is not None:
            ticket.fail(failure)
            return ticket
        self.read_again(job)
        # What has moved to the cold tier in the meantime is missed where it was.
        damage = [
            found for found in job.damage if job.cold or isinstance(found, DamagedFrames) or not found.segment.cold
        ]
        if damage:
            self._damaged(damage, ticket)
        else:
            ticket.complete(True)
        return ticket

    def read_here(self, missing: NotCached) -> None:
        """Read what a decision has missed here and now, as nobody is there who could wait for it. Raises why it cannot
        be had; what is in the cold tier is not waited for."""
        job = missing.job
        if job.cold:
            raise cold_unavailable()
        done = self.read_done(job, outcome(job, self.fs))
        if done.error is not None:
            raise done.error

    def read_again(self, job: ReadJob) -> None:
        """Put what a job has read, for somebody who is about to ask again, back where it may have left since."""
        self.catalog.cache.history.put(job, self._is_current)

    def _is_current(self, segment: Segment) -> bool:
        slot = self.catalog.by_id.get(segment.topic_id)
        return slot is not None and is_current(slot.topic, segment)

    def _damaged(self, damage: list[Found], ticket: Ticket[bool]) -> None:
        """Show what was found to be damaged as lost; here only to who looks at a store that is not started."""
        now = self.now()
        for found in damage:
            slot = self.catalog.by_id.get(topic_of(found))
            if slot is not None and is_still_there(slot.topic, found):
                lose(slot.topic, found, now)
        ticket.complete(True)


def until_read(store: Reads, ask: Callable[[], T], wait: Callable[[Ticket[bool]], object]) -> T:
    """Ask until nothing has to be read any more, reading here and now; `wait` drives the store until a ticket is
    answered. Raises what asking raises but `NotCached`."""
    jobs: list[ReadJob] = []
    while True:
        for job in jobs:
            store.read_again(job)
        try:
            return ask()
        except NotCached as missing:
            job = missing.job
        ticket = store.read_done(job, outcome(job, store.fs))
        if not ticket.done:
            wait(ticket)
        ticket.value()
        jobs.append(job)
