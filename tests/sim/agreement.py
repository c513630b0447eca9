"""Whether the engine and the second reader find the same in a directory.

`disagreement` reads a tree with both. The frames that they follow must be the same ones; so must be, of every topic,
its identity, its head, its records byte by byte, what it has lost, its keys, its cursors, where it has gone, how often
each copy was forwarded, and of a queue its counters and how often each job was delivered; and so must be the routers,
and the offers of other stores that were taken. Records that a
cap or an age took are gone without a frame, so of topics with such bounds the oldest ones may be missing on the
engine's side, and nothing else. What is in memory alone (ephemeral topics) is in no file.
"""

from __future__ import annotations

import msgspec

from engine.clock import Clock
from engine.core import Core
from engine.limits import EngineSettings
from engine.store.recovery import Frame, OpenedStore, open_store
from engine.types import Durability
from tests.sim.disk import FakeDisk
from tests.sim.media import Tree
from tests.sim.second_reader import ReadFrame, ReadStore, ReadTopic, log_problem, read_all, read_store
from tests.sim.second_routers import ReadRouter
from tests.sim.view import TopicView, View

MOVE = ("state", "to", "token", "generation", "url")
"""What is said of a topic that is not here."""


def disagreement(
    tree: Tree, boot: str, view: View, core: Core, clock: Clock, settings: EngineSettings, cold: Tree | None = None
) -> str | None:
    """What the second reader sees otherwise than the engine, or None. `core` was started on the tree, and `view` is
    what it showed."""
    if tree.get("STORE") is None:
        return None
    mine = read_store(tree, cold)
    opened = open_store(FakeDisk.of_tree(tree, boot=boot), clock, settings)
    number = None if mine.snapshot is None else mine.snapshot.globals["number"]
    if number != (None if opened.snapshot is None else opened.snapshot.number):
        return f"it begins with snapshot {number}, the engine with {opened.snapshot}"
    problem = log_problem(tree, mine)
    if problem is not None:
        return problem
    kept = _same_frames(mine.frames, opened, settings)
    if isinstance(kept, str):
        return kept
    read = read_all(ReadStore(mine.snapshot, kept), tree, cold)
    topics = read.topics
    if topics.keys() != view.topics.keys():
        return f"topics {sorted(topics)}, the engine has {sorted(view.topics)}"
    for name, topic in topics.items():
        wrong = _compare_topic(topic, view.topics[name]) or _compare_inside(topic, core, view.now)
        if wrong is not None:
            return f"{name}: {wrong}"
    if read.attached != core.catalog.attached:
        return f"offers {sorted(read.attached)} were taken, for the engine {sorted(core.catalog.attached)}"
    return _compare_routers(read.routers, core)


def _same_frames(mine: list[ReadFrame], opened: OpenedStore, settings: EngineSettings) -> list[ReadFrame] | str:
    """The frames that both follow, or where they part. A last group that is not whole is the engine's to drop."""
    theirs = [item for item in opened.frames() if isinstance(item, Frame)]
    there = {(frame.shard, frame.lsn) for frame in theirs}
    dropped = [frame for frame in mine if (frame.shard, frame.lsn) not in there]
    if dropped and (settings.wal_shards == 1 or {frame.tick for frame in dropped} != {mine[-1].tick}):
        return f"only it finds {[(frame.shard, frame.lsn) for frame in dropped[:5]]}"
    kept = [frame for frame in mine if (frame.shard, frame.lsn) in there]
    if [_key_of(frame) for frame in kept] != [_key_of(frame) for frame in theirs]:
        return f"frames differ: {len(kept)} and {len(theirs)}"
    return kept


def _key_of(frame: ReadFrame | Frame) -> tuple[object, ...]:
    return (frame.shard, frame.lsn, frame.type, frame.flags, frame.count, frame.topic_id, frame.first_seq, frame.body)


def _compare_topic(topic: ReadTopic, seen: TopicView) -> str | None:
    """What readers see."""
    if topic.epoch != seen.epoch or topic.config != msgspec.to_builtins(seen.config):
        return "epoch or configuration differ"
    if seen.config.durability is Durability.EPHEMERAL:
        return None
    if topic.head > seen.head or seen.records.keys() - topic.records.keys():
        return f"head {topic.head}, records {sorted(topic.records)}; the engine {seen.head}, {sorted(seen.records)}"
    live = {seq: text for seq, (_, _, text) in seen.records.items()}
    there = topic.records
    if topic.bounded:
        there = {seq: text for seq, text in there.items() if seq >= seen.earliest}
    if live != there:
        return f"records {sorted(there)}, the engine has {sorted(live)}"
    if topic.fresh and not topic.config["ttl_ms"]:
        if topic.counted != (seen.count, seen.size):
            return f"its snapshot counts {topic.counted}, the engine {(seen.count, seen.size)}"
        if topic.earliest != seen.earliest and seen.count:
            return f"its snapshot begins at {topic.earliest}, the engine at {seen.earliest}"
    return _compare_losses(topic, seen)


