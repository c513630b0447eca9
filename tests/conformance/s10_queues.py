"""§10 Queues (queues.md): claims, the ends of leases, dead letters, counters."""

from __future__ import annotations

import time
from typing import Any

from tests.conformance.kit import Api, case, each, part, same
from tests.conformance.sse import Stream


def queue(api: Api, *datas: Any, **config: Any) -> str:
    """A queue with jobs."""
    name = api.topic()
    api.put(name, type="queue", **config)
    if datas:
        api.write(name, *datas)
    return name


def post(api: Api, name: str, verb: str, status: int = 200, **body: Any) -> dict[str, Any]:
    answer: dict[str, Any] = api.call("POST", f"/v0/topics/{name}/{verb}", body, status=status).json
    return answer


def claim(api: Api, name: str, node: str = "n", **body: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = post(api, name, "claim", node=node, **body)["claimed"]
    return found


@case("10 queues")
def a_claim_leases_jobs(api: Api) -> None:
    """`{topic, claimed:[{$seq, lease_id, deadline, deliveries, $ts, data}], count, ready}`."""
    name = queue(api, "a", "b", "c")
    answer = post(api, name, "claim", node="n", max=2)
    part(answer, {"topic": name, "count": 2, "ready": 1}, "answer")
    same(
        [(job["$seq"], job["data"], job["deliveries"]) for job in answer["claimed"]], [(1, "a", 1), (2, "b", 1)], "jobs"
    )
    for job in answer["claimed"]:
        same((job["lease_id"][:6], len(job["lease_id"])), ("lease_", 22), "lease_id")
        same(job["deadline"] > time.time() * 1000, True, "deadline")
    same(claim(api, name)[0]["data"], "c", "the next")
    same(claim(api, name), [], "nothing is left")


@case("10 queues")
def an_ack_is_the_permanent_delete(api: Api) -> None:
    """ack is the permanent delete; repeating an ack that succeeded is harmless (`gone`)."""
    name = queue(api, "a", "b")
    jobs = claim(api, name, max=2)
    body: dict[str, Any] = {"node": "n", "seqs": [1], "lease_ids": [jobs[0]["lease_id"]]}
    part(post(api, name, "ack", **body), {"acked": 1, "skipped": [], "ready": 0, "in_flight": 1}, "ack")
    same(api.seqs(name), [2], "seqs")
    again = post(api, name, "ack", **body)
    part(again, {"acked": 0, "skipped": [1], "skipped_detail": [{"seq": 1, "detail": "gone"}]}, "again")


SKIPS: list[tuple[str, tuple[dict[str, Any], str]]] = [
    ("not leased", ({"node": "n", "seqs": [2]}, "not_leased")),
    ("another holder", ({"node": "m", "seqs": [1]}, "other_holder")),
    ("a stale lease", ({"node": "n", "seqs": [1], "lease_ids": ["lease_0000000000000001"]}, "stale_lease")),
    ("never written", ({"node": "n", "seqs": [99]}, "not_leased")),
]


@each("10 queues", SKIPS)
def what_does_not_count_is_skipped(api: Api, choice: tuple[dict[str, Any], str]) -> None:
    """A seq counts when its lease is live, the holder is `node`, and its `lease_id` is the current one."""
    body, why = choice
    name = queue(api, "a", "b")
    claim(api, name)
    for verb, done in (("ack", "acked"), ("nack", "nacked"), ("extend", "extended")):
        answer = post(api, name, verb, **body)
        part(answer, {done: 0, "skipped": body["seqs"]}, verb)
        same([one["detail"] for one in answer["skipped_detail"]], [why], verb)


@case("10 queues")
def jobs_that_are_too_old_are_counted_as_evicted_at_once(api: Api) -> None:
    """Counters, exact: nothing has to be written or claimed before a state, an answer or a list of leases knows."""
    name = queue(api, "a", "b", "c", ttl_ms=200)
    claim(api, name, max=2)
    post(api, name, "nack", node="n", seqs=[2], delay_ms=60_000)
    time.sleep(0.25)
    state = api.call("GET", f"/v0/topics/{name}").json
    gone = {"ready": 0, "in_flight": 0, "delayed": 0, "written": 3, "evicted": 3, "oldest_ready_ms": None}
    part(state["queue"], gone, "counters")
    same(state["count"], 0, "count")
    same(api.call("GET", f"/v0/topics/{name}/leases").json["leases"], [], "leases")
    api.write(name, "d")
    part(post(api, name, "claim", node="n", max=9), {"count": 1, "ready": 0}, "claim")
    time.sleep(0.25)
    part(post(api, name, "ack", node="n", seqs=[4]), {"acked": 0, "ready": 0, "in_flight": 0}, "ack")
    part(api.call("GET", f"/v0/topics/{name}").json["queue"], {"written": 4, "acked": 0, "evicted": 4}, "in the end")


@case("10 queues")
def a_lease_expires_at_its_deadline(api: Api) -> None:
    """A lease holds until `now ≥ deadline`; the job is ready again, and its old lease is stale."""
    name = queue(api, "a")
    old = claim(api, name, lease_ms=100)[0]
    new = claim(api, name, wait_ms=5000)[0]
    same((new["$seq"], new["deliveries"]), (1, 2), "job")
    answer = post(api, name, "ack", node="n", seqs=[1], lease_ids=[old["lease_id"]])
    same(answer["skipped_detail"], [{"seq": 1, "detail": "stale_lease"}], "old lease")


@case("10 queues")
def a_claim_waits(api: Api) -> None:
    """`wait_ms`: a claim is answered when there is a job."""
    name = queue(api)
    begun = time.monotonic()
    same(claim(api, name, wait_ms=200), [], "nothing")
    same(time.monotonic() - begun >= 0.199, True, "waited, as whole milliseconds are counted")
    thread = api.later(0.2, lambda other: other.write(name, "a"))
    same([job["data"] for job in claim(api, name, wait_ms=10_000)], ["a"], "jobs")
    thread.join()


@case("10 queues")
def a_claim_takes_what_matches(api: Api) -> None:
    """`match` is a tag filter."""
    name = queue(api)
    api.write_records(name, [{"data": 1, "tag": "x"}, {"data": 2, "tag": "y"}, {"data": 3}])
    jobs = claim(api, name, max=9, match="y")
    same([(job["$seq"], job["$tag"]) for job in jobs], [(2, "y")], "jobs")


@case("10 queues")
def a_nack_gives_jobs_back(api: Api) -> None:
    """`nack` + `delay_ms` → `{nacked, skipped, ready, in_flight}`; extend → `{extended, skipped, deadlines}`."""
    name = queue(api, "a", "b")
    claim(api, name, max=2)
    extended = post(api, name, "extend", node="n", seqs=[1], lease_ms=60_000)
    same((extended["extended"], list(extended["deadlines"])), (1, ["1"]), "extend")
    part(post(api, name, "nack", node="n", seqs=[1]), {"nacked": 1, "ready": 1, "in_flight": 1}, "at once")
    part(
        post(api, name, "nack", node="n", seqs=[2], delay="backoff"), {"nacked": 1, "ready": 1, "in_flight": 0}, "later"
    )
    part(api.state(name)["queue"], {"ready": 1, "delayed": 1, "in_flight": 0, "written": 2}, "state")


@case("10 queues")
def exhausted_jobs_move_to_the_dead_letters(api: Api) -> None:
    """A claim that would be delivery `max_deliveries + 1` moves the job: the same data, and meta that says why."""
    dead = api.topic()
    name = queue(api, "a", max_deliveries=1, dead_letter=dead)
    claim(api, name)
    post(api, name, "nack", node="n", seqs=[1], reason="no")
    same(claim(api, name), [], "moved instead")
    record = api.diff(dead)["records"][0]
    same(record["data"], "a", "data")
    part(
        record["meta"],
        {"$dead_letter_from": name, "$dead_letter_src_seq": "1", "$dead_letter_deliveries": "1"},
        "meta",
    )
    same(record["meta"]["$dead_letter_trail"][0]["reason"], "no", "trail")
    part(api.state(name)["queue"], {"dead_lettered": 1, "ready": 0, "written": 1}, "state")
    answer = post(api, dead, "requeue", all=True)
    same(answer["requeued"], 1, "requeued")
    job = claim(api, name)[0]
    same((job["data"], job["deliveries"]), ("a", 1), "again")
    same("$dead_letter_trail" in job["meta"], True, "the trail is kept")


@case("10 queues")
def dead_letters_take_what_they_have_room_for(api: Api) -> None:
    """A dead-letter target that is full with `discard:"reject"` leaves the job where it is; one with room takes it."""
    dead = queue(api, "there", cap_records=2, discard="reject")
    name = queue(api, *"abc", max_deliveries=1, dead_letter=dead)
    claim(api, name, max=3)
    post(api, name, "nack", node="n", seqs=[1, 2, 3])
    for _ in range(2):
        same(claim(api, name, max=3), [], "moved, or left where it is")
    same([record["data"] for record in api.diff(dead)["records"]], ["there", "a"], "dead letters")
    part(api.state(name)["queue"], {"dead_lettered": 1, "delayed": 2, "ready": 0}, "state")


@case("10 queues")
def leases_are_listed(api: Api) -> None:
    """`GET /v0/topics/:q/leases?limit&cursor` lists live leases."""
    name = queue(api, *range(5))
    jobs = claim(api, name, max=3)
    first = api.call("GET", f"/v0/topics/{name}/leases?limit=2", status=200).json
    same([row["seq"] for row in first["leases"]], [1, 2], "first page")
    same(first["leases"][0]["lease_id"], jobs[0]["lease_id"], "lease_id")
    rest = api.call("GET", f"/v0/topics/{name}/leases?cursor={first['next_cursor']}", status=200).json
    same([row["seq"] for row in rest["leases"]], [3], "the rest")


@case("10 queues")
def a_log_is_no_queue(api: Api) -> None:
    """409 `not_a_queue`, 404 `topic_not_found`."""
    name, none = api.topic(), api.topic()
    api.write(name, 1)
    for verb, body in (("claim", {"node": "n"}), ("ack", {"node": "n", "seqs": [1]}), ("requeue", {"all": True})):
        same(post(api, name, verb, 409, **body)["error"]["code"], "not_a_queue", verb)
        same(post(api, none, verb, 404, **body)["error"]["code"], "topic_not_found", verb)


BAD: list[tuple[str, tuple[str, dict[str, Any]]]] = [
    ("no node", ("claim", {})),
    ("an empty node", ("claim", {"node": ""})),
    ("max 0", ("claim", {"node": "n", "max": 0})),
    ("no seqs", ("ack", {"node": "n", "seqs": []})),
    ("too many seqs", ("ack", {"node": "n", "seqs": list(range(1001))})),
    ("fewer leases", ("ack", {"node": "n", "seqs": [1, 2], "lease_ids": ["lease_0000000000000001"]})),
    ("a long delay", ("nack", {"node": "n", "seqs": [1], "delay_ms": 86_400_001})),
    ("a long reason", ("nack", {"node": "n", "seqs": [1], "reason": "x" * 257})),
    ("no dead letters", ("nack", {"node": "n", "seqs": [1], "dead_letter": True})),
    ("two selectors", ("requeue", {"all": True, "seqs": [1]})),
    ("no seqs in a requeue", ("requeue", {"seqs": []})),
    ("too many seqs in a requeue", ("requeue", {"seqs": list(range(1, 1002))})),
]


@each("10 queues", BAD)
def what_makes_no_sense_is_400(api: Api, choice: tuple[str, dict[str, Any]]) -> None:
    """`seqs` (1 … 1000, else 400), `node` (required, not empty)."""
    verb, body = choice
    name = queue(api, "a")
    post(api, name, verb, 400, **body)
    part(api.state(name)["queue"], {"ready": 1, "in_flight": 0}, "state")


@case("10 queues")
def dead_letters_do_not_go_round(api: Api) -> None:
    """Chains of dead letters are fine; a cycle in configuration is 400."""
    one, two = api.topic(), api.topic()
    api.put(one, type="queue", dead_letter=two)
    response = api.call("PUT", f"/v0/topics/{two}", {"type": "queue", "dead_letter": one}, status=400)
    same(response.json["error"]["code"], "invalid_request", "code")


def work(api: Api, name: str, node: str = "w", **query: Any) -> Stream:
    more = "".join(f"&{field}={value}" for field, value in query.items())
    return Stream(api, f"/v0/topics/{name}/work?node={node}{more}")


@case("10 queues")
def a_work_stream_brings_jobs(api: Api) -> None:
    """SSE: events `job` (id = seq, data like one claimed entry plus `topic`)."""
    name = queue(api)
    api.write_records(name, [{"data": [1.10, "\u00e9"], "tag": "t", "node": "p", "meta": {"k": "v"}}])
    with work(api, name, max=2, lease_ms=5000) as stream:
        same(stream.head.header("content-type"), "text/event-stream", "content-type")
        event = stream.next_named("job")
        same(event.id, "1", "id")
        job = event.data
        part(job, {"topic": name, "$seq": 1, "deliveries": 1, "$tag": "t", "$node": "p", "meta": {"k": "v"}}, "job")
        same((job["lease_id"][:6], len(job["lease_id"])), ("lease_", 22), "lease_id")
        row = api.call("GET", f"/v0/topics/{name}/leases", status=200).json["leases"][0]
        part(row, {"seq": 1, "node": "w", "lease_id": job["lease_id"], "deadline": job["deadline"]}, "lease")
        api.write(name, "b")
        same(stream.next_named("job").data["data"], "b", "written later")
        answer = post(api, name, "ack", node="w", seqs=[1], lease_ids=[job["lease_id"]])
        part(answer, {"acked": 1, "in_flight": 1}, "ack")


@case("10 queues")
def a_work_stream_holds_max_jobs(api: Api) -> None:
    """At most `max` jobs leased to this connection at a time: backpressure is `max`."""
    name = queue(api, *range(5))
    with work(api, name, max=2) as stream:
        same([stream.next_named("job").data["data"] for _ in range(2)], [0, 1], "jobs")
        same(stream.silent_for(0.3), True, "no more")
        post(api, name, "ack", node="w", seqs=[1])
        same(stream.next_named("job").data["data"], 2, "for an ack")
        post(api, name, "nack", node="w", seqs=[2], delay_ms=60_000)
        same(stream.next_named("job").data["data"], 3, "for a nack")
        same(stream.silent_for(0.2), True, "no more")
        part(api.state(name)["queue"], {"in_flight": 2, "ready": 1, "delayed": 1}, "state")
    with work(api, name) as stream:
        same(len({stream.next_named("job").id}), 1, "max is 1 by default")
        same(stream.silent_for(0.2), True, "one")


@case("10 queues")
def the_end_of_a_work_stream_frees_its_jobs(api: Api) -> None:
    """When the connection ends, its leases are released at once (deliveries stay counted), and only its own."""
    name = queue(api, "a", "b", "c")
    other = claim(api, name, node="w")[0]
    stream = work(api, name, max=2)
    same([stream.next_named("job").id for _ in range(2)], ["2", "3"], "jobs")
    stream.close()
    jobs = claim(api, name, max=9, wait_ms=5000)
    jobs += claim(api, name, max=9, wait_ms=5000 if len(jobs) < 2 else 0)
    same([(job["$seq"], job["deliveries"]) for job in jobs], [(2, 2), (3, 2)], "freed")
    part(post(api, name, "ack", node="w", seqs=[1], lease_ids=[other["lease_id"]]), {"acked": 1}, "its node's other")


@case("10 queues")
def a_lease_of_a_work_stream_expires(api: Api) -> None:
    """A lease holds until its deadline, and then the job comes again, with a new lease."""
    name = queue(api, "a")
    with work(api, name, lease_ms=200) as stream:
        old, new = stream.next_named("job").data, stream.next_named("job").data
        same((old["deliveries"], new["deliveries"], new["$seq"]), (1, 2, 1), "deliveries")
        answer = post(api, name, "ack", node="w", seqs=[1], lease_ids=[old["lease_id"]])
        same(answer["skipped_detail"], [{"seq": 1, "detail": "stale_lease"}], "old lease")


@case("10 queues")
def what_prevents_a_work_stream_comes_before_it(api: Api) -> None:
    """406, 404, 409 come before the stream opens."""
    name, log, none = queue(api), api.topic(), api.topic()
    api.write(log, 1)
    for topic, query, accept, status, code in (
        (name, "node=w", "application/json", 406, "not_acceptable"),
        (none, "node=w", "text/event-stream", 404, "topic_not_found"),
        (log, "node=w", "text/event-stream", 409, "not_a_queue"),
        (name, "", "text/event-stream", 400, "invalid_request"),
        (name, "node=", "text/event-stream", 400, "invalid_request"),
        (name, "node=w&max=0", "text/event-stream", 400, "invalid_request"),
        (name, "node=w&max=x", "text/event-stream", 400, "invalid_request"),
        (name, "node=w&lease_ms=-1", "text/event-stream", 400, "invalid_request"),
    ):
        answer = api.call("GET", f"/v0/topics/{topic}/work?{query}", headers=(("Accept", accept),), status=status)
        same(answer.json["error"]["code"], code, f"{topic}?{query}")


@case("10 queues")
def a_work_stream_can_be_drained(api: Api) -> None:
    """`DELETE …/work?node`: no further jobs; the stream ends when what it holds is settled."""
    name = queue(api, *range(4))
    with work(api, name, max=2) as stream, work(api, name, node="other") as other:
        same([stream.next_named("job").id for _ in range(2)], ["1", "2"], "jobs")
        other.next_named("job")
        answer = api.call("DELETE", f"/v0/topics/{name}/work?node=w", status=200).json
        part(answer, {"topic": name, "streams": 1}, "answer")
        post(api, name, "ack", node="w", seqs=[1])
        same(stream.silent_for(0.2), True, "nothing more")
        post(api, name, "nack", node="w", seqs=[2])
        same(stream.maybe_next(), None, "the end, and no event before it")
        same(other.silent_for(0.1), True, "the other one holds its job")
        part(api.state(name)["queue"], {"in_flight": 1, "ready": 2, "acked": 1}, "state")


@case("10 queues")
def a_work_stream_ends_with_its_queue(api: Api) -> None:
    """A 409 event and close if the topic stops being a queue later."""
    name = queue(api, "a")
    with work(api, name) as stream:
        stream.next_named("job")
        api.call("DELETE", f"/v0/topics/{name}", status=200)
        error = stream.next_named("error").data
        part(error, {"code": 409, "error": "not_a_queue"}, "error")
        same(stream.ends(), True, "ends")


@case("10 queues")
def claims_and_work_streams_of_one_window_share(api: Api) -> None:
    """Claims that arrive inside one window and `/work` streams that want jobs are dealt round-robin."""
    name = queue(api, claim_jitter_ms=250)
    with work(api, name, node="a", max=10) as one, work(api, name, node="b", max=10) as other:
        same(one.silent_for(0.1), True, "nothing yet")
        api.write(name, *range(10))
        for stream in (one, other):
            same(len([stream.next_named("job") for _ in range(5)]), 5, "five each")
            same(stream.silent_for(0.2), True, "no more")
