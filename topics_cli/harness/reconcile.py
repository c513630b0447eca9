"""Whether what clients sent and read is what the daemon holds and counts: pure, from the ledgers and the daemon's word.

Seven questions to each topic, and one to each connection that read it:

    whole       every ledger has its end
    acked       no seq was given to two records, and none lies beyond the head
    kept        every acked record is there with the bytes that were sent, was done by a worker, or is told to be lost
    no more     everything that is there was sent; a request that was never answered is there whole, once, or not at all
    counts      head, count and the queue's counters are what the above adds up to
    metrics     `topics_records_written_total` rose by as much (at least, on a daemon that others may use)
    read        each reader has every record once, in order, with its bytes, or was told that it is lost
    done        every job was acked once; what is left is ready or leased

Loss that the scenario asks for (caps, age) is listed, and is no failure. Everything else that does not add up is, with
the seqs that are concerned.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from topics_cli.harness.ledger import Seen, Sent

LISTED_MAX: Final = 10
"""Ranges of seqs that a line names."""
ASKED_FOR: Final = ("cap", "ttl", "mixed")
_ACKED, _KEPT, _DONE, _TOLD = 1, 2, 4, 8


@dataclass(frozen=True, slots=True)
class Check:
    """One question and its answer."""

    subject: str
    question: str
    is_good: bool
    said: str

    def as_object(self) -> dict[str, Any]:
        """For the summary."""
        return {"subject": self.subject, "question": self.question, "is_good": self.is_good, "said": self.said}


@dataclass(slots=True)
class Evidence:
    """Everything that is known of one topic."""

    topic: str
    is_queue: bool
    may_lose: frozenset[str]
    """Reasons of tombstones that the scenario asks for."""
    sent: list[tuple[int, Sent]]
    """Requests to write, each with its producer."""
    state: dict[str, Any]
    """What the daemon says of the topic at the end."""
    kept: array[int]
    """The seq of every record that it holds at the end, ascending."""
    kept_checks: array[int]
    """And its check."""
    told: list[dict[str, Any]]
    """Tombstones of that reading."""
    seen: list[Seen]
    check_of: Callable[[int, int], int]
    """The check of a producer's n-th record."""
    checks: list[Check] = field(default_factory=list)
    added: int = 0
    """Records that were added in all, as far as is known: acked ones, and whole requests never answered."""


def ranges(seqs: Iterable[int]) -> str:
    """Seqs for people: `3, 7-9 and 2 more ranges`."""
    found: list[list[int]] = []
    for seq in sorted(seqs):
        if found and seq == found[-1][1] + 1:
            found[-1][1] = seq
        else:
            found.append([seq, seq])
    texts = [str(a) if a == b else f"{a}-{b}" for a, b in found[:LISTED_MAX]]
    more = len(found) - LISTED_MAX
    return ", ".join(texts) + (f" and {more} more ranges" if more > 0 else "")


def named(seqs: Collection[int], noun: str = "record") -> str:
    """How many, and which: `1 record (7)`, `10 records (31-40)`."""
    return f"{len(seqs):,} {noun}{'' if len(seqs) == 1 else 's'} ({ranges(seqs)})"


def reconcile(evidence: Evidence) -> list[Check]:
    """Ask everything of one topic."""
    return _Topic(evidence).checks()


