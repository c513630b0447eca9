"""§4 Write, as a stream: `POST /v0/topics/:t/records?stream=true`."""

from __future__ import annotations

import gzip
import json
from typing import Any

from tests.conformance.kit import LINES, NDJSON, Answer, Api, case, each, has, holds, part, same


def path_of(topic: str, more: str = "") -> str:
    """Where a stream goes."""
    return f"/v0/topics/{topic}/records?stream=true{more}"


def results(answer: Answer) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The lines of an answer: those of batches, and the last one."""
    *lines, last = map(json.loads, answer.lines)
    return lines, last


@case("4 write")
def a_stream_is_answered_by_a_line_for_each_batch(api: Api) -> None:
    """One very large NDJSON body is admitted as several atomic batches, answered by NDJSON with a line per batch."""
    topic = api.topic()
    body = b"".join(b'{"n": %d}\n' % n for n in range(25_000))
    lines, last = results(api.call("POST", path_of(topic), body, media=NDJSON, status=201))
    holds(len(lines) >= 3, f"{len(lines)} batches of 25000 records")
    at = 1
    for one in lines:
        has(one, ["batch", "batches", "first_seq", "last_seq", "count", "lines", "created", "epoch"], "batch")
        same(one["first_seq"], at, "first_seq")
        same(one["count"], one["last_seq"] - at + 1, "count")
        at = one["last_seq"] + 1
    part(last, {"done": True, "count": 25_000, "lines": 25_000}, "last line")
    page = api.diff(topic, from_seq=24_998)
    same([one["data"] for one in page["records"]], [{"n": 24_998}, {"n": 24_999}], "data")
    _, last = results(api.call("POST", path_of(topic), b"1\n\n2", media=NDJSON, status=200))
    part(last, {"done": True, "batches": 1, "count": 2, "lines": 3}, "second stream")


@case("4 write")
def a_stream_of_texts_and_one_that_is_compressed(api: Api) -> None:
    """Request `Content-Encoding: gzip`; `text/x-lines`: one string per line; `tag node meta` as query parameters."""
    topic = api.topic()
    body = gzip.compress(b'a "b"\r\n\nc')
    query = "&tag=t&node=n&meta=%7B%22m%22%3A1%7D"
    headers = (("Content-Encoding", "gzip"),)
    _, last = results(api.call("POST", path_of(topic, query), body, media=LINES, headers=headers, status=201))
    part(last, {"done": True, "count": 3}, "last line")
    records = api.diff(topic, include_tags=True)["records"]
    same([one["data"] for one in records], ['a "b"', "", "c"], "data")
    part(records[0], {"$tag": "t", "$node": "n", "meta": {"m": 1}}, "record")


@each(
    "4 write",
    [
        ("no stream", ("", "1\n", NDJSON, 400)),
        ("false", ("?stream=false", "1\n", NDJSON, 400)),
        ("key", ("?stream=true&idempotency_key=k", "1\n", NDJSON, 400)),
        ("ack", ("?stream=true&ack=disk", "1\n", NDJSON, 400)),
        ("json", ("?stream=true", '{"records":[{"data":1}]}', "application/json", 415)),
        ("plain", ("?stream=true", "1\n", "text/plain", 415)),
        ("not json", ("?stream=true", "1\nnonsense\n", NDJSON, 400)),
    ],
)
def what_is_no_stream_is_refused_and_writes_nothing(api: Api, asked: tuple[str, str, str, int]) -> None:
    """Only when asked (`?stream=true`); anything else, 415."""
    query, body, media, status = asked
    topic = api.topic()
    api.call("POST", f"/v0/topics/{topic}/records{query}", body.encode(), media=media, status=status)
    api.refused("GET", f"/v0/topics/{topic}", status=404, code="topic_not_found")


@case("4 write")
def a_stream_needs_its_topic_where_create_is_false(api: Api) -> None:
    """`create` comes as a query parameter; 404 carries `detail.topic`."""
    topic = api.topic()
    detail = api.refused(
        "POST", path_of(topic, "&create=false"), b"1\n", media=NDJSON, status=404, code="topic_not_found"
    )
    same(detail.get("topic"), topic, "detail.topic")


@case("4 write")
def an_error_in_the_middle_of_a_stream_is_its_last_line(api: Api) -> None:
    """An error line with the batch and the line; what was answered before it is in, and nothing of its batch is."""
    topic = api.topic()
    body = b"1\n" * 10_000 + b"2\nnonsense\n3\n"
    lines, last = results(api.call("POST", path_of(topic), body, media=NDJSON, status=201))
    same(last["error"]["code"], "invalid_request", "code")
    part(last, {"batch": len(lines) + 1, "batches": len(lines), "line": 10_002}, "last line")
    same(sum(one["count"] for one in lines), last["count"], "count")
    same(api.state(topic)["head_seq"], last["count"], "head_seq")
    holds(last["count"] <= 10_001, "the bad batch is not in")


@case("4 write")
def a_stream_of_nothing_creates_nothing(api: Api) -> None:
    """Blank lines skipped."""
    topic = api.topic()
    for body in (b"", b"\n\r\n \n"):
        lines, last = results(api.call("POST", path_of(topic), body, media=NDJSON, status=200))
        same(lines, [], "batches")
        part(last, {"done": True, "batches": 0, "count": 0, "lines": body.count(b"\n")}, "last line")
    api.refused("GET", f"/v0/topics/{topic}", status=404, code="topic_not_found")
