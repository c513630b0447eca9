"""Files of a checkpointed store hurt as a stranger would, and what a running engine makes of it: gaps or refusals.

    python -m tests.tools.mangled [COUNT] [SEED]

A segment, an index, a table of tags, a `.del` or a tails file is flipped, cut, zeroed by pages, has bytes put in, is
exchanged with a sibling or gets pages of one, or is the file of the same kind of another store, COUNT times for each
kind, and sometimes a second file with it. Then the engine is started on it, every topic is read from 0, also by tag,
and a checkpoint copies everything that is there, which is taken down before the reads and run after them, or the other
way round. Nothing may be raised but the documented errors, no record may come out that was not written, none may be
missing without a gap, and topics whose files were not touched read as ever. `fsck` looks at one in ten. `test_mangled`
runs a slice of the same in `make test`.
"""

from __future__ import annotations

import random
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec

from engine.commands import Batch, DeleteSelector
from engine.core import Ticket
from engine.core.jobs import outcome
from engine.core.reads import until_read
from engine.errors import StoreError, TopicsError
from engine.limits import KIB
from engine.segment.segment import parse_segment_path
from engine.tools.fsck import Fsck
from engine.types import Match, Page, PageRequest, Reason
from tests.core.hand import SMALL, Hand, records
from tests.sim.clock import ManualClock
from tests.sim.disk import FakeDisk
from tests.sim.media import Tree
from tests.sim.still import StillDisk

KINDS = (".data", ".idx", ".tags", ".del", "tails")
TOPICS = ("a", "b", "c", "d")
PAGE = 4096
TAGS = ("red", "green", "blue")
SETTINGS = msgspec.structs.replace(SMALL, segment_max_events=40, hot_retain_segments=1, wal_small_bytes=64 * KIB)


class Store:
    """Topics with segments, deleted rows, pieces in tails files and some log, as a killed process left it."""

    def __init__(self, name: str) -> None:
        rng = random.Random(name)
        clock = ManualClock()
        clock.tick(rng.randrange(1, 1000))
        hand = Hand(clock=clock, settings=SETTINGS)
        for topic in TOPICS:
            hand.create(topic)
        for round_ in range(4):
            for topic in TOPICS:
                self._write(hand, topic, rng, 30 if round_ < 2 else rng.randrange(1, 19))
            seqs = tuple(rng.sample(range(1, 25), 3))
            hand.take(hand.core.delete(rng.choice(TOPICS), DeleteSelector(seqs=seqs)))
            hand.quieten()
            checkpoint(hand)
        hand.write("a", name)
        hand.settle()
        self.clock = hand.clock
        self.tree: Tree = hand.disk.killed().cached_tree()
        self.truth = Reader(self.start(self.tree), {}).all()

    @staticmethod
    def _write(hand: Hand, topic: str, rng: random.Random, count: int) -> None:
        batch = Batch.of(
            [{"of": topic, "n": rng.randrange(10**6), "pad": "x" * rng.randrange(300)} for _ in range(count)]
        )
        if topic != "d":
            batch.tags = [rng.choice(TAGS) for _ in range(count)]
        if topic == "b":
            batch.nodes = [rng.choice(("n1", None)) for _ in range(count)]
            batch.metas = [rng.choice((b'{"m":1}', None)) for _ in range(count)]
        hand.take(hand.core.append(topic, batch))

    def start(self, tree: Tree) -> Hand:
        return Hand(FakeDisk.of_tree(tree, boot="boot-1"), clock=self.clock.restart(), settings=SETTINGS)


def files(tree: Tree, kind: str) -> list[str]:
    """The files of a kind that are not empty."""
    return sorted(path for path, content in tree.items() if content and _is(kind, path))


def _is(kind: str, path: str) -> bool:
    if kind == "tails":
        return "tails-" in path
    return path.endswith(kind) and "tails-" not in path


