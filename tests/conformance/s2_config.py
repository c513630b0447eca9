"""§2 Topic configuration, and §3 Topics: PUT, GET, list, DELETE."""

from __future__ import annotations

import base64
import time
from typing import Any

from tests.conformance import rawjson
from tests.conformance.kit import Api, Failed, case, each, has, holds, part, same

DEFAULTS: dict[str, Any] = {
    "type": "log",
    "ttl_ms": 0,
    "cap_records": 0,
    "cap_bytes": 0,
    "discard": "old",
    "durable": False,
    "durability": "disk",
    "priority": None,
    "auto_priority": True,
    "auto_create": True,
    "idempotency_window_ms": 120000,
    "dedupe_node": True,
    "lease_ms": 30000,
    "claim_jitter_ms": 0,
    "max_deliveries": 0,
    "dead_letter": None,
    "leases_durable": False,
}


@case("2 config")
def seventeen_fields_in_this_order(api: Api) -> None:
    """Every answer that shows a configuration shows exactly these seventeen fields, in this order."""
    topic = api.topic()
    for answer in (
        api.call("PUT", f"/v0/topics/{topic}", {"colour": 1}, status=201),
        api.call("PUT", f"/v0/topics/{topic}", {"ttl_ms": 5}, status=200),
        api.call("GET", f"/v0/topics/{topic}", status=200),
    ):
        same([name for name, _ in rawjson.members(rawjson.member(answer.raw, "config"))], list(DEFAULTS), "fields")


@each("2 config", [(name, (name, value)) for name, value in DEFAULTS.items()])
def a_default(api: Api, default: tuple[str, Any]) -> None:
    """The defaults of the table, for a topic made by PUT and for one made by a write."""
    name, value = default
    made, written = api.topic(), api.topic()
    part(api.put(made)["config"], {name: value}, "configuration by PUT")
    api.write(written, 1)
    part(api.state(written)["config"], {name: value}, "configuration by a write")


SETTABLE: list[tuple[str, tuple[str, Any]]] = [
    ("type queue", ("type", "queue")),
    ("ttl_ms", ("ttl_ms", 2**63)),
    ("ttl_ms u64", ("ttl_ms", 2**64 - 1)),
    ("cap_records", ("cap_records", 7)),
    ("cap_bytes", ("cap_bytes", 7_000_000_000)),
    ("discard", ("discard", "reject")),
    ("ephemeral", ("durability", "ephemeral")),
    ("memory", ("durability", "memory")),
    ("disk", ("durability", "disk")),
    ("fsync", ("durability", "fsync")),
    ("priority", ("priority", -5)),
    ("auto_priority", ("auto_priority", False)),
    ("auto_create", ("auto_create", False)),
    ("idempotency_window_ms", ("idempotency_window_ms", 1)),
    ("dedupe_node", ("dedupe_node", False)),
    ("lease_ms", ("lease_ms", 60000)),
    ("claim_jitter_ms", ("claim_jitter_ms", 50)),
    ("max_deliveries", ("max_deliveries", 3)),
    ("dead_letter", ("dead_letter", "conf-elsewhere")),
    ("leases_durable", ("leases_durable", True)),
]


@each("2 config", SETTABLE)
def a_field_can_be_set(api: Api, setting: tuple[str, Any]) -> None:
    """Body: any subset of the configuration; the answer and the state show it, the others stay."""
    name, value = setting
    if name == "dead_letter":
        value = api.topic()
    topic = api.topic()
    want = {**DEFAULTS, name: value}
    want["durable"] = want["durability"] == "fsync"
    same(api.put(topic, **{name: value})["config"], want, "config of the answer")
    same(api.state(topic)["config"], want, "config of the state")
    same(
        api.put(topic, idempotency_window_ms=9)["config"], {**want, "idempotency_window_ms": 9}, "config changed later"
    )


CLAMPED = [
    ("priority high", ("priority", 5000, 1000)),
    ("priority low", ("priority", -5000, -1000)),
    ("lease_ms low", ("lease_ms", 1, 100)),
    ("lease_ms high", ("lease_ms", 10**12, 86400000)),
    ("claim_jitter_ms high", ("claim_jitter_ms", 99999, 5000)),
]


