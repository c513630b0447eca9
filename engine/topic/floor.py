"""The eviction floor: what was lost from the front of a topic, and why.

`seq` is the floor itself: every record below it was lost against a reader's will or deleted, and the record just
below it was lost. Why, is kept as a short ascending list of ranges; beyond `FLOOR_REASONS_MAX` the oldest two merge
(to `mixed` when they differ), so that a topic whose front alternates between cap and age costs no more than any other.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from engine.limits import FLOOR_REASONS_MAX
from engine.types import Reason, WhyGone

WHY: Final[dict[Reason, WhyGone]] = {
    Reason.CAP: WhyGone.EVICTED,
    Reason.TTL: WhyGone.EXPIRED,
    Reason.MIXED: WhyGone.EVICTED,
    Reason.RECREATED: WhyGone.LOST,
    Reason.SOURCE_TRIM: WhyGone.LOST,
    Reason.CRASH: WhyGone.LOST,
    Reason.CORRUPTION: WhyGone.LOST,
}
"""What a loss says about one record of it."""


class Floor:
    """The floor of one topic."""

    __slots__ = ("_lasts", "_reasons", "_unknown_from", "last_ts", "seq")

    def __init__(self) -> None:
        self.seq = 1
        """Everything below is gone, the seq just below was lost; 1 when nothing was."""
        self.last_ts = 0
        """No lost record whose time is known has a later `$ts` (an upper bound)."""
        self._unknown_from = 0
        """Where the losses of unknown time begin that are the last ones below the floor; 0 when there are none."""
        self._lasts: list[int] = []
        self._reasons: list[Reason] = []

    @classmethod
    def of(cls, seq: int, last_ts: int, unknown_from: int, ranges: list[tuple[int, Reason]]) -> Floor:
        """The floor that another one was, from `seq`, `last_ts`, `unknown_from` and `ranges()`."""
        floor = cls()
        floor.seq, floor.last_ts, floor._unknown_from = seq, last_ts, unknown_from
        floor._lasts = [last for last, _ in ranges]
        floor._reasons = [reason for _, reason in ranges]
        return floor

    @property
    def unknown_from(self) -> int:
        return self._unknown_from

    def lose(self, last: int, reason: Reason, last_ts: int) -> None:
        """Raise the floor to just above `last`, whose `$ts` was `last_ts`; lower seqs change nothing."""
        if last >= self.seq:
            self.last_ts = last_ts
            self._unknown_from = 0
            self._raise(last, reason)

    def lose_gap(self, first: int, last: int, reason: Reason) -> None:
        """Raise the floor above a gap; nobody knows the times of what is in it."""
        if last >= self.seq:
            self._unknown_from = self._unknown_from or first
            self._raise(last, reason)

    def _raise(self, last: int, reason: Reason) -> None:
        self.seq = last + 1
        if self._reasons and self._reasons[-1] is reason:
            self._lasts[-1] = last
            return
        self._lasts.append(last)
        self._reasons.append(reason)
        if len(self._lasts) > FLOOR_REASONS_MAX:
            if self._reasons[0] is not self._reasons[1]:
                self._reasons[1] = Reason.MIXED
            del self._lasts[0], self._reasons[0]

    def reasons_from(self, seq: int) -> set[Reason]:
        """Why the seqs from `seq` up to the floor are gone."""
        return set(self._reasons[bisect_left(self._lasts, seq) :])

    def why(self, seq: int) -> WhyGone:
        """Why one seq below the floor cannot be read."""
        return WHY[self.reason(seq)]

    def reason(self, seq: int) -> Reason:
        """The loss that took one seq below the floor."""
        return self._reasons[bisect_left(self._lasts, seq)]

    def cursor_since(self, ts: int, cursor: int, seq: int) -> int:
        """The cursor of a reader from `ts` on who would begin at `seq`, the first record that is left: before every
        loss that may be of that time, else just before `seq`."""
        if self.last_ts >= ts:
            return cursor
        return max(cursor, (self._unknown_from or seq) - 1)

    def ranges(self) -> list[tuple[int, Reason]]:
        """(last seq, reason) of each range, ascending."""
        return list(zip(self._lasts, self._reasons, strict=True))
