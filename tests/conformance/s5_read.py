"""§5 Read: diff as JSON and NDJSON, filters, bounds, long polls, tombstones, records, `/v0/diff`."""

from __future__ import annotations

import time
from typing import Any

from tests.conformance import rawjson
from tests.conformance.kit import NDJSON, U64_MAX, Api, case, each, has, holds, part, same

PAGE_FIELDS = {
    "topic",
    "epoch",
    "records",
    "next_from_seq",
    "head_seq",
    "earliest_seq",
    "caught_up",
    "tombstone",
    "lag",
    "performance",
}


@case("5 diff")
def the_answer_of_a_diff(api: Api) -> None:
    """→ `{topic, epoch, records, next_from_seq, head_seq, earliest_seq, caught_up, tombstone, lag, performance}`."""
    topic = api.topic()
    epoch = api.write(topic, "a", "b", "c")["epoch"]
    page = api.diff(topic)
    same(set(page), PAGE_FIELDS, "fields")
    want = {"topic": topic, "epoch": epoch, "next_from_seq": 3, "head_seq": 3, "earliest_seq": 1, "caught_up": True}
    part(page, {**want, "tombstone": None, "lag": 0}, "page")
    same([one["$seq"] for one in page["records"]], [1, 2, 3], "records ascend")


@case("5 diff")
def an_empty_topic_is_caught_up(api: Api) -> None:
    """`caught_up` is `next_from_seq == head_seq`; a topic without records is an empty page."""
    topic = api.topic()
    api.put(topic)
    want = {"records": [], "next_from_seq": 0, "head_seq": 0, "earliest_seq": 1, "caught_up": True, "tombstone": None}
    part(api.diff(topic), {**want, "lag": 0}, "page")


@case("5 diff")
def from_seq_is_exclusive(api: Api) -> None:
    """`from_seq` 0 (exclusive); `from_seq = head_seq` is "only what is new"."""
    topic = api.topic()
    api.write(topic, *range(5))
    same(api.seqs(topic, from_seq=0), [1, 2, 3, 4, 5], "after 0")
    same(api.seqs(topic, from_seq=3), [4, 5], "after 3")
    page = api.diff(topic, from_seq=5)
    part(page, {"records": [], "caught_up": True, "tombstone": None, "next_from_seq": 5}, "at the head")


@case("5 diff")
def limit_is_clamped(api: Api) -> None:
    """`limit` 256 (clamped 1 … 1000; 0 = default)."""
    topic = api.topic()
    api.write(topic, *range(1100))
    same(len(api.seqs(topic)), 256, "default")
    same(len(api.seqs(topic, limit=0)), 256, "0")
    same(len(api.seqs(topic, limit=1)), 1, "1")
    same(len(api.seqs(topic, limit=1000)), 1000, "1000")
    same(len(api.seqs(topic, limit=100_000)), 1000, "100000")
    part(api.diff(topic, limit=100), {"next_from_seq": 100, "caught_up": False, "lag": 1000, "head_seq": 1100}, "page")


@case("5 diff")
def pages_make_the_whole(api: Api) -> None:
    """The cursor moves by `next_from_seq`: pages one after the other show every record once."""
    topic = api.topic()
    api.write(topic, *range(250))
    seen: list[int] = []
    cursor = 0
    for _ in range(10):
        page = api.diff(topic, from_seq=cursor, limit=37)
        seen += [one["data"] for one in page["records"]]
        cursor = page["next_from_seq"]
        if page["caught_up"]:
            break
    same(seen, list(range(250)), "data")