def checkpoint(hand: Hand) -> None:
    """One checkpoint, or what becomes of it."""
    ticket = hand.core.checkpoint()
    for _ in range(200):
        hand.core.keep_step()
        if (job := hand.core.keep_job()) is not None:
            hand.core.keep_done(job, outcome(job, hand.disk))
        hand.settle()
        if ticket.done or hand.core.keeper.problem is not None:
            return
    raise AssertionError("the checkpoint never ends")


Truth = dict[str, dict[int, Any]]


class Reader:
    """Reads all of a running store, and compares."""

    def __init__(self, hand: Hand, truth: Truth) -> None:
        self.hand = hand
        self.truth = truth

    def all(self) -> Truth:
        return {topic: {seq: one for seq, one in self.topic(topic) if one is not None} for topic in TOPICS}

    def topic(self, name: str, match: Match | None = None) -> Iterator[tuple[int, Any]]:
        """Each record with its seq, and None for each seq of a gap that damage made."""
        from_seq = 0
        while True:
            page = self._page(name, PageRequest(from_seq=from_seq, limit=50, match=match, include_tags=True))
            if page.tombstone is not None:
                assert page.tombstone.reason in (Reason.CORRUPTION, Reason.MIXED), page.tombstone
                for seq in range(page.tombstone.gap_from, page.tombstone.gap_to + 1):
                    yield seq, None
            for record in records(page):
                yield record["$seq"], record
            from_seq = page.next_from_seq
            if page.caught_up:
                return

    def _page(self, name: str, request: PageRequest) -> Page:
        return until_read(self.hand.core, partial(self.hand.core.page, name, request), self._wait)

    def _wait(self, ticket: Ticket[bool]) -> None:
        self.hand.settle()
        assert ticket.done, "a reader waits for ever"

    def check(self, untouched: set[str]) -> str:
        """Read everything and compare; how it came out."""
        told = "whole"
        for name in TOPICS:
            try:
                self._compare(name)
                if self.hand.core.state(name).damage:
                    told = "gap"
            except TopicsError:
                told = "refused"
                assert name not in untouched, f"{name} was not touched, and cannot be read"
                continue
            if name in untouched:
                assert not self.hand.core.state(name).damage, f"{name} was not touched, and has lost something"
        return told

    def _compare(self, name: str) -> None:
        truth = self.truth[name]
        seen = dict(self.topic(name))
        for seq, record in seen.items():
            assert record is None or record == truth.get(seq), f"{name}:{seq} is {record}, and was {truth.get(seq)}"
        missing = truth.keys() - seen.keys()
        assert not missing, f"{name}: {sorted(missing)} are missing without a gap"
        for tag in TAGS:
            tagged = {seq for seq, record in self.topic(name, Match("Eq", tag)) if record is not None}
            assert tagged == {seq for seq, record in seen.items() if record and record.get("$tag") == tag}, (name, tag)


def mangle(tree: Tree, other: Store, kind: str, rng: random.Random) -> tuple[str, Tree]:
    """The same tree with a file of a kind hurt, and what was done."""
    tree = dict(tree)
    paths = files(tree, kind)
    path = rng.choice(paths)
    content = bytearray(tree[path] or b"")
    at = rng.randrange(len(content))
    page = at - at % PAGE
    siblings = [one for one in paths if one != path]
    how = rng.choice(
        ("flip", "cut", "empty", "zero", "noise", "insert", "take", "swap", "pages", "gone", "other", "append")
    )
    sibling = rng.choice(siblings) if siblings else path
    match how:
        case "flip":
            content[at] ^= 1 << rng.randrange(8)
        case "cut":
            del content[at:]
        case "empty":
            content.clear()
        case "zero":
            content[page : page + PAGE] = bytes(len(content[page : page + PAGE]))
        case "noise":
            content[at : at + 64] = rng.randbytes(len(content[at : at + 64]))
        case "insert":
            content[at:at] = rng.choice((rng.randbytes(rng.choice((1, 8, 64, PAGE))), b"9" * 12))
        case "take":
            del content[at : at + rng.choice((1, 8, 64))]
        case "swap":
            tree[sibling], content = bytes(content), bytearray(tree[sibling] or b"")
        case "pages":
            # What a disk does that writes to the wrong place, or not at all.
            length = rng.choice((512, PAGE))
            begin, stop = at - at % length, min(at - at % length + length, len(content))
            content[begin:stop] = (tree[sibling] or b"")[begin:stop].ljust(stop - begin, b"\0")
        case "other":
            content = bytearray(
                other.tree[rng.choice([path] if path in other.tree else files(other.tree, kind))] or b""
            )
        case "append":
            content += rng.randbytes(rng.choice((1, 100, 5000)))
    tree[path] = bytes(content)
    if how == "gone":
        del tree[path]
    return f"{how} {path} @{at} ({sibling})", tree


