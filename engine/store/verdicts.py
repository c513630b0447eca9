"""What recovery makes of bytes that are no valid frame: storage.md §7 as two tables of lettered rows.

Where a shard's stream stops checking out, at lsn *x*, the evidence is gathered (`Evidence`) and judged twice, each time
by the one row that fits it (a test tries every combination): `judge` says what happened, `respond` what is done about
damage. Nothing here reads or writes anything.

The evidence, and why it is evidence:

- `after`: what follows *x* in the stream. Headers have a check of their own, a store's seed and their own position, so
  a valid one is no accident.
- `missing`: the frame at *x* has a sector of which it holds only zeros. Files are zero-filled ahead and never recycled,
  and no frame has such a slice by itself, so bytes of it never reached the disk. A bad frame without one was written
  whole and then changed.
- `proven`: something says that *x* was on disk: a later frame's `durable_lsn`, the end that MANIFEST recorded, or a
  later run, which begins where the log was proven durable.
- `stop`: how the last process ended. If the same boot goes on (LOCK), the page cache survived, so only the last write
  can be short, and nothing follows it. After a stop in good order the end of the log is known exactly.

Residue that no evidence shows: rot that turns a whole sector of the very last, unproven group into zeros looks torn.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from engine.limits import OnCorruption


class After(Enum):
    """What lies behind *x* in the stream of its shard."""

    ZEROS = "zeros"
    GARBAGE = "garbage"
    """Bytes, but no valid frame header."""
    FRAMES = "frames"


class Frame(Enum):
    """What the bytes at *x* still say of themselves."""

    UNREADABLE = "unreadable"
    CONTROL = "control"
    APPEND = "append"
    NOWHERE = "nowhere"
    """There are no bytes: the file is missing or short."""


class Stop(Enum):
    """How the process that wrote the log ended."""

    CLEAN = "clean"
    SAME_BOOT = "same boot"
    POWER_LOSS = "power loss"
    """Another boot id, or one that cannot be read."""


class Evidence(NamedTuple):
    """What is known about one place where the stream does not check out."""

    after: After
    frame: Frame
    missing: bool
    proven: bool
    stop: Stop


class Verdict(Enum):
    """What happened at *x*."""

    END = "end"
    """The log ends here."""
    CUT = "cut"
    """The log ends here; what lies behind was never acked as durable and is set aside."""
    DAMAGE = "damage"
    """What was written has changed or vanished. Never cut."""


class Response(Enum):
    """What is done about damage."""

    ISOLATE = "isolate"
    """The frame's records become a corruption gap; everything else is served."""
    REFUSE = "refuse"
    """Do not start; say where, whose, and what helps."""
    SALVAGE = "salvage"
    """Continue behind gaps of a window's size."""


class Row(NamedTuple):
    """A row of `VERDICTS`: it fits evidence that is in all its sets (None: any)."""

    letter: str
    verdict: Verdict
    why: str
    after: frozenset[After] | None = None
    missing: bool | None = None
    proven: bool | None = None
    stop: frozenset[Stop] | None = None

    def fits(self, evidence: Evidence) -> bool:
        """Whether the row is about this evidence."""
        return (
            (self.after is None or evidence.after in self.after)
            and (self.missing is None or evidence.missing is self.missing)
            and (self.proven is None or evidence.proven is self.proven)
            and (self.stop is None or evidence.stop in self.stop)
        )


_ZEROS: Final = frozenset({After.ZEROS})
_GARBAGE: Final = frozenset({After.GARBAGE})
_FRAMES: Final = frozenset({After.FRAMES})
_CLEAN: Final = frozenset({Stop.CLEAN})
_SAME_BOOT: Final = frozenset({Stop.SAME_BOOT})
_POWER_LOSS: Final = frozenset({Stop.POWER_LOSS})

