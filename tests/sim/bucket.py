"""A bucket on the simulated disk: `Objects` below `cold/`, so that each crash is one of the process and its bucket.

A server does by itself what makes an object whole and durable before it answers, so a put here is a file written aside,
synced and renamed, in one go; what it has not answered may be there or not. How it answers is the tier's mood.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.fs import Fs, OpenMode, read_file, write_whole
from engine.segment.objects import Got, Listed, ObjectError
from tests.sim.moods import Mood, Moody

ASIDE = ".aside"


class Bucket:
    """The objects below a directory of the disk."""

    def __init__(self, fs: Fs, moody: Moody) -> None:
        self._fs = fs
        self._moody = moody

    def _asked(self) -> Mood:
        moody = self._moody
        if moody.refusals:
            moody.refusals -= 1
            raise ObjectError("it answers with status 503", again=True)
        if moody.mood is Mood.EXPIRED:
            raise ObjectError("the credentials have expired", again=False)
        return moody.mood

    def put(self, key: str, data: bytes, *, new: bool) -> None:
        mood, fs = self._asked(), self._fs
        if new and fs.exists(key):
            raise FileExistsError(key)
        if mood is Mood.LYING:
            data = data[:-1] + bytes([data[-1] ^ 1])
        parent = ""
        for part in key.split("/")[:-1]:
            path = f"{parent}/{part}" if parent else part
            fs.mkdir(path)
            fs.fsync_dir(parent)
            parent = path
        aside = f"{parent}/{ASIDE}".lstrip("/")
        if fs.exists(aside):
            fs.unlink(aside)
        handle = fs.open(aside, OpenMode.CREATE)
        write_whole(fs, handle, (data,), 0)
        fs.fdatasync(handle)
        fs.close(handle)
        fs.rename(aside, key)
        fs.fsync_dir(parent)
        if self._moody.lost_answers:
            self._moody.lost_answers -= 1
            raise ObjectError("it does not answer in time", again=True)

    def put_parts(self, key: str, parts: Iterator[bytes]) -> int:
        self.put(key, b"".join(parts), new=False)
        return 3

    def get(self, key: str, offset: int, length: int) -> Got:
        mood = self._asked()
        if mood is Mood.VANISHED and key.endswith(".data"):
            raise FileNotFoundError(key)
        whole = read_file(self._fs, key)
        data = whole[offset : offset + length]
        moody = self._moody
        if moody.garbles and key.endswith(".data") and offset:
            moody.garbles -= 1
            data = bytes([data[0] ^ 1]) + data[1:]
        if moody.cuts and data and offset:
            moody.cuts -= 1
            data = data[:-1]
        return Got(data, len(whole))

    def head(self, key: str) -> int:
        mood = self._asked()
        if mood is Mood.VANISHED and key.endswith(".data"):
            raise FileNotFoundError(key)
        return len(read_file(self._fs, key))

    def list(self, prefix: str) -> Listed:
        mood, path = self._asked(), prefix.rstrip("/")
        names = self._fs.list(path) if self._fs.exists(path) else []
        names = [name for name in names if not name.startswith(".")]
        # What was put or removed a moment ago may not show yet.
        return Listed(names[1:] if mood is Mood.STALE and "/" in path else names, 1)

    def delete(self, key: str) -> None:
        self._asked()
        if self._fs.exists(key):
            self._fs.unlink(key)
            self._fs.fsync_dir(key.rpartition("/")[0])
