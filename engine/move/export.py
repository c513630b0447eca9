"""From here: what a store puts into the place, and how it asks whose a topic is.

`export_topic` copies a pin of the one topic, whole and read back, its manifest last; nobody takes it for an offer.
`put_offer` makes it one. Both may be done again after any interruption, and give the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec
from xxhash import xxh3_128, xxh3_128_hexdigest

from engine.checkpoint.pin import read_manifest
from engine.errors import StoreDamaged, StoreForeign
from engine.formats.export import MANIFEST_NAME, ExportFile, ExportManifest
from engine.formats.manifest import BadMeta, decode_meta, encode_meta
from engine.formats.moving import (
    MARKER_BYTES_MAX,
    MOVE_FORMAT,
    OFFER_NAME,
    TAKEN_NAME,
    MoveBody,
    Offer,
    Taken,
    move_dir,
    queue_counts,
)
from engine.formats.snapshot import BadSnapshot
from engine.fs import Fs, OpenMode, read_file
from engine.move.place import Place, PlaceFs
from engine.segment.tiers import SegmentStore
from engine.store.snapshots import read_snapshot

_PIECE: Final = 1 << 20


class _File:
    """A file of a pin, as often as somebody goes through it; `digest` is of what the last one got."""

    def __init__(self, fs: Fs, file: ExportFile) -> None:
        self.digest = ""
        self._fs = fs
        self._file = file

    def __iter__(self) -> Iterator[bytes]:
        digest, offset = xxh3_128(), 0
        handle = self._fs.open(self._file.path, OpenMode.READ)
        try:
            while part := self._fs.pread(handle, min(_PIECE, self._file.bytes - offset), offset):
                digest.update(part)
                offset += len(part)
                yield part
                if offset == self._file.bytes:
                    break
        finally:
            self._fs.close(handle)
        if offset != self._file.bytes:
            raise StoreDamaged(f"{self._file.path} is {offset} bytes long, the manifest says {self._file.bytes}")
        self.digest = digest.hexdigest()


def export_topic(source: Fs, place: Place, topic: str, token: str) -> ExportManifest:
    """Copy a pin of one topic, all of which is sealed. `source` has the cold tier's files, too. Raises `OSError` and
    `StoreDamaged`."""
    pinned = read_manifest(source)
    if [one.name for one in pinned.topics] != [topic]:
        raise StoreDamaged(f"the pin does not hold topic {topic!r} alone")
    loose = next((file.path for file in pinned.files if file.path.startswith("meta/tails-")), None)
    if loose is not None:
        raise StoreDamaged(f"{loose} holds records that could not be sealed: is the topic damaged?")
    base = move_dir(topic, token)
    files = []
    for file in pinned.files:
        reading = _File(source, file)
        place.put(f"{base}/{file.path}", reading)
        digest = reading.digest
        if file.xxh3_128 not in (None, digest) or _digest(place, f"{base}/{file.path}") != digest:
            raise StoreDamaged(f"{file.path}: what was copied is not what was pinned")
        files.append(ExportFile(path=file.path, bytes=file.bytes, xxh3_128=digest))
    complete = msgspec.structs.replace(pinned, files=files, cold=None)
    place.put(f"{base}/{MANIFEST_NAME}", [encode_meta(complete)])
    return complete


def _digest(place: SegmentStore, name: str) -> str:
    digest, each = xxh3_128(), place.piece_bytes
    for offset in range(0, place.size(name), each):
        digest.update(place.get_range(name, offset, each))
    return digest.hexdigest()


def read_marker(place: SegmentStore, name: str) -> bytes | None:
    """The content of a small file, or None where there is none. Raises `OSError`."""
    try:
        return place.get_range(name, 0, MARKER_BYTES_MAX)
    except FileNotFoundError:
        return None


def exported(place: SegmentStore, base: str) -> tuple[bytes, ExportManifest, PlaceFs]:
    """An export's manifest, as bytes and read, and its files. Raises `OSError` and `StoreDamaged`."""
    try:
        length = place.size(f"{base}/{MANIFEST_NAME}")
    except FileNotFoundError as error:
        raise StoreDamaged(f"{base}/{MANIFEST_NAME} is missing: the export was cut short") from error
    alone = PlaceFs(place, base, {MANIFEST_NAME: length})
    content, manifest = read_file(alone, MANIFEST_NAME), read_manifest(alone)
    return content, manifest, PlaceFs(place, base, {MANIFEST_NAME: length} | {f.path: f.bytes for f in manifest.files})


