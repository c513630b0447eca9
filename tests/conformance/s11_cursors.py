"""§11 Cursors: a reader's place, kept by the server."""

from __future__ import annotations

from typing import Any

from tests.conformance.kit import U64_MAX, Api, case, each, has, part, same


def put(api: Api, topic: str, name: str, status: int | tuple[int, ...] = (200, 201), **body: Any) -> dict[str, Any]:
    answer: dict[str, Any] = api.call("PUT", f"/v0/topics/{topic}/cursors/{name}", body, status=status).json
    return answer


def get(api: Api, topic: str, name: str) -> dict[str, Any]:
    answer: dict[str, Any] = api.call("GET", f"/v0/topics/{topic}/cursors/{name}", status=200).json
    return answer


@case("11 cursors")
def a_cursor_is_kept(api: Api) -> None:
    """`GET` one → `{name, seq, epoch, lag, updated_ts}`."""
    topic = api.topic()
    api.write(topic, 1, 2, 3)
    part(put(api, topic, "reader", 201, seq=1), {"name": "reader", "seq": 1, "lag": 2, "created": True}, "set")
    part(put(api, topic, "reader", 200, seq=2), {"seq": 2, "lag": 1, "created": False}, "set again")
    cursor = get(api, topic, "reader")
    has(cursor, ("name", "seq", "epoch", "lag", "updated_ts"), "cursor")
    part(cursor, {"name": "reader", "seq": 2, "epoch": api.state(topic)["epoch"], "lag": 1}, "cursor")
    api.write(topic, 4)
    same(get(api, topic, "reader")["lag"], 2, "lag after a write")


@case("11 cursors")
def compare_and_set(api: Api) -> None:
    """Compare-and-set with `if_seq`, else 409; 0 stands for "there is none"."""
    topic = api.topic()
    api.write(topic, 1, 2, 3)
    put(api, topic, "c", 201, seq=2, if_seq=0)
    detail = api.refused(
        "PUT", f"/v0/topics/{topic}/cursors/c", {"seq": 3, "if_seq": 1}, status=409, code="cursor_conflict"
    )
    part(detail, {"seq": 2}, "detail")
    same(get(api, topic, "c")["seq"], 2, "seq")
    put(api, topic, "c", 200, seq=3, if_seq=2)


@case("11 cursors")
def cursors_are_listed_and_dropped(api: Api) -> None:
    """`GET` list, `DELETE`."""
    topic = api.topic()
    api.write(topic, 1)
    for name in ("b", "a", "c"):
        put(api, topic, name, seq=1)
    path = f"/v0/topics/{topic}/cursors"
    page = api.call("GET", f"{path}?page_size=2", status=200).json
    same([one["name"] for one in page["cursors"]], ["a", "b"], "first page")
    rest = api.call("GET", f"{path}?page_size=2&cursor={page['next_cursor']}", status=200).json
    same([one["name"] for one in rest["cursors"]], ["c"], "second page")
    same("next_cursor" in rest, False, "more")
    part(api.call("DELETE", f"{path}/b", status=200).json, {"name": "b", "deleted": True}, "delete")
    part(api.call("DELETE", f"{path}/b", status=200).json, {"name": "b", "deleted": False}, "again")
    api.refused("GET", f"{path}/b", status=404, code="not_found")


@case("11 cursors")
def cursors_vanish_with_the_topic(api: Api) -> None:
    """They vanish with the topic, and hold no records back."""
    topic = api.topic()
    api.put(topic, cap_records=1)
    api.write(topic, 1, 2)
    put(api, topic, "c", seq=1)
    api.write(topic, 3)
    same(api.seqs(topic), [3], "records")
    epoch = api.state(topic)["epoch"]
    api.call("DELETE", f"/v0/topics/{topic}", status=200)
    api.refused("GET", f"/v0/topics/{topic}/cursors/c", status=404, code="topic_not_found")
    api.write(topic, 1)
    api.refused("GET", f"/v0/topics/{topic}/cursors/c", status=404, code="not_found")
    body = {"seq": 1, "epoch": epoch}
    api.refused("PUT", f"/v0/topics/{topic}/cursors/c", body, status=409, code="cursor_conflict")


BAD: list[tuple[str, tuple[str, Any]]] = [
    ("no seq", ("c", {})),
    ("a text", ("c", {"seq": "1"})),
    ("negative", ("c", {"seq": -1})),
    ("too large", ("c", {"seq": U64_MAX + 1})),
    ("a bad if_seq", ("c", {"seq": 1, "if_seq": -1})),
    ("a bad name", ("-c", {"seq": 1})),
    ("a name of a router", ("c%3Ed", {"seq": 1})),
]


@each("11 cursors", BAD)
def what_is_no_cursor(api: Api, choice: tuple[str, Any]) -> None:
    """Names as topics; seqs are unsigned 64-bit numbers."""
    name, body = choice
    topic = api.topic()
    api.write(topic, 1)
    api.refused("PUT", f"/v0/topics/{topic}/cursors/{name}", body, status=400, code="invalid_request")


@case("11 cursors")
def a_cursor_of_no_topic(api: Api) -> None:
    """Then existence 404."""
    topic = api.topic()
    for method, body in (("GET", None), ("PUT", {"seq": 1}), ("DELETE", None)):
        api.refused(method, f"/v0/topics/{topic}/cursors/c", body, status=404, code="topic_not_found")