@case("5 diff")
def max_bytes_bounds_a_page(api: Api) -> None:
    """`max_bytes` 1 MiB (clamped to 8 MiB; at least one record is always given)."""
    topic = api.topic()
    api.write(topic, *["x" * 1000] * 50)
    same(len(api.seqs(topic, max_bytes=1)), 1, "at least one")
    some = len(api.seqs(topic, max_bytes=10_000))
    holds(8 <= some <= 10, f"{some} records of 1000 bytes in 10000")
    big = api.topic()
    for _ in range(3):
        api.write(big, "y" * 700_000)
    same(len(api.seqs(big)), 1, "default of 1 MiB")
    same(len(api.seqs(big, max_bytes=3_000_000)), 3, "3 MB")


@case("5 diff")
def max_bytes_is_clamped(api: Api) -> None:
    """`max_bytes` … clamped to 8 MiB."""
    topic = api.topic()
    for _ in range(3):
        api.write(topic, *["z" * 1_000_000] * 4)
    count = len(api.seqs(topic, max_bytes=100_000_000))
    holds(7 <= count <= 8, f"{count} records of 1 MB in a page of at most 8 MiB")


@case("5 diff")
def node_filters_what_the_reader_wrote(api: Api) -> None:
    """`node` string or list: records of these nodes are left out and the cursor still moves past them."""
    topic = api.topic()
    api.write_records(topic, [{"data": n, "node": node} for n, node in enumerate("abcab")] + [{"data": 5}])
    same(api.datas(topic, node="a"), [1, 2, 4, 5], "without a")
    same(api.datas(topic, node=["a", "b"]), [2, 5], "without a and b")
    same(api.datas(topic, node=[]), [0, 1, 2, 3, 4, 5], "without anybody")
    page = api.diff(topic, node=["a", "b"], from_seq=3)
    part(page, {"next_from_seq": 6, "caught_up": True, "tombstone": None}, "filtering is silent")
    api.write_records(topic, [{"data": 6, "node": "a"}])
    part(api.diff(topic, node="a", from_seq=6), {"records": [], "next_from_seq": 7, "caught_up": True}, "all filtered")


@case("5 diff")
def dedupe_node_false_filters_nothing(api: Api) -> None:
    """`dedupe_node`: node filtering on reads – off, the reader's own records come too."""
    topic = api.topic()
    api.put(topic, dedupe_node=False)
    api.write_records(topic, [{"data": 1, "node": "a"}, {"data": 2, "node": "b"}])
    same(api.datas(topic, node="a"), [1, 2], "data")


@case("5 diff")
def match_filters_by_tag(api: Api) -> None:
    """`match` (§6 tuple, tag filter): Eq, Glob and the short forms; records without tag never match."""
    topic = api.topic()
    tags = ["x", "xy", "y", None, "x*", ""]
    api.write_records(topic, [{"data": n, **({} if tag is None else {"tag": tag})} for n, tag in enumerate(tags)])
    for match, want in (
        (["tag", "Eq", "x"], [0]),
        ("x", [0]),
        (["tag", "Glob", "x*"], [0, 1, 4]),
        ("x*", [0, 1, 4]),
        (["tag", "Eq", "x*"], [4]),
        ("nothing", []),
    ):
        page = api.diff(topic, match=match)
        same([one["data"] for one in page["records"]], want, f"match {match}")
        part(page, {"next_from_seq": 6, "caught_up": True, "tombstone": None}, f"match {match}")


BAD_MATCHES: list[tuple[str, Any]] = [
    ("operator", ["tag", "Like", "x"]),
    ("field", ["node", "Eq", "x"]),
    ("two parts", ["tag", "Eq"]),
    ("four parts", ["tag", "Eq", "x", "y"]),
    ("star inside", ["tag", "Glob", "a*b*"]),
    ("glob without a star", ["tag", "Glob", "ab"]),
    ("number", 5),
    ("value number", ["tag", "Eq", 5]),
    ("object", {"tag": "x"}),
]


