"""§6 Delete: by seq, by list, by tag, and what readers see of it."""

from __future__ import annotations

from typing import Any

from tests.conformance.kit import Api, case, each, part, same
from tests.conformance.sse import watch

FIELDS = {"topic", "deleted", "earliest_seq", "head_seq", "count", "bytes", "performance"}


def tagged(api: Api, *tags: str | None) -> str:
    """A topic with a record for each tag; data is the seq."""
    topic = api.topic()
    records = [{"data": seq, **({} if tag is None else {"tag": tag})} for seq, tag in enumerate(tags, 1)]
    api.write_records(topic, records)
    return topic


@case("6 delete")
def the_answer_of_a_delete(api: Api) -> None:
    """→ `{topic, deleted, earliest_seq, head_seq, count, bytes}`."""
    topic = api.topic()
    api.write(topic, *"abcdef")
    answer = api.delete(topic, before_seq=4)
    same(set(answer), FIELDS, "fields")
    part(answer, {"topic": topic, "deleted": 3, "earliest_seq": 4, "head_seq": 6, "count": 3, "bytes": 9}, "answer")


@case("6 delete")
def before_seq_is_below(api: Api) -> None:
    """`before_seq` (seqs below it)."""
    topic = tagged(api, *"aaaa")
    same(api.delete(topic, before_seq=3)["deleted"], 2, "deleted")
    same(api.seqs(topic), [3, 4], "seqs")
    same(api.delete(topic, before_seq=3)["deleted"], 0, "again")
    same(api.delete(topic, before_seq=0)["deleted"], 0, "before 0")
    part(api.delete(topic, before_seq=2**64 - 1), {"deleted": 2, "earliest_seq": 5, "count": 0}, "before everything")


@case("6 delete")
def seqs_are_a_list(api: Api) -> None:
    """`seqs` (≤ 1000): what is not there does not count."""
    topic = tagged(api, *"aaaaaa")
    same(api.delete(topic, seqs=[2, 2, 4, 99, 0])["deleted"], 2, "deleted")
    same(api.seqs(topic), [1, 3, 5, 6], "seqs")
    same(api.delete(topic, seqs=[2])["deleted"], 0, "again")
    same(api.delete(topic, seqs=list(range(1, 1001)))["deleted"], 4, "a thousand")


@case("6 delete")
def at_most_1000_seqs(api: Api) -> None:
    """`seqs` (≤ 1000): more is 400."""
    topic = tagged(api, "a")
    response = api.call("POST", f"/v0/topics/{topic}/delete", {"seqs": list(range(1, 1002))}, status=400)
    same(response.json["error"]["code"] in ("batch_too_large", "invalid_request"), True, "code")
    same(api.state(topic)["count"], 1, "count")


MATCHES: list[tuple[str, tuple[Any, list[int]]]] = [
    ("Eq", (["tag", "Eq", "x"], [1, 5])),
    ("short Eq", ("x", [1, 5])),
    ("Glob", (["tag", "Glob", "x*"], [1, 2, 5])),
    ("short Glob", ("x*", [1, 2, 5])),
    ("empty prefix", (["tag", "Glob", "*"], [1, 2, 3, 5])),
    ("no such tag", ("zzz", [])),
    ("case counts", ("X", [])),
]


@each("6 delete", MATCHES)
def match_deletes_by_tag(api: Api, choice: tuple[Any, list[int]]) -> None:
    """`["tag","Eq","x"]`, `["tag","Glob","x*"]`, `"x"`, `"x*"`; records without tag never match."""
    match, gone = choice
    topic = tagged(api, "x", "xy", "y", None, "x")
    same(api.delete(topic, match=match)["deleted"], len(gone), "deleted")
    same(api.seqs(topic), [seq for seq in range(1, 6) if seq not in gone], "seqs left")


