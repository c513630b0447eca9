"""What happens to a queue: the only things that change its state, and the bodies of the two frames that log them.

Every event carries its time and absolute results (how many deliveries a job has *now*, when it *will* be ready), never
a difference, so that applying the log again from an earlier snapshot ends in the same state. Which events are logged:

    event         frame               logged
    Leased        Lease (20)          with `leases_durable`, before the claim is answered
    Extended      Lease (20)          with `leases_durable`
    Released      Lease (20)          with `leases_durable`
    Nacked        Lease (20)          always: its delay, its reason and the count outlive a restart
    Undelivered   Lease (20)          always: a snapshot may have the higher count, and a count is never too high
    Acked         Delete (5), marked  always; the ack *is* the delete, the mark tells the two apart for the counters
    DeadLettered  DeadLetter (21)     always; the delete and the copy in one frame
    Appended      Append (1)          is the topic's
    Removed       Delete, Gap, …      is the topic's: deletes, caps, age, damage
    MoveRefused                       never: the job is ready again after a restart, and the move is tried again
    TimePassed                        never: every event, live or from the log, first lets time pass up to its own
    Restarted                         never: it follows the last event of the log at every start

A Lease frame's body is one such event as compact JSON, told apart by its member `event`; the topic is in the header.
A DeadLetter frame's header names the source topic. Its body is `DeadLetterBody` as one line of JSON, a line feed, and
then the body of an Append frame with the copies (FORMATS.md), whose `flags` and `count` are the header's.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from engine.queue.trail import Delivery


class Why(StrEnum):
    """The counter that a record goes to which its topic lost or gave up."""

    DELETED = "deleted"
    EVICTED = "evicted"
    """Cap and age."""
    LOST = "lost"
    """Crash and corruption."""


class TimePassed(msgspec.Struct, frozen=True):
    """It is `at` (engine time, ms): leases have expired and delays have ended."""

    at: int


class Restarted(msgspec.Struct, frozen=True):
    """The log has been applied and a new process begins. Without `leases_durable` its leases are nobody's."""

    at: int
    leases_durable: bool


class Leased(msgspec.Struct, frozen=True, tag_field="event", tag="claim", omit_defaults=True):
    """One claim got its jobs. Job number i, from 0, has lease `lease_id + i`.

    at, deadline  milliseconds of engine time
    jobs          (seq, deliveries with this one), in the order of the answer
    passed        what was never delivered up to this seq has been now; 0 for unknown (a filter), and in the log
    repeat        whether the last place went to a third or later delivery (the turn of rule 1)
    conn          the connection that the leases end with; 0 for none, and in the log
    fresh         whether it was decided just now that they are a run of live, unknown jobs; never in the log
    """

    at: int
    node: str
    deadline: int
    lease_id: int
    jobs: tuple[tuple[int, int], ...]
    passed: int = 0
    repeat: bool = False
    conn: int = 0
    fresh: bool = False


class Extended(msgspec.Struct, frozen=True, tag_field="event", tag="extend"):
    """Leases hold until a new deadline. `jobs`: (seq, lease_id)."""

    at: int
    deadline: int
    jobs: tuple[tuple[int, int], ...]


class NackedJob(msgspec.Struct, frozen=True, array_like=True):
    """One job of a nack: its deliveries, when the lease began, and when it is ready again (ms)."""

    seq: int
    deliveries: int
    claimed: int
    ready_at: int


class Nacked(msgspec.Struct, frozen=True, tag_field="event", tag="nack", omit_defaults=True):
    """The holder gave jobs back."""

    at: int
    node: str
    jobs: tuple[NackedJob, ...]
    reason: str | None = None


class Released(msgspec.Struct, frozen=True, tag_field="event", tag="release"):
    """Leases ended with their connection; their deliveries count. `jobs`: (seq, lease_id)."""

    at: int
    jobs: tuple[tuple[int, int], ...]


class Undelivered(msgspec.Struct, frozen=True, tag_field="event", tag="undeliver"):
    """Jobs whose answer was never written: the delivery did not happen. `jobs`: (seq, deliveries that are left)."""

    at: int
    jobs: tuple[tuple[int, int], ...]


class Acked(msgspec.Struct, frozen=True):
    """Jobs are done, and gone."""

    at: int
    seqs: tuple[int, ...]


class Move(msgspec.Struct, frozen=True):
    """One job that goes to the dead letters, and what its copy says about it."""

    seq: int
    deliveries: int = 0
    trail: tuple[Delivery, ...] = ()


class DeadLettered(msgspec.Struct, frozen=True):
    """Jobs went to the dead-letter topic. From the log, a move has its seq alone."""

    at: int
    moves: tuple[Move, ...]


class MoveRefused(msgspec.Struct, frozen=True):
    """The dead-letter topic took nothing. `jobs`: (seq, when it is ready again); `problem`: what state says."""

    at: int
    jobs: tuple[tuple[int, int], ...]
    problem: str


class Appended(msgspec.Struct, frozen=True, gc=False):
    """Jobs became claimable."""

    count: int


class Removed(msgspec.Struct, frozen=True, gc=False):
    """The topic let go of every record from `first` to `last`; `count` of them were live until then."""

    first: int
    last: int
    count: int
    why: Why


LeaseEvent: TypeAlias = Leased | Extended | Nacked | Released | Undelivered
Event: TypeAlias = LeaseEvent | Acked | DeadLettered | MoveRefused | Appended | Removed | TimePassed | Restarted


class DeadLetterBody(msgspec.Struct, frozen=True, kw_only=True):
    """The head of a DeadLetter frame's body: what leaves the source, and where the copies are."""

    target: int
    """Topic id of the dead-letter topic."""
    first_seq: int
    """Seq of the first copy there; the others follow."""
    seqs: list[int]
    """The jobs, in the order of their copies."""


_DURABLY: Final = (Leased, Extended, Released)
_ALWAYS: Final = (Nacked, Undelivered, Acked, DeadLettered)
_encoder: Final = msgspec.json.Encoder()
_lease_decoder: Final = msgspec.json.Decoder(LeaseEvent)
_head_decoder: Final = msgspec.json.Decoder(DeadLetterBody)


def is_logged(event: Event, leases_durable: bool) -> bool:
    """Whether an event goes into the log, with the topic's class as its condition."""
    if isinstance(event, _DURABLY):
        return leases_durable
    return isinstance(event, _ALWAYS)


def encode_lease_body(event: LeaseEvent) -> bytes:
    """The body of a Lease frame.

    Connections do not outlive their process, so none is named. Nor is the cursor: jobs behind it may be under leases
    that were never logged, and only a snapshot has the names of all of them. For the same reason none is `fresh`.
    """
    if isinstance(event, Leased) and (event.conn or event.passed or event.fresh):
        event = msgspec.structs.replace(event, conn=0, passed=0, fresh=False)
    return _encoder.encode(event)


def decode_lease_body(body: bytes) -> LeaseEvent:
    """The opposite. Raises `msgspec.DecodeError` for anything else."""
    event: LeaseEvent = _lease_decoder.decode(body)
    return event


def encode_dead_letter_body(head: DeadLetterBody, copies: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The pieces of a DeadLetter frame's body; `copies` is an Append frame's."""
    return (_encoder.encode(head), b"\n", *copies)


def decode_dead_letter_body(body: bytes) -> tuple[DeadLetterBody, bytes]:
    """The head and the Append body of the copies. Raises `msgspec.DecodeError` for anything else."""
    head, _, copies = body.partition(b"\n")
    return _head_decoder.decode(head), copies
