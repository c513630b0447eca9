"""A daemon on a store whose records lie in segments: reading what the page cache has lost, and what is damaged."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine import Engine
from tests.daemon.kit import DaemonProcess, Events, clean_environment, post, records_of, request, start, watch
from tests.store.checkpoint import checkpoint

pytestmark = pytest.mark.slow

LAUNCHER = Path(__file__).with_name("late.py")
BATCHES = 6
RECORDS = BATCHES * 1000


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a store: topic `t` in segments of 500 records, a tag each."""
    directory = tmp_path_factory.mktemp("sealed")
    with Engine(str(directory / "data")) as engine:
        for batch in range(BATCHES):
            values = [{"number": batch * 1000 + at, "pad": "x" * 40} for at in range(1000)]
            for begin in range(0, 1000, 500):
                engine.write("t", values[begin : begin + 500], tag=f"tag-{batch}-{begin}", ack_fsync=True)
        checkpoint(engine.core, engine.core.fs, 1, own_files=True, sync=lambda: None)
    return directory


def data_files(directory: Path) -> list[Path]:
    """The files with the records, oldest first."""
    return sorted((directory / "data" / "topics").glob("*/seg-*.data"))


def forget(directory: Path) -> bool:
    """Take the records out of the page cache; False where that cannot be done, or not be told."""
    for path in data_files(directory):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            try:
                os.preadv(handle, [bytearray(64)], 4096, os.RWF_NOWAIT)
            except BlockingIOError:
                continue
            except OSError:
                return False
            return False
        finally:
            os.close(handle)
    return True


@contextmanager
def serving(sealed: Path, directory: Path) -> Iterator[tuple[DaemonProcess, Path]]:
    """A daemon on a copy of the store, with little memory; and the file that its reads are noted in."""
    shutil.copytree(sealed / "data", directory / "data", dirs_exist_ok=True)
    with resumed(directory) as found:
        yield found


@contextmanager
def resumed(directory: Path) -> Iterator[tuple[DaemonProcess, Path]]:
    """The same, where a daemon was before."""
    environ = clean_environment(FAULTS=str(directory), TOPICS_CACHE_BYTES="1MiB")
    daemon = start(directory, environ=environ, launcher=LAUNCHER)
    try:
        yield daemon, directory / "reads"
        daemon.is_well()
        assert daemon.stop() == 0
    finally:
        if daemon.process.poll() is None:
            daemon.process.kill()
            daemon.process.wait()


def test_all_that_is_in_segments_is_read_whether_or_not_the_page_cache_has_it(sealed: Path, tmp_path: Path) -> None:
    with serving(sealed, tmp_path) as (daemon, reads):
        for cold in (False, True):
            lost = cold and forget(tmp_path)
            seen, cursor = [], 0
            while cursor < RECORDS:
                page = daemon.read("t", from_seq=cursor, limit=700)
                assert page["tombstone"] is None
                seen += [record["number"] for record in records_of(page)]
                cursor = page["next_from_seq"]
            assert seen == list(range(RECORDS))
            if lost:
                assert reads.read_text().count("segment") >= BATCHES
        forget(tmp_path)
        one = daemon.ask(request("GET", "/v0/topics/t/records/2500")).json
        assert (one["$seq"], one["data"]["number"], one["$tag"]) == (2500, 2499, "tag-2-0")
        many = daemon.ask(post("/v0/diff", {"topics": {"t": {"from_seq": 5990}}})).json["topics"]["t"]
        assert len(records_of(many)) == 10
        tagged = daemon.read("t", match="tag-3-500", limit=1000)
        assert [record["number"] for record in records_of(tagged)] == list(range(3500, 4000))


def test_a_stream_over_segments_shows_every_record_once(sealed: Path, tmp_path: Path) -> None:
    with serving(sealed, tmp_path) as (daemon, _):
        forget(tmp_path)
        daemon.write("live", 1)
        with Events(daemon, watch(daemon, {"t": {}, "live": {}})) as events:
            seen: list[int] = []
            while len(seen) < RECORDS:
                name, data, _ = events.next()
                if name == "record" and data["topic"] == "t":
                    seen += [record["number"] for record in records_of(data)]
            assert seen == list(range(RECORDS))
            daemon.write("t", {"number": RECORDS})
            while (event := events.next())[0] != "record" or event[1]["topic"] != "t":
                pass
            assert records_of(event[1]) == [{"number": RECORDS}]


def test_deletes_by_tag_seq_and_before_over_segments_hold_after_a_restart(sealed: Path, tmp_path: Path) -> None:
    with serving(sealed, tmp_path) as (daemon, _):
        forget(tmp_path)
        for selector, deleted in (
            ({"match": "tag-1-500"}, 500),
            ({"seqs": [1, 2, 3000, 3001]}, 4),
            ({"before_seq": 101}, 98),
            ({"match": "tag-5*", "before_seq": 5101}, 100),
        ):
            assert daemon.ask(post("/v0/topics/t/delete", selector)).json["deleted"] == deleted
        state = daemon.ask(request("GET", "/v0/topics/t")).json
        page = daemon.read("t", from_seq=1400, limit=200)
    with resumed(tmp_path) as (daemon, _):
        again = daemon.ask(request("GET", "/v0/topics/t")).json
        for name in ("count", "bytes", "head_seq", "earliest_seq"):
            assert again[name] == state[name], name
        assert again["count"] == RECORDS - 702
        assert daemon.read("t", from_seq=1400, limit=200)["records"] == page["records"]
        assert page["records"][100]["$seq"] == 2001


def test_a_flipped_bit_costs_the_record_that_it_lies_in_and_says_so(sealed: Path, tmp_path: Path) -> None:
    shutil.copytree(sealed / "data", tmp_path / "data")
    for path in data_files(tmp_path):
        content = bytearray(path.read_bytes())
        at = content.find(b'"number":2345,')
        if at >= 0:
            content[at + 3] ^= 1
            path.write_bytes(content)
    for _ in range(2):
        with resumed(tmp_path) as (daemon, _):
            page = daemon.read("t", from_seq=2300, limit=1000)
            assert [record["number"] for record in records_of(page)][-1] == 2344
            page = daemon.read("t", from_seq=page["next_from_seq"], limit=10)
            tombstone = page["tombstone"]
            assert (tombstone["reason"], tombstone["gap_from"], tombstone["gap_to"]) == ("corruption", 2346, 2346)
            assert records_of(page)[0]["number"] == 2346
            gone = daemon.ask(request("GET", "/v0/topics/t/records/2346"))
            assert (gone.status, gone.json["error"]["detail"]["why"]) == (404, "lost")
            state = daemon.ask(request("GET", "/v0/topics/t")).json
            assert state["count"] == RECORDS - 1
            assert state["damage"]
