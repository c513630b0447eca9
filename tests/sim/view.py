"""Everything that a client can see of a store, taken down once.

A `View` does not change when the store does, so one recovery of a disk image can be compared with every expectation
that the oracle has of it at different moments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import msgspec

from engine.core import Core
from engine.core.jobs import outcome
from engine.core.reads import Reads, until_read
from engine.types import Page, PageRequest, TopicConfig, TopicState
from tests.sim.model import Fragment, Record, SeenPage

_records = msgspec.json.Decoder(list[msgspec.Raw])
_fragment = msgspec.json.Decoder(Fragment)

T = TypeVar("T")

WALK_MAX = 400
"""Pages of one walk: more would mean that a reader makes no progress."""


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic as its readers see it."""

    epoch: int
    head: int
    earliest: int
    next_seq: int
    count: int
    size: int
    config: TopicConfig
    damage: tuple[tuple[int, int], ...]
    pages: tuple[SeenPage, ...]
    records: dict[int, tuple[Record, int, bytes]]
    """seq → what it says, its time, its bytes."""
    problem: str | None = None
    """Something that is wrong whatever was written."""


@dataclass(frozen=True, slots=True)
class View:
    """A store as its clients see it."""

    topics: dict[str, TopicView]
    now: int


Parsed = dict[object, TopicView]
"""Topics as they were read, by everything that a view is made of."""


def look(store: Reads, *, thorough: bool = True, parsed: Parsed | None = None) -> View:
    """Take down what clients can see; `thorough` reads from every cursor, not just through from the start.

    `parsed` remembers: topics that read the same, byte by byte, are one `TopicView`.
    """
    states, after = store.list_topics("", 1000, "")
    assert after is None, "scenarios have few topics"
    now = store.advance() if isinstance(store, Core) else store.now()
    return View({state.topic: _look_at(store, state.topic, thorough, parsed) for state in states}, now)


def _look_at(store: Reads, name: str, thorough: bool, parsed: Parsed | None) -> TopicView:
    state = store.state(name, touch=False)
    read, problem = _walk(store, name, 0, 256)
    if thorough or parsed is None:
        return _parse(store, state, read, problem, thorough)
    key = (
        name,
        (state.epoch, state.head_seq, state.earliest_seq, state.next_seq, state.count, state.bytes),
        state.config,
        tuple(state.damage or ()),
        tuple([_key_of(request, page) for request, page in read]),
        problem,
    )
    seen = parsed.get(key)
    if seen is None:
        seen = parsed[key] = _parse(store, state, read, problem, thorough)
    return seen


def _key_of(request: PageRequest, page: Page) -> tuple[object, ...]:
    """Everything of a page that `_page` looks at."""
    text = (page.count, b"".join(page.pieces), _told(page), page.next_from_seq, page.head_seq, page.earliest_seq)
    return request.from_seq, request.limit, text


def _parse(
    store: Reads, state: TopicState, read: list[tuple[PageRequest, Page]], problem: str | None, thorough: bool
) -> TopicView:
    name = state.topic
    records: dict[int, tuple[Record, int, bytes]] = {}
    pages = [_page(name, request, page, records) for request, page in read]
    if thorough and problem is None:
        read, problem = _walk(store, name, 0, 1)
        pages += [_page(name, request, page, records) for request, page in read]
        head = state.head_seq
        cursors = {head - 1, head, head + 1, *range(1, min(head, 12)), *(page.next + 1 for page in pages)}
        cursors |= {page.tombstone[1] - 1 for page in pages if page.tombstone}
        cursors |= {page.tombstone[1] + 1 for page in pages if page.tombstone}
        requests = [
            PageRequest(from_seq=cursor, limit=3, include_tags=True) for cursor in sorted(cursors) if cursor >= 0
        ]
        requests.append(PageRequest(from_seq=head, limit=3, epoch=state.epoch + 1, include_tags=True))
        pages.extend(
            _page(name, request, _ask(store, partial(store.page, name, request)), records) for request in requests
        )
        problem = problem or _one_by_one(store, name, records)
    return TopicView(
        state.epoch,
        state.head_seq,
        state.earliest_seq,
        state.next_seq,
        state.count,
        state.bytes,
        state.config,
        tuple(state.damage or ()),
        tuple(pages),
        records,
        problem,
    )


def _walk(store: Reads, name: str, cursor: int, limit: int) -> tuple[list[tuple[PageRequest, Page]], str | None]:
    """Read through as a following reader does; the pages, and what is wrong with the way itself."""
    read: list[tuple[PageRequest, Page]] = []
    for _ in range(WALK_MAX):
        request = PageRequest(from_seq=cursor, limit=limit, include_tags=True)
        page = _ask(store, partial(store.page, name, request))
        read.append((request, page))
        if page.next_from_seq == page.head_seq:
            return read, None
        if page.next_from_seq <= cursor and page.tombstone is None:
            return read, f"{name}: a reader at {cursor} gets nowhere"
        cursor = page.next_from_seq
    return read, f"{name}: {WALK_MAX} pages and no end"


def _told(page: Page) -> tuple[int, int, str, int, int, int] | None:
    """What a page's tombstone says."""
    stone = page.tombstone
    if stone is None:
        return None
    return (
        stone.gap_from,
        stone.gap_to,
        stone.reason.value,
        stone.missed_estimate,
        stone.earliest_seq,
        stone.head_seq,
    )


def _page(name: str, request: PageRequest, page: Page, records: dict[int, tuple[Record, int, bytes]]) -> SeenPage:
    raws = _records.decode(b"[" + b"".join(page.pieces) + b"]") if page.count else []
    assert len(raws) == page.count, f"{name}: a page says {page.count} records and holds {len(raws)}"
    seqs = []
    for raw in raws:
        text = bytes(raw)
        found = _fragment.decode(text)
        seqs.append(found.seq)
        known = records.setdefault(found.seq, (found.record(), found.ts, text))
        assert known[2] == text, f"{name}: seq {found.seq} reads differently from different cursors"
    return SeenPage(
        request.from_seq,
        request.limit,
        _told(page),
        tuple(seqs),
        page.next_from_seq,
        page.head_seq,
        page.earliest_seq,
        request.epoch is not None,
    )


def _one_by_one(store: Reads, name: str, records: dict[int, tuple[Record, int, bytes]]) -> str | None:
    """Records fetched alone are the same bytes."""
    for seq in list(records)[:2] + list(records)[-2:]:
        alone = _ask(store, partial(store.record, name, seq))
        if alone != records[seq][2]:
            return f"{name}: seq {seq} alone is {alone!r}, in a page {records[seq][2]!r}"
    return None


def _ask(store: Reads, ask: Callable[[], T]) -> T:
    """Ask, and read what has to be waited for; a running store is driven until damage that is met is told."""

    def wait(ticket: Any) -> None:
        assert isinstance(store, Core), "only a running store has something to wait for"
        for _ in range(WALK_MAX):
            if ticket.done:
                return
            store.turn()
            while (job := store.sync_job()) is not None:
                store.sync_done(job, outcome(job, store.fs))
            while (chore := store.chore()) is not None:
                store.chore_done(chore, outcome(chore, store.fs))
        raise AssertionError("damage is never told")

    return until_read(store, ask, wait)
