"""§9 Routers: definition, copies, cycles, fan-in, back-pressure, losses, read-your-own-writes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from tests.conformance.kit import Api, case, each, part, same
from tests.conformance.sse import create
from tests.conformance.ws import Socket

FIELDS = {
    "preserve_node": True,
    "preserve_tag": True,
    "create_dest": True,
    "filter": None,
    "allow_cycle": False,
    "guarantee": "at_least_once",
    "start": "now",
}


def path(name: str) -> str:
    return f"/v0/routers/{name.replace('>', '%3E')}"


def put(api: Api, source: str, dest: str, status: int | tuple[int, ...] = (200, 201), **body: Any) -> str:
    """A router between two topics; its name."""
    name = f"{source}>{dest}"
    api.call("PUT", path(name), {"source": source, "dest": dest, **body}, status=status)
    api.also_drop(dest)
    return name


def get(api: Api, name: str) -> dict[str, Any]:
    answer: dict[str, Any] = api.call("GET", path(name), status=200).json
    return answer


def pair(api: Api) -> tuple[str, str]:
    return api.topic(), api.topic()


@case("9 routers")
def a_router_is_made(api: Api) -> None:
    """`201`/`200` with `{router, created, …definition}`; names may hold `>`; a missing source is always created."""
    source, dest = pair(api)
    name = f"{source}>{dest}"
    body = {"source": source, "dest": dest}
    want = {"router": name, "source": source, "dest": dest, **FIELDS}
    made = api.call("PUT", path(name), body, status=201).json
    part(made, {**want, "created": True}, "made")
    part(api.call("PUT", path(name), body, status=200).json, {**want, "created": False}, "again")
    changed = {**body, "preserve_tag": False, "filter": "x*", "guarantee": "exactly_once"}
    answer = api.call("PUT", path(name), changed, status=200).json
    part(answer, {"preserve_tag": False, "filter": ["tag", "Glob", "x*"], "guarantee": "exactly_once"}, "changed")
    # What is left out keeps its value, and where it began does not change: the answer says what is so.
    kept = {**want, "preserve_tag": False, "filter": ["tag", "Glob", "x*"], "guarantee": "exactly_once"}
    answer = api.call("PUT", path(name), {**body, "start": "earliest"}, status=200).json
    part(answer, {**kept, "created": False}, "with another start")
    part(get(api, name), kept, "as it is shown")
    back = {**body, "preserve_tag": True, "filter": None, "guarantee": "at_least_once"}
    part(api.call("PUT", path(name), back, status=200).json, {**want, "created": False}, "changed back")
    for topic in (source, dest):
        same(api.state(topic)["head_seq"], 0, f"head of {topic}")
    shown = get(api, name)
    part(shown, {"router": name, "forwarded_total": 0, "cursor": 0, "lag": 0, "blocked": None}, "state")


@case("9 routers")
def copies_are_there_at_once(api: Api) -> None:
    """Read-your-own-writes: any request that shows the dest first drains what its source has acked."""
    source, dest = pair(api)
    name = put(api, source, dest, 201)
    for number in range(20):
        api.write(source, number)
        same(api.datas(dest), list(range(number + 1)), "datas")
    api.write(source, "more")
    same(api.state(dest)["head_seq"], 21, "head")
    api.write(source, "more")
    part(get(api, name), {"forwarded_total": 22, "cursor": 22, "lag": 0}, "router")
    api.write(source, "last")
    record = api.call("GET", f"/v0/topics/{dest}/records/23", status=200).json
    same(record["data"], "last", "record")


LOOKS: list[tuple[str, Callable[[Api, str, str], object]]] = [
    ("the state", lambda api, dest, _: api.state(dest)["head_seq"]),
    ("a list", lambda api, dest, _: api.call("GET", f"/v0/topics?prefix={dest}").json["topics"][0]["head_seq"]),
    ("a diff", lambda api, dest, _: api.diff(dest)["head_seq"]),
    ("a diff of several", lambda api, dest, _: several(api, dest)["head_seq"]),
    ("a watch", lambda api, dest, _: create(api, {dest: {"tail": True}})["topics"][dest]["from_seq"]),
    ("a socket", lambda api, dest, _: subscribed(api, dest)["from_seq"]),
    ("the router", lambda api, _, name: get(api, name)["forwarded_total"]),
    ("a list of routers", lambda api, dest, _: of_dest(api, dest)["forwarded_total"]),
    ("a cursor", lambda api, dest, _: api.call("GET", f"/v0/topics/{dest}/cursors/c").json["lag"]),
    ("a list of cursors", lambda api, dest, _: api.call("GET", f"/v0/topics/{dest}/cursors").json["cursors"][0]["lag"]),
    ("a delete", lambda api, dest, _: api.delete(dest, before_seq=9)["deleted"]),
]


def several(api: Api, topic: str) -> dict[str, Any]:
    page: dict[str, Any] = api.call("POST", "/v0/diff", {"topics": {topic: {}}}, status=200).json["topics"][topic]
    return page


def subscribed(api: Api, topic: str) -> dict[str, Any]:
    with Socket(api) as socket:
        place: dict[str, Any] = socket.ask("subscribe", topic=topic, tail=True)["topics"][topic]
        return place


def of_dest(api: Api, dest: str) -> dict[str, Any]:
    shown: dict[str, Any] = api.call("GET", f"/v0/routers?dest={dest}", status=200).json["routers"][0]
    return shown


@each("9 routers", LOOKS)
def what_shows_the_dest_shows_the_copies(api: Api, look: Callable[[Api, str, str], object]) -> None:
    """Any request that shows the dest or the router first drains what its source has already acked."""
    source, dest = pair(api)
    api.put(dest, durability="fsync")  # whose copies show once they are synced
    name = put(api, source, dest, 201)
    api.call("PUT", f"/v0/topics/{dest}/cursors/c", {"seq": 0}, status=201)
    api.write(source, 1, 2)
    same(look(api, dest, name), 2, "copies")


@case("9 routers")
def a_dest_with_copies_to_come_is_not_empty(api: Api) -> None:
    """`if_empty` on live records `409 topic_not_empty`: those that are acked in the source count."""
    source, dest = pair(api)
    api.put(dest, durability="fsync")
    put(api, source, dest, 201)
    api.write(source, 1)
    api.refused("DELETE", f"/v0/topics/{dest}?if_empty=true", status=409, code="topic_not_empty")


@case("9 routers")
def copies_are_the_same_bytes(api: Api) -> None:
    """A copy has its own `$seq`; its `$ts` is the source's; `data`, `meta`, `node`, `tag` are the same bytes."""
    source, dest = pair(api)
    put(api, source, dest, 201)
    api.write(dest, "own")
    raw = [b'{"a":1.10,  "b":"\\u00e9"}', b"12345678901234567890", b'"x"']
    api.write_raw(source, raw)
    api.write_records(source, [{"data": 1, "tag": "t", "node": "n", "meta": {"k": [1]}}])
    wanted = {"include_tags": True}
    for seq, own in zip((1, 2, 3, 4), (2, 3, 4, 5), strict=True):
        line = api.call("GET", f"/v0/topics/{source}/records/{seq}", status=200).raw
        copy = api.call("GET", f"/v0/topics/{dest}/records/{own}", status=200).raw
        same(copy.split(b",", 1)[1], line.split(b",", 1)[1], f"record {seq}")
        same(json.loads(copy)["$seq"], own, "seq")
    same(len(api.diff(dest, **wanted)["records"]), 5, "records")


