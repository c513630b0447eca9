"""To here: what a place offers, and the copying of a topic's records into segments of this store.

The export is opened as the store that it is, by the code of a start, and each segment is read through its checks and
written anew, with this store's id and the topic's new one: nothing that comes out of a place is trusted, and no file
here depends on another store afterwards. A record that does not check refuses the whole: the store that offered the
topic still has it, and takes it back.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from xxhash import xxh3_128_hexdigest

from engine.checkpoint.jobs import Copy
from engine.checkpoint.sources import Readers, source_of
from engine.clock import Clock
from engine.core.images import note_places
from engine.core.inspection import Inspection
from engine.errors import StoreDamaged
from engine.formats.attach import ATTACHED_NUMBER, AttachBody
from engine.formats.frame import seed_of
from engine.formats.moving import MOVES_DIR, Offer, Taken, move_dir
from engine.formats.snapshot import SegmentEntry
from engine.fs import Fs
from engine.limits import EngineSettings
from engine.move.export import exported, read_offer, read_taken
from engine.names import is_topic_name
from engine.segment.segment import topic_dir
from engine.segment.tiers import SegmentStore
from engine.segment.write import remove, remove_empty, write_segment
from engine.store.snapshots import entry_of
from engine.topic.image import dump

OFFERS_MAX: Final = 1000
"""Offers that are looked at when none is named."""


class Offered(NamedTuple):
    """An offer that was found, and who has taken it (None: nobody)."""

    offer: Offer
    taken: Taken | None


def find_offers(place: SegmentStore, topic: str | None = None, token: str | None = None) -> list[Offered]:
    """What is offered, of one topic or all, under one token or any, by name. Raises `OSError` and `StoreDamaged`."""
    found: list[Offered] = []
    topics = [topic] if topic is not None else [name for name in place.list(MOVES_DIR) if is_topic_name(name)]
    for name in topics:
        for one in [token] if token is not None else place.list(f"{MOVES_DIR}/{name}"):
            offer = read_offer(place, name, one)
            if offer is not None:
                found.append(Offered(offer, read_taken(place, name, one)))
            if len(found) >= OFFERS_MAX:
                return found
    return found


class Arrival:
    """The copying of one offered topic. `body` is there when it ran well."""

    def __init__(
        self, place: SegmentStore, offer: Offer, topic_id: int, store_id: bytes, clock: Clock, settings: EngineSettings
    ) -> None:
        """`topic_id`: what it gets here (`Handover.expect`); `store_id`: of the store that it comes to."""
        self.body: AttachBody | None = None
        self._place = place
        self._offer = offer
        self._id = topic_id
        self._store_id = store_id
        self._clock = clock
        self._settings = settings
        self._paths: list[str] = []

    def run(self, fs: Fs) -> None:
        """Copy. Raises `OSError` and `StoreDamaged`; then what was made is gone again as far as possible."""
        offer = self._offer
        content, _, source = exported(self._place, move_dir(offer.topic, offer.token))
        if xxh3_128_hexdigest(content) != offer.manifest:
            raise StoreDamaged(f"the export of topic {offer.topic!r} is not the one that was offered")
        look = Inspection(source, self._clock, self._settings)
        try:
            self._clear(fs)
            self.body = self._copied(fs, source, look)
        except BaseException:
            self.undo(fs)
            raise
        finally:
            look.close()

    def _clear(self, fs: Fs) -> None:
        """Remove what an attempt of another process has left under the same id: nothing names it."""
        directory = topic_dir(self._id)
        if fs.exists(directory):
            remove(fs, [f"{directory}/{name}" for name in fs.list(directory)])

    def undo(self, fs: Fs) -> None:
        """Remove what was made: nothing names it."""
        self.body = None
        remove(fs, self._paths)
        remove_empty(fs, topic_dir(self._id))
        self._paths = []

    def _copied(self, fs: Fs, source: Fs, look: Inspection) -> AttachBody:
        offer = self._offer
        slot = look.catalog.visible.get(offer.topic)
        if slot is None or (slot.topic.head, slot.topic.epoch) != (offer.last_seq, offer.epoch):
            raise StoreDamaged(f"the export of topic {offer.topic!r} does not hold what was offered")
        topic, opened = slot.topic, look.store
        readers = Readers(source, opened.store_id, seed_of(opened.store_id), {})
        entries: list[SegmentEntry] = []
        now_ms, durable = self._clock.wall_ms(), set[str]()
        topic.id = self._id  # what is read is named by its segments; what is written, by this
        try:
            for block in topic.tail.blocks:
                copy = Copy(topic, [block], [source_of(topic, block)])
                built = copy.build(readers)
                if copy.why is not None:
                    raise StoreDamaged(f"topic {topic.name!r}: {copy.why}")
                if built is None:
                    continue
                segment = write_segment(fs, self._store_id, now_ms, ATTACHED_NUMBER, built, durable)
                self._paths += segment.paths()
                entries.append(entry_of(segment, block.live, block.live_bytes, built.tag_set))
        finally:
            readers.close()
        image = dump(topic, 0, 0)
        image.quiet = True
        image.segments = entries
        if slot.host is not None:
            image.queue = slot.host.queue.snapshot()
        note_places(image, slot, look.catalog.routers)
        return AttachBody(token=offer.token, image=image, config=topic.config)