@each("5 diff", BAD_MATCHES)
def a_bad_match_is_400(api: Api, match: Any) -> None:
    """`Glob` is a prefix and one final star; another shape is 400, in diff, delete and watch."""
    topic = api.topic()
    api.write_records(topic, [{"data": 1, "tag": "x"}])
    for path, body in (
        (f"/v0/topics/{topic}/diff", {"match": match}),
        (f"/v0/topics/{topic}/delete", {"match": match}),
        ("/v0/watch", {"topics": {topic: {}}, "match": match}),
    ):
        api.refused("POST", path, body, status=400, code="invalid_request")
    same(api.state(topic)["count"], 1, "count")


@case("5 diff")
def from_ts_starts_at_a_time(api: Api) -> None:
    """`from_ts` (start at the first record with `$ts ≥ from_ts`)."""
    topic = api.topic()
    for n in range(4):
        api.write(topic, n)
        time.sleep(0.005)
    stamps = [one["$ts"] for one in api.diff(topic)["records"]]
    page = api.diff(topic, from_ts=stamps[2])
    same([one["data"] for one in page["records"]], [2, 3], "from the third's time")
    same(page["tombstone"], None, "tombstone")
    same(api.datas(topic, from_ts=stamps[0] - 100_000), [0, 1, 2, 3], "from long ago")
    part(
        api.diff(topic, from_ts=stamps[3] + 3_600_000), {"records": [], "next_from_seq": 4, "caught_up": True}, "future"
    )


@case("5 diff")
def to_seq_is_an_inclusive_end(api: Api) -> None:
    """`to_seq` (inclusive end)."""
    topic = api.topic()
    api.write(topic, *range(6))
    same(api.seqs(topic, to_seq=4), [1, 2, 3, 4], "to 4")
    part(api.diff(topic, to_seq=4), {"next_from_seq": 4, "caught_up": False, "lag": 2}, "page")
    same(api.seqs(topic, from_seq=2, to_seq=3), [3], "3 to 3")
    same(api.seqs(topic, to_seq=100), [1, 2, 3, 4, 5, 6], "beyond the head")
    same(api.seqs(topic, from_seq=4, to_seq=2), [], "before the start")
    api.delete(topic, before_seq=5)
    part(api.diff(topic, to_seq=2), {"records": [], "next_from_seq": 2, "tombstone": None}, "nothing but what is gone")


@each(
    "5 diff",
    [
        ("tags", ({"include_tags": True}, {"$seq", "$ts", "$node", "data", "meta", "$tag"})),
        ("default", ({}, {"$seq", "$ts", "$node", "data", "meta"})),
        ("no meta", ({"include_meta": False}, {"$seq", "$ts", "$node", "data"})),
        ("no data", ({"include_data": False}, {"$seq", "$ts", "$node", "meta"})),
        ("no data, no meta", ({"include_data": False, "include_meta": False}, {"$seq", "$ts", "$node"})),
        ("no data but tags", ({"include_data": False, "include_tags": True}, {"$seq", "$ts", "$node", "meta", "$tag"})),
        (
            "only tags",
            ({"include_data": False, "include_meta": False, "include_tags": True}, {"$seq", "$ts", "$node", "$tag"}),
        ),
        ("no meta but tags", ({"include_meta": False, "include_tags": True}, {"$seq", "$ts", "$node", "data", "$tag"})),
    ],
)
def parts_of_a_record_can_be_chosen(api: Api, choice: tuple[dict[str, bool], set[str]]) -> None:
    """`include_tags` false, `include_meta` true, `include_data` true – over JSON and NDJSON."""
    fields, want = choice
    topic = api.topic()
    full = {"data": {"$tag": "no", "meta": 1}, "tag": "t", "node": "n", "meta": {"data": 1, "$tag": "no"}}
    api.write_records(topic, [full, {"data": ","}, full])
    records = api.diff(topic, **fields)["records"]
    same([set(records[0]), set(records[2])], [want, want], "fields")
    same(set(records[1]), want - {"$node", "meta", "$tag"}, "fields of a bare record")
    accept = (("Accept", NDJSON),)
    lines = api.call("POST", f"/v0/topics/{topic}/diff", fields, headers=accept, status=200).lines
    same([rawjson.parse(line) for line in lines[:-1]], records, "NDJSON records")


