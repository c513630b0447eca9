"""Everything that a client can see of a store, taken down once.

A `View` does not change when the store does, so one recovery of a disk image can be compared with every expectation
that the oracle has of it at different moments.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from engine.core import Core
from engine.types import Page, PageRequest, TopicConfig
from tests.sim.model import Fragment, Record, SeenPage

_records = msgspec.json.Decoder(list[msgspec.Raw])
_fragment = msgspec.json.Decoder(Fragment)

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


def look(core: Core, *, thorough: bool = True) -> View:
    """Take down what clients can see; `thorough` reads from every cursor, not just through from the start."""
    states, after = core.list_topics("", 1000, "")
    assert after is None, "scenarios have few topics"
    now = core.advance()
    return View({state.topic: _look_at(core, state.topic, thorough) for state in states}, now)


def _look_at(core: Core, name: str, thorough: bool) -> TopicView:
    state = core.state(name, touch=False)
    records: dict[int, tuple[Record, int, bytes]] = {}
    pages: list[SeenPage] = []
    problem = _walk(core, name, 0, 256, pages, records)
    if thorough and problem is None:
        problem = _walk(core, name, 0, 1, pages, records)
        head = state.head_seq
        cursors = {head - 1, head, head + 1, *range(1, min(head, 12)), *(page.next + 1 for page in pages)}
        cursors |= {page.tombstone[1] - 1 for page in pages if page.tombstone}
        cursors |= {page.tombstone[1] + 1 for page in pages if page.tombstone}
        requests = [
            PageRequest(from_seq=cursor, limit=3, include_tags=True) for cursor in sorted(cursors) if cursor >= 0
        ]
        requests.append(PageRequest(from_seq=head, limit=3, epoch=state.epoch + 1, include_tags=True))
        pages.extend(_page(core, name, request, records) for request in requests)
        problem = _one_by_one(core, name, records)
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


def _walk(
    core: Core,
    name: str,
    cursor: int,
    limit: int,
    pages: list[SeenPage],
    records: dict[int, tuple[Record, int, bytes]],
) -> str | None:
    """Read through as a following reader does."""
    for _ in range(WALK_MAX):
        page = _page(core, name, PageRequest(from_seq=cursor, limit=limit, include_tags=True), records)
        pages.append(page)
        if page.next == page.head:
            return None
        if page.next <= cursor and page.tombstone is None:
            return f"{name}: a reader at {cursor} gets nowhere"
        cursor = page.next
    return f"{name}: {WALK_MAX} pages and no end"


def _page(core: Core, name: str, request: PageRequest, records: dict[int, tuple[Record, int, bytes]]) -> SeenPage:
    page: Page = core.page(name, request)
    raws = _records.decode(b"[" + b"".join(page.pieces) + b"]") if page.count else []
    assert len(raws) == page.count, f"{name}: a page says {page.count} records and holds {len(raws)}"
    seqs = []
    for raw in raws:
        text = bytes(raw)
        found = _fragment.decode(text)
        seqs.append(found.seq)
        known = records.setdefault(found.seq, (found.record(), found.ts, text))
        assert known[2] == text, f"{name}: seq {found.seq} reads differently from different cursors"
    stone = page.tombstone
    told = None
    if stone is not None:
        told = (
            stone.gap_from,
            stone.gap_to,
            stone.reason.value,
            stone.missed_estimate,
            stone.earliest_seq,
            stone.head_seq,
        )
    return SeenPage(
        request.from_seq,
        request.limit,
        told,
        tuple(seqs),
        page.next_from_seq,
        page.head_seq,
        page.earliest_seq,
        request.epoch is not None,
    )


def _one_by_one(core: Core, name: str, records: dict[int, tuple[Record, int, bytes]]) -> str | None:
    """Records fetched alone are the same bytes."""
    for seq in list(records)[:2] + list(records)[-2:]:
        alone = core.record(name, seq)
        if alone != records[seq][2]:
            return f"{name}: seq {seq} alone is {alone!r}, in a page {records[seq][2]!r}"
    return None
