"""A store that tools look at, together with its cold tier; both are only read.

Where the tier is, somebody has to say: whoever runs the tool, or the manifest of a pin. A tier that is not there, that
hangs or lacks a file is no damage of what is here: each file of it is named, and nothing of it is taken for lost until
it is given up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from engine.checkpoint.pin import read_manifest
from engine.errors import StoreDamaged
from engine.formats.manifest import STORE_PATH, StoreInfo, decode_meta
from engine.fs import Fs, read_file
from engine.segment.tiers import (
    Caller,
    ColdError,
    ColdTier,
    LocalSegmentStore,
    SegmentStore,
    TieredFs,
    at_once,
    no_tier,
)
from engine.tools.patched import patch
from engine.tools.readonly import ReadOnlyFs
from engine.tools.unreadable import Readable

OpenBucket: TypeAlias = Callable[[str, bytes], SegmentStore]
"""Opens the bucket that an address names, as that of the store with this id."""


class ColdAndHot(TieredFs):
    """A store on a real directory with its tier."""

    def __init__(self, source: ReadOnlyFs, tier: ColdTier) -> None:
        super().__init__(source, tier)
        self._source = source

    @property
    def store_id(self) -> bytes:
        """The store's, as its STORE says."""
        return _store_id(self._source)

    def shut(self) -> None:
        """Let go of the store's directory."""
        self._source.shut()


def tiered(
    source: ReadOnlyFs, given: str | None, usual: str | None, open_bucket: OpenBucket, call: Caller = at_once
) -> ColdAndHot:
    """A store and its cold tier: where it is `given`, where the manifest of a pin says, or the `usual` place.

    `open_bucket` opens one that is in a bucket; `call` may have a deadline.
    """
    path = given or _said(source) or usual
    if not path:
        return ColdAndHot(source, no_tier("nobody said where it is (--cold DIR)"))

    def open_store(may_begin: bool) -> SegmentStore:
        if "://" in path:
            return open_bucket(path, _store_id(source))
        return LocalSegmentStore(ReadOnlyFs(path), _store_id(source), may_begin=False)

    return ColdAndHot(source, ColdTier(open_store, call))


def without_tier(source: ReadOnlyFs) -> ColdAndHot:
    """A store whose cold tier is given up."""
    return ColdAndHot(source, no_tier("it is given up", given_up=True))


def is_of_tier(error: BaseException) -> bool:
    """Whether it was raised because the cold tier did not do what it was asked for."""
    return isinstance(error.__cause__, ColdError)


def too_slow(seconds: float) -> ColdError:
    """What is raised for a call that took too long."""
    return ColdError(f"it does not answer within {seconds:g} s")


def _said(source: Fs) -> str | None:
    try:
        return read_manifest(source).cold
    except (OSError, StoreDamaged):
        return None


def _store_id(source: Fs) -> bytes:
    return bytes.fromhex(decode_meta(read_file(patch(Readable(source), []), STORE_PATH), StoreInfo).store_id)
