"""Tag sets say "maybe" of everything that is there, and "no" of nearly everything else."""

import msgspec
import pytest

from engine.tagset import EXACT_TAGS, Needle, TagSet
from engine.types import Match


def part(tag: str) -> bytes:
    return b',"$tag":' + msgspec.json.encode(tag)


@pytest.mark.parametrize("count", [1, EXACT_TAGS, EXACT_TAGS + 1, 3000])
def test_what_is_there_may_be_there(count: int) -> None:
    tags = [f"user:{number * 7}" for number in range(count)]
    tag_set = TagSet({part(tag) for tag in tags})
    for tag in tags:
        assert tag_set.may_hold(Needle(Match("Eq", tag)))
        assert tag_set.may_hold(Needle(Match("Glob", tag[:-1])))
    assert tag_set.may_hold(Needle(Match("Glob", "")))


@pytest.mark.parametrize("count", [3, 3000])
def test_what_is_not_there_is_nearly_always_known_not_to_be(count: int) -> None:
    tag_set = TagSet({part(f"user:{number}") for number in range(count)})
    wrong = sum(tag_set.may_hold(Needle(Match("Eq", f"user:{number}x"))) for number in range(2000))
    assert wrong < 100
    assert not tag_set.may_hold(Needle(Match("Eq", "zebra")))
    assert not tag_set.may_hold(Needle(Match("Glob", "zebra")))
    assert not tag_set.may_hold(Needle(Match("Glob", "a")))


@pytest.mark.parametrize(("left", "right"), [(2, 3), (2, 300), (300, 2), (300, 300), (0, 5), (300, 3000)])
def test_a_union_holds_what_either_did(left: int, right: int) -> None:
    sides = [[f"l{number}" for number in range(left)], [f"r{number}" for number in range(right)]]
    union = TagSet({part(tag) for tag in sides[0]}).union(TagSet({part(tag) for tag in sides[1]}))
    assert all(union.may_hold(Needle(Match("Eq", tag))) for side in sides for tag in side)
    assert all(union.may_hold(Needle(Match("Glob", tag[0]))) for side in sides for tag in side)
    assert not union.may_hold(Needle(Match("Glob", "x")))
    assert sum(union.may_hold(Needle(Match("Eq", f"m{number}"))) for number in range(1000)) < 100


def test_half_a_surrogate_pair_matches_nothing() -> None:
    tag_set = TagSet({part("a")})
    for op in ("Eq", "Glob"):
        needle = Needle(Match(op, "\ud800"))
        assert not tag_set.may_hold(needle)
        assert not needle.accepts(part("a"))


@pytest.mark.parametrize("tag", ["t", "", 'quote"', "back\\", "é\n", "\U0001f600"])
def test_a_needle_accepts_what_its_filter_accepts(tag: str) -> None:
    for other in ["t", "", 'quote"', 'quote"2', "back\\", "back\\\\", "é\n", "\U0001f600\U0001f600", "x"]:
        assert Needle(Match("Eq", tag)).accepts(part(other)) == Match("Eq", tag).accepts(other)
        assert Needle(Match("Glob", tag)).accepts(part(other)) == Match("Glob", tag).accepts(other)
