"""Which tags occur in a run of records: enough to pass over the run when a tag cannot be in it.

A few tags are kept as they are; of many, the smallest, the largest and a sorted array of short hashes (16 bits for up
to a thousand tags: one wrong "maybe" in a hundred; 32 bits beyond). Tags are compared as the bytes that they are
rendered as, `,"$tag":"…"`: rendering goes character by character, so equality and prefixes mean the same there.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from struct import Struct
from typing import Final

import msgspec
from xxhash import xxh3_64_intdigest as _hash

from engine.types import Match

EXACT_TAGS: Final = 16
"""Up to this many distinct tags are kept as they are."""
EXACT_BYTES: Final = 512
"""…if they take no more than this together."""
SHORT_TAGS: Final = 1000
"""Up to this many distinct tags are told apart by 16 bits of their hashes, more by 32."""

_PACKED: Final = Struct("<III")
_TEXT_LEN: Final = Struct("<H")


class Needle:
    """A tag filter, rendered: what it looks for in a fragment.

    `exact` tells Eq from Glob; `part` is the whole tag part for Eq, its beginning for Glob.
    """

    __slots__ = ("exact", "part")

    def __init__(self, match: Match) -> None:
        self.exact = match.op == "Eq"
        try:
            text = msgspec.json.encode(match.value)
        except UnicodeEncodeError:
            # Half a surrogate pair: no tag can hold it. A part that no fragment holds either.
            text = b"\0\0"
        self.part = b',"$tag":' + (text if self.exact else text[:-1])

    def accepts(self, part: bytes) -> bool:
        """Whether a record with this tag part (empty: untagged) passes."""
        return part == self.part if self.exact else part.startswith(self.part)


class TagSet:
    """The tags of one run; `may_hold` is never wrong when it says no."""

    __slots__ = ("_exact", "_hashes", "_largest", "_mask", "_smallest")

    def __init__(self, parts: set[bytes]) -> None:
        self._exact: frozenset[bytes] | None = None
        self._hashes: array[int] | None = None
        self._mask = 0xFFFF if len(parts) <= SHORT_TAGS else 0xFFFF_FFFF
        self._smallest = min(parts, default=b"")
        self._largest = max(parts, default=b"")
        if len(parts) <= EXACT_TAGS and sum(map(len, parts)) <= EXACT_BYTES:
            self._exact = frozenset(parts)
        else:
            mask, code = self._mask, "H" if self._mask == 0xFFFF else "I"
            self._hashes = array(code, sorted({_hash(part) & mask for part in parts}))

    def union(self, other: TagSet) -> TagSet:
        """The tags of both runs."""
        if self._exact is not None and other._exact is not None:
            return TagSet(set(self._exact | other._exact))
        joined = TagSet(set())
        joined._exact = None
        joined._mask = mask = min(self._mask, other._mask)
        joined._smallest = min(self._smallest or other._smallest, other._smallest or self._smallest)
        joined._largest = max(self._largest, other._largest)
        hashes = {hashed & mask for side in (self, other) for hashed in side._all_hashes()}
        joined._hashes = array("H" if mask == 0xFFFF else "I", sorted(hashes))
        return joined

    def _all_hashes(self) -> Iterable[int]:
        return map(_hash, self._exact) if self._exact is not None else self._hashes or ()

    def may_hold(self, needle: Needle) -> bool:
        """Whether a record of the run may pass the filter."""
        part = needle.part
        if self._exact is not None:
            if needle.exact:
                return part in self._exact
            return any(known.startswith(part) for known in self._exact)
        if not needle.exact:
            return self._largest >= part and self._smallest[: len(part)] <= part
        if not self._smallest <= part <= self._largest:
            return False
        hashes = self._hashes
        assert hashes is not None, "a set has its tags or their hashes"
        hashed = _hash(part) & self._mask
        index = bisect_left(hashes, hashed)
        return index < len(hashes) and hashes[index] == hashed

    @property
    def weight(self) -> int:
        """Bytes that it holds, about."""
        if self._exact is not None:
            return sum(map(len, self._exact))
        hashes = self._hashes
        return len(self._smallest) + len(self._largest) + (0 if hashes is None else len(hashes) * hashes.itemsize)

    def packed(self) -> bytes:
        """The set as bytes (FORMATS.md, "Tags"): width of the hashes (0: the tags themselves), count, texts, hashes."""
        if self._exact is not None:
            texts, width, hashes = sorted(self._exact), 0, array("H")
        else:
            assert self._hashes is not None, "a set has its tags or their hashes"
            texts, width, hashes = [self._smallest, self._largest], self._hashes.itemsize, self._hashes
        packed = b"".join([_TEXT_LEN.pack(len(text)) + text for text in texts])
        return _PACKED.pack(width, len(texts) if not width else len(hashes), len(packed)) + packed + hashes.tobytes()

    @classmethod
    def unpacked(cls, data: bytes) -> TagSet:
        """The opposite of `packed`; `data` has been checked, so what does not add up is a bug."""
        width, count, text_len = _PACKED.unpack_from(data)
        texts, at, end = [], _PACKED.size, _PACKED.size + text_len
        while at < end:
            begin = at + _TEXT_LEN.size
            at = begin + _TEXT_LEN.unpack_from(data, at)[0]
            texts.append(data[begin:at])
        if not width:
            return cls(set(texts))
        made = cls(set())
        made._exact = None
        made._mask = 0xFFFF if width == 2 else 0xFFFF_FFFF
        made._smallest, made._largest = texts
        made._hashes = array("H" if width == 2 else "I", data[end : end + width * count])
        return made
