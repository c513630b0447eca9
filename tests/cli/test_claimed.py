"""Claimed jobs come out of an answer byte for byte, and go back as requests that are fenced."""

from __future__ import annotations

import json

import pytest

from tests.cli.support import HARD
from topics_cli.claimed import claimed_lines, holder
from topics_cli.commands.claim import claim_body
from topics_cli.commands.settle import _read, settle_body, skipped_of
from topics_cli.cut import text_of
from topics_cli.exits import Failure
from topics_cli.launch import Job


def entry(seq: int, data: bytes, meta: bytes = b"") -> bytes:
    """A claimed entry, as the daemon renders it."""
    lease = b'"lease_id":"lease_%016x","deadline":1750000030000,"deliveries":2,"$ts":1750000000000' % seq
    return b'{"$seq":%d,%b,"$tag":"t","data":%b%b}' % (seq, lease, data, b',"meta":' + meta if meta else b"")


def answer(entries: list[bytes]) -> bytes:
    listed = b",".join(entries)
    return b'{"topic":"q","claimed":[%b],"count":%d,"ready":7,"performance":{"count":9}}' % (listed, len(entries))


def test_every_entry_comes_out_as_it_stands_whatever_its_data_hold() -> None:
    entries = [entry(seq, data) for seq, data in enumerate(HARD, 1)]
    assert claimed_lines(answer(entries)) == entries
    for one in entries:
        assert claimed_lines(answer([one])) == [one]


def test_what_divides_entries_may_stand_in_data() -> None:
    tricky = [entry(1, b'[{},{"$seq":1,"$ts":2}]'), entry(2, b'"],\\"count\\":3"'), entry(3, b'{"a":[1],"count":3}')]
    assert claimed_lines(answer(tricky)) == tricky


def test_an_empty_answer_has_no_entries_and_another_one_is_refused() -> None:
    assert claimed_lines(answer([])) == []
    with pytest.raises(Failure):
        claimed_lines(b'{"topic":"q"}')


@pytest.mark.parametrize("data", HARD)
def test_a_job_has_its_lease_and_its_data_as_text_or_as_they_are_stored(data: bytes) -> None:
    job = Job(entry(5, data, b'{"k":"v"}'))
    assert (job.seq, job.lease_id, job.deliveries) == (5, "lease_0000000000000005", 2)
    assert job.data(raw=True) == data
    assert job.data(raw=False) == text_of(b'{"$seq":5,"$ts":1,"data":' + data + b"}", 25)
    assert job.member("$tag") == "t"
    assert job.member("meta") == '{"k":"v"}'
    assert job.member("$node") == ""


def test_requests_are_fenced_where_the_leases_are_known() -> None:
    assert settle_body("w", [(1, "lease_a"), (2, "lease_b")], "") == (
        b'{"node":"w","seqs":[1,2],"lease_ids":["lease_a","lease_b"]}'
    )
    assert settle_body('"', [(1, "")], ',"delay_ms":5') == b'{"node":"\\"","seqs":[1],"delay_ms":5}'


def test_a_claim_asks_for_what_was_said() -> None:
    values: dict[str, object] = {"lease": None, "tag": None}
    assert json.loads(claim_body(values, "w", 3, 0)) == {"node": "w", "max": 3, "wait_ms": 0}
    values = {"lease": 5000, "tag": "a*"}
    asked = {"node": "w", "max": 1, "wait_ms": 9, "lease_ms": 5000, "match": "a*"}
    assert json.loads(claim_body(values, "w", 1, 9)) == asked


@pytest.mark.parametrize(
    "detail",
    [["gone", "expired"], [{"seq": 4, "detail": "gone"}, {"detail": "expired"}], {"4": "gone", "9": "expired"}],
)
def test_what_was_skipped_is_read_with_its_reason(detail: object) -> None:
    body = json.dumps({"acked": 0, "skipped": [4, 9], "skipped_detail": detail}).encode()
    assert skipped_of(body) == [(4, "gone"), (9, "expired")]
    assert skipped_of(b'{"acked":1,"skipped":[],"ready":1}') == []
    assert skipped_of(b'{"acked":1,"skipped":[3]}') == [(3, "skipped")]


def test_a_line_of_input_is_a_seq_or_a_claimed_job() -> None:
    assert _read(b"17", "line 1") == (17, "")
    assert _read(entry(3, b"{}"), "line 1") == (3, "lease_0000000000000003")
    assert _read(b'{"seq": 3}', "line 1") == (3, "")
    for wrong in (b"x", b"-1", b"{}", b"[1]", b'{"$seq":"3"}', b'{"$seq":3,"lease_id":4}', b"1.5"):
        with pytest.raises(Failure, match="line 9"):
            _read(wrong, "line 9")


def test_the_holder_is_the_same_in_every_command_unless_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOPICS_NODE", raising=False)
    monkeypatch.setenv("USER", "ann")
    assert holder({"node": None}).startswith("ann@")
    monkeypatch.setenv("TOPICS_NODE", "here")
    assert holder({"node": None}) == "here"
    assert holder({"node": "there"}) == "there"
