"""Claimed jobs as bytes: the short way of a run and the general way say the same, byte for byte but for the lease."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from engine.queue.events import Leased
from engine.queue.job import lease_text
from topics_daemon.claimed import claimed_entries, claimed_run

LEASE = (77 << 32) + 0xFE
DEADLINE = 1_750_000_030_000


@dataclass(frozen=True, slots=True)
class Run:
    """Seqs that were claimed together."""

    first: int
    last: int

    def leased(self, *, fresh: bool, deliveries: int = 1) -> Leased:
        jobs = tuple((seq, deliveries) for seq in range(self.first, self.last + 1))
        return Leased(at=1, node="n", deadline=DEADLINE, lease_id=LEASE, jobs=jobs, fresh=fresh)

    def records(self) -> list[bytes | None]:
        return [
            b'{"$seq":%d,"$ts":1750000000000,"$node":"a,b","data":{"$seq": 1 , "x":[1,2]}}' % seq
            for seq in range(self.first, self.last + 1)
        ]


RUNS = [Run(1, 1), Run(1, 9), Run(8, 12), Run(99_998, 100_003), Run(100_000, 100_511)]


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_a_run_is_written_as_its_jobs_one_by_one(run: Run) -> None:
    records = run.records()
    entries = claimed_entries(records, run.leased(fresh=True))
    assert entries == claimed_entries(records, run.leased(fresh=False))
    for number, (entry, record) in enumerate(zip(entries, records, strict=True)):
        assert record is not None
        lease = b'"lease_id":"%b","deadline":%d,"deliveries":1,' % (lease_text(LEASE + number).encode(), DEADLINE)
        assert entry.replace(lease, b"", 1) == record
        assert list(json.loads(entry))[:5] == ["$seq", "lease_id", "deadline", "deliveries", "$ts"]


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_a_run_out_of_one_text_is_what_its_jobs_are_one_by_one(run: Run) -> None:
    records, leased = run.records(), run.leased(fresh=True)
    text = b",".join(record for record in records if record is not None)
    starts = [text.index(b'{"$seq":%d,' % seq) for seq in range(run.first, run.last + 1)]
    whole = claimed_run(text, starts, leased)
    if len(str(run.first)) != len(str(run.last)):
        assert whole is None
    else:
        assert whole == b",".join(claimed_entries(records, leased))


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("run", RUNS[1:], ids=str)
def test_what_is_gone_again_is_left_out_and_the_others_keep_their_leases(run: Run, fresh: bool) -> None:
    records = run.records()
    records[1] = None
    entries = [json.loads(entry) for entry in claimed_entries(records, run.leased(fresh=fresh))]
    assert [entry["$seq"] for entry in entries] == [run.first, *range(run.first + 2, run.last + 1)]
    assert [entry["lease_id"] for entry in entries] == [
        lease_text(LEASE + entry["$seq"] - run.first) for entry in entries
    ]


def test_later_deliveries_are_said() -> None:
    entries = claimed_entries(Run(1, 2).records(), Run(1, 2).leased(fresh=False, deliveries=3))
    assert [json.loads(entry)["deliveries"] for entry in entries] == [3, 3]
