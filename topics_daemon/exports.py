"""Export pins in the daemon: who has asked for one, until when, and their removal (http-api.md §12).

A pin is made of the checkpoint that is taken for it (`engine.checkpoint.pin`), in the keeper's thread. Pins are known
in memory alone: they end with the process, and a start removes what an earlier one left.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from engine.checkpoint.pin import PinJob, UnpinJob, export_dir
from engine.core import Core, Ticket
from engine.errors import Code, Refused, TopicsError
from engine.limits import EXPORT_TTL_MS, EXPORT_TTL_MS_MAX, EXPORTS_MAX
from engine.types import CheckpointDone
from topics_daemon.answers import path_shown

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon

ID_BYTES: Final = 8


class Export(msgspec.Struct, kw_only=True):
    """One pin, as it is listed."""

    id: str
    path: str
    """The directory with its files."""
    created_ms: int
    expires_ms: int
    checkpoint: int
    topics: int
    files: int
    bytes: int


class Exports:
    """All pins of one daemon."""

    def __init__(self, daemon: Daemon, core: Core, root: str) -> None:
        self._daemon = daemon
        self._core = core
        self._root = root
        self._pins: dict[str, Export] = {}
        self._making = 0
        self._remove(None)

    def check_room(self) -> None:
        """Raise the 429 when there are too many pins."""
        if len(self._pins) + self._making >= EXPORTS_MAX:
            detail = {"limit": "exports_max", "max": EXPORTS_MAX}
            raise Refused(Code.THROTTLED, "too many exports are pinned; delete some, or wait", detail)

    def create(
        self,
        names: frozenset[str] | None,
        prefix: str | None,
        ttl_ms: int | None,
        answer: Callable[[Export | TopicsError], None],
    ) -> None:
        """Pin these topics (or those of a prefix, or all) as they are now; there must be room (`check_room`)."""
        self._making += 1
        ticket = self._core.checkpoint()

        def taken(done: Ticket[CheckpointDone]) -> None:
            if done.error is not None:
                self._making -= 1
                answer(done.error)
                return
            now_ms = self._now_ms()
            job = PinJob(
                secrets.token_hex(ID_BYTES),
                self._core.store.store_id,
                now_ms,
                names,
                prefix,
                self._daemon.config.cold_place or None,
            )
            self._daemon.follow(
                self._core.keeper.aside(job), lambda pinned: self._pinned(pinned, job, ttl_ms, now_ms, answer)
            )
            self._daemon.look_at_checkpoints()

        self._daemon.follow(ticket, taken)
        self._daemon.look_at_checkpoints()

    def _pinned(
        self,
        ticket: Ticket[None],
        job: PinJob,
        ttl_ms: int | None,
        now_ms: int,
        answer: Callable[[Export | TopicsError], None],
    ) -> None:
        self._making -= 1
        manifest = job.manifest
        if ticket.error is not None or manifest is None:
            assert ticket.error is not None, "a pin that was made has a manifest"
            answer(ticket.error)
            return
        export = Export(
            id=job.export_id,
            path=path_shown(f"{self._root}/{export_dir(job.export_id)}"),
            created_ms=now_ms,
            expires_ms=now_ms + _ttl(ttl_ms),
            checkpoint=manifest.checkpoint,
            topics=len(manifest.topics),
            files=len(manifest.files),
            bytes=sum(file.bytes for file in manifest.files),
        )
        self._pins[export.id] = export
        self._daemon.log.info("export pinned", id=export.id, topics=export.topics, bytes=export.bytes)
        answer(export)

    def renew(self, export_id: str, ttl_ms: int | None) -> Export:
        """Let a pin live longer, from now on. Raises the 404."""
        export = self._pins.get(export_id)
        if export is None:
            raise Refused(Code.NOT_FOUND, "there is no such export; it may have expired")
        export.expires_ms = self._now_ms() + _ttl(ttl_ms)
        return export

    def listed(self) -> list[Export]:
        """All pins, the oldest first."""
        return list(self._pins.values())

    def delete(self, export_id: str) -> bool:
        """Let go of a pin; whether it was there."""
        if self._pins.pop(export_id, None) is None:
            return False
        self._remove([export_id])
        return True

    def look(self) -> None:
        """Let go of what has expired."""
        if not self._pins:
            return
        now_ms = self._now_ms()
        gone = [export.id for export in self._pins.values() if export.expires_ms <= now_ms]
        for export_id in gone:
            del self._pins[export_id]
            self._daemon.log.info("export expired", id=export_id)
        if gone:
            self._remove(gone)

    def _remove(self, export_ids: list[str] | None) -> None:
        self._core.keeper.aside(UnpinJob(export_ids))
        self._daemon.loop.call_soon(self._daemon.look_at_checkpoints)

    def _now_ms(self) -> int:
        return self._core.commit.now_ms


def _ttl(ttl_ms: int | None) -> int:
    return min(ttl_ms or EXPORT_TTL_MS, EXPORT_TTL_MS_MAX)
