"""§10 Jobs (queues.md): in which order they are given, what is clamped, what settles them, counters, requeues."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

from tests.conformance.kit import Api, Needs, case, each, has, part, same
from tests.conformance.s10_queues import claim, post, queue
from tests.conformance.ws import Socket

COUNTERS = ("ready", "in_flight", "delayed", "written", "acked", "dead_lettered", "deleted", "evicted", "lost")


def seqs(jobs: list[dict[str, Any]]) -> list[int]:
    return [job["$seq"] for job in jobs]


def counters(api: Api, name: str) -> dict[str, Any]:
    """The counters of a queue, which must add up."""
    state = api.state(name)
    shown: dict[str, Any] = state["queue"]
    has(shown, (*COUNTERS, "oldest_ready_ms", "claim_waiters"), "queue")
    same(shown["ready"] + shown["in_flight"] + shown["delayed"], state["count"], "live = ready + in_flight + delayed")
    gone = sum(shown[name] for name in ("acked", "dead_lettered", "deleted", "evicted", "lost"))
    same(shown["written"], state["count"] + gone, "written = live + acked + dead_lettered + deleted + evicted + lost")
    return shown


@case("10 queues")
def jobs_come_back_before_new_ones(api: Api) -> None:
    """Jobs whose lease expired or whose delay passed come first, by the time they became ready, then others by seq."""
    name = queue(api, *range(6))
    claim(api, name, max=2, lease_ms=400)
    claim(api, name, max=2)
    post(api, name, "nack", node="n", seqs=[4])
    time.sleep(0.45)
    post(api, name, "nack", node="n", seqs=[3])
    same(seqs(claim(api, name, max=9)), [4, 1, 2, 3, 5, 6], "order")


@case("10 queues")
def a_poison_job_takes_every_second_place(api: Api) -> None:
    """A third or later delivery takes at most every second place while new jobs wait; turns persist across claims."""
    name = queue(api, *range(8))
    for _ in range(2):
        same(seqs(claim(api, name)), [1], "the first deliveries")
        post(api, name, "nack", node="n", seqs=[1])
    given: list[int] = []
    for _ in range(6):
        given += seqs(claim(api, name))
        if given[-1] == 1:
            post(api, name, "nack", node="n", seqs=[1])
    same(sorted(given), [1, 1, 1, 2, 3, 4], "jobs")
    same([(a, b) for a, b in pairwise(given) if a == b], [], "two places in a row")


@case("10 queues")
def jobs_of_a_claim_are_bounded(api: Api) -> None:
    """`max` 1 (clamped to 1000), `max_bytes` 8 MiB: at least one job is always given."""
    name = queue(api, *["x" * 1000] * 1001)
    same(len(claim(api, name)), 1, "by default")
    same(len(claim(api, name, max=9, max_bytes=1)), 1, "one, however large")
    same(len(claim(api, name, max=9, max_bytes=2500)), 2, "what fits")
    post(api, name, "nack", node="n", seqs=[1, 2, 3, 4])
    same(len(claim(api, name, max=5000)), 1000, "clamped")


@each("10 queues", [("short", (1, 100)), ("long", (10**12, 86_400_000))])
def leases_are_clamped(api: Api, choice: tuple[int, int]) -> None:
    """`lease_ms` clamped 100 … 86400000: that of a claim and of an extend."""
    asked, given = choice
    name = queue(api, "a")
    before = time.time() * 1000
    claimed = claim(api, name, lease_ms=asked)[0]["deadline"]
    extended = 0
    if given > 1000:
        extended = post(api, name, "extend", node="n", seqs=[1], lease_ms=asked)["deadlines"]["1"]
    after = time.time() * 1000
    for deadline in (claimed, extended or claimed):
        same(before + given - 1000 <= deadline <= after + given + 1000, True, f"deadline {deadline - before} from now")


@case("10 queues")
def a_settled_job_is_counted_once(api: Api) -> None:
    """Counters, exact: `written = live + acked + dead_lettered + deleted + evicted + lost`."""
    dead = api.topic()
    name = queue(api, *range(10), dead_letter=dead)
    claim(api, name, max=6)
    post(api, name, "ack", node="n", seqs=[1, 2])
    post(api, name, "nack", node="n", seqs=[3], dead_letter=True)
    post(api, name, "nack", node="n", seqs=[4], delay_ms=60_000)
    api.delete(name, seqs=[5, 9])
    want = {"ready": 3, "in_flight": 1, "delayed": 1, "acked": 2, "dead_lettered": 1, "deleted": 2, "evicted": 0}
    part(counters(api, name), {**want, "written": 10, "lost": 0, "claim_waiters": 0}, "queue")
    api.put(name, cap_records=2)
    part(counters(api, name), {"ready": 2, "in_flight": 0, "delayed": 0, "evicted": 3}, "behind a cap")
    same(api.diff(name, from_seq=3)["tombstone"]["reason"], "cap", "an evicted, never acked job makes a tombstone")


@case("10 queues")
def a_lease_goes_with_its_job(api: Api) -> None:
    """Caps, age and deletes apply to leased jobs too; the lease goes with the job, its ack is then `gone`."""
    name = queue(api, "a", "b", "c")
    claim(api, name, max=3)
    api.delete(name, seqs=[1])
    api.put(name, cap_records=1)
    answer = post(api, name, "ack", node="n", seqs=[2, 3, 1])
    part(answer, {"acked": 1, "skipped": [2, 1], "ready": 0, "in_flight": 0}, "ack")
    same(answer["skipped_detail"], [{"seq": 2, "detail": "gone"}, {"seq": 1, "detail": "gone"}], "why")
    same(api.call("GET", f"/v0/topics/{name}/leases", status=200).json["leases"], [], "leases")


@case("10 queues")
def what_is_skipped_is_in_the_order_of_the_request(api: Api) -> None:
    """Others are in `skipped` (in request order), with `detail` in `skipped_detail`."""
    name = queue(api, *range(4))
    lease = claim(api, name, max=2)[1]["lease_id"]
    body: dict[str, Any] = {"node": "n", "seqs": [9, 2, 1, 3], "lease_ids": [lease] * 4}
    for verb, done in (("extend", "extended"), ("nack", "nacked")):
        answer = post(api, name, verb, **body)
        part(answer, {done: 1, "skipped": [9, 1, 3]}, verb)
        same([one["detail"] for one in answer["skipped_detail"]], ["not_leased", "stale_lease", "not_leased"], verb)


@case("10 queues")
def without_a_dead_letter_a_job_is_tried_again(api: Api) -> None:
    """`max_deliveries` without `dead_letter` keeps retrying."""
    name = queue(api, "a", max_deliveries=1)
    for delivery in (1, 2, 3):
        same([job["deliveries"] for job in claim(api, name)], [delivery], "deliveries")
        post(api, name, "nack", node="n", seqs=[1])


@case("10 queues")
def a_job_can_be_sent_straight_to_the_dead_letters(api: Api) -> None:
    """`dead_letter: true` (straight there); the target is made as a queue of the source's class, its trail holds 8."""
    dead = api.topic()
    name = queue(api, durability="memory", dead_letter=dead)
    api.write_records(name, [{"data": [1.10], "tag": "t", "node": "p", "meta": {"k": 1}}])
    for number in range(10):
        same(len(claim(api, name, f"w{number}")), 1, "jobs")
        post(api, name, "nack", node=f"w{number}", seqs=[1], reason=f"r{number}", dead_letter=number == 9)
    part(api.state(dead), {"type": "queue", "count": 1}, "target")
    same(api.state(dead)["config"]["durability"], "memory", "its class")
    record = api.diff(dead, include_tags=True)["records"][0]
    part(record, {"data": [1.10], "$tag": "t", "$node": "p"}, "copy")
    meta = record["meta"]
    said = {"$dead_letter_from": name, "$dead_letter_src_seq": "1", "$dead_letter_deliveries": "10"}
    part(meta, {"k": 1, **said}, "meta")
    same(meta["$dead_letter_first_ts"].isdecimal(), True, "$dead_letter_first_ts is a decimal string")
    trail = meta["$dead_letter_trail"]
    same([(one["node"], one["reason"]) for one in trail], [(f"w{n}", f"r{n}") for n in range(2, 10)], "trail")
    has(trail[-1], ("claimed", "ended", "how"), "trail")
    part(counters(api, name), {"dead_lettered": 1, "ready": 0}, "queue")