@case("9 routers")
def node_and_tag_are_left_out_when_asked(api: Api) -> None:
    """`preserve_node`, `preserve_tag`."""
    source, dest = pair(api)
    put(api, source, dest, 201, preserve_node=False, preserve_tag=False)
    api.write_records(source, [{"data": 1, "tag": "t", "node": "n", "meta": {"k": 1}}])
    [record] = api.diff(dest, include_tags=True)["records"]
    same(sorted(record), ["$seq", "$ts", "data", "meta"], "fields")


@case("9 routers")
def a_filter_lets_pass(api: Api) -> None:
    """`filter` (a §6 tuple or null)."""
    source, dest = pair(api)
    put(api, source, dest, 201, filter=["tag", "Glob", "a*"])
    api.write_records(source, [{"data": n, "tag": tag} for n, tag in enumerate(("ab", "b", "a", "ba"))])
    api.write(source, 9)
    same(api.datas(dest), [0, 2], "datas")


@case("9 routers")
def it_starts_now_or_with_everything(api: Api) -> None:
    """`start` (`now` default | `earliest`)."""
    source = api.topic()
    api.write(source, 1, 2)
    now, all_ = api.topic(), api.topic()
    put(api, source, now, 201)
    put(api, source, all_, 201, start="earliest")
    api.write(source, 3)
    same((api.datas(now), api.datas(all_)), ([3], [1, 2, 3]), "datas")


@case("9 routers")
def a_chain(api: Api) -> None:
    """A chain is read through as well."""
    a, b = pair(api)
    c = api.topic()
    put(api, a, b, 201)
    put(api, b, c, 201)
    for number in range(10):
        api.write(a, number)
        same(api.datas(c), list(range(number + 1)), "datas")