@case("5 diff")
def an_empty_page_that_is_not_caught_up_is_normal(api: Api) -> None:
    """One call examines at most 100 × `limit` slots; an empty page that is not caught up is normal."""
    topic = api.topic()
    api.write_records(topic, [{"data": n, "node": "a"} for n in range(500)])
    page = api.diff(topic, node="a", limit=2)
    part(page, {"records": [], "next_from_seq": 200, "caught_up": False, "lag": 300, "tombstone": None}, "first page")
    same(api.diff(topic, node="a", limit=2, from_seq=200)["next_from_seq"], 400, "second page")
    same(api.diff(topic, node="a", limit=2, from_seq=400)["caught_up"], True, "third page")


@case("5 wait")
def a_long_poll_waits_for_what_is_new(api: Api) -> None:
    """`wait_ms` 0 (clamped to 30000; long poll): answered as soon as there is something."""
    topic = api.topic()
    api.write(topic, "old")
    started = time.monotonic()
    timer = api.later(0.2, lambda other: other.write(topic, "new"))
    page = api.diff(topic, from_seq=1, wait_ms=8000)
    took = time.monotonic() - started
    timer.join()
    same([one["data"] for one in page["records"]], ["new"], "data")
    holds(0.1 < took < 4, f"answered after {took:.2f} s")


@case("5 wait")
def a_long_poll_ends_empty(api: Api) -> None:
    """A long poll without news ends with an empty page after `wait_ms`."""
    topic = api.topic()
    api.put(topic)
    started = time.monotonic()
    part(api.diff(topic, wait_ms=250), {"records": [], "caught_up": True, "tombstone": None}, "page")
    took = time.monotonic() - started
    holds(0.2 < took < 3, f"answered after {took:.2f} s")


@case("5 wait")
def wait_ms_waits_only_when_caught_up(api: Api) -> None:
    """`wait_ms` waits only when caught up."""
    topic = api.topic()
    api.write_records(topic, [{"data": n, "node": "a"} for n in range(500)])
    started = time.monotonic()
    same(len(api.seqs(topic, wait_ms=20_000)), 256, "records at once")
    same(api.diff(topic, node="a", limit=2, wait_ms=20_000)["records"], [], "an empty page that is not caught up")
    same(api.diff(topic, from_seq=999, wait_ms=20_000)["tombstone"]["reason"], "recreated", "a tombstone at once")
    holds(time.monotonic() - started < 3, "waited though not caught up")


@case("5 wait")
def a_long_poll_ignores_what_it_filters(api: Api) -> None:
    """A long poll is not ended by records that its filter leaves out."""
    topic = api.topic()
    api.put(topic)

    def others(writer: Api) -> None:
        writer.write_records(topic, [{"data": 1, "node": "me"}])
        time.sleep(0.1)
        writer.write_records(topic, [{"data": 2, "node": "other"}])

    thread = api.later(0.1, others)
    seen: list[Any] = []
    cursor = 0
    for _ in range(4):
        page = api.diff(topic, node="me", from_seq=cursor, wait_ms=3000)
        cursor = page["next_from_seq"]
        seen += page["records"]
        if seen:
            break
    thread.join()
    same([one["data"] for one in seen], [2], "data")
    same(cursor, 2, "cursor")


@case("5 wait")
def a_long_poll_on_a_dropped_topic_ends(api: Api) -> None:
    """A poll on a topic that is dropped ends at once, as 404 or as an empty page."""
    topic = api.topic()
    api.put(topic)
    timer = api.later(0.15, lambda other: other.call("DELETE", f"/v0/topics/{topic}"))
    started = time.monotonic()
    api.call("POST", f"/v0/topics/{topic}/diff", {"wait_ms": 12_000}, status=(200, 404))
    timer.join()
    holds(time.monotonic() - started < 6, "the poll waited on for a topic that is gone")