def untouched(store: Store, tree: Tree) -> set[str]:
    """The topics of which no file has changed."""
    changed = {path for path in store.tree if tree.get(path) != store.tree[path]}
    if any("tails-" in path for path in changed):
        return set()
    ids = {parsed[0] for path in changed if (parsed := parse_segment_path(path))}
    return {name for number, name in enumerate(TOPICS, 1) if number not in ids}


def trial(store: Store, tree: Tree, rng: random.Random) -> str:
    """Start on a tree and read it; how it came out. Raises for what must not be."""
    if rng.randrange(10) == 0:
        Fsck(StillDisk(tree, "boot-1"), store.clock, lambda _: None, lambda *_: None, SETTINGS).run()
    try:
        hand = store.start(tree)
    except StoreError:
        return "no start"
    reader = Reader(hand, store.truth)
    whole = untouched(store, tree)
    job = None
    if rng.randrange(2):
        # A checkpoint has taken down what is there before any reader has met the damage.
        for topic in TOPICS:
            late = hand.write(topic, "late")
            [record] = records(hand.page(topic, late.last_seq - 1))
            reader.truth = {**reader.truth, topic: {**reader.truth[topic], late.last_seq: record}}
        hand.core.checkpoint()
        for _ in range(20):
            hand.core.keep_step()
            if (job := hand.core.keep_job()) is not None:
                break
    told = reader.check(whole)
    if job is not None:
        hand.core.keep_done(job, outcome(job, hand.disk))
        hand.settle()
    for _ in range(2):
        checkpoint(hand)
        hand.pass_ms(5_000)
        hand.settle()
    again = reader.check(whole)
    assert told != "whole" or again in ("whole", "gap", "refused")
    hand.core.close()
    Reader(store.start(hand.disk.killed().cached_tree()), reader.truth).check(whole)
    return again


def main(count: int, seed: int) -> int:
    """Hurt every kind of file `count` times; returns the exit status."""
    store, other = Store("ours"), Store("theirs")
    failures = 0
    print(f"{'file':8} {'tried':>7} {'whole':>7} {'gap':>7} {'refused':>8} {'no start':>9} {'raised':>7}")
    for kind in KINDS:
        tally: Counter[str] = Counter()
        for number in range(count):
            try:
                tally[one(store, other, kind, f"{kind} {seed} {number}")] += 1
            except Exception:  # that is what is looked for
                traceback.print_exc()
                tally["raised"] += 1
        failures += tally["raised"]
        cells = [tally[name] for name in ("whole", "gap", "refused", "no start", "raised")]
        print(f"{kind:8} {count:7} " + " ".join(f"{c:{w}}" for c, w in zip(cells, (7, 7, 8, 9, 7), strict=True)))
    return 1 if failures else 0


def one(store: Store, other: Store, kind: str, seed: str) -> str:
    """Hurt a file of a kind, and sometimes one more, and try what comes of it. Raises for what must not be."""
    rng = random.Random(seed)
    what, tree = mangle(store.tree, other, kind, rng)
    if rng.randrange(4) == 0:
        more, tree = mangle(tree, other, rng.choice(KINDS), rng)
        what = f"{what}, {more}"
    try:
        return trial(store, tree, rng)
    except Exception as error:
        error.add_note(f"{seed}: {what}")
        raise


if __name__ == "__main__":
    sys.exit(main(*(int(word) for word in (sys.argv[1:] + ["1000", "1"][len(sys.argv) - 1 :]))))