def put_offer(place: Place, topic: str, move: MoveBody, store_id: bytes) -> Offer:
    """Let another store take the topic: its export is there, and the log says that it was offered.

    Raises `OSError`, and `StoreDamaged` for an export that is not what it was.
    """
    base = move_dir(topic, move.token)
    content, manifest, fs = exported(place, base)
    if manifest.store_id != store_id.hex():
        raise StoreDamaged(f"{base} was exported by another store")
    try:
        image, config = next(read_snapshot(fs, manifest.checkpoint, store_id).topics())
    except (BadSnapshot, StopIteration) as error:
        raise StoreDamaged(f"{base}: its snapshot cannot be read: {error}") from error
    told = manifest.topics[0]
    offer = Offer(
        format=MOVE_FORMAT,
        token=move.token,
        topic=topic,
        epoch=image.epoch,
        from_store=store_id.hex(),
        from_topic=told.id,
        created_ms=manifest.created_ms,
        last_seq=image.head,
        earliest_seq=image.earliest,
        count=image.count,
        bytes=image.size,
        config=config,
        deleted=told.deleted,
        gaps=told.gaps,
        losses=told.losses,
        cursors=image.cursors,
        queue=queue_counts(image.queue),
        manifest=xxh3_128_hexdigest(content),
        url=move.url,
    )
    there = place.put_once(f"{base}/{OFFER_NAME}", encode_meta(offer), store_id.hex())
    return _decoded(there, Offer, f"{base}/{OFFER_NAME}", move.token)


def read_offer(place: SegmentStore, topic: str, token: str) -> Offer | None:
    """What is offered under a token, or None. Raises `OSError` and `StoreDamaged`."""
    name = f"{move_dir(topic, token)}/{OFFER_NAME}"
    content = read_marker(place, name)
    return None if content is None else _decoded(content, Offer, name, token)


def read_taken(place: SegmentStore, topic: str, token: str) -> Taken | None:
    """Whose the topic is, or None as long as nobody has taken it. Raises `OSError` and `StoreDamaged`."""
    name = f"{move_dir(topic, token)}/{TAKEN_NAME}"
    content = read_marker(place, name)
    return None if content is None else _decoded(content, Taken, name, token)


def take(place: Place, topic: str, token: str, store_id: bytes, now_ms: int, url: str | None = None) -> Taken:
    """Make the topic this store's, unless somebody was faster; whose it is. Raises `OSError` and `StoreDamaged`."""
    name = f"{move_dir(topic, token)}/{TAKEN_NAME}"
    mine = Taken(format=MOVE_FORMAT, token=token, by=store_id.hex(), ts=now_ms, url=url)
    return _decoded(place.put_once(name, encode_meta(mine), store_id.hex()), Taken, name, token)


M = TypeVar("M", Offer, Taken)


def _decoded(content: bytes, kind: type[M], name: str, token: str) -> M:
    try:
        marker = decode_meta(content, kind)
    except BadMeta as error:
        raise StoreDamaged(f"{name} is damaged: {error}") from error
    if marker.format > MOVE_FORMAT:
        raise StoreForeign(f"{name} has format {marker.format}, newer than {MOVE_FORMAT}, the newest known")
    if marker.token != token:
        raise StoreDamaged(f"{name} speaks of {marker.token}: it lies in the wrong place")
    return marker