@each("2 config", CLAMPED)
def a_field_is_clamped(api: Api, setting: tuple[str, int, int]) -> None:
    """`priority` clamped to ±1000, `lease_ms` 100 … 86400000, `claim_jitter_ms` 0 … 5000."""
    name, sent, want = setting
    same(api.put(api.topic(), **{name: sent})["config"][name], want, name)


BAD_SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("type", {"type": "stream"}),
    ("ttl_ms negative", {"ttl_ms": -1}),
    ("ttl_ms text", {"ttl_ms": "1h"}),
    ("ttl_ms fraction", {"ttl_ms": 1.5}),
    ("ttl_ms bool", {"ttl_ms": True}),
    ("ttl_ms 2^64", {"ttl_ms": 2**64}),
    ("cap_records negative", {"cap_records": -1}),
    ("discard", {"discard": "new"}),
    ("durability", {"durability": "none"}),
    ("durable number", {"durable": 1}),
    ("priority text", {"priority": "high"}),
    ("priority fraction", {"priority": 0.5}),
    ("auto_create null", {"auto_create": None}),
    ("max_deliveries negative", {"max_deliveries": -1}),
    ("max_deliveries 2^32", {"max_deliveries": 2**32}),
    ("dead_letter bad name", {"dead_letter": "../x"}),
    ("dead_letter number", {"dead_letter": 5}),
    ("leases_durable text", {"leases_durable": "yes"}),
]


@each("2 config", BAD_SETTINGS)
def a_bad_setting_is_400(api: Api, config: dict[str, Any]) -> None:
    """400 `invalid_request` (type, range, name; `detail.field`); nothing is created or changed."""
    topic = api.topic()
    detail = api.refused("PUT", f"/v0/topics/{topic}", config, status=400, code="invalid_request")
    same(detail.get("field"), next(iter(config)), "detail.field")
    api.refused("GET", f"/v0/topics/{topic}", status=404, code="topic_not_found")
    api.put(topic, cap_records=3)
    api.refused("PUT", f"/v0/topics/{topic}", {"cap_records": 9, **config}, status=400, code="invalid_request")
    same(api.state(topic)["config"]["cap_records"], 3, "cap_records after a refused change")


DURABLE = [
    ("true", ({"durable": True}, True, "fsync")),
    ("false", ({"durable": False}, False, "disk")),
    ("true but memory", ({"durable": True, "durability": "memory"}, False, "memory")),
    ("false but fsync", ({"durable": False, "durability": "fsync"}, True, "fsync")),
]


@each("2 config", DURABLE)
def durable_is_an_alias(api: Api, setting: tuple[dict[str, Any], bool, str]) -> None:
    """`durable` alone sets the class; `durability` wins; always answered as `durability == "fsync"`."""
    sent, durable, durability = setting
    topic = api.topic()
    part(api.put(topic, **sent)["config"], {"durable": durable, "durability": durability}, "new topic")
    changed = api.topic()
    api.put(changed, durability="ephemeral")
    part(api.put(changed, **sent)["config"], {"durable": durable, "durability": durability}, "changed topic")


@case("2 config")
def type_is_immutable(api: Api) -> None:
    """Changing `type` is `409 topic_exists_incompatible`; naming the same type is fine."""
    topic = api.topic()
    api.put(topic, type="log")
    api.refused("PUT", f"/v0/topics/{topic}", {"type": "queue"}, status=409, code="topic_exists_incompatible")
    same(api.put(topic, type="log", ttl_ms=1)["config"]["ttl_ms"], 1, "ttl_ms")


@case("2 config")
def a_dead_letter_is_another_topic(api: Api) -> None:
    """`dead_letter`: name or null; another topic."""
    topic, other = api.topic(), api.topic()
    api.refused(
        "PUT", f"/v0/topics/{topic}", {"type": "queue", "dead_letter": topic}, status=400, code="invalid_request"
    )
    same(api.put(topic, type="queue", dead_letter=other)["config"]["dead_letter"], other, "dead_letter")
    same(api.put(topic, dead_letter=None)["config"]["dead_letter"], None, "dead_letter taken away")


