"""Two directories change places in one step: whoever opens either path sees one of them whole, and never neither."""

from __future__ import annotations

import ctypes
import os
from typing import Final

from topics_lake.errors import LakeError

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2


def exchange(one: str, other: str) -> None:
    """Exchange two paths of one file system. Raises `LakeError` where the system cannot; then nothing has changed."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        raise LakeError("this C library has no renameat2", "unsupported", "a lake cannot be compacted here")
    if rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return
    error = os.strerror(ctypes.get_errno())
    hint = "compacting needs a local file system of Linux (ext4, xfs, btrfs, tmpfs) under the lake and its staging"
    raise LakeError(f"{one} and {other} cannot change places: {error}", "unsupported", hint)