@case("10 queues")
def dead_letters_are_requeued(api: Api) -> None:
    """`requeue` `{seqs|match|all:true, to?}` puts jobs back where they came from (or `to`): a write and a delete."""
    dead, other = api.topic(), queue(api)
    name = queue(api, dead_letter=dead)
    api.write_records(name, [{"data": tag, "tag": tag} for tag in ("red", "blue", "red", "green")])
    claim(api, name, max=4)
    post(api, name, "nack", node="n", seqs=[1, 2, 3, 4], dead_letter=True)
    same(post(api, dead, "requeue", match="red")["requeued"], 2, "by tag")
    same(post(api, dead, "requeue", seqs=[2], to=other)["requeued"], 1, "to another queue")
    none = api.topic()
    answer = api.refused(
        "POST", f"/v0/topics/{dead}/requeue", {"all": True, "to": none}, status=404, code="topic_not_found"
    )
    same(answer["topic"], none, "detail.topic")
    same(post(api, dead, "requeue", all=True)["requeued"], 1, "the rest")
    same([job["data"] for job in claim(api, name, max=9)], ["red", "red", "green"], "back")
    same([(job["data"], job["deliveries"]) for job in claim(api, other, max=9)], [("blue", 1)], "in the other queue")
    part(counters(api, name), {"written": 7, "dead_lettered": 4}, "queue")
    part(counters(api, dead), {"written": 4, "deleted": 4, "ready": 0}, "dead letters")


