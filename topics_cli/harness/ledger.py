"""What each connection says that it did, in files that outlive its process: the evidence that is reconciled.

    ledger/<producer>.ndjson                  {"n":0,"count":100,"topic":"orders","first_seq":1,"last_seq":100}
                                              a line a request; first_seq null: sent, and never answered
    ledger/<reader>-<connection>-<topic>.seqs a record: seq (u64), CRC-32 of its data (u32), little-endian, as read
    ledger/<reader>-<connection>-<topic>.json {"topic":…,"told":[tombstones],"at":last seq examined, …}: its end

Workers write the seqs whose ack was answered, and beside them which acks were skipped and why. A ledger without its end
belongs to a process that did not end in order, and reconciles with nothing.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

DIRECTORY: Final = "ledger"
READ: Final = struct.Struct("<QI")
_END: Final = b'{"end":true}\n'
assert READ.size == 12


@dataclass(frozen=True, slots=True)
class Sent:
    """A request to write: records n … n + count - 1 of a producer."""

    n: int
    count: int
    topic: str
    first_seq: int | None
    last_seq: int | None


@dataclass(slots=True)
class Seen:
    """What one connection read of one topic, in order."""

    name: str
    topic: str
    kind: str
    seqs: array[int]
    checks: array[int]
    told: list[dict[str, Any]]
    """Tombstones."""
    skipped: dict[int, str] = field(default_factory=dict)
    """Of a worker: acks that did not count, and why."""
    lost: int = 0
    """Connections lost: after each an answer may be missing."""


class ProducerLedger:
    """Of one producer, while it writes."""

    def __init__(self, run: Path, name: str) -> None:
        self._file = (run / DIRECTORY / f"{name}.ndjson").open("wb", 1 << 16)
        self._open: dict[int, tuple[int, str]] = {}

    def sends(self, n: int, count: int, topic: str) -> None:
        """A request is about to be sent."""
        self._open[n] = count, topic

    def answered(self, n: int, first_seq: int | None, last_seq: int | None) -> None:
        """It was answered."""
        self._write(n, *self._open.pop(n), first_seq, last_seq)

    def close(self) -> None:
        """What was not answered by now is written down as such."""
        for n, (count, topic) in sorted(self._open.items()):
            self._write(n, count, topic, None, None)
        self._file.write(_END)
        self._file.close()

    def _write(self, n: int, count: int, topic: str, first_seq: int | None, last_seq: int | None) -> None:
        line = {"n": n, "count": count, "topic": topic, "first_seq": first_seq, "last_seq": last_seq}
        self._file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")


class ReaderLedger:
    """Of one connection and topic, while it reads."""

    def __init__(self, run: Path, name: str, topic: str, kind: str) -> None:
        self._path = run / DIRECTORY / name
        self._file = self._path.with_suffix(".seqs").open("wb", 1 << 16)
        self.end: dict[str, Any] = {"topic": topic, "kind": kind, "told": [], "skipped": {}, "at": 0, "lost": 0}

    def read(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Records were read: seq and check of each."""
        self._file.write(b"".join(READ.pack(seq, check) for seq, check in pairs))

    def close(self) -> None:
        """It has ended in order."""
        self._file.close()
        self._path.with_suffix(".json").write_text(json.dumps(self.end) + "\n")


def sent(run: Path, name: str) -> tuple[list[Sent], bool]:
    """What a producer has sent, and whether its ledger has its end."""
    path = run / DIRECTORY / f"{name}.ndjson"
    if not path.exists():
        return [], False
    lines = path.read_bytes().splitlines(keepends=True)
    is_whole = bool(lines) and lines[-1] == _END
    return [Sent(**json.loads(line)) for line in lines if line.endswith(b"\n") and line != _END], is_whole


def seen(run: Path, name: str, connections: int, topics: Iterable[str]) -> Iterator[tuple[str, Seen | None]]:
    """What each connection of a reader has read of each topic; None for one that has not ended in order."""
    for connection in range(connections):
        for topic in topics:
            stem = ledger_name(name, connection, topic)
            path = run / DIRECTORY / stem
            end_path = path.with_suffix(".json")
            if not end_path.exists():
                yield stem, None
                continue
            end = json.loads(end_path.read_text())
            seqs, checks = array("Q"), array("I")
            for seq, check in READ.iter_unpack(path.with_suffix(".seqs").read_bytes()):
                seqs.append(seq)
                checks.append(check)
            skipped = {int(seq): why for seq, why in end["skipped"].items()}
            yield stem, Seen(stem, topic, end["kind"], seqs, checks, end["told"], skipped, end["lost"])


def ledger_name(name: str, connection: int, topic: str) -> str:
    """The name of a reader's ledger; dots of the topic would look like a suffix."""
    return f"{name}-{connection + 1}-{topic.replace('.', '_').replace(':', '_')}"