@case("5 tombstone")
def deletion_is_silent(api: Api) -> None:
    """Deletion and node filtering are silent, because somebody asked for them."""
    topic = api.topic()
    api.write(topic, *range(6))
    api.delete(topic, seqs=[2, 3])
    page = api.diff(topic)
    same([one["$seq"] for one in page["records"]], [1, 4, 5, 6], "seqs")
    same(page["tombstone"], None, "tombstone")
    api.delete(topic, before_seq=6)
    part(api.diff(topic), {"tombstone": None, "earliest_seq": 6, "next_from_seq": 6}, "all but one deleted")


@case("5 tombstone")
def loss_is_a_tombstone_inside_a_200(api: Api) -> None:
    """`tombstone` is given iff records between the cursor and the page were lost against the reader's will."""
    topic = api.topic()
    api.put(topic, cap_records=4)
    api.write(topic, *range(10))
    want = {"gap_from": 1, "gap_to": 6, "reason": "cap", "missed_estimate": 6, "earliest_seq": 7, "head_seq": 10}
    same(api.diff(topic)["tombstone"], want, "from 0")
    same(api.diff(topic, from_seq=4)["tombstone"], {**want, "gap_from": 5, "missed_estimate": 2}, "from 4")
    same(api.diff(topic, from_seq=6)["tombstone"], None, "from 6: nothing was lost")
    same(api.seqs(topic, from_seq=6), [7, 8, 9, 10], "seqs")
    same(api.diff(topic, from_seq=8)["tombstone"], None, "from 8")


@case("5 tombstone")
def deleted_and_then_evicted(api: Api) -> None:
    """`gap_to` is the last seq before the first record that can still be read after the loss."""
    topic = api.topic()
    api.put(topic, cap_records=4)
    api.write(topic, *range(4))
    api.delete(topic, seqs=[2])
    api.write(topic, 4, 5)
    page = api.diff(topic)
    part(page["tombstone"], {"gap_from": 1, "reason": "cap", "earliest_seq": page["earliest_seq"]}, "tombstone")
    first = page["records"][0]["$seq"]
    same(page["tombstone"]["gap_to"], first - 1, "gap_to")


@case("5 tombstone")
def cap_and_age_together_are_mixed(api: Api) -> None:
    """`reason`: `cap`, `ttl`, `mixed`."""
    topic = api.topic()
    api.put(topic, cap_records=3)
    api.write(topic, *range(5))
    same(api.diff(topic)["tombstone"]["reason"], "cap", "cap")
    api.put(topic, ttl_ms=200)
    time.sleep(0.35)
    tombstone = api.diff(topic)["tombstone"]
    part(tombstone, {"reason": "mixed", "gap_from": 1, "gap_to": 5, "missed_estimate": 5}, "both")
    same(api.diff(topic, from_seq=2)["tombstone"]["reason"], "ttl", "only aged records after 2")


@each("5 tombstone", [("head + 1", 4), ("far", 10**6), ("u64", U64_MAX)])
def beyond_the_head_is_recreated(api: Api, cursor: int) -> None:
    """`from_seq > head_seq`: `recreated`, `gap_from` 1, `gap_to` `head_seq`, reading goes on from `earliest_seq`."""
    topic = api.topic()
    api.write(topic, *range(3))
    page = api.diff(topic, from_seq=cursor)
    want = {"reason": "recreated", "gap_from": 1, "gap_to": 3, "earliest_seq": 1, "head_seq": 3}
    part(page["tombstone"], want, "tombstone")
    same([one["$seq"] for one in page["records"]], [1, 2, 3], "records")
    part(page, {"next_from_seq": 3, "caught_up": True}, "page")


