"""A line keeps its order whatever leaves it where, and does not grow with what has left."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.queue.line import FILTERS_MAX, Line, Places
from engine.types import Match

KEYS = st.integers(1, 40)


@given(st.lists(st.tuples(KEYS, st.booleans())))
def test_it_is_always_the_sorted_list_of_what_is_in_it(steps: list[tuple[int, bool]]) -> None:
    inside: set[int] = set()
    line = Line(inside.__contains__, lambda key, match: bool(key % 2))
    odd = Match("Eq", "odd")
    for key, enters in steps:
        if enters and key not in inside:
            inside.add(key)
            line.add(key)
        elif not enters and key in inside:
            inside.discard(key)
            line.drop()
        assert list(line.walk(None)) == sorted(inside)
        assert list(line.walk(odd)) == [key for key in sorted(inside) if key % 2]
        assert line.first() == min(inside, default=None)


def test_what_has_left_is_swept_out() -> None:
    inside: set[int] = set()
    line = Line(inside.__contains__, lambda key, match: True)
    for key in range(100_000):
        inside.add(key)
        line.add(key)
        if key >= 10:
            inside.discard(key - 5)
            line.drop()
    assert len(line) < 200


def test_places_of_many_filters_are_bounded() -> None:
    places = Places()
    for number in range(3 * FILTERS_MAX):
        places.note(Match("Eq", str(number)), number + 1)
    assert places.after(Match("Eq", "0")) == 0
    assert places.after(Match("Eq", str(3 * FILTERS_MAX - 1))) == 3 * FILTERS_MAX
    assert places.after(None) == 0


def test_a_key_that_comes_behind_a_place_takes_it_back() -> None:
    places = Places()
    match = Match("Eq", "x")
    places.note(match, 10)
    places.came(11)
    assert places.after(match) == 10
    places.came(7)
    assert places.after(match) == 6