@case("10 queues")
def a_requeue_says_what_it_skips(api: Api) -> None:
    """What nothing is done to is in `skipped`, in the order of the request: no jobs, and those without a way back."""
    dead = queue(api, "written here")
    name = queue(api, "a", dead_letter=dead)
    claim(api, name)
    post(api, name, "nack", node="n", seqs=[1], dead_letter=True)
    part(post(api, dead, "requeue", seqs=[9, 2, 1, 7]), {"requeued": 1, "skipped": [9, 1, 7]}, "requeue")
    part(post(api, dead, "requeue", seqs=[2]), {"requeued": 0, "skipped": [2]}, "again")
    part(post(api, dead, "requeue", all=True), {"requeued": 0, "skipped": [1]}, "all")


@case("10 queues")
def who_goes_away_while_waiting_gets_no_job(api: Api) -> None:
    """A client that goes away while waiting gets no job, and `claim_waiters` shows who waits."""
    name = queue(api)
    with api.connect() as connection:
        connection.send(api.bytes_of("POST", f"/v0/topics/{name}/claim", {"node": "n", "wait_ms": 30_000}))
        wait_for(api, name, 1)
    wait_for(api, name, 0)
    api.write(name, "a")
    same([job["deliveries"] for job in claim(api, name)], [1], "deliveries")


def wait_for(api: Api, name: str, waiters: int) -> None:
    """Until so many wait."""
    deadline = time.monotonic() + 10
    while (seen := api.state(name)["queue"]["claim_waiters"]) != waiters and time.monotonic() < deadline:
        time.sleep(0.01)
    same(seen, waiters, "claim_waiters")


@case("10 queues", Needs.KEYS)
def lease_ids_are_for_those_who_may_write(api: Api) -> None:
    """`GET …/leases` lists live leases: `lease_id` only with `write`; claim and requeue need `read` and `write`."""
    name = queue(api, "a")
    lease = claim(api, name)[0]["lease_id"]
    url = f"/v0/topics/{name}/leases"
    same(api.call("GET", url, status=200).json["leases"][0]["lease_id"], lease, "with write")
    row = api.call("GET", url, status=200, key=api.keys.read).json["leases"][0]
    same(sorted(row), ["deadline", "deliveries", "node", "seq"], "without")
    for key in (api.keys.read, api.keys.write):
        for verb, body in (("claim", {"node": "n"}), ("requeue", {"all": True})):
            api.refused("POST", f"/v0/topics/{name}/{verb}", body, status=403, code="forbidden", key=key)
        api.refused("GET", f"/v0/topics/{name}/work?node=n", status=403, code="forbidden", key=key)


@case("10 queues")
def a_socket_that_closes_frees_its_jobs(api: Api) -> None:
    """The WebSocket has the same as `/work`: its leases end with it, and deliveries stay counted."""
    name = queue(api, "a")
    with Socket(api) as socket:
        socket.ask("subscribe", topic=name, node="w", work={"max": 1})
        same(socket.next()["deliveries"], 1, "deliveries")
    same([job["deliveries"] for job in claim(api, name, wait_ms=5000)], [2], "deliveries")