@case("2 config")
def priority_null_takes_it_away(api: Api) -> None:
    """`priority`: manual; null means automatic."""
    topic = api.topic()
    same(api.put(topic, priority=7)["config"]["priority"], 7, "priority")
    same(api.put(topic, priority=None)["config"]["priority"], None, "priority")


@case("3 put")
def put_creates_and_changes(api: Api) -> None:
    """`201` created, `200` unchanged or changed; `{topic, created, config, epoch}`; fields left out stay."""
    topic = api.topic()
    first = api.call("PUT", f"/v0/topics/{topic}", {"ttl_ms": 60_000, "cap_records": 5}, status=201).json
    part(first, {"topic": topic, "created": True}, "created")
    same(set(first), {"topic", "created", "config", "epoch", "performance"}, "fields")
    again = api.call("PUT", f"/v0/topics/{topic}", {"ttl_ms": 60_000, "cap_records": 5}, status=200).json
    part(again, {"created": False, "epoch": first["epoch"], "config": first["config"]}, "unchanged")
    changed = api.call("PUT", f"/v0/topics/{topic}", {"cap_records": 6}, status=200).json
    part(changed["config"], {"cap_records": 6, "ttl_ms": 60_000}, "changed")
    same(changed["epoch"], first["epoch"], "epoch after a change")
    bare = api.call("PUT", f"/v0/topics/{topic}", media=None, status=200).json
    same(bare["config"], changed["config"], "config after a PUT without a body")


@case("3 put")
def epochs_are_never_shared(api: Api) -> None:
    """Epoch: a number below 2^53 that no other incarnation of the name ever has."""
    topic = api.topic()
    seen = []
    for _ in range(4):
        seen.append(api.put(topic)["epoch"])
        same(api.write(topic, 1)["epoch"], seen[-1], "epoch of a write")
        same(api.state(topic)["epoch"], seen[-1], "epoch of the state")
        same(api.diff(topic)["epoch"], seen[-1], "epoch of a diff")
        api.call("DELETE", f"/v0/topics/{topic}", status=200)
    holds(all(type(epoch) is int and 0 <= epoch < 2**53 for epoch in seen), f"epochs {seen}")
    same(len(set(seen)), 4, "different epochs")


@case("3 state")
def state_of_a_new_topic(api: Api) -> None:
    """`earliest_seq` is the first live record, else `head_seq + 1`; `last_read_ts` null when never; no damage."""
    topic = api.topic()
    epoch = api.put(topic)["epoch"]
    state = api.state(topic, "?touch=false")
    want = {"topic": topic, "type": "log", "epoch": epoch, "head_seq": 0, "earliest_seq": 1, "next_seq": 1}
    part(state, {**want, "count": 0, "bytes": 0, "last_read_ts": None, "config": DEFAULTS}, "state")
    has(state, ["effective_priority", "last_write_ts"], "state")
    holds("damage" not in state and "queue" not in state, f"damage or queue in {sorted(state)}")


@case("3 state")
def state_counts_exactly(api: Api) -> None:
    """`count` and `bytes` are exact: live records, and the bytes of their `data`, `meta`, `node`, `tag`."""
    topic = api.topic()
    records = (
        b'{"data":{"a": 1.10}},{"data":"' + "é".encode() + b'","tag":"tag","node":"knot"},{"data":null,"meta":{ "k":1}}'
    )
    api.call("POST", f"/v0/topics/{topic}", b'{"records":[' + records + b"]}", status=201)
    sizes = [len(b'{"a": 1.10}'), 4 + 3 + 4, 4 + len(b'{ "k":1}')]
    part(api.state(topic), {"count": 3, "bytes": sum(sizes), "head_seq": 3, "next_seq": 4, "earliest_seq": 1}, "state")
    api.delete(topic, seqs=[2])
    part(api.state(topic), {"count": 2, "bytes": sizes[0] + sizes[2], "head_seq": 3, "earliest_seq": 1}, "one deleted")
    api.delete(topic, seqs=[1])
    part(api.state(topic), {"count": 1, "bytes": sizes[2], "earliest_seq": 3}, "two deleted")
    api.delete(topic, before_seq=100)
    part(api.state(topic), {"count": 0, "bytes": 0, "earliest_seq": 4, "head_seq": 3, "next_seq": 4}, "all deleted")