class _Topic:
    """One topic: for each seq its marks, and the check of the record that was acked with it."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._head = int(evidence.state["head_seq"])
        top = max([self._head, *(sent.last_seq or 0 for _, sent in evidence.sent), *evidence.kept[-1:]])
        for seen in evidence.seen:
            top = max(top, max(seen.seqs, default=0))
        self._marks = bytearray(top + 1)
        self._checks = array("I", bytes(4 * (top + 1)))
        self._twice: set[int] = set()
        self._told: dict[str, set[int]] = {}
        for told in evidence.told:
            self._tell(told, top)

    def _tell(self, told: dict[str, Any], top: int) -> None:
        for seq in range(max(1, told["gap_from"]), min(told["gap_to"], top) + 1):
            self._marks[seq] |= _TOLD
            self._told.setdefault(told["reason"], set()).add(seq)

    def checks(self) -> list[Check]:
        """All answers."""
        self._acked()
        self._done()
        self._kept()
        self._counts()
        for seen in self._evidence.seen:
            if seen.kind != "work":
                self._read(seen)
        return self._evidence.checks

    def _say(self, question: str, wrong: Sequence[str], good: str, subject: str = "") -> None:
        subject = subject or self._evidence.topic
        self._evidence.checks.append(Check(subject, question, not wrong, "; ".join(wrong) or good))

    def _acked(self) -> None:
        marks, checks, made = self._marks, self._checks, self._evidence.check_of
        count = 0
        for producer, sent in self._evidence.sent:
            if sent.first_seq is None or sent.last_seq is None:
                continue
            if sent.last_seq - sent.first_seq + 1 != sent.count:
                self._twice.update(range(sent.first_seq, sent.last_seq + 1))
            for place, seq in enumerate(range(sent.first_seq, sent.last_seq + 1)):
                if marks[seq] & _ACKED:
                    self._twice.add(seq)
                marks[seq] |= _ACKED
                checks[seq] = made(producer, sent.n + place)
            count += sent.count
        wrong = []
        if self._twice:
            wrong.append(f"given to two records: {named(self._twice, 'seq')}")
        beyond = [seq for seq in range(self._head + 1, len(marks)) if marks[seq] & _ACKED]
        if beyond:
            wrong.append(f"acked beyond the head {self._head}: {named(beyond)}")
        self._evidence.added = count
        self._say("acked", wrong, f"{count:,} records acked, each with a seq of its own")

    def _done(self) -> None:
        """What workers did: marks it done, so that it need not be there."""
        if not self._evidence.is_queue:
            return
        marks, checks, wrong = self._marks, self._checks, []
        twice, changed, strange, gone, lost = set(), set(), {}, set(), 0
        for seen in self._evidence.seen:
            lost += seen.lost
            for seq, check in zip(seen.seqs, seen.checks, strict=True):
                if marks[seq] & _DONE:
                    twice.add(seq)
                marks[seq] |= _DONE
                if not marks[seq] & _ACKED:
                    strange[seq] = check
                elif checks[seq] != check:
                    changed.add(seq)
            gone |= {seq for seq, why in seen.skipped.items() if why == "gone"}
        unanswered = {seq for seq in gone if seq < len(marks) and not marks[seq] & _DONE}
        if len(unanswered) > lost * 1000:
            wrong.append(f"gone before their ack: {named(unanswered, 'job')}")
        for seq in unanswered:
            marks[seq] |= _DONE
        if twice:
            wrong.append(f"acked twice: {named(twice, 'job')}")
        if changed:
            wrong.append(f"with other bytes than were sent: {named(changed, 'job')}")
        self._strange_jobs = strange
        done = sum(1 for mark in marks if mark & _DONE)
        note = f", {len(unanswered)} of them by acks whose answer was lost" if unanswered else ""
        self._say("done", wrong, f"{done:,} jobs acked, each once{note}")

    def _kept(self) -> None:
        marks, checks = self._marks, self._checks
        changed, more = set(), dict(self._strange_jobs) if self._evidence.is_queue else {}
        for seq, check in zip(self._evidence.kept, self._evidence.kept_checks, strict=True):
            marks[seq] |= _KEPT
            if not marks[seq] & _ACKED:
                more[seq] = check
            elif checks[seq] != check:
                changed.add(seq)
        missing = {
            seq for seq in range(1, len(marks)) if marks[seq] & _ACKED and not marks[seq] & (_KEPT | _DONE | _TOLD)
        }
        both = {seq for seq in range(1, len(marks)) if marks[seq] & _DONE and marks[seq] & _KEPT}
        wrong = []
        if missing:
            wrong.append(f"acked, not there, and nothing says why: {named(missing)}")
        if changed:
            wrong.append(f"with other bytes than were sent: {named(changed)}")
        if both:
            wrong.append(f"done, and still there: {named(both, 'job')}")
        for reason, seqs in sorted(self._told.items()):
            if reason not in self._evidence.may_lose:
                wrong.append(f"told to be lost ({reason}): {named(seqs)}")
        told = sum(map(len, self._told.values()))
        where = "is there" if not self._evidence.is_queue else "is there or done"
        self._say("kept", wrong, f"every acked record {where}{f', {told:,} told to be lost as asked' if told else ''}")
        self._more(more)

    def _more(self, more: dict[int, int]) -> None:
        """Records that no ack speaks of: requests never answered, else too many."""
        evidence, unanswered = self._evidence, 0
        for producer, sent in evidence.sent:
            if sent.first_seq is not None:
                continue
            wanted = [evidence.check_of(producer, n) for n in range(sent.n, sent.n + sent.count)]
            for seq in sorted(more):
                if all(more.get(seq + place) == check for place, check in enumerate(wanted)):
                    for place in range(sent.count):
                        del more[seq + place]
                        self._marks[seq + place] |= _ACKED
                        self._checks[seq + place] = wanted[place]
                    unanswered += sent.count
                    break
        evidence.added += unanswered
        twins = {self._checks[seq] for seq in range(1, len(self._marks)) if self._marks[seq] & _ACKED} if more else ()
        doubled = {seq for seq, check in more.items() if check in twins}
        strange = more.keys() - doubled
        wrong = []
        if doubled:
            wrong.append(f"there twice: {named(doubled)}")
        if strange:
            wrong.append(f"sent by nobody: {named(strange)}")
        note = f"; {unanswered:,} of requests that were never answered are there, whole" if unanswered else ""
        self._say("no more", wrong, f"nothing is there but what was sent{note}")

    def _counts(self) -> None:
        evidence, marks = self._evidence, self._marks
        state, wrong = evidence.state, []
        told = {seq for seqs in self._told.values() for seq in seqs}
        live = sum(1 for mark in marks if mark & _ACKED and not mark & (_DONE | _TOLD))
        unseen = sum(1 for seq in told if not marks[seq] & _ACKED)

        def same(name: str, said: Any, found: int) -> None:
            if said != found:
                wrong.append(f"{name} is {said}, {found} by what clients saw")

        same("head_seq", state["head_seq"], evidence.added + unseen)
        if not evidence.may_lose or state["count"] > live:  # More may have been lost as asked since it was read.
            same("count", state["count"], live)
        if evidence.is_queue and (queue := state.get("queue")) is not None:
            same("queue.written", queue["written"], evidence.added + unseen)
            same("queue.acked", queue["acked"], sum(1 for mark in marks if mark & _DONE))
            same("queue.ready + in_flight + delayed", queue["ready"] + queue["in_flight"] + queue["delayed"], live)
            parts = ("acked", "dead_lettered", "deleted", "evicted", "lost")
            same("queue.written less what left", queue["written"] - sum(queue[part] for part in parts), live)
        self._say("counts", wrong, f"head {self._head:,}, {state['count']:,} live, as clients saw it")

    def _read(self, seen: Seen) -> None:
        """One connection that followed the topic."""
        marks, checks = self._marks, self._checks
        mine = bytearray(len(marks))
        doubled, changed, backwards, strange, before = set(), set(), set(), set(), 0
        for seq, check in zip(seen.seqs, seen.checks, strict=True):
            if mine[seq]:
                doubled.add(seq)
            elif seq < before:
                backwards.add(seq)
            mine[seq] = 1
            before = max(before, seq)
            if not marks[seq] & _ACKED:
                strange.add(seq)
            elif checks[seq] != check:
                changed.add(seq)
        told: dict[str, set[int]] = {}
        for gap in seen.told:
            here = range(max(1, gap["gap_from"]), min(gap["gap_to"], len(marks) - 1) + 1)
            told.setdefault(gap["reason"], set()).update(seq for seq in here if not mine[seq])
        all_told = set().union(*told.values())
        missing = {seq for seq in range(1, len(marks)) if marks[seq] & _ACKED and not mine[seq]} - all_told
        wrong = []
        for name, seqs in (
            ("missing", missing),
            ("doubled", doubled),
            ("out of order", backwards),
            ("with other bytes than were sent", changed),
            ("acked to nobody", strange),
        ):
            if seqs:
                wrong.append(f"{name}: {named(seqs)}")
        for reason, seqs in sorted(told.items()):
            if seqs and reason not in self._evidence.may_lose:
                wrong.append(f"told to be lost ({reason}): {named(seqs)}")
        note = f", {len(all_told):,} told to be lost" if all_told else ""
        self._say("read", wrong, f"{len(seen.seqs):,} records, each once, in order{note}", seen.name)


def written_by_metrics(rose: float | None, added: int, *, is_alone: bool, why_not: str) -> Check:
    """Whether the daemon counted what was written."""
    subject, question = "the daemon", "metrics"
    if rose is None:
        return Check(subject, question, True, f"not compared: {why_not}")
    is_good = rose == added if is_alone else rose >= added
    word = "" if is_alone else "at least "
    said = f"topics_records_written_total rose by {rose:,.0f}; {word}{added:,} by what clients saw"
    return Check(subject, question, is_good, said)


def whole(subject: str, is_whole: bool) -> Check:
    """Whether a ledger has its end."""
    return Check(
        subject, "whole", is_whole, "the ledger has its end" if is_whole else "its process did not end in order"
    )
