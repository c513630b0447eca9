"""A checkpoint is of what there was when it began, however much is written meanwhile, and says how far behind it is."""

from __future__ import annotations

import msgspec
import pytest

from engine.checkpoint.jobs import SealJob, SnapshotJob
from engine.core import sealing
from engine.core.jobs import outcome
from engine.core.keeper import Phase
from engine.limits import EngineSettings
from engine.types import CheckpointDone
from tests.core.hand import SMALL, Hand

EIGHTS = msgspec.structs.replace(SMALL, segment_max_events=8, segment_age_ms=0)


def _made_while_written_to(hand: Hand, each: int) -> tuple[CheckpointDone, list[SealJob | SnapshotJob]]:
    """A checkpoint in each of whose steps a topic gets so many records."""
    ticket = hand.core.checkpoint()
    jobs: list[SealJob | SnapshotJob] = []
    for _ in range(200):
        hand.core.keep_step()
        if (job := hand.core.keep_job()) is not None:
            hand.write("t", *range(each))
            if isinstance(job, SealJob | SnapshotJob):
                jobs.append(job)
            hand.core.keep_done(job, outcome(job, hand.fs))
        hand.write("t", *range(each))
        hand.settle()
        if ticket.done:
            return ticket.value(), jobs
    raise AssertionError("the checkpoint never ends")


def test_what_is_written_meanwhile_is_the_next_ones() -> None:
    hand = Hand(settings=EIGHTS)
    hand.create("t")
    hand.write("t", *range(20))
    done, jobs = _made_while_written_to(hand, 16)
    sealed = [job for job in jobs if isinstance(job, SealJob)]
    assert sum(copy.count for job in sealed for copy in job.copies) == 20
    assert done.segments == sum(len(job.copies) for job in sealed)
    head = hand.core.state("t").head_seq
    assert head > 60
    again = hand.reopen()
    assert again.core.state("t").head_seq == again.core.state("t").count == head
    done, jobs = _made_while_written_to(again, 1)
    assert sum(copy.count for job in jobs if isinstance(job, SealJob) for copy in job.copies) >= head - 20 - 8


def test_everything_of_a_topic_that_is_taken_down_is_in_segments_or_tails_once() -> None:
    hand = Hand(settings=EIGHTS)
    hand.create("t")
    for count in (3, 8, 5, 9, 2):
        hand.write("t", *range(count))
    job = hand.snapshot_job()
    assert hand.core.keeper.phase is Phase.WRITE
    assert outcome(job, hand.fs) is None
    (found,) = job.captured
    seqs = [seq for entry in found.image.segments for seq in range(entry.first, entry.first + entry.count)]
    assert seqs == list(range(1, 28))
    hand.core.keep_done(job, None)


def test_it_says_how_far_writes_have_run_ahead_unless_checkpoints_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = EngineSettings(wal_file_bytes=64 * 1024, checkpoint_bytes=64 * 1024, checkpoint_ms=1 << 40)
    hand = Hand(settings=msgspec.structs.replace(settings, cache_bytes=1 << 20, segment_max_events=1))
    keeper = hand.core.keeper
    hand.create("t")
    found = []
    for _ in range(5):
        hand.write("t", *["x" * 32_000])
        found.append(keeper.behind)
    assert found[0] == 0.0
    assert found == sorted(found)
    assert found[-1] > 1.0
    hand.core.checkpoint()
    monkeypatch.setattr(sealing, "SEAL_BYTES", 1)
    for _ in range(50):
        if keeper.phase is Phase.SEAL:
            break
        hand.core.keep_step()
        hand.settle()
    assert keeper.behind == pytest.approx(0.8 * (found[-1] + 1.0) - 1.0, rel=0.02), "four of five are to be sealed yet"
    for _ in range(100):
        if (job := hand.core.keep_job()) is not None:
            hand.core.keep_done(job, outcome(job, hand.fs))
        hand.core.keep_step()
        hand.settle()
    assert keeper.behind == 0.0
    for _ in range(5):
        hand.write("t", *["x" * 32_000])
    assert keeper.behind > 1.0
    keeper.problem = "the disk is full"
    assert keeper.behind == 0.0


@pytest.mark.parametrize(("allowed", "kept"), [(3, 3), (64, 4)])
def test_files_of_segments_stay_open_for_readers_as_the_settings_say(allowed: int, kept: int) -> None:
    hand = Hand(settings=msgspec.structs.replace(EIGHTS, segment_max_events=64, segment_handles=allowed))
    hand.create("t")
    hand.write("t", *range(256))
    hand.write("t", *range(256, 384))
    hand.core.keep_done(job := hand.snapshot_job(), outcome(job, hand.fs))
    again = hand.reopen()
    before = len(again.disk._handles)
    for _ in range(2):
        assert again.read("t") == list(range(384))
    assert len(again.disk._handles) - before == kept