@case("5 tombstone")
def another_epoch_is_recreated(api: Api) -> None:
    """An `epoch` that is not the topic's: `recreated`, and reading goes on from `earliest_seq`."""
    topic = api.topic()
    old = api.write(topic, "old", "old")["epoch"]
    api.call("DELETE", f"/v0/topics/{topic}", status=200)
    new = api.write(topic, "new", "newer")["epoch"]
    page = api.diff(topic, from_seq=1, epoch=old)
    part(page["tombstone"], {"reason": "recreated", "gap_from": 1, "gap_to": 2}, "tombstone")
    same([one["data"] for one in page["records"]], ["new", "newer"], "data")
    page = api.diff(topic, from_seq=1, epoch=new)
    part(page, {"tombstone": None, "epoch": new}, "page with the right epoch")
    same([one["data"] for one in page["records"]], ["newer"], "data with the right epoch")


@case("5 ndjson")
def ndjson_ends_with_a_page_line(api: Api) -> None:
    """NDJSON answer: a record a line; the last line `{"$page":{next_from_seq, head_seq, earliest_seq, …}}`."""
    topic = api.topic()
    epoch = api.write(topic, *range(3))["epoch"]
    answer = api.call("POST", f"/v0/topics/{topic}/diff", {"limit": 2}, headers=(("Accept", NDJSON),), status=200)
    parsed = [rawjson.parse(line) for line in answer.lines]
    same([one["$seq"] for one in parsed[:-1]], [1, 2], "records")
    want = {"next_from_seq": 2, "head_seq": 3, "earliest_seq": 1, "caught_up": False, "lag": 1, "epoch": epoch}
    same(parsed[-1], {"$page": want}, "last line")


@case("5 ndjson")
def ndjson_shows_tombstones_as_lines(api: Api) -> None:
    """Tombstones as a line `{"$tombstone":{…}}`."""
    topic = api.topic()
    api.put(topic, cap_records=1)
    api.write(topic, 1, 2, 3)
    answer = api.call("POST", f"/v0/topics/{topic}/diff", {}, headers=(("Accept", NDJSON),), status=200)
    parsed = [rawjson.parse(line) for line in answer.lines]
    want = {"gap_from": 1, "gap_to": 2, "reason": "cap", "missed_estimate": 2, "earliest_seq": 3, "head_seq": 3}
    same(parsed[0], {"$tombstone": want}, "first line")
    same((parsed[1]["$seq"], list(parsed[2])), (3, ["$page"]), "the rest")
    empty = api.call("POST", f"/v0/topics/{topic}/diff", {"from_seq": 3}, headers=(("Accept", NDJSON),), status=200)
    same(len(empty.lines), 1, "lines of an empty page")


@case("5 records")
def one_record_with_tag_and_meta(api: Api) -> None:
    """`GET /v0/topics/:t/records/:seq` → the record with tag and meta."""
    topic = api.topic()
    api.write_records(topic, [{"data": 0}, {"data": {"a": 1}, "tag": "t", "node": "n", "meta": {"k": "v"}}])
    record = api.call("GET", f"/v0/topics/{topic}/records/2", status=200).json
    part(record, {"$seq": 2, "data": {"a": 1}, "$tag": "t", "$node": "n", "meta": {"k": "v"}}, "record")
    has(record, ["$ts"], "record")


@case("5 records")
def why_a_record_is_not_there(api: Api) -> None:
    """Or 404 with `detail.why`: `never_written`, `deleted`, `evicted`, `expired`; and `earliest_seq`, `head_seq`."""
    topic, aged = api.topic(), api.topic()
    api.put(topic, cap_records=4)
    api.write(topic, *range(6))
    api.delete(topic, seqs=[4])
    api.put(aged, ttl_ms=100)
    api.write(aged, 1)
    time.sleep(0.25)
    for name, seq, why in (
        (topic, 0, "never_written"),
        (topic, 7, "never_written"),
        (topic, U64_MAX, "never_written"),
        (topic, 4, "deleted"),
        (topic, 1, "evicted"),
        (topic, 2, "evicted"),
        (aged, 1, "expired"),
    ):
        detail = api.refused("GET", f"/v0/topics/{name}/records/{seq}", status=404, code="not_found")
        part(detail, {"why": why, "topic": name}, f"detail of {seq}")
        has(detail, ["earliest_seq", "head_seq"], "detail")
    part(detail, {"earliest_seq": 2, "head_seq": 1}, "detail of the aged topic")