@case("6 delete")
def selectors_are_anded(api: Api) -> None:
    """Together they are ANDed."""
    topic = tagged(api, "x", "y", "x", "y", "x", "x")
    same(api.delete(topic, before_seq=4, match="x")["deleted"], 2, "before and match")
    same(api.seqs(topic), [2, 4, 5, 6], "seqs")
    same(api.delete(topic, seqs=[2, 5], match="x")["deleted"], 1, "seqs and match")
    same(api.seqs(topic), [2, 4, 6], "seqs")
    same(api.delete(topic, seqs=[2, 4], before_seq=3)["deleted"], 1, "seqs and before")
    same(api.seqs(topic), [4, 6], "seqs")
    same(api.delete(topic, seqs=[4, 6], before_seq=6, match="y")["deleted"], 1, "all three")


BAD_DELETES: list[tuple[str, dict[str, Any]]] = [
    ("nothing", {}),
    ("negative", {"before_seq": -1}),
    ("text", {"before_seq": "1"}),
    ("seqs number", {"seqs": 1}),
    ("seqs of text", {"seqs": ["1"]}),
    ("seqs negative", {"seqs": [-1]}),
    ("match", {"match": ["tag", "In", "x"]}),
]


@each("6 delete", BAD_DELETES)
def a_bad_delete_is_400(api: Api, body: dict[str, Any]) -> None:
    """At least one is required; a bad type or range is 400, and nothing is deleted."""
    topic = tagged(api, "x")
    api.refused("POST", f"/v0/topics/{topic}/delete", body, status=400, code="invalid_request")
    same(api.state(topic)["count"], 1, "count")


@case("6 delete")
def a_delete_needs_a_body(api: Api) -> None:
    """At least one is required: no body is 400 or 411, an absent topic 404."""
    topic = tagged(api, "x")
    api.call("POST", f"/v0/topics/{topic}/delete", media=None, status=(400, 411))
    api.refused("POST", f"/v0/topics/{topic}/delete", b"", status=400, code="invalid_request")
    api.refused("POST", f"/v0/topics/{api.topic()}/delete", {"seqs": [1]}, status=404, code="topic_not_found")


@case("6 delete")
def a_delete_is_no_standing_filter(api: Api) -> None:
    """Bounded by the head at call time, never a standing filter."""
    topic = tagged(api, "x", "x")
    same(api.delete(topic, match="x", before_seq=1000)["deleted"], 2, "deleted")
    api.write_records(topic, [{"data": 3, "tag": "x"}])
    same(api.seqs(topic), [3], "seqs")
    same(api.state(topic)["head_seq"], 3, "head")


@case("6 delete")
def earliest_moves_but_no_tombstone(api: Api) -> None:
    """`earliest_seq` moves, the eviction floor never does: permanent, immediate for every reader, silent."""
    topic = tagged(api, *"aaaaa")
    same(api.delete(topic, seqs=[1, 2])["earliest_seq"], 3, "earliest_seq")
    part(api.diff(topic), {"tombstone": None, "earliest_seq": 3}, "diff")
    same(api.delete(topic, seqs=[4])["earliest_seq"], 3, "earliest_seq stays")
    same(api.delete(topic, seqs=[3])["earliest_seq"], 5, "earliest_seq passes what was deleted before")
    detail = api.refused("GET", f"/v0/topics/{topic}/records/1", status=404, code="not_found")
    same(detail["why"], "deleted", "why")


@case("6 delete")
def deleted_records_do_not_reach_watchers(api: Api) -> None:
    """Immediate for every reader: a stream opened afterwards does not show them."""
    topic = tagged(api, "x", "y", "x", "y")
    api.delete(topic, match="x")
    with watch(api, {topic: {}}) as stream:
        event = stream.next_named("record")
        same([one["$seq"] for one in event.data["records"]], [2, 4], "seqs")
        stream.next_named("caught-up")


@case("6 delete")
def deletes_make_room_under_caps(api: Api) -> None:
    """Caps count live records: what was deleted makes room."""
    topic = api.topic()
    api.put(topic, cap_records=3)
    api.write(topic, 1, 2, 3)
    api.delete(topic, seqs=[2])
    api.write(topic, 4)
    part(api.diff(topic), {"tombstone": None, "earliest_seq": 1}, "diff")
    same(api.seqs(topic), [1, 3, 4], "seqs")
