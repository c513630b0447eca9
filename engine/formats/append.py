"""The body of an Append frame: one batch, columnar (FORMATS.md, "Append body").

    [flags & 1: u16 key_len + 1, key, 16 bytes digest of the payload]
    u32 frag_len + 1  × count          which is the stride of a record: its comma counted
    [flags & 2: u16 node_len + 1 × count]
    [flags & 4: u32 meta_len + 1 × count]
    [flags & 8: u16 tag_len + 1  × count]
    fragments, joined with ","

All numbers are stored so that none is 0 (see engine/formats/frame.py). The columns are the engine's own arrays, taken
over by the block: one is added to (or taken from) a whole column as one long integer, and 16-bit columns are cut out
of 32-bit ones by strided slices, which for a batch of 1000 costs about a sixth of a loop over its records.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import Final

from engine.formats.frame import FrameType
from engine.fragment import Rendered

FLAG_KEY: Final = 1
FLAG_NODES: Final = 2
FLAG_METAS: Final = 4
FLAG_TAGS: Final = 8
_FLAGS_KNOWN: Final = 15

DIGEST_LEN: Final = 16
APART_BYTES_MIN: Final = 64 * 1024
"""Fragments from here on are written from where they are, and not joined to their columns."""
_U16: Final = Struct("<H")
_ONES_KEPT: Final = 64
"""Columns of ones that are kept for the batch sizes in use."""

_ones_by_size: dict[int, int] = {}


class BadBody(ValueError):
    """A body whose check is good but whose content does not add up: a bug or a newer writer, never a torn write."""


class AppendBody:
    """A decoded Append body; plain slots because it is made for every frame that is replayed or read cold."""

    __slots__ = ("digest", "key", "rendered")

    def __init__(self, key: bytes | None, digest: bytes, rendered: Rendered) -> None:
        self.key = key
        """The idempotency key, or None."""
        self.digest = digest
        """Digest of the payload that came with the key; empty without one."""
        self.rendered = rendered


class SharedBody:
    """The body of a frame that takes one write after another, while it waits for its group (ADR 0050); its records
    have nothing but data.

    body_len   what it has come to; `rendered` are all its records, from when it is `closed`
    """

    __slots__ = ("_fragments", "_size", "_strides", "body_len", "rendered")

    def __init__(self, first: Rendered) -> None:
        self.rendered = first
        self._strides = first.strides[:]
        self._fragments = [first.fragments]
        self._size = first.size
        self.body_len = 4 * len(first.strides) + len(first.fragments)

    @property
    def count(self) -> int:
        return len(self._strides)

    def longer_by(self, more: Rendered) -> int:
        """How long it would be with these records too."""
        return self.body_len + 4 * len(more.strides) + 1 + len(more.fragments)

    def add(self, more: Rendered, body_len: int) -> None:
        """Take these records, of the seqs that follow; `body_len` is what `longer_by` said of them."""
        self._strides.extend(more.strides)
        self._fragments.append(more.fragments)
        self._size = -1 if self._size < 0 or more.size < 0 else self._size + more.size
        self.body_len = body_len

    def close(self) -> bytes:
        """The body as it is written."""
        self.rendered = Rendered(b",".join(self._fragments), self._strides, size=self._size)
        return encode_append_body(None, b"", self.rendered)[1]


def encode_append_body(key: bytes | None, digest: bytes, rendered: Rendered) -> tuple[int, bytes]:
    """The flags and the body of an Append frame. `digest` has `DIGEST_LEN` bytes where there is a key."""
    if key is None and rendered.size >= 0:  # nothing but data: by far the most frequent of all
        return 0, rendered.strides.tobytes() + rendered.fragments
    flags, columns = _columns(key, digest, rendered)
    return flags, columns + rendered.fragments


def append_pieces(key: bytes | None, digest: bytes, rendered: Rendered) -> tuple[int, tuple[bytes, bytes]]:
    """The same with the body in two pieces: large fragments cost as much to copy as to write (`APART_BYTES_MIN`)."""
    flags, columns = _columns(key, digest, rendered)
    return flags, (columns, rendered.fragments)


def _columns(key: bytes | None, digest: bytes, rendered: Rendered) -> tuple[int, bytes]:
    """The flags, and what stands before the fragments."""
    flags = 0
    parts: list[bytes] = []
    if key is not None:
        flags = FLAG_KEY
        parts.append(_key_part(key, digest))
    parts.append(rendered.strides.tobytes())
    if rendered.node_lens is not None:
        flags |= FLAG_NODES
        parts.append(_narrow(rendered.node_lens))
    if rendered.meta_lens is not None:
        flags |= FLAG_METAS
        parts.append(_plus_one(rendered.meta_lens.tobytes()))
    if rendered.tag_lens is not None:
        flags |= FLAG_TAGS
        parts.append(_narrow(rendered.tag_lens))
    return flags, b"".join(parts)


def append_part(type_: int, body: bytes) -> bytes:
    """The Append body in a frame that holds records: all of it, or what stands behind a DeadLetter's first line."""
    return body.partition(b"\n")[2] if type_ == FrameType.DEAD_LETTER else body


