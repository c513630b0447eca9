"""What the daemon's log says of the store, and that it says each thing once."""

from __future__ import annotations

import errno
import io
import json
from types import SimpleNamespace
from typing import Any, cast

from topics_daemon.log import Log
from topics_daemon.telling import Telling


class Bench:
    """A store, and what is said of it."""

    def __init__(self) -> None:
        self._said = io.StringIO()
        self.metrics = SimpleNamespace(files_left=0)
        self.telling = Telling(Log(self._said, as_text=False), cast(Any, self.metrics))
        self.shard = SimpleNamespace(full=None)
        self.core = SimpleNamespace(
            damage=SimpleNamespace(said=[]),
            keeper=SimpleNamespace(left=[]),
            wal=SimpleNamespace(left=[], shards=[self.shard]),
            read_only=None,
        )

    def look(self) -> list[str]:
        """Look, and hear what is said since the last time."""
        self.telling.look(cast(Any, self.core))
        return self.heard()

    def heard(self) -> list[str]:
        events = [json.loads(line)["event"] for line in self._said.getvalue().splitlines()]
        self._said.seek(0)
        self._said.truncate()
        return events


def test_log_that_finds_no_space_is_said_once_and_once_more_when_there_is_some() -> None:
    bench = Bench()
    full = OSError(errno.ENOSPC, "no space")
    for _ in range(3):
        bench.telling.unprepared(full)
    assert bench.heard() == ["log space could not be prepared"]
    bench.shard.full = cast(Any, full)
    assert bench.look() == []
    bench.shard.full = None
    assert [bench.look(), bench.look()] == [["log space is there again"], []]
    bench.telling.unprepared(full)
    assert bench.heard() == ["log space could not be prepared"]


def test_another_error_of_the_log_is_said_each_time_also_while_there_is_no_space() -> None:
    bench = Bench()
    bench.telling.unprepared(OSError(errno.EDQUOT, "no quota"))
    for _ in range(2):
        bench.telling.unprepared(OSError(errno.EIO, "no disk"))
    assert len(bench.heard()) == 3


def test_damage_files_that_stay_and_a_failed_log_are_said_once() -> None:
    bench = Bench()
    bench.core.damage.said = ["a", "b"]
    bench.core.keeper.left, bench.core.wal.left = ["c"], ["d"]
    bench.core.read_only = cast(Any, "the disk")
    assert bench.look() == ["damage", "damage", "file left behind", "file left behind", "read only"]
    assert bench.metrics.files_left == 2
    assert bench.look() == []
