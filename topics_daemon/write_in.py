"""The bodies of writes as msgspec reads them: each strictly, leniently, and counting its records.

`data` and `meta` stay the bytes that were received (`Raw`). What they come to is `decode`'s.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from msgspec import Raw

from engine.commands import too_many_records


class RecordIn(msgspec.Struct, gc=False):
    """One record as clients send it."""

    data: Raw
    tag: str | None = None
    node: str | None = None
    meta: Raw = Raw()
    """Empty when there is none (`Raw | None` would not take an object)."""


class StrictRecordIn(RecordIn, gc=False, forbid_unknown_fields=True):
    """The same, failing at what is unknown."""


class WriteIn(msgspec.Struct):
    """The JSON body of a write."""

    records: list[RecordIn]
    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None
    config: Raw = Raw()
    disable_backpressure: bool = False
    ack: str | None = None
    return_seqs: bool = True


class StrictWriteIn(WriteIn, forbid_unknown_fields=True):
    """The same, failing at what is unknown."""

    records: list[StrictRecordIn]  # type: ignore[assignment]  # narrows the element, which the subclass only decodes


class Counted:
    """How many records more a body may hold that is being decoded."""

    __slots__ = ("left", "most")

    def __init__(self) -> None:
        self.left = self.most = 0

    def one(self) -> None:
        """Here is one more; raises the 400 when that is too many."""
        self.left -= 1
        if self.left < 0:
            raise too_many_records(self.most)


counted: Final = Counted()


class FewRecordIn(RecordIn, gc=False):
    """A record that is counted: of too many no more are decoded than there may be."""

    def __post_init__(self) -> None:
        counted.one()


class FewStrictRecordIn(StrictRecordIn, gc=False, forbid_unknown_fields=True):
    """The same, failing at what is unknown."""

    def __post_init__(self) -> None:
        counted.one()


class FewIn(WriteIn):
    """A write whose records are counted."""

    records: list[FewRecordIn]  # type: ignore[assignment]  # as below


class FewStrictIn(StrictWriteIn, forbid_unknown_fields=True):
    """The same, failing at what is unknown."""

    records: list[FewStrictRecordIn]  # type: ignore[assignment]  # narrows the element again


class PublishIn(StrictWriteIn, kw_only=True, forbid_unknown_fields=True):
    """A `publish` of a WebSocket: a write body, and what a request says in its head."""

    op: Literal["publish"]
    topic: str
    request_id: Raw = Raw()
    """Empty when there is none."""
