"""SIGKILL over the real daemon, with a witness outside of it.

The witness (this process) writes to a `memory`, a `disk` and an `fsync` topic over the daemon's Unix socket, keyed and
in order, and notes what was answered. At a random moment the daemon is killed; the next one starts on the same
directory; the witness repeats the write whose answer it never got, with the same key. At the end of each cycle it reads
the topics through: every acked record is there once, in order, with the bytes that were sent, and nothing else is.
"""

from __future__ import annotations

import http.client
import json
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CLASSES = ("memory", "disk", "fsync")
START_SECONDS_MAX = 20.0
SMALL_STEPS = ("--checkpoint-bytes", "1MiB", "--checkpoint-ms", "100", "--segment-max-events", "40")
"""Options with which a daemon seals, takes snapshots and trims many times in a short life."""


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=10)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@dataclass(slots=True)
class Report:
    """What the cycles showed."""

    cycles: int = 0
    written: int = 0
    acked: int = 0
    lost: int = 0
    doubled: int = 0
    wrong: list[str] = field(default_factory=list)
    start_ms: list[float] = field(default_factory=list)


def daemon_command(data: str, socket_path: str) -> list[str]:
    """How the daemon is started: on a data directory and a Unix socket alone, with small log files."""
    topicsd = str(Path(sys.executable).with_name("topicsd"))
    return [topicsd, "--data-dir", data, "--socket", socket_path, "--port", "none", "--wal-file-bytes", "1048576"]


class Daemon:
    """One process of the daemon."""

    def __init__(self, data: str, socket_path: str, options: tuple[str, ...] = ()) -> None:
        self.socket_path = socket_path
        self.log = Path(data).parent / "daemon.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*daemon_command(data, socket_path), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait_ready(self) -> float:
        """Wait until it answers; returns the milliseconds that took."""
        began = time.monotonic()
        while time.monotonic() - began < START_SECONDS_MAX:
            if self.process.poll() is not None:
                raise AssertionError(f"the daemon ended with {self.process.returncode}: {self.tail()}")
            try:
                status, _ = ask(self.socket_path, "GET", "/v0/ready")
            except (OSError, http.client.HTTPException):
                status = 0
            if status == 200:
                return (time.monotonic() - began) * 1000
            time.sleep(0.005)
        raise AssertionError(f"the daemon does not get ready: {self.tail()}")

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-2000:]

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def request(connection: http.client.HTTPConnection, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """One request with a JSON body; the answer's status and value."""
    payload = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} if payload is not None else {}
    connection.request(method, path, payload, headers)
    answer = connection.getresponse()
    text = answer.read()
    return answer.status, json.loads(text) if text else None


