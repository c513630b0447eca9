"""Who works on the daemon during a soak: writers, followers, watchers, a slow one, a deleter, a rude one, a bad disk.

Each role is a thread with clients of its own. A writer counts: its records are `{"n": 0}`, `{"n": 1}`, …, and a batch
is asked again with the same idempotency key until it is answered, so that a topic must hold every number once and in
order, however often the daemon was killed. A reader checks that what it gets goes on exactly where it was; only loss
that a tombstone names may interrupt it, and in a durable topic nothing may.
"""

from __future__ import annotations

import http.client
import random
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.soak.client import Client

CLASSES: Final = ("memory", "disk", "fsync")
"""The classes that lose nothing through a SIGKILL."""
CAPPED: Final = "capped"
CAP_RECORDS: Final = 5000
RETRY_SECONDS: Final = 0.05
_HALF_BODY: Final = b"Content-Type: application/json\r\nContent-Length: 999\r\n\r\n{"
_TWO_LENGTHS: Final = b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n"
FAILURES: Final = (OSError, http.client.HTTPException, ValueError)


class Book:
    """What all roles share: when to end, what was acked, what went wrong. Lists and dicts only grow."""

    def __init__(self, socket_path: Path, faults: Path) -> None:
        self.socket = socket_path
        self.faults = faults
        """Where files say how the disk fails."""
        self.failed: dict[str, int] = {}
        """How often it did."""
        self.over = threading.Event()
        self.wrong: list[str] = []
        self.acked: dict[str, int] = dict.fromkeys(CLASSES, 0)
        self.read: dict[str, int] = {}
        self.write_ms: dict[str, list[float]] = {name: [] for name in CLASSES}
        self.retries = 0
        self.tombstones: dict[str, int] = {}
        self.deleted = 0
        self.cut_off = 0

    def complain(self, what: str) -> None:
        """Note a broken promise; the soak ends with 1, but goes on to show what else breaks."""
        self.wrong.append(what)

    def ask_until_answered(self, client: Client, method: str, path: str, body: Any) -> Any:
        """Ask, through kills and restarts, until the daemon answers; None when the soak is over."""
        while not self.over.is_set():
            try:
                answer = client.ask(method, path, body)
            except FAILURES:
                self.retries += 1
                time.sleep(RETRY_SECONDS)
                continue
            if answer.status < 300:
                return answer.body
            if answer.status not in (429, 503, 507):
                self.complain(f"{method} {path} answered {answer.status} {answer.body}")
                return None
            self.retries += 1
            time.sleep(RETRY_SECONDS)
        return None


def write(book: Book, topic: str) -> None:
    """Write numbers in batches of 1 to 100, at most a few thousand records a second."""
    client, dice, number = Client(book.socket), random.Random(topic), 0
    while not book.over.is_set():
        count = dice.choice((1, 1, 1, 10, 100))
        records = [{"data": {"n": number + index, "pad": "x" * dice.randrange(200)}} for index in range(count)]
        body = {"records": records, "idempotency_key": f"{topic}-{number}"}
        began = time.monotonic()
        answer = book.ask_until_answered(client, "POST", f"/v0/topics/{topic}?return_seqs=false", body)
        if answer is None:
            return
        book.write_ms[topic].append((time.monotonic() - began) * 1000)
        if (answer["first_seq"], answer["last_seq"]) != (number + 1, number + count):
            book.complain(f"{topic}: numbers {number}… got seqs {answer['first_seq']}…{answer['last_seq']}")
            return
        number += count
        book.acked[topic] = number
        time.sleep(0.01)


class Reader:
    """A place in a topic, and what has to come next."""

    def __init__(self, book: Book, topic: str, who: str) -> None:
        self.book, self.topic, self.who = book, topic, who
        self.seq = 0

    def take(self, records: list[dict[str, Any]]) -> None:
        """Check that the records go on where we are."""
        for record in records:
            if record["$seq"] != self.seq + 1 or record["data"]["n"] != self.seq:
                self.book.complain(f"{self.who}: after {self.topic} {self.seq} came {record}")
            self.seq = record["$seq"]
        self.book.read[f"{self.topic} {self.who}"] = self.seq

    def lost(self, tombstone: dict[str, Any]) -> None:
        """In a durable topic there is nothing to lose."""
        self.book.complain(f"{self.who}: {self.topic} lost {tombstone}")


def follow(book: Book, topic: str) -> None:
    """Read with long polls."""
    client, reader = Client(book.socket), Reader(book, topic, "long poll")
    while not book.over.is_set():
        body = {"from_seq": reader.seq, "limit": 1000, "wait_ms": 500}
        page = book.ask_until_answered(client, "POST", f"/v0/topics/{topic}/diff", body)
        if page is None:
            return
        if page["tombstone"]:
            reader.lost(page["tombstone"])
        reader.take(page["records"])