@case("3 state")
def get_never_creates(api: Api) -> None:
    """GET never creates."""
    topic = api.topic()
    for _ in range(2):
        api.refused("GET", f"/v0/topics/{topic}", status=404, code="topic_not_found")
    same(api.call("GET", f"/v0/topics?prefix={topic}").json["topics"], [], "list")


@case("3 state")
def touch_false_leaves_recency_alone(api: Api) -> None:
    """`touch=false` leaves recency alone; `last_read_ts` includes this very read."""
    topic = api.topic()
    api.put(topic)
    same(api.state(topic, "?touch=false")["last_read_ts"], None, "never read")
    before = int(time.time() * 1000) - 2000
    first = api.state(topic)["last_read_ts"]
    holds(type(first) is int and first >= before, f"last_read_ts {first}")
    time.sleep(0.02)
    same(api.state(topic, "?touch=false")["last_read_ts"], first, "last_read_ts with touch=false")
    time.sleep(0.02)
    holds(api.state(topic)["last_read_ts"] > first, "last_read_ts does not move with a read")


@case("3 state")
def effective_priority_follows_the_manual_one(api: Api) -> None:
    """`priority` manual; `auto_priority`: recency counts when `priority` is null."""
    manual, silent, recent = api.topic(), api.topic(), api.topic()
    api.put(manual, priority=7)
    api.put(silent, auto_priority=False)
    api.write(silent, 1)
    api.write(recent, 1)
    same(api.state(manual)["effective_priority"], 7, "manual")
    same(api.state(silent)["effective_priority"], 0, "without auto_priority")
    holds(0 < api.state(recent)["effective_priority"] <= 500, "a topic written just now has no priority")


LIST_FIELDS = {
    "topic",
    "type",
    "head_seq",
    "earliest_seq",
    "count",
    "bytes",
    "durable",
    "durability",
    "effective_priority",
}


def listed(api: Api, query: str) -> dict[str, Any]:
    """One page of the list."""
    answer: dict[str, Any] = api.call("GET", f"/v0/topics?{query}", status=200).json
    return answer


@case("3 list")
def list_entries_have_these_fields(api: Api) -> None:
    """`{topics:[{topic,type,head_seq,earliest_seq,count,bytes,durable,durability,effective_priority}]}`."""
    topic = api.topic()
    api.put(topic, durability="fsync", priority=3)
    api.write(topic, "abc")
    answer = listed(api, f"prefix={topic}")
    same(len(answer["topics"]), 1, "topics")
    entry = answer["topics"][0]
    same(set(entry), LIST_FIELDS, "fields")
    want = {"topic": topic, "type": "log", "head_seq": 1, "earliest_seq": 1, "count": 1, "bytes": 5, "durable": True}
    part(entry, {**want, "durability": "fsync", "effective_priority": 3}, "entry")
    holds("next_cursor" not in answer, "next_cursor though there is no more")


@case("3 list")
def lists_are_sorted_and_paged(api: Api) -> None:
    """`GET /v0/topics?prefix&page_size&cursor` sorted by name; `next_cursor` (unpadded base64url) only when more."""
    stem = api.topic()
    names = sorted(api.also_drop(stem + tail) for tail in ("", ".a", ".B", ":", "-1", "-10", "-2", "0"))
    for name in names[::-1]:
        api.put(name)
    same([one["topic"] for one in listed(api, f"prefix={stem}")["topics"]], names, "sorted")
    seen: list[str] = []
    cursor = ""
    for _ in range(10):
        page = listed(api, f"prefix={stem}&page_size=3{cursor}")
        holds(len(page["topics"]) <= 3, "a page larger than page_size")
        seen += [one["topic"] for one in page["topics"]]
        if "next_cursor" not in page:
            break
        want = base64.urlsafe_b64encode(seen[-1].encode()).rstrip(b"=").decode()
        same(page["next_cursor"], want, "next_cursor")
        cursor = f"&cursor={page['next_cursor']}"
    same(seen, names, "all pages")
    holds(
        "next_cursor" not in listed(api, f"prefix={stem}&page_size={len(names)}"), "next_cursor on an exact last page"
    )