@each(
    "5 records",
    [("text", "x"), ("minus", "-1"), ("fraction", "1.0"), ("2^64", str(2**64)), ("plus", "+1"), ("blank", "%201")],
)
def a_bad_seq_in_the_path_is_400(api: Api, seq: str) -> None:
    """400 `invalid_request` for a seq that is no number of 64 bits."""
    topic = api.topic()
    api.write(topic, 1)
    api.refused("GET", f"/v0/topics/{topic}/records/{seq}", status=400, code="invalid_request")


@case("5 several")
def several_topics_in_one_diff(api: Api) -> None:
    """`POST /v0/diff` → `{"topics":{name: diff answer | {error}}}`."""
    one, two, absent = api.topic(), api.topic(), api.topic()
    api.write(one, 1, 2, 3)
    api.write_records(two, [{"data": 4, "node": "me"}, {"data": 5}])
    body = {"topics": {one: {"from_seq": 1, "limit": 1}, two: {}, absent: {}}, "node": "me"}
    answer = api.call("POST", "/v0/diff", body, status=200).json["topics"]
    part(answer[one], {"topic": one, "next_from_seq": 2, "caught_up": False, "lag": 1, "tombstone": None}, "one")
    same([record["data"] for record in answer[one]["records"]], [2], "data of one")
    same([record["data"] for record in answer[two]["records"]], [5], "data of two")
    same(answer[absent]["error"]["code"], "topic_not_found", "absent")


@case("5 several")
def a_diff_of_several_waits(api: Api) -> None:
    """Waits until `min_bytes` are there or `max_wait_ms` passed."""
    one, two = api.topic(), api.topic()
    api.put(one)
    api.put(two)
    started = time.monotonic()
    body: dict[str, Any] = {"topics": {one: {}, two: {}}, "min_bytes": 1, "max_wait_ms": 250}
    answer = api.call("POST", "/v0/diff", body, status=200).json["topics"]
    same([answer[one]["records"], answer[two]["records"]], [[], []], "records")
    holds(0.2 < time.monotonic() - started < 3, "did not wait as asked")
    timer = api.later(0.15, lambda other: other.write(two, "news"))
    started = time.monotonic()
    answer = api.call("POST", "/v0/diff", {**body, "max_wait_ms": 10_000}, status=200).json["topics"]
    timer.join()
    same([record["data"] for record in answer[two]["records"]], ["news"], "data")
    holds(time.monotonic() - started < 5, "waited on though there was news")


@case("5 several")
def max_bytes_bounds_all_topics_together(api: Api) -> None:
    """`max_bytes` of a diff of several topics bounds the answer, yet it makes progress."""
    names = [api.topic() for _ in range(4)]
    for name in names:
        api.write(name, *["x" * 1000] * 20)
    body = {"topics": {name: {} for name in names}, "max_bytes": 10_000}
    answer = api.call("POST", "/v0/diff", body, status=200)
    count = sum(len(page["records"]) for page in answer.json["topics"].values())
    holds(1 <= count <= 13, f"{count} records of 1000 bytes with max_bytes 10000")


@each(
    "5 several",
    [("no topics", {}), ("empty", {"topics": {}}), ("list", {"topics": ["a"]}), ("number", {"topics": {"a": 1}})],
)
def a_bad_diff_of_several_is_400(api: Api, body: dict[str, Any]) -> None:
    """`{"topics":{name:{from_seq,…}}}`: anything else is 400."""
    api.refused("POST", "/v0/diff", body, status=400, code="invalid_request")