@case("9 routers")
def a_missing_dest_without_create_dest(api: Api) -> None:
    """A missing dest with `create_dest:false` is 404 and nothing is created."""
    source, dest = pair(api)
    body = {"source": source, "dest": dest, "create_dest": False}
    detail = api.refused("PUT", path(f"{source}>x"), body, status=404, code="topic_not_found")
    part(detail, {"topic": dest}, "detail")
    api.refused("GET", f"/v0/topics/{source}", status=404, code="topic_not_found")
    api.refused("GET", path(f"{source}>x"), status=404, code="router_not_found")


@case("9 routers")
def one_source_per_dest(api: Api) -> None:
    """Another source is `409 topic_exists_incompatible`, `router_dest_fan_in`; direct writes to a dest are allowed."""
    source, dest = pair(api)
    other = api.topic()
    put(api, source, dest, 201)
    body = {"source": other, "dest": dest}
    detail = api.refused("PUT", path(f"{other}>{dest}"), body, status=409, code="topic_exists_incompatible")
    part(detail, {"reason": "router_dest_fan_in"}, "detail")
    api.refused("GET", f"/v0/topics/{other}", status=404, code="topic_not_found")
    api.write(dest, "own")
    api.write(source, 1)
    same(api.datas(dest), ["own", 1], "datas")


@case("9 routers")
def where_a_router_goes_never_changes(api: Api) -> None:
    """One source per dest: another source is `409`, of the router itself too; and so is another dest under its name."""
    source, dest = pair(api)
    other = api.topic()
    name = put(api, source, dest, 201)
    for body, reason in (
        ({"source": other, "dest": dest}, "router_dest_fan_in"),
        ({"source": source, "dest": other}, "router_exists"),
        ({"source": dest, "dest": source}, "router_exists"),
    ):
        detail = api.refused("PUT", path(name), body, status=409, code="topic_exists_incompatible")
        part(detail, {"reason": reason, "router": name, "source": source}, "detail")
    api.refused("GET", f"/v0/topics/{other}", status=404, code="topic_not_found")
    api.write(source, 1)
    same(api.datas(dest), [1], "datas")
    part(get(api, name), {"source": source, "dest": dest, "forwarded_total": 1}, "router")


@case("9 routers")
def cycles(api: Api) -> None:
    """A cycle is `409 router_cycle` unless `allow_cycle`; then never into a topic that a record has been in."""
    a, b = pair(api)
    c = api.topic()
    put(api, a, b, 201)
    put(api, b, c, 201)
    body = {"source": c, "dest": a}
    detail = api.refused("PUT", path(f"{c}>{a}"), body, status=409, code="router_cycle")
    same(detail["cycle"], [c, a, b, c], "cycle")
    put(api, c, a, 201, allow_cycle=True)
    api.write(a, 1)
    api.write(b, 2)
    api.write(c, 3)
    for topic in (a, b, c):
        same(sorted(api.datas(topic)), [1, 2, 3], topic)


@case("9 routers")
def a_record_goes_at_most_16_hops(api: Api) -> None:
    """With `allow_cycle` a record is forwarded at most 16 hops; a chain without a cycle may be longer."""
    ring = [api.topic() for _ in range(19)]
    chain = [api.topic() for _ in range(19)]
    for source, dest in (*pairwise(ring), (ring[-1], ring[0])):
        put(api, source, dest, 201, allow_cycle=True)
    for source, dest in pairwise(chain):
        put(api, source, dest, 201)
    for topics in (ring, chain):
        api.write(topics[0], 1)
        same(api.datas(topics[-3]), [1], "the last topic that both reach")
    same([api.datas(topic) for topic in ring], [[1]] * 17 + [[]] * 2, "ring")
    same([api.datas(topic) for topic in chain], [[1]] * 19, "chain")


@case("9 routers")
def the_time_of_a_dest_never_falls(api: Api) -> None:
    """A copy's `$ts` is the source's, raised if needed so that the dest's never falls."""
    source, dest = pair(api)
    api.write(source, "old")
    time.sleep(0.01)
    api.write(dest, "own")
    put(api, source, dest, 201, start="earliest")
    api.write(source, "new")
    old, new = (record["$ts"] for record in api.diff(source)["records"])
    own, *copies = api.diff(dest)["records"]
    same([record["data"] for record in copies], ["old", "new"], "datas")
    same(old < own["$ts"], True, "the copy is older")
    same([record["$ts"] for record in copies], [own["$ts"], new], "times")


@each("9 routers", [(durability, durability) for durability in ("disk", "fsync")])
def a_full_dest_blocks(api: Api, durability: str) -> None:
    """Dest full with `discard:"reject"`: the router waits, `blocked` says so, nothing is skipped."""
    source, dest = pair(api)
    api.put(dest, cap_records=2, discard="reject", durability=durability)
    name = put(api, source, dest, 201)
    api.write(source, 1, 2, 3, 4)
    same(api.datas(dest), [1, 2], "datas")
    part(get(api, name), {"lag": 2, "cursor": 2, "blocked": "topic_full"}, "router")
    api.delete(dest, seqs=[1])
    same(api.datas(dest), [2, 3], "one more")
    api.delete(dest, before_seq=4)
    same(api.datas(dest), [4], "the last")
    part(get(api, name), {"lag": 0, "blocked": None}, "router")


