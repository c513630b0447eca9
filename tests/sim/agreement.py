"""Whether the engine and the second reader find the same in a directory."""

from __future__ import annotations

import msgspec

from engine.clock import Clock
from engine.limits import EngineSettings
from engine.store.recovery import Frame, open_store
from engine.types import Durability
from tests.sim.disk import FakeDisk
from tests.sim.media import Tree
from tests.sim.second_reader import ReadFrame, read_frames, read_topics
from tests.sim.view import View


def disagreement(tree: Tree, boot: str, view: View, clock: Clock, settings: EngineSettings) -> str | None:
    """What the second reader sees otherwise than the engine, or None. `view` is what the engine made of the tree."""
    if tree.get("STORE") is None:
        return None
    mine = read_frames(tree)
    disk = FakeDisk.of_tree(tree, boot=boot)
    opened = open_store(disk, clock, settings)
    if opened.checkpoints:
        return None  # the second reader begins where the log began; here that is in a snapshot
    theirs = [item for item in opened.frames() if isinstance(item, Frame)]
    kept = {(frame.shard, frame.lsn) for frame in theirs}
    dropped = [frame for frame in mine if (frame.shard, frame.lsn) not in kept]
    if dropped and (settings.wal_shards == 1 or {frame.tick for frame in dropped} != {mine[-1].tick}):
        return f"only the second reader finds {_places(dropped)}"
    mine = [frame for frame in mine if (frame.shard, frame.lsn) in kept]
    if [_key_of(frame) for frame in mine] != [_engine_key_of(frame) for frame in theirs]:
        return f"frames differ: {len(mine)} and {len(theirs)}"
    return _compare_topics(mine, view)


def _compare_topics(mine: list[ReadFrame], view: View) -> str | None:
    topics = read_topics(mine)
    if topics.keys() != view.topics.keys():
        return f"topics {sorted(topics)}, the engine has {sorted(view.topics)}"
    for name, topic in topics.items():
        seen = view.topics[name]
        if topic.epoch != seen.epoch or topic.config != msgspec.to_builtins(seen.config):
            return f"{name}: epoch or configuration differ"
        live = {seq: text for seq, (_, _, text) in seen.records.items()}
        if seen.config.durability is Durability.EPHEMERAL:
            continue
        there = {seq: text for seq, text in topic.records.items() if seq in live} if topic.bounded else topic.records
        if live != there:
            return f"{name}: records {sorted(there)}, the engine has {sorted(live)}"
    return None


def _key_of(frame: ReadFrame) -> tuple[object, ...]:
    return (frame.shard, frame.lsn, frame.type, frame.flags, frame.count, frame.topic_id, frame.first_seq, frame.body)


def _engine_key_of(frame: Frame) -> tuple[object, ...]:
    return (frame.shard, frame.lsn, frame.type, frame.flags, frame.count, frame.topic_id, frame.first_seq, frame.body)


def _places(frames: list[ReadFrame]) -> list[tuple[int, int]]:
    return [(frame.shard, frame.lsn) for frame in frames[:5]]