VERDICTS: Final = (
    # Nothing was ever written here.
    Row("A", Verdict.END, "only zeros follow", after=_ZEROS, proven=False),
    # The last write of a process that was killed, or of a machine that lost power, did not get there whole.
    Row(
        "B",
        Verdict.CUT,
        "a torn write at the end of the log",
        after=_GARBAGE,
        missing=True,
        proven=False,
        stop=_SAME_BOOT | _POWER_LOSS,
    ),
    # The disk wrote a later block first and lost power before this one; no sync had covered either.
    Row(
        "C",
        Verdict.CUT,
        "blocks written out of order before a power failure",
        after=_FRAMES,
        missing=True,
        proven=False,
        stop=_POWER_LOSS,
    ),
    # The log was stopped in good order and ended before x, so these bytes were never part of it.
    Row("D", Verdict.CUT, "foreign bytes behind the end of the log", after=_GARBAGE, proven=False, stop=_CLEAN),
    # All that was written is there, and it is not what was written.
    Row(
        "E",
        Verdict.DAMAGE,
        "the last frame is whole and does not check",
        after=_GARBAGE,
        missing=False,
        proven=False,
        stop=_SAME_BOOT | _POWER_LOSS,
    ),
    Row(
        "F",
        Verdict.DAMAGE,
        "a frame before valid ones is whole and does not check",
        after=_FRAMES,
        missing=False,
        proven=False,
        stop=_SAME_BOOT | _POWER_LOSS,
    ),
    # The page cache survived, and it is written in order: a hole before valid frames was made by something else.
    Row(
        "G",
        Verdict.DAMAGE,
        "bytes are missing before valid frames though the machine never stopped",
        after=_FRAMES,
        missing=True,
        proven=False,
        stop=_SAME_BOOT,
    ),
    # Frames of ours behind the end that a stop in good order recorded: MANIFEST and LOCK are older than the log.
    Row("H", Verdict.DAMAGE, "frames behind the recorded end of the log", after=_FRAMES, proven=False, stop=_CLEAN),
    # Whatever it looks like: it was on disk, and it is gone.
    Row("I", Verdict.DAMAGE, "it is proven to have been on disk", proven=True),
)


class ResponseRow(NamedTuple):
    """A row of `RESPONSES`: it fits damage to one of its frames under one of its policies."""

    letter: str
    response: Response
    frames: frozenset[Frame]
    policies: frozenset[OnCorruption]

    def fits(self, frame: Frame, policy: OnCorruption) -> bool:
        """Whether the row is about this damage."""
        return frame in self.frames and policy in self.policies


RESPONSES: Final = (
    # The header names topic and seqs, so exactly those are lost.
    ResponseRow(
        "P",
        Response.ISOLATE,
        frozenset({Frame.APPEND}),
        frozenset({OnCorruption.ISOLATE, OnCorruption.SALVAGE}),
    ),
    # Nobody can say what a lost definition, delete, unreadable frame or missing file concerned.
    ResponseRow(
        "Q",
        Response.REFUSE,
        frozenset({Frame.CONTROL, Frame.UNREADABLE, Frame.NOWHERE}),
        frozenset({OnCorruption.ISOLATE, OnCorruption.REFUSE}),
    ),
    # The operator wants to decide about any damage.
    ResponseRow("R", Response.REFUSE, frozenset({Frame.APPEND}), frozenset({OnCorruption.REFUSE})),
    # The operator has decided to go on with what is left.
    ResponseRow(
        "S",
        Response.SALVAGE,
        frozenset({Frame.CONTROL, Frame.UNREADABLE, Frame.NOWHERE}),
        frozenset({OnCorruption.SALVAGE}),
    ),
)


def judge(evidence: Evidence) -> Row:
    """The row of `VERDICTS` that fits."""
    for row in VERDICTS:
        if row.fits(evidence):
            return row
    raise AssertionError(f"no row fits {evidence}")


def respond(frame: Frame, policy: OnCorruption) -> ResponseRow:
    """The row of `RESPONSES` that fits."""
    for row in RESPONSES:
        if row.fits(frame, policy):
            return row
    raise AssertionError(f"no row fits {frame} under {policy}")