@case("9 routers")
def a_trimmed_source_is_a_gap(api: Api) -> None:
    """Source trimmed below the cursor: the dest gets a `source_trim` gap."""
    source, dest = pair(api)
    api.put(source, cap_records=2)
    api.put(dest, cap_records=1, discard="reject")
    put(api, source, dest, 201)
    api.write(source, 1)
    same(api.datas(dest), [1], "datas")
    for number in (2, 3, 4, 5):
        api.write(source, number)
    api.delete(dest, seqs=[1])
    page = api.diff(dest, from_seq=1)
    part(page["tombstone"], {"reason": "source_trim", "gap_from": 2, "gap_to": 3, "missed_estimate": 2}, "tombstone")
    same([record["data"] for record in page["records"]], [4], "records")


@case("9 routers")
def deleting_a_topic_deletes_its_routers(api: Api) -> None:
    """Deleting a topic deletes its routers, and says which; a router's own DELETE leaves what was copied."""
    a, b = pair(api)
    c = api.topic()
    first, second = put(api, a, b, 201), put(api, b, c, 201)
    api.write(a, 1)
    same(api.datas(c), [1], "datas")
    answer = api.call("DELETE", f"/v0/topics/{b}", status=200).json
    same(answer["routers_removed"], sorted([first, second]), "routers_removed")
    api.refused("GET", path(first), status=404, code="router_not_found")
    third = put(api, a, c, 201)
    part(api.call("DELETE", path(third), status=200).json, {"router": third, "deleted": True}, "delete")
    part(api.call("DELETE", path(third), status=200).json, {"router": third, "deleted": False}, "again")
    same(api.datas(c), [1], "what was copied")


@case("9 routers")
def routers_are_listed(api: Api) -> None:
    """`GET` list `{routers, next_cursor?}` by name, filters `prefix source dest`."""
    a, b = pair(api)
    c = api.topic()
    names = sorted([put(api, a, b, 201), put(api, a, c, 201)])
    listed = api.call("GET", f"/v0/routers?source={a}", status=200).json
    same([one["router"] for one in listed["routers"]], names, "of a source")
    same("next_cursor" in listed, False, "more")
    part(listed["routers"][0], {"source": a, "lag": 0, "blocked": None, **FIELDS}, "entry")
    listed = api.call("GET", f"/v0/routers?dest={c}", status=200).json
    same([one["router"] for one in listed["routers"]], [f"{a}>{c}"], "of a dest")
    page = api.call("GET", f"/v0/routers?prefix={a}&page_size=1", status=200).json
    same([one["router"] for one in page["routers"]], names[:1], "a page")
    rest = api.call("GET", f"/v0/routers?prefix={a}&page_size=1&cursor={page['next_cursor']}", status=200).json
    same([one["router"] for one in rest["routers"]], names[1:], "the next")


@case("9 routers")
def a_queue_gets_jobs(api: Api) -> None:
    """Any request that shows the dest drains: claim."""
    source, dest = pair(api)
    api.put(dest, type="queue")
    put(api, source, dest, 201)
    api.write(source, "job")
    claimed = api.call("POST", f"/v0/topics/{dest}/claim", {"node": "n"}, status=200).json["claimed"]
    same([job["data"] for job in claimed], ["job"], "jobs")


BAD: list[tuple[str, dict[str, Any]]] = [
    ("no source", {"dest": "d"}),
    ("no dest", {"source": "s"}),
    ("the same", {"source": "s", "dest": "s"}),
    ("a bad name", {"source": "s", "dest": "-"}),
    ("a router's name", {"source": "s", "dest": "a>b"}),
    ("a bad filter", {"source": "s", "dest": "d", "filter": ["node", "Eq", "x"]}),
    ("a bad guarantee", {"source": "s", "dest": "d", "guarantee": "never"}),
    ("a bad start", {"source": "s", "dest": "d", "start": "later"}),
    ("a text", {"source": "s", "dest": "d", "preserve_tag": "yes"}),
]


@each("9 routers", BAD)
def what_is_no_router(api: Api, body: dict[str, Any]) -> None:
    """`source`, `dest` (required, different)."""
    api.refused("PUT", path(f"{api.topic()}>x"), body, status=400, code="invalid_request")
    api.refused("PUT", "/v0/routers/-x", {"source": "s", "dest": "d"}, status=400, code="invalid_request")
