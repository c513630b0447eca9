"""§1 Lists as NDJSON, warnings where an answer is lines, and bodies that a route does not take."""

from __future__ import annotations

from typing import Any

from tests.conformance import rawjson
from tests.conformance.kit import NDJSON, Api, case, each, holds, part, same

LINES = (("Accept", NDJSON),)


def rows(api: Api, path: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows of a list that is asked for as NDJSON, and its last line."""
    *found, last = [rawjson.parse(line) for line in api.call("GET", path, headers=LINES, status=200).lines]
    same(set(last), {"$page"}, "the last line")
    return found, last["$page"]


def both_ways(api: Api, path: str, member: str) -> list[dict[str, Any]]:
    """The rows of a list, which must be the same as JSON and as NDJSON, over its pages."""
    found: list[dict[str, Any]] = []
    mark = "&" if "?" in path else "?"
    at = path
    while True:
        shown = api.call("GET", at, status=200).json
        lines, page = rows(api, at)
        same(lines, shown[member], f"rows of {at}")
        same(page.get("next_cursor"), shown.get("next_cursor"), f"next_cursor of {at}")
        found += lines
        if "next_cursor" not in page:
            return found
        at = f"{path}{mark}cursor={page['next_cursor']}"


@case("1 media")
def routers_are_listed_as_lines_too(api: Api) -> None:
    """Lists also NDJSON when `Accept: application/x-ndjson`: routers."""
    source, dests = api.topic(), [api.topic() for _ in range(3)]
    names = sorted(f"{source}.{number}" for number in range(3))
    for name, dest in zip(names, dests, strict=True):
        api.call("PUT", f"/v0/routers/{name}", {"source": source, "dest": dest}, status=201)
    listed = both_ways(api, f"/v0/routers?source={source}&page_size=2", "routers")
    same([row["router"] for row in listed], names, "routers")


@case("1 media")
def cursors_are_listed_as_lines_too(api: Api) -> None:
    """Lists also NDJSON when `Accept: application/x-ndjson`: cursors."""
    topic = api.topic()
    api.write(topic, 1)
    for name in ("b", "a", "c"):
        api.call("PUT", f"/v0/topics/{topic}/cursors/{name}", {"seq": 1}, status=201)
    listed = both_ways(api, f"/v0/topics/{topic}/cursors?page_size=2", "cursors")
    same([row["name"] for row in listed], ["a", "b", "c"], "cursors")


@case("1 media")
def leases_are_listed_as_lines_too(api: Api) -> None:
    """Lists also NDJSON when `Accept: application/x-ndjson`: leases."""
    name = api.topic()
    api.put(name, type="queue")
    api.write(name, 1, 2, 3)
    api.call("POST", f"/v0/topics/{name}/claim", {"node": "n", "max": 3}, status=200)
    listed = both_ways(api, f"/v0/topics/{name}/leases?limit=2", "leases")
    same([row["seq"] for row in listed], [1, 2, 3], "leases")


@case("1 media")
def topics_are_listed_as_lines_over_pages(api: Api) -> None:
    """Lists also NDJSON: a row a line, then `$page` with `next_cursor` when there is more."""
    stem = api.topic()
    names = sorted(api.also_drop(f"{stem}.{number}") for number in range(3))
    for name in names:
        api.put(name, priority=0)
    listed = both_ways(api, f"/v0/topics?prefix={stem}.&page_size=2", "topics")
    same([row["topic"] for row in listed], names, "topics")


@case("1 fields")
def lines_carry_warnings_in_their_page(api: Api) -> None:
    """An unknown field is never ignored silently: where the answer is lines, `warnings` are in `$page`."""
    topic = api.topic()
    api.write(topic, 1)
    answer = api.call("POST", f"/v0/topics/{topic}/diff", {"colour": 1}, headers=LINES, status=200)
    page = rawjson.parse(answer.lines[-1])["$page"]
    same(page.get("warnings"), ["unknown field colour"], "warnings of a diff")
    _, page = rows(api, f"/v0/topics?prefix={topic}&colour=1")
    same(page.get("warnings"), ["unknown field colour"], "warnings of a list")
    answer = api.call("POST", f"/v0/topics/{topic}/diff", {}, headers=LINES, status=200)
    holds("warnings" not in rawjson.parse(answer.lines[-1])["$page"], "a warning for nothing")


@case("1 fields")
def a_wait_inside_a_part_is_not_ignored_silently(api: Api) -> None:
    """`POST /v0/diff` waits for all topics together (`max_wait_ms`): a part's `wait_ms` is warned of."""
    topic = api.topic()
    api.write(topic, 1)
    answer = api.call("POST", "/v0/diff", {"topics": {topic: {"wait_ms": 1}}}, status=200).json
    same(answer.get("warnings"), ["unknown field topics[].wait_ms"], "warnings")


UNTAKEN = [("GET", ""), ("GET", "/records/1"), ("DELETE", ""), ("DELETE", "/cursors/none")]


@each("1 media", [(f"{method} {tail}", (method, tail)) for method, tail in UNTAKEN])
def a_body_that_is_not_taken_needs_the_type_too(api: Api, route: tuple[str, str]) -> None:
    """Anything else, `text/plain` and a missing type with a body included, `415`: also where no body is needed."""
    method, tail = route
    topic = api.topic()
    api.write(topic, 1)
    for media in ("text/plain", None):
        api.refused(method, f"/v0/topics/{topic}{tail}", b"x", media=media, status=415, code="unsupported_media_type")
    same(api.state(topic)["count"], 1, "records after what was refused")
    api.call(method, f"/v0/topics/{topic}{tail}", None, headers=(("Content-Type", "text/plain"),), status=200)


@case("1 idempotency")
def the_header_is_the_key_of_every_part(api: Api) -> None:
    """The header's key is scoped to the topic: in `/v0/write` it stands for each part that has none of its own."""
    one, two = api.topic(), api.topic()
    body = {"topics": {one: {"records": [{"data": 1}]}, two: {"records": [{"data": 1}], "idempotency_key": "own"}}}
    header = (("Idempotency-Key", "k"),)
    api.call("POST", "/v0/write", body, headers=header, status=200)
    again = api.call("POST", "/v0/write", body, headers=header, status=200).json["topics"]
    same([again[one]["deduped"], again[two]["deduped"]], [True, True], "deduped")
    part(api.write(one, 1, idempotency_key="k"), {"deduped": True, "first_seq": 1}, "the same key alone")
    part(api.write(two, 1, idempotency_key="k"), {"deduped": False, "first_seq": 2}, "a part's own key wins")
