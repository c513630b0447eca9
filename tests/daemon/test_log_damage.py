"""A daemon whose log is damaged under it, where records that memory has let go of lie: readers get by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.daemon.kit import Events, clean_environment, records_of, request, start, watch

pytestmark = pytest.mark.slow

FRAMES = 40
EACH = 100
RECORDS = FRAMES * EACH


def hurt(directory: Path, text: bytes) -> None:
    """Flip a bit of the log, in place."""
    for path in (directory / "data" / "wal" / "shard-00").glob("*.log"):
        at = path.read_bytes().find(text)
        if at >= 0:
            with path.open("r+b") as file:
                file.seek(at + 1)
                file.write(bytes([text[1] ^ 1]))
            return
    raise AssertionError("no log file holds it")


def test_pages_and_streams_go_on_behind_a_tombstone_and_a_restart_says_the_same(tmp_path: Path) -> None:
    environ = clean_environment(TOPICS_CACHE_BYTES="1MiB")
    daemon = start(tmp_path, environ=environ)
    for frame in range(FRAMES):
        values = [{"number": frame * EACH + at, "pad": "x" * 600} for at in range(EACH)]
        daemon.write("t", *values)
    hurt(tmp_path, b'"number": 250,')  # in the third frame: seqs 201 … 300
    seen, cursor, tombstones = [], 0, []
    while cursor < RECORDS:
        page = daemon.read("t", from_seq=cursor, limit=1000)
        tombstones += [page["tombstone"]] if page["tombstone"] else []
        seen += [record["number"] for record in records_of(page)]
        cursor = page["next_from_seq"]
    assert seen == [*range(200), *range(300, RECORDS)]
    told = [(tombstone["reason"], tombstone["gap_from"], tombstone["gap_to"]) for tombstone in tombstones]
    assert told == [("corruption", 201, 300)]
    gone = daemon.ask(request("GET", "/v0/topics/t/records/250"))
    assert (gone.status, gone.json["error"]["detail"]["why"]) == (404, "lost")
    # A frame that nobody has asked for yet is met by a stream.
    hurt(tmp_path, b'"number": 950,')
    with Events(daemon, watch(daemon, {"t": {"from_seq": 850}})) as events:
        streamed: list[Any] = []
        while not streamed or streamed[-1] < 1500:
            name, data, _ = events.next()
            if name == "record" and data["topic"] == "t":
                streamed += [record["number"] for record in records_of(data)]
    assert streamed[:50] == list(range(850, 900))
    assert streamed[50] == 1000
    state = daemon.ask(request("GET", "/v0/topics/t")).json
    assert state["count"] == RECORDS - 200
    daemon.is_well()
    assert daemon.stop() == 0
    daemon = start(tmp_path, environ=environ)
    again = daemon.ask(request("GET", "/v0/topics/t")).json
    assert (again["count"], again["bytes"], again["damage"]) == (state["count"], state["bytes"], state["damage"])
    assert daemon.stop() == 0
