"""Keys: windows, the store's count, and what makes two batches the same."""

import itertools

from engine.commands import Batch
from engine.topic.idempotency import Keys, Used, Window, batch_digest


def used(ts: int) -> Used:
    return Used(ts, 1, b"d", ts)


def test_a_key_counts_inside_its_window_only() -> None:
    window = Window(Keys(), 100)
    window.add(b"k", used(1000))
    assert window.find(b"k", 1099) == used(1000)
    assert window.find(b"k", 1100) is None
    assert window.find(b"other", 1000) is None


def test_a_window_of_zero_remembers_nothing() -> None:
    window = Window(Keys(), 0)
    window.add(b"k", used(5))
    assert window.find(b"k", 5) is None


def test_what_expired_is_forgotten_and_not_counted() -> None:
    keys = Keys()
    first, second = Window(keys, 100), Window(keys, 10)
    first.add(b"a", used(0))
    first.add(b"b", used(50))
    second.add(b"a", used(0))
    assert keys.live == 3
    keys.expire(100)
    assert keys.live == 1
    assert first.entries() == [(b"b", used(50))]
    assert not second
    keys.expire(150)
    assert keys.live == 1, "all windows are looked at once a second at most"
    keys.expire_some(150)
    assert keys.live == 0


def test_windows_take_turns_to_be_looked_at() -> None:
    keys = Keys()
    windows = [Window(keys, 10) for _ in range(6)]
    for window in windows:
        window.add(b"k", used(0))
    left = []
    for _ in range(3):
        keys.expire_some(10, 2)
        left.append(keys.live)
    assert left == [4, 2, 0]
    keys.expire_some(10)


def test_a_key_that_is_used_again_counts_once_and_lives_on() -> None:
    keys = Keys()
    window = Window(keys, 10)
    window.add(b"a", used(0))
    window.add(b"a", used(20))
    assert keys.live == 1
    window.expire(25)
    assert window.find(b"a", 25) == used(20)
    window.expire(30)
    assert keys.live == 0


def test_a_dropped_topic_gives_its_keys_back() -> None:
    keys = Keys()
    window = Window(keys, 10)
    window.add(b"a", used(0))
    window.release()
    assert keys.live == 0
    keys.expire(100)


def test_a_wider_window_finds_what_is_still_remembered() -> None:
    window = Window(Keys(), 10)
    window.add(b"a", used(0))
    window.window_ms = 100
    assert window.find(b"a", 50) == used(0)


def test_different_records_have_different_digests() -> None:
    batches = [
        Batch([b"1", b"2"]),
        Batch([b"12"]),
        Batch([b"1"]),
        Batch([b"1"], tags=["x"]),
        Batch([b"1"], nodes=["x"]),
        Batch([b"1"], metas=[b'"x"']),
        Batch([b"1"], tags=[""]),
        Batch([b"1", b"2"], tags=["x", None]),
        Batch([b"1", b"2"], tags=[None, "x"]),
        Batch([b"1", b"2"], tags=["x", ""]),
        Batch([b"2", b"1"]),
    ]
    for left, right in itertools.combinations(batches, 2):
        assert batch_digest(left) != batch_digest(right)


def test_an_empty_column_is_no_column() -> None:
    assert batch_digest(Batch([b"1"], tags=[None], nodes=[None], metas=[None])) == batch_digest(Batch([b"1"]))
    assert len(batch_digest(Batch([b"1"]))) == 16
