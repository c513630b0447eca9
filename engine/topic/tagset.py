"""Which tags occur in a run of records: enough to pass over the run when a tag cannot be in it.

A few tags are kept as they are; of many, the smallest, the largest and a Bloom filter (4 probes, about 10 bits a tag:
one wrong "maybe" in a hundred). Tags are compared as the bytes they are rendered as, `,"$tag":"…"`: rendering goes
character by character, so equality and prefixes are the same for the rendered form.
"""

from __future__ import annotations

from typing import Final

import msgspec
import xxhash

from engine.types import Match

EXACT_TAGS: Final = 16
"""Up to this many distinct tags are kept as they are."""
EXACT_BYTES: Final = 512
"""…if they take no more than this together."""
BITS_A_TAG: Final = 10
_PROBES: Final = 4


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

    __slots__ = ("_bits", "_exact", "_largest", "_size", "_smallest")

    def __init__(self, parts: set[bytes]) -> None:
        self._exact: frozenset[bytes] | None = None
        self._bits = b""
        self._size = 0
        self._smallest = min(parts, default=b"")
        self._largest = max(parts, default=b"")
        if len(parts) <= EXACT_TAGS and sum(map(len, parts)) <= EXACT_BYTES:
            self._exact = frozenset(parts)
            return
        self._size = len(parts) * BITS_A_TAG // 8 + 1
        bits = bytearray(self._size)
        for part in parts:
            for probe in self._probes(part):
                bits[probe >> 3] |= 1 << (probe & 7)
        self._bits = bytes(bits)

    def _probes(self, part: bytes) -> list[int]:
        hashed, size = xxhash.xxh3_64_intdigest(part), self._size * 8
        step = (hashed >> 32) | 1
        return [(hashed + probe * step) % size for probe in range(_PROBES)]

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
        bits = self._bits
        return all(bits[probe >> 3] >> (probe & 7) & 1 for probe in self._probes(part))
