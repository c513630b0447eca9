"""Two stores that are told the same: one keeps all in its log and memory, the other one makes checkpoints at random
moments, holds next to nothing in memory, finds nothing in the page cache, and is killed now and then. Nobody can tell
which is which."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from engine.commands import Batch, DeleteSelector
from engine.core import Ticket
from engine.core.jobs import outcome
from engine.core.reads import until_read
from engine.errors import TopicsError
from engine.types import ConfigChanges, Discard, Durability, Match, PageRequest
from tests.core.hand import SMALL, Hand
from tests.topic.test_model import DATAS, METAS, NODES, TAGS

HOT = msgspec.structs.replace(SMALL, checkpoint_ms=1 << 40, stop_checkpoint_bytes=1 << 40)
RECORD = st.tuples(st.sampled_from(DATAS), st.sampled_from(METAS), st.sampled_from(TAGS), st.sampled_from(NODES))
NAMES = st.sampled_from(["t", "t", "t", "u"])
SEQS = st.integers(1, 200)
MATCHES = st.sampled_from([None, Match("Eq", "t"), Match("Glob", "t"), Match("Eq", "é\n"), Match("Glob", "")])
CHANGES = st.builds(
    ConfigChanges,
    ttl_ms=st.sampled_from([0, 0, 40, 300]),
    cap_records=st.sampled_from([0, 0, 15, 60]),
    cap_bytes=st.sampled_from([0, 0, 500, 4000]),
    discard=st.sampled_from([Discard.OLD, Discard.OLD, Discard.REJECT]),
    dedupe_node=st.booleans(),
    durability=st.sampled_from([Durability.DISK, Durability.DISK, Durability.FSYNC]),
)
APPEND = st.tuples(st.just("append"), NAMES, st.lists(RECORD, min_size=1, max_size=12), st.integers(1, 6))
COMMANDS = st.one_of(
    APPEND,
    APPEND,
    st.tuples(st.just("delete"), NAMES, st.none() | SEQS, MATCHES, st.none() | st.lists(SEQS, max_size=8)),
    st.tuples(st.just("config"), NAMES, CHANGES),
    st.tuples(st.just("drop"), NAMES),
    st.tuples(st.just("checkpoint")),
    st.tuples(st.just("checkpoint")),
    st.tuples(st.just("begin"), st.integers(1, 6)),
    st.tuples(st.just("restart")),
    st.tuples(st.just("pass"), st.integers(0, 60)),
)
REQUESTS = st.builds(
    PageRequest,
    limit=st.sampled_from([1, 3, 20, 256]),
    max_bytes=st.sampled_from([1, 300, 2000, 1 << 20]),
    nodes=st.sampled_from([frozenset[str](), frozenset({"n"}), frozenset({"m", 'q"'})]),
    match=MATCHES,
    to_seq=st.none() | SEQS,
    include_tags=st.booleans(),
    include_meta=st.booleans(),
    include_data=st.booleans(),
    lines=st.booleans(),
)


def keep(hand: Hand, steps: int = 1000) -> None:
    """Go on with a checkpoint that is asked for or under way."""
    for _ in range(steps):
        hand.settle()
        again = hand.core.keep_step()
        job = hand.core.keep_job()
        if job is not None:
            hand.core.keep_done(job, outcome(job, hand.fs))
        elif not again and not hand.core.keeper.active:
            return


def wait(hand: Hand, ticket: Ticket[bool]) -> None:
    hand.settle()
    assert ticket.done


def tell(hand: Hand, step: tuple[Any, ...]) -> Any:
    """One command; its answer, or the code that it was refused with."""
    core = hand.core
    try:
        match step:
            case ("append", name, records, times):
                datas, metas, tags, nodes = (list(column) * times for column in zip(*records, strict=True))
                batch = Batch(datas, tags=tags, nodes=nodes, metas=metas)
                return hand.take(core.append(name, batch))
            case ("delete", name, before, chosen, seqs):
                selector = DeleteSelector(before_seq=before, match=chosen, seqs=None if seqs is None else tuple(seqs))
                asked = partial(core.delete, name, selector)
                return hand.take(until_read(core, asked, partial(wait, hand)))
            case ("config", name, changes):
                return hand.take(core.put_topic(name, changes))
            case ("drop", name):
                return hand.take(core.drop_topic(name))
    except TopicsError as error:
        return error.code
    return None


def same(hot: Hand, cold: Hand, requests: list[PageRequest]) -> None:
    """Everything that a client can see."""
    hot.core.end_of_reads()
    for state, other in zip(hot.core.list_topics("", 10, "")[0], cold.core.list_topics("", 10, "")[0], strict=True):
        assert msgspec.structs.replace(state, last_read_ts=0) == msgspec.structs.replace(other, last_read_ts=0)
        name, head = state.topic, state.head_seq
        for request in requests:
            for cursor in {*range(0, head, max(head // 12, 1)), head}:
                asked = msgspec.structs.replace(request, from_seq=cursor)
                wanted = hot.core.page(name, asked)
                given = until_read(cold.core, partial(cold.core.page, name, asked), partial(wait, cold))
                assert b"".join(given.pieces) == b"".join(wanted.pieces), asked
                assert msgspec.structs.replace(given, pieces=[]) == msgspec.structs.replace(wanted, pieces=[]), asked
                cold.core.end_of_reads()
        for seq in range(1, head + 2, max(head // 12, 1)):
            assert one(cold, name, seq) == one(hot, name, seq)


def one(hand: Hand, name: str, seq: int) -> Any:
    try:
        return until_read(hand.core, partial(hand.core.record, name, seq), partial(wait, hand))
    except TopicsError as error:
        return error.detail


@pytest.mark.slow
@settings(max_examples=25, phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink])
@given(
    st.lists(COMMANDS, min_size=4, max_size=25),
    st.lists(REQUESTS, min_size=1, max_size=3),
    st.sampled_from([1, 3000, 1 << 20]),
    st.sampled_from([10, 40]),
    st.booleans(),
)
def test_a_store_with_checkpoints_shows_what_one_without_shows(
    steps: list[tuple[Any, ...]], requests: list[PageRequest], cache_bytes: int, events: int, page_cache: bool
) -> None:
    hot = Hand(settings=HOT)
    cold = Hand(
        settings=msgspec.structs.replace(HOT, cache_bytes=cache_bytes, segment_max_events=events, segment_age_ms=50)
    )
    cold.disk.page_cache = page_cache
    for step in steps:
        if step[0] == "checkpoint":
            ticket = cold.core.checkpoint()
            keep(cold)
            assert ticket.value().number
        elif step[0] == "begin":
            cold.core.checkpoint()
            keep(cold, step[1])
        elif step[0] == "restart":
            cold, hot = cold.reopen(), hot.reopen()
            cold.disk.page_cache = page_cache
        elif step[0] == "pass":
            for hand in (hot, cold):
                hand.pass_ms(step[1])
                hand.settle()
        else:
            assert tell(cold, step) == tell(hot, step), step
    same(hot, cold, requests)
    history = cold.core.catalog.cache.history
    assert history.held == sum(item.weight for item in history._kept.values())