def ask(socket_path: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """One request over a connection of its own."""
    connection = UnixConnection(socket_path)
    try:
        return request(connection, method, path, body)
    finally:
        connection.close()


class Writer(threading.Thread):
    """Writes to one topic until the daemon is gone; keeps what it sent and what was acked."""

    def __init__(self, socket_path: str, topic: str, sent: list[list[str]], acked: dict[int, int]) -> None:
        super().__init__(daemon=True)
        self.socket_path = socket_path
        self.topic = topic
        self.sent = sent
        """All batches in order; the last one may be without an answer."""
        self.acked = acked
        """Batch number → first seq."""
        self.error: str | None = None

    def run(self) -> None:
        connection = UnixConnection(self.socket_path)
        try:
            while True:
                if len(self.acked) == len(self.sent):
                    number = len(self.sent)
                    self.sent.append([f"{self.topic}-{number}-{index}" for index in range(1 + number % 3)])
                self._send(connection, len(self.sent) - 1)
        except (OSError, http.client.HTTPException, json.JSONDecodeError):
            return
        finally:
            connection.close()

    def _send(self, connection: UnixConnection, number: int) -> None:
        body = {
            "records": [{"data": text} for text in self.sent[number]],
            "idempotency_key": f"{self.topic}-{number}",
        }
        status, answer = request(connection, "POST", f"/v0/topics/{self.topic}", body)
        if status in (200, 201):
            self.acked[number] = answer["first_seq"]
        elif status != 503:
            self.error = f"{self.topic}: batch {number} got {status} {answer}"
            raise OSError(self.error)


def read_all(socket_path: str, topic: str) -> tuple[list[tuple[int, str]], list[Any]]:
    """Every record of a topic, and every tombstone."""
    connection = UnixConnection(socket_path)
    records: list[tuple[int, str]] = []
    stones: list[Any] = []
    cursor = 0
    while True:
        status, page = request(
            connection, "POST", f"/v0/topics/{topic}/diff", {"from_seq": cursor, "limit": 1000, "max_bytes": 8 << 20}
        )
        assert status == 200, f"{topic}: diff got {status} {page}"
        records += [(record["$seq"], record["data"]) for record in page["records"]]
        if page["tombstone"] is not None:
            stones.append(page["tombstone"])
        cursor = page["next_from_seq"]
        if page["caught_up"]:
            connection.close()
            return records, stones


def check_topic(report: Report, topic: str, sent: list[list[str]], acked: dict[int, int], socket_path: str) -> None:
    """Compare what is there with what the witness knows."""
    records, stones = read_all(socket_path, topic)
    if stones:
        report.wrong.append(f"{topic}: tombstones {stones[:2]}")
    there = [text for _, text in records]
    wanted = [text for batch in sent for text in batch]
    last = [] if len(acked) == len(sent) else sent[-1]
    without = wanted[: len(wanted) - len(last)]
    if there not in (wanted, without):
        missing = set(without) - set(there)
        report.lost += len(missing)
        report.doubled += len(there) - len(set(there))
        report.wrong.append(f"{topic}: {len(missing)} missing, {len(there) - len(set(there))} twice")
    if [seq for seq, _ in records] != list(range(1, len(records) + 1)):
        report.wrong.append(f"{topic}: seqs are not contiguous")
    by_seq = dict(records)
    for number, first in acked.items():
        if by_seq.get(first) != sent[number][0]:
            report.wrong.append(f"{topic}: batch {number} was acked at seq {first}, which holds {by_seq.get(first)!r}")
            break


def cycles(directory: Path, count: int, seed: int = 0, seconds_max: float = 1e9) -> Report:
    """`count` lives of a daemon on one directory (a fresh one every 25 lives, so that reading stays short)."""
    rng = random.Random(seed)
    report = Report()
    end = time.monotonic() + seconds_max
    while report.cycles < count and time.monotonic() < end and not report.wrong:
        place = directory / f"store-{report.cycles}"
        place.mkdir(parents=True)
        _one_store(report, place, min(25, count - report.cycles), rng, end)
    return report


def _one_store(report: Report, place: Path, lives: int, rng: random.Random, end: float) -> None:
    data, socket_path = str(place / "data"), str(place / "socket")
    sent: dict[str, list[list[str]]] = {topic: [] for topic in CLASSES}
    acked: dict[str, dict[int, int]] = {topic: {} for topic in CLASSES}
    for life in range(lives):
        if time.monotonic() > end:
            break
        daemon = Daemon(data, socket_path, SMALL_STEPS if life % 2 else ())
        try:
            report.start_ms.append(daemon.wait_ready())
            if life == 0:
                for topic in CLASSES:
                    status, answer = ask(socket_path, "PUT", f"/v0/topics/{topic}", {"durability": topic})
                    assert status == 201, f"PUT {topic}: {status} {answer}"
            else:
                for topic in CLASSES:
                    check_topic(report, topic, sent[topic], acked[topic], socket_path)
            writers = [Writer(socket_path, topic, sent[topic], acked[topic]) for topic in CLASSES]
            for writer in writers:
                writer.start()
            time.sleep(rng.uniform(0.005, 0.12))
        finally:
            daemon.kill()
        for writer in writers:
            writer.join(15)
            if writer.error is not None:
                report.wrong.append(writer.error)
        report.cycles += 1
    report.written += sum(len(batch) for topic in CLASSES for batch in sent[topic])
    report.acked += sum(len(sent[topic][number]) for topic in CLASSES for number in acked[topic])
