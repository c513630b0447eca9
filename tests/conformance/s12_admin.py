"""§12 Admin: checkpoints, and export pins from making to letting go; the scope that they need."""

from __future__ import annotations

import time

from tests.conformance.kit import Api, Needs, case, has, holds, part, same

EXPORTS = "/v0/admin/exports"


def listed(api: Api) -> list[str]:
    """The pins there are."""
    return [one["id"] for one in api.call("GET", EXPORTS, status=200).json["exports"]]


@case("12 admin")
def a_checkpoint_is_taken_when_asked(api: Api) -> None:
    """`POST /v0/admin/checkpoint`: runs one now; answers when it is durable."""
    numbers = []
    for value in (1, 2):
        api.write(api.topic(), value)
        answer = api.call("POST", "/v0/admin/checkpoint", status=200).json
        has(answer, ("topics", "took_ms", "ts"), "checkpoint")
        numbers.append(answer["number"])
        last = api.call("GET", "/v0/admin/store", status=200).json["checkpoint"]["last"]
        same(last["number"] >= answer["number"], True, "the store's last checkpoint")
    same(numbers[0] < numbers[1], True, "a new one each time")


@case("12 admin")
def an_export_pins_topics_until_it_is_let_go(api: Api) -> None:
    """`POST /v0/admin/exports` `{topics:[…]|prefix}`, `DELETE …/:id`; `ttl_ms` 1 h, renewable, listed by GET."""
    topic = api.topic()
    api.write(topic, 1)
    made = api.call("POST", EXPORTS, {"topics": [topic]}, status=201).json
    same(made["topics"], 1, "topics")
    same(made["expires_ms"] - made["created_ms"], 3_600_000, "an hour")
    holds(made["id"] in listed(api), "it is not listed")
    later = api.call("POST", EXPORTS, {"id": made["id"], "ttl_ms": 7_200_000}, status=200).json
    part(later, {"id": made["id"], "created_ms": made["created_ms"]}, "renewed")
    holds(later["expires_ms"] >= made["created_ms"] + 7_200_000, "it was not renewed")
    for there in (True, False):
        gone = api.call("DELETE", f"{EXPORTS}/{made['id']}", status=200).json
        part(gone, {"id": made["id"], "deleted": there}, "delete")
    holds(made["id"] not in listed(api), "it is listed still")
    api.refused("POST", EXPORTS, {"id": made["id"]}, status=404, code="not_found")


@case("12 admin")
def an_export_of_a_prefix_ends_by_itself(api: Api) -> None:
    """`prefix` pins all topics of it, `ttl_ms` says for how long."""
    topic = api.topic()
    for suffix in ("", "-more"):
        api.write(api.also_drop(topic + suffix), 1)
    made = api.call("POST", EXPORTS, {"prefix": topic, "ttl_ms": 1}, status=201).json
    same(made["topics"], 2, "topics")
    deadline = time.monotonic() + 10
    while made["id"] in listed(api):
        holds(time.monotonic() < deadline, "it does not end")
        time.sleep(0.05)


@case("12 admin")
def what_cannot_be_exported(api: Api) -> None:
    """A topic that is not there is 404, a bad name or type 400."""
    none = api.topic()
    detail = api.refused("POST", EXPORTS, {"topics": [none]}, status=404, code="topic_not_found")
    same(detail["topic"], none, "detail.topic")
    for body in ({"topics": ["-"]}, {"topics": "a"}, {"ttl_ms": -1}, {"prefix": 1}):
        api.refused("POST", EXPORTS, body, status=400, code="invalid_request")


@case("12 admin", Needs.KEYS)
def admin_routes_need_admin(api: Api) -> None:
    """Admin routes need `admin`."""
    for method, path in (
        ("POST", "/v0/admin/checkpoint"),
        ("GET", "/v0/admin/store"),
        ("GET", EXPORTS),
        ("POST", EXPORTS),
        ("DELETE", f"{EXPORTS}/x"),
    ):
        for key in (api.keys.read, api.keys.write):
            api.refused(method, path, status=403, code="forbidden", key=key)