def _compare_losses(topic: ReadTopic, seen: TopicView) -> str | None:
    """Every loss is met as a tombstone, and every tombstone is about a loss."""
    told = {page.tombstone[:3] for page in seen.pages if page.tombstone is not None and not page.foreign_epoch}
    stones = [stone for stone in told if stone[2] != "recreated"]
    for first, last, reason in topic.losses:
        if not any(low <= first and last <= high for low, high, _ in stones):
            return f"nobody is told that {first}…{last} was lost ({reason}): {sorted(stones)}"
    if topic.bounded or topic.reserved:
        return None
    losses = [*topic.losses, (topic.head + 1, seen.head, "crash")]
    for low, high, reason in stones:
        about = [why for first, last, why in losses if first <= high and low <= last]
        if not about or (reason not in about and reason != "mixed"):
            return f"a tombstone {low}…{high} ({reason}) where only {losses} was lost"
    return None


def _compare_inside(topic: ReadTopic, core: Core, now: int) -> str | None:
    """What only writers notice: keys; and what a queue knows."""
    slot = core.catalog.visible[topic.name]
    cursors = {name: tuple(place) for name, place in (slot.cursors or {}).items()}
    if topic.cursors != cursors:
        return f"cursors {topic.cursors}, the engine has {cursors}"
    moved = None if slot.moved is None else {name: getattr(slot.moved, name) for name in MOVE}
    move = None if topic.move is None else {name: topic.move.get(name) for name in MOVE}
    if (move, topic.moves) != (moved, slot.moves):
        return f"offered {topic.moves} times, now {move}; the engine says {slot.moves}, {moved}"
    if slot.config.durability is Durability.EPHEMERAL:
        return None
    window = slot.topic.idempotency
    keys = {key: (used.first_seq, used.count, used.digest, used.ts) for key, used in window.entries()}
    age = slot.config.idempotency_window_ms
    if {key: used for key, used in topic.keys.items() if now - used[3] < age} != {
        key: used for key, used in keys.items() if now - used[3] < age
    }:
        return f"keys {topic.keys}, the engine has {keys}"
    for seq in topic.records if slot.hops is not None else topic.hops.keys() & topic.records.keys():
        count = 0 if slot.hops is None else slot.hops.at(seq)[0]
        if seq >= slot.topic.earliest_seq and topic.hops.get(seq, 0) != count:
            return f"{seq} was forwarded {topic.hops.get(seq, 0)} times, for the engine {count}"
    return None if slot.host is None or topic.bounded else _compare_queue(topic, core)


def _compare_routers(routers: dict[int, ReadRouter], core: Core) -> str | None:
    mine = {
        number: (one.name, one.source, one.dest, one.cursor, one.forwarded, one.definition)
        for number, one in routers.items()
    }
    theirs = {}
    for number, router in core.catalog.routers.by_number.items():
        body = msgspec.structs.asdict(router.body(router.spec))
        place = [body.pop(name) for name in ("name", "source", "cursor", "forwarded")]
        del body["number"]
        body["filter"] = msgspec.to_builtins(body["filter"])
        theirs[number] = (*place[:2], router.dest, *place[2:], body)
    return None if mine == theirs else f"routers {mine}, the engine has {theirs}"


def _compare_queue(topic: ReadTopic, core: Core) -> str | None:
    counters = core.state(topic.name).queue
    host = core.catalog.visible[topic.name].host
    assert counters is not None
    assert host is not None
    mine = topic.queue
    told = (mine.acked, mine.dead_lettered, mine.deleted, mine.evicted)
    theirs = tuple(counters[name] for name in ("acked", "dead_lettered", "deleted", "evicted"))
    if told != theirs:
        return f"acked, dead-lettered, deleted, evicted {told}, the engine counts {theirs}"
    delivered = {job.seq: job.deliveries for job in host.queue.snapshot().jobs if job.deliveries}
    if mine.deliveries != delivered:
        return f"deliveries {mine.deliveries}, the engine has {delivered}"
    return None
