"""The two tables of recovery over every combination of evidence."""

from __future__ import annotations

from itertools import product

from engine.limits import OnCorruption
from engine.store.verdicts import (
    RESPONSES,
    VERDICTS,
    After,
    Evidence,
    Frame,
    Response,
    Stop,
    Verdict,
    judge,
    respond,
)

EVERYTHING = [Evidence(*parts) for parts in product(After, Frame, (False, True), (False, True), Stop)]


def test_every_combination_of_evidence_fits_exactly_one_row() -> None:
    assert len(EVERYTHING) == 144
    for evidence in EVERYTHING:
        assert [row.letter for row in VERDICTS if row.fits(evidence)] == [judge(evidence).letter], evidence


def test_every_damage_under_every_policy_fits_exactly_one_response() -> None:
    for frame, policy in product(Frame, OnCorruption):
        assert [row.letter for row in RESPONSES if row.fits(frame, policy)] == [respond(frame, policy).letter]


def test_each_row_is_the_verdict_on_something_and_letters_are_unique() -> None:
    assert {judge(evidence).letter for evidence in EVERYTHING} == {row.letter for row in VERDICTS}
    letters = [row.letter for row in (*VERDICTS, *RESPONSES)]
    assert len(set(letters)) == len(letters)


def test_what_is_proven_to_have_been_on_disk_is_never_cut() -> None:
    for evidence in EVERYTHING:
        if evidence.proven:
            assert judge(evidence).verdict is Verdict.DAMAGE


def test_F26_valid_frames_are_cut_off_only_after_a_power_failure_and_only_behind_missing_bytes() -> None:
    for evidence in EVERYTHING:
        if evidence.after is After.FRAMES and judge(evidence).verdict is not Verdict.DAMAGE:
            assert evidence.stop is Stop.POWER_LOSS
            assert evidence.missing
            assert not evidence.proven


def test_F27_a_last_frame_that_is_whole_and_bad_is_damage_however_the_process_ended() -> None:
    for frame, stop in product(Frame, (Stop.SAME_BOOT, Stop.POWER_LOSS)):
        assert judge(Evidence(After.GARBAGE, frame, False, False, stop)).letter == "E"


def test_F61_a_hole_before_valid_frames_is_damage_unless_power_was_lost() -> None:
    for frame in Frame:
        assert judge(Evidence(After.FRAMES, frame, True, False, Stop.POWER_LOSS)).letter == "C"
        assert judge(Evidence(After.FRAMES, frame, True, False, Stop.SAME_BOOT)).letter == "G"


def test_only_the_records_of_an_append_are_ever_isolated() -> None:
    for frame, policy in product(Frame, OnCorruption):
        if respond(frame, policy).response is Response.ISOLATE:
            assert frame is Frame.APPEND
            assert policy is not OnCorruption.REFUSE