def decode_append_body(flags: int, count: int, body: bytes) -> AppendBody:
    """The opposite. Raises `BadBody` when lengths do not add up to the body, or flags are unknown."""
    if flags & ~_FLAGS_KNOWN or count < 1:
        raise BadBody(f"Append with flags {flags} and {count} records")
    position = 0
    key, digest = None, b""
    if flags & FLAG_KEY:
        if len(body) < 2:
            raise BadBody("Append body ends inside its key")
        position = 2 + _U16.unpack_from(body, 0)[0] - 1
        key = body[2:position]
        digest = body[position : position + DIGEST_LEN]
        position += DIGEST_LEN
    strides = array("I")
    end = position + 4 * count
    columns_end = end + count * (
        (2 if flags & FLAG_NODES else 0) + (4 if flags & FLAG_METAS else 0) + (2 if flags & FLAG_TAGS else 0)
    )
    if len(body) < columns_end:
        raise BadBody("Append body ends inside its columns")
    strides.frombytes(body[position:end])
    if columns_end + sum(strides) - 1 != len(body):
        raise BadBody("the lengths of an Append do not add up to its body")
    nodes = metas = tags = None
    if flags & FLAG_NODES:
        nodes, end = _widen(body, end, count), end + 2 * count
    if flags & FLAG_METAS:
        metas, end = array("I"), end + 4 * count
        metas.frombytes(_minus_one(body[end - 4 * count : end]))
    if flags & FLAG_TAGS:
        tags, end = _widen(body, end, count), end + 2 * count
    return AppendBody(key, digest, Rendered(body[columns_end:], strides, nodes, metas, tags))


def _key_part(key: bytes, digest: bytes) -> bytes:
    return _U16.pack(len(key) + 1) + key + digest


def _ones(size: int) -> int:
    """The integer whose `size` little-endian bytes are 32-bit ones."""
    ones = _ones_by_size.get(size)
    if ones is None:
        if len(_ones_by_size) >= _ONES_KEPT:
            _ones_by_size.clear()
        ones = _ones_by_size[size] = int.from_bytes(b"\1\0\0\0" * (size // 4), "little")
    return ones


def _plus_one(column: bytes) -> bytes:
    """Each 32-bit number of a column plus one; none of them is the greatest, so nothing carries over."""
    size = len(column)
    return (int.from_bytes(column, "little") + _ones(size)).to_bytes(size, "little")


def _minus_one(column: bytes) -> bytes:
    """The opposite; a column that holds a 0 was not written by `_plus_one`."""
    size = len(column)
    try:
        return (int.from_bytes(column, "little") - _ones(size)).to_bytes(size, "little")
    except OverflowError as error:
        raise BadBody("a column of an Append holds a length that cannot be") from error


def _narrow(lens: array[int]) -> bytes:
    """A column of lengths below 65,535 as 16-bit numbers, plus one."""
    wide = _plus_one(lens.tobytes())
    narrow = bytearray(len(wide) // 2)
    narrow[0::2] = wide[0::4]
    narrow[1::2] = wide[1::4]
    return bytes(narrow)


def _widen(body: bytes, position: int, count: int) -> array[int]:
    """The lengths of the 16-bit column at `position`."""
    wide = bytearray(4 * count)
    wide[0::4] = body[position : position + 2 * count : 2]
    wide[1::4] = body[position + 1 : position + 2 * count : 2]
    lens = array("I")
    lens.frombytes(_minus_one(bytes(wide)))
    return lens