def watch(book: Book, who: str, pause_seconds: float) -> None:
    """Read all durable topics over one stream, opened again where it broke; slow when it pauses after each event."""
    readers = {topic: Reader(book, topic, who) for topic in CLASSES}
    while not book.over.is_set():
        opened = False
        try:
            client = Client(book.socket)
            places = {topic: {"from_seq": reader.seq} for topic, reader in readers.items()}
            session = client.ask("POST", "/v0/watch", {"topics": places, "heartbeat_ms": 1000})
            if session.status != 200:
                time.sleep(RETRY_SECONDS)
                continue
            for kind, data in client.events(session.body["stream_url"]):
                opened = True
                if kind == "record":
                    readers[data["topic"]].take(data["records"])
                elif kind == "tombstone":
                    readers[data["topic"]].lost(data)
                if book.over.wait(pause_seconds if kind == "record" else 0):
                    return
        except FAILURES:
            pass
        book.cut_off += opened
        book.over.wait(RETRY_SECONDS)


def fill_capped(book: Book) -> None:
    """Write tagged records into a topic that keeps the last few thousand only."""
    client = Client(book.socket)
    while not book.over.is_set():
        records = [{"data": index, "tag": "odd" if index % 2 else "even"} for index in range(100)]
        if book.ask_until_answered(client, "POST", f"/v0/topics/{CAPPED}", {"records": records}) is None:
            return
        time.sleep(0.05)


def delete(book: Book) -> None:
    """Delete by tag, and look whether what was deleted is gone and the cap is kept."""
    client = Client(book.socket)
    path = f"/v0/topics/{CAPPED}"
    while not book.over.wait(1):
        # A delete reaches to the head at its call; what is written while it runs may stay.
        before = book.ask_until_answered(client, "GET", path, None)
        done = book.ask_until_answered(client, "POST", f"{path}/delete", {"match": ["tag", "Eq", "odd"]})
        if before is None or done is None:
            return
        head = before["head_seq"]
        book.deleted += done["deleted"]
        seq = 0
        while not book.over.is_set():
            body = {"from_seq": seq, "to_seq": head, "limit": 1000, "include_tags": True}
            page = book.ask_until_answered(client, "POST", f"{path}/diff", body)
            if page is None:
                return
            if tombstone := page["tombstone"]:
                reason = tombstone["reason"]
                book.tombstones[reason] = book.tombstones.get(reason, 0) + 1
                if reason != "cap":
                    book.complain(f"{CAPPED}: {tombstone}")
            book.wrong += [f"{CAPPED}: deleted {r} came back" for r in page["records"] if r["$tag"] == "odd"]
            if page["next_from_seq"] <= seq or page["next_from_seq"] >= head:
                break
            seq = page["next_from_seq"]
        state = book.ask_until_answered(client, "GET", path, None)
        if state is not None and state["count"] > CAP_RECORDS:
            book.complain(f"{CAPPED}: {state['count']} records, more than {CAP_RECORDS}")


def be_rude(book: Book) -> None:
    """Half requests, garbage, and connections that are dropped before the answer."""
    dice = random.Random("rude")
    words: tuple[bytes, ...] = (
        b"POST /v0/topics/disk HTTP/1.1\r\nHost: localhost\r\n" + _HALF_BODY,
        b"GET /v0/topics/disk HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"POST /v0/topics/disk/diff HTTP/1.1\r\nHost: localhost\r\n" + _TWO_LENGTHS,
    )
    while not book.over.wait(0.2):
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(1)
                client.connect(str(book.socket))
                client.sendall(dice.choice(words))
        except OSError:
            continue


def fail(book: Book, fault: str, seconds: float) -> None:
    """Let the disk fail for a while."""
    (book.faults / fault).touch()
    book.over.wait(seconds)
    (book.faults / fault).unlink()
    book.failed[fault] = book.failed.get(fault, 0) + 1


def be_a_bad_disk(book: Book) -> None:
    """Now and then syncs hang for a moment, or there is no space."""
    dice = random.Random("disk")
    while not book.over.wait(dice.uniform(2, 6)):
        fail(book, dice.choice(("hang", "space")), dice.uniform(0.2, 1.5))


def keep(book: Book) -> None:
    """Ask for checkpoints more often than the load does: history is sealed, what was deleted goes, logs are trimmed."""
    client = Client(book.socket)
    while not book.over.wait(7):
        book.ask_until_answered(client, "POST", "/v0/admin/checkpoint", {})


def everyone(book: Book) -> list[tuple[str, Callable[[], None]]]:
    """All roles of a soak by name."""
    roles: list[tuple[str, Callable[[], None]]] = []
    for topic in CLASSES:
        roles.append((f"write {topic}", partial(write, book, topic)))
        roles.append((f"follow {topic}", partial(follow, book, topic)))
    roles.append(("watch", partial(watch, book, "stream", 0)))
    roles.append(("watch slowly", partial(watch, book, "slow stream", 0.5)))
    roles += [("fill", partial(fill_capped, book)), ("delete", partial(delete, book)), ("rude", partial(be_rude, book))]
    roles += [("disk", partial(be_a_bad_disk, book)), ("checkpoints", partial(keep, book))]
    return roles