@case("3 list")
def a_cursor_does_not_mind_a_dropped_name(api: Api) -> None:
    """The cursor is a name, so paging goes on when that topic is gone."""
    stem = api.topic()
    names = [api.also_drop(f"{stem}{index}") for index in range(4)]
    for name in names:
        api.put(name)
    page = listed(api, f"prefix={stem}&page_size=2")
    api.call("DELETE", f"/v0/topics/{names[1]}", status=200)
    rest = listed(api, f"prefix={stem}&page_size=5&cursor={page['next_cursor']}")
    same([one["topic"] for one in rest["topics"]], names[2:], "the rest")


@each(
    "3 list",
    [
        ("not base64", "cursor=!!!"),
        ("not UTF-8", "cursor=__8"),
        ("padded", "cursor=YQ=="),
        ("padded, percent-encoded", "cursor=YQ%3D%3D"),
        ("with other last bits", "cursor=YR"),
        ("of the other alphabet", "cursor=YTo+Pg"),
        ("page size text", "page_size=many"),
        ("negative", "page_size=-1"),
    ],
)
def a_bad_list_parameter_is_400(api: Api, query: str) -> None:
    """A bad cursor is 400; so is a page size that is no number."""
    api.refused("GET", f"/v0/topics?{query}", status=400, code="invalid_request")


@case("3 delete")
def delete_drops_the_topic(api: Api) -> None:
    """`DELETE` → `{topic, deleted, routers_removed}` (names, `[]` if none); absent is `deleted:false`."""
    topic = api.topic()
    api.write(topic, 1, 2)
    first = api.call("DELETE", f"/v0/topics/{topic}", status=200).json
    part(first, {"topic": topic, "deleted": True, "routers_removed": []}, "first")
    api.refused("GET", f"/v0/topics/{topic}", status=404, code="topic_not_found")
    api.refused("POST", f"/v0/topics/{topic}/diff", {}, status=404, code="topic_not_found")
    again = api.call("DELETE", f"/v0/topics/{topic}", status=200).json
    part(again, {"topic": topic, "deleted": False, "routers_removed": []}, "again")
    part(api.write(topic, 3), {"first_seq": 1, "created": True}, "a new incarnation starts at 1")
    same(api.datas(topic), [3], "data of the new incarnation")


@case("3 delete")
def if_empty_keeps_live_records(api: Api) -> None:
    """`if_empty` on live records `409 topic_not_empty`."""
    topic = api.topic()
    api.write(topic, 1)
    api.refused("DELETE", f"/v0/topics/{topic}?if_empty=true", status=409, code="topic_not_empty")
    same(api.datas(topic), [1], "data")
    api.delete(topic, seqs=[1])
    same(
        api.call("DELETE", f"/v0/topics/{topic}?if_empty=true", status=200).json["deleted"], True, "deleted when empty"
    )
    same(api.call("DELETE", f"/v0/topics/{topic}?if_empty=true", status=200).json["deleted"], False, "absent")
    api.write(topic, 1)
    same(api.call("DELETE", f"/v0/topics/{topic}?if_empty=false", status=200).json["deleted"], True, "if_empty=false")


@case("3 delete")
def a_dropped_name_keeps_auto_create_false(api: Api) -> None:
    """A dropped name keeps its `auto_create:false`; a write's own `create` wins."""
    topic = api.topic()
    api.put(topic, auto_create=False)
    same(api.write(topic, 1)["first_seq"], 1, "a topic that exists can be written")
    api.call("DELETE", f"/v0/topics/{topic}", status=200)
    body: dict[str, Any] = {"records": [{"data": 2}]}
    api.refused("POST", f"/v0/topics/{topic}", body, status=404, code="topic_not_found")
    same(api.call("POST", f"/v0/topics/{topic}", {**body, "create": True}, status=201).json["created"], True, "created")
    api.put(topic, auto_create=True)


@case("2 config")
def a_queue_says_so(api: Api) -> None:
    """`type` `queue` shows in the answer of PUT, in the state and in the list."""
    topic = api.topic()
    same(api.put(topic, type="queue")["config"]["type"], "queue", "PUT")
    same(api.state(topic)["type"], "queue", "state")
    same(listed(api, f"prefix={topic}")["topics"][0]["type"], "queue", "list")
    if api.write(topic, 1)["first_seq"] != 1:
        raise Failed("a queue is a log: its first seq is 1")
