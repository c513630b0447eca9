"""A bucket as a store of segments: attempts, their budget, counts, parts, and whose it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from engine.formats.manifest import STORE_PATH
from engine.fs import Fs
from engine.segment import objects
from engine.segment.objects import BUDGET, PAUSES_S, Got, ObjectError, ObjectSegmentStore, Op, Requests
from engine.segment.tiers import ColdError, ColdTier, SegmentStore, copy_to
from tests.segment.kit import STORE, disk_of, small
from tests.segment.test_tiers import NAME, SegmentStoreContract
from tests.sim.bucket import Bucket
from tests.sim.disk import FakeDisk
from tests.sim.moods import Mood, Moody

PART_BYTES = 1024
"""Of a test that puts large objects."""


class Held(Bucket):
    """A bucket in memory; `parts` are the sizes of those of the last large object."""

    def __init__(self) -> None:
        self.moody = Moody()
        self.parts: list[int] = []
        super().__init__(cast(Fs, FakeDisk()), self.moody)

    def put_parts(self, key: str, parts: Iterator[bytes]) -> int:
        whole = list(parts)
        self.parts = [len(part) for part in whole]
        self.put(key, b"".join(whole), new=False)
        return len(whole) + 2


def opened(bucket: Held, requests: Requests | None = None, *, pauses: list[float] | None = None) -> ObjectSegmentStore:
    waits = pauses if pauses is not None else []
    return ObjectSegmentStore(bucket, STORE, may_begin=True, requests=requests, pause=waits.append)


class TestObjectSegmentStore(SegmentStoreContract):
    def store(self) -> SegmentStore:
        return opened(Held())


def test_an_attempt_that_may_help_is_made_again_after_a_pause_and_counted() -> None:
    bucket, requests, pauses = Held(), Requests(), list[float]()
    store = opened(bucket, requests, pauses=pauses)
    store.put(NAME, [b"0123"])
    assert requests.made == {"put": 2, "get": 2, "head": 0, "list": 1, "delete": 0}
    bucket.moody.refusals, bucket.moody.cuts = 2, 1
    assert store.get_range(NAME, 1, 2) == b"12"
    assert requests.made["get"] == 6
    assert (requests.failed["get"], requests.retries) == (0, 3)
    assert pauses == list(PAUSES_S)
    assert requests.bytes["put"] == 4
    assert requests.cost({"put": 5.0, "get": 0.5}) == {
        "put": 1e-5, "get": 3e-6, "head": 0.0, "list": 0.0, "delete": 0.0
    }  # fmt: skip


def test_what_fails_every_time_fails_after_the_last_attempt_and_what_cannot_help_is_not_made_again() -> None:
    bucket, requests = Held(), Requests()
    store = opened(bucket, requests)
    before = requests.made["head"]
    bucket.moody.refusals = 99
    with pytest.raises(ObjectError, match="503"):
        store.size(NAME)
    assert requests.made["head"] - before == len(PAUSES_S) + 1
    assert (requests.failed["head"], requests.retries) == (1, len(PAUSES_S))
    bucket.moody.refusals, bucket.moody.mood = 0, Mood.EXPIRED
    with pytest.raises(ObjectError, match="expired"):
        store.size(NAME)
    assert requests.made["head"] - before == len(PAUSES_S) + 2
    bucket.moody.mood = Mood.WELL
    with pytest.raises(FileNotFoundError):
        store.size(NAME)
    assert requests.made["head"] - before == len(PAUSES_S) + 3


def test_a_store_that_fails_for_long_gets_hardly_more_requests_than_a_good_one() -> None:
    bucket, requests = Held(), Requests()
    store = opened(bucket, requests)
    bucket.moody.refusals = 10_000
    for _ in range(100):
        with pytest.raises(ObjectError):
            store.size(NAME)
    assert requests.made["head"] <= 100 + BUDGET
    bucket.moody.refusals = 0
    for _ in range(20):
        store.exists(NAME)
    bucket.moody.refusals = 1
    store.put(NAME, [b"x"])


def test_a_large_object_goes_in_parts_and_an_exact_one_in_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "PART_BYTES", PART_BYTES)
    bucket, requests = Held(), Requests()
    store = opened(bucket, requests)
    before = requests.made["put"]
    store.put(NAME, [b"a" * PART_BYTES])
    assert (bucket.parts, requests.made["put"] - before) == ([], 1)
    pieces = [b"b" * (PART_BYTES - 1), b"c" * 7, b"", b"d" * (PART_BYTES + 5)]
    store.put(NAME, pieces)
    assert bucket.parts == [PART_BYTES, PART_BYTES, 11]
    assert requests.made["put"] - before == 6
    assert store.size(NAME) == 2 * PART_BYTES + 11
    assert store.get_range(NAME, PART_BYTES - 2, 4) == b"bccc"


def test_an_answer_that_got_lost_does_not_lose_what_was_put_and_an_iterator_is_put_whole_each_time() -> None:
    bucket = Held()
    store = opened(bucket)
    bucket.moody.lost_answers = 1
    store.put(NAME, iter([b"ab", b"cd"]))
    assert store.get_range(NAME, 0, 9) == b"abcd"
    bucket.moody.refusals = 1
    store.put(NAME, iter([b"ef", b"gh"]))
    assert store.get_range(NAME, 0, 9) == b"efgh"


def test_the_answer_to_the_first_put_may_get_lost() -> None:
    bucket = Held()
    bucket.moody.lost_answers = 1
    assert not opened(bucket).exists(NAME)


def test_F36_a_bucket_of_another_store_or_of_somebody_else_is_refused() -> None:
    bucket = Held()
    opened(bucket)
    with pytest.raises(ColdError, match="another store"):
        ObjectSegmentStore(bucket, bytes(16), may_begin=True)
    with pytest.raises(ColdError, match="right bucket"):
        ObjectSegmentStore(Held(), STORE, may_begin=False)
    strange = Held()
    strange.put("holiday.jpg", b"x", new=True)
    with pytest.raises(ColdError, match="not empty"):
        ObjectSegmentStore(strange, STORE, may_begin=True)
    damaged = Held()
    damaged.put(STORE_PATH, b"nonsense", new=True)
    with pytest.raises(ColdError, match="damaged"):
        ObjectSegmentStore(damaged, STORE, may_begin=True)


@pytest.mark.parametrize("honours", [True, False])
def test_of_two_stores_that_begin_at_the_same_time_one_is_refused(honours: bool) -> None:
    """Also where the server knows no conditional put."""

    class Raced(Held):
        raced = False

        def put(self, key: str, data: bytes, *, new: bool) -> None:
            if not self.raced:
                self.raced = True
                if honours:
                    ObjectSegmentStore(self, bytes(16), may_begin=True)
                else:
                    super().put(key, data, new=False)
                    data = others
            super().put(key, data, new=new and honours)

    other = Held()
    ObjectSegmentStore(other, bytes(16), may_begin=True)
    others = other.get(STORE_PATH, 0, 9999).data
    with pytest.raises(ColdError, match="another store"):
        opened(Raced())


def test_a_segment_is_copied_although_requests_fail_and_a_changed_one_does_not_count() -> None:
    disk, segment = disk_of(small())
    bucket = Held()
    tier = ColdTier(lambda may_begin: opened(bucket))
    bucket.moody.refusals, bucket.moody.lost_answers, bucket.moody.cuts = 1, 1, 1
    copy_to(tier, disk, segment.data_path, may_begin=True)
    assert tier.size(segment.data_path) == segment.data_size
    bucket.moody.mood = Mood.LYING
    with pytest.raises(ColdError, match="read back"):
        copy_to(tier, disk, segment.data_path, may_begin=True)


def test_a_get_beyond_the_end_is_empty_and_not_short() -> None:
    class Odd(Held):
        def get(self, key: str, offset: int, length: int) -> Got:
            # What a client makes of status 416.
            return Got(b"", 0) if offset > 4 else super().get(key, offset, length)

    store = opened(Odd())
    store.put(NAME, [b"0123"])
    assert store.get_range(NAME, 4, 5) == store.get_range(NAME, 99, 5) == b""


def test_operations_are_those_of_the_metrics() -> None:
    assert [op.value for op in Op] == ["put", "get", "head", "list", "delete"]
