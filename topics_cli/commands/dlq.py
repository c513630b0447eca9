"""`topics dlq`: dead letters of a queue: which there are, what happened to each, back into the queue, or away for good.

QUEUE is a queue with a `dead_letter` topic, then only what came from it is meant; or the dead-letter topic itself, then
all that came to it from queues. Other records of a topic are none: no job that waits is purged as a dead letter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from topics_cli import exits
from topics_cli.amounts import counted
from topics_cli.ask import can_ask, confirmed
from topics_cli.client import topic_path
from topics_cli.cut import seq_of, text_of, told
from topics_cli.exits import ApiError, usage
from topics_cli.framing import LINE, frame
from topics_cli.listing import Column
from topics_cli.output import JSON, NDJSON, RAW
from topics_cli.pages import Wanted, lines_of
from topics_cli.screen import show_pairs, show_rows
from topics_cli.session import Session, check_name
from topics_cli.times import show_duration, show_time

SEQS_MAX = 1000
"""Seqs that one request may list."""
_FROM = "$dead_letter_from"
DATA_SHOWN = 60
"""Characters of the data that `ls` shows."""
_HEADS = [
    Column("SEQ", True),
    Column("FROM"),
    Column("WAS", True),
    Column("TRIES", True),
    Column("DIED"),
    Column("WHY"),
    Column("TAG"),
    Column("DATA"),
]
_FIELDS = ("seq", "from", "was", "deliveries", "died", "why", "tag", "data")


class Letter:
    """One dead letter: the record's line, and what its meta says."""

    def __init__(self, line: bytes) -> None:
        self.line = line
        self.seq = seq_of(line)
        record = json.loads(line)
        self.meta: dict[str, Any] = record.get("meta") or {}
        self.ts: int = record["$ts"]
        self.tag: str = record.get("$tag", "-")

    def is_of(self, queue: str | None) -> bool:
        """Whether it is a dead letter of this queue, or of any."""
        return _FROM in self.meta if queue is None else self.meta.get(_FROM) == queue

    def said(self, name: str) -> str:
        """What the meta says about the death, `-` where it does not."""
        return str(self.meta.get("$dead_letter_" + name, "-"))

    @property
    def trail(self) -> list[dict[str, Any]]:
        """Its deliveries, oldest first."""
        trail = self.meta.get("$dead_letter_trail")
        return [step for step in trail if isinstance(step, dict)] if isinstance(trail, list) else []

    @property
    def why(self) -> str:
        """How its last delivery ended."""
        return _ended(self.trail[-1]) if self.trail else "-"

    @property
    def text(self) -> bytes:
        """Its data as text."""
        return text_of(self.line, self.line.index(b'"data":') + 7)


class Box:
    """The dead letters that a command is about."""

    def __init__(self, session: Session, values: dict[str, Any]) -> None:
        self._session = session
        self._tag = values["tag"]
        named = check_name(values["queue"])
        state = json.loads(session.client.get(topic_path(named) + "?touch=false").body)
        target = state["config"].get("dead_letter")
        self.source = None if target is None or values["itself"] else named
        """The queue whose dead letters are meant; None for all."""
        self.topic: str = target if self.source is not None else named
        self.seqs: set[int] | None = set(values["seq"]) if values["seq"] else None

    def letters(self) -> Iterator[Letter]:
        """The dead letters, oldest first."""
        begin = min(self.seqs) - 1 if self.seqs else 0
        end = max(self.seqs) if self.seqs else None
        try:
            for line in lines_of(self._session.client, self.topic, Wanted(tag=self._tag, tags=True), begin, end):
                if self.seqs is not None and seq_of(line) not in self.seqs:
                    continue
                letter = Letter(line)
                if letter.is_of(self.source):
                    yield letter
        except ApiError as error:
            if error.code != "topic_not_found" or self.source is None:
                raise  # The topic of a queue's dead letters is made with the first of them.


def dlq(session: Session, values: dict[str, Any]) -> int:
    """Run one of the actions."""
    action = _ACTIONS.get(values["action"])
    if action is None:
        raise usage(f"dlq does not know {values['action']!r}", f"it knows {', '.join(_ACTIONS)}")
    if values["to"] is not None and values["action"] != "requeue":
        raise usage("--to goes with requeue")
    return action(session, values, Box(session, values))


def _list(session: Session, values: dict[str, Any], box: Box) -> int:
    if session.out.form in (NDJSON, RAW, JSON):
        return _pass_on(session, box)
    rows = [
        [
            str(letter.seq),
            letter.said("from"),
            letter.said("src_seq"),
            letter.said("deliveries"),
            show_time(letter.ts)[: -len(".000")],
            letter.why,
            letter.tag,
            _short(letter.text),
        ]
        for letter in box.letters()
    ]
    picked = session.picked([dict(zip(_FIELDS, row, strict=True)) for row in rows])
    if picked is not None:
        for line in picked:
            session.out.line(line)
    elif rows:
        show_rows(session, _HEADS, rows)
    else:
        session.talk.note(f"topics: no dead letter {'of' if box.source else 'in'} {box.source or box.topic}")
    return exits.DONE if rows else exits.NOTHING


def _show(session: Session, values: dict[str, Any], box: Box) -> int:
    if not values["seq"]:
        raise usage("show which dead letters?", "give their seqs: topics dlq ls lists them")
    if session.out.form in (NDJSON, RAW, JSON):
        return _pass_on(session, box)
    found: set[int] = set()
    for letter in box.letters():
        if found:
            session.out.line("")
        found.add(letter.seq)
        _show_one(session, letter)
    return _end(session, values, box, found)


def _end(session: Session, values: dict[str, Any], box: Box, found: set[int]) -> int:
    """Say which of the seqs that were given are no dead letters; the exit code."""
    missing = sorted(set(values["seq"]) - found)
    for seq in missing:
        session.talk.say(f"topics: there is no dead letter {seq} in {box.topic} (not_found)")
    return exits.NOTHING if missing or not found else exits.DONE


def _show_one(session: Session, letter: Letter) -> None:
    pairs = [("seq", str(letter.seq)), ("from", f"{letter.said('from')} {letter.said('src_seq')}")]
    first = letter.said("first_ts")
    pairs.append(("written", show_time(int(first)) if first.isdigit() else first))
    count = letter.said("deliveries")
    died = f"{show_time(letter.ts)} after {counted(int(count), 'delivery', 'deliveries') if count.isdigit() else count}"
    pairs.append(("died", died))
    if letter.tag != "-":
        pairs.append(("tag", letter.tag))
    for place, step in enumerate(letter.trail, 1):
        claimed, ended = step.get("claimed", 0), step.get("ended", 0)
        lasted = show_duration(max(0, ended - claimed))
        pairs.append((f"delivery {place}", f"{show_time(claimed)}  {step.get('node')}  {lasted}  {_ended(step)}"))
    pairs += [
        (f"meta.{name}", json.dumps(value, ensure_ascii=False))
        for name, value in letter.meta.items()
        if not name.startswith("$dead_letter_")
    ]
    pairs.append(("data", letter.text.decode("utf-8", "backslashreplace")))
    show_pairs(session, pairs)


def _pass_on(session: Session, box: Box) -> int:
    """The records as they are."""
    lines = [letter.line for letter in box.letters()]
    if session.out.form == JSON:
        session.out.write(b"[\n" + b",\n".join(lines) + b"\n]\n" if lines else b"[]\n")
    else:
        session.out.write(frame(lines, LINE))
    return exits.DONE if lines else exits.NOTHING


def _requeue(session: Session, values: dict[str, Any], box: Box) -> int:
    to = None if values["to"] is None else check_name(values["to"])
    where = f" to {to}" if to else ""

    def send(seqs: list[int]) -> int:
        body: dict[str, Any] = {"seqs": seqs}
        if to is not None:
            body["to"] = to
        return _post(session, box, "requeue", body, "requeued")

    return _move(session, values, box, f"requeued{where}", f"requeue{where}", send)


def _purge(session: Session, values: dict[str, Any], box: Box) -> int:
    def send(seqs: list[int]) -> int:
        return _post(session, box, "delete", {"seqs": seqs}, "deleted")

    return _move(session, values, box, "deleted", "delete for good", send)


def _move(
    session: Session, values: dict[str, Any], box: Box, done: str, question: str, send: Callable[[list[int]], int]
) -> int:
    """Do something to all the dead letters that are meant."""
    if not (values["seq"] or values["all"] or values["tag"]):
        raise usage("which dead letters?", "give their seqs, --tag TAG or --all")
    seqs = [letter.seq for letter in box.letters()]
    if values["dry_run"]:
        session.out.line(f"{box.topic}\t{counted(len(seqs), 'dead letter')} would be {done}")
        return _end(session, values, box, set(seqs))
    named = bool(values["seq"]) and len(seqs) == len(set(values["seq"]))
    asks = bool(seqs) and not named and not values["yes"] and can_ask()
    if asks and not confirmed(session, f"{question}: {counted(len(seqs), 'dead letter')} of {box.topic}?"):
        session.talk.say("topics: nothing was done")
        return exits.FAILED
    count = sum(send(seqs[start : start + SEQS_MAX]) for start in range(0, len(seqs), SEQS_MAX))
    if session.out.form not in (NDJSON, RAW, JSON):
        session.out.line(f"{box.topic}\t{counted(count, 'dead letter')} {done}")
    return _end(session, values, box, set(seqs))


def _post(session: Session, box: Box, verb: str, body: dict[str, Any], done: str) -> int:
    request = session.client.request("POST", f"{topic_path(box.topic)}/{verb}", json.dumps(body).encode())
    answer = session.client.call(request).body
    session.warn(answer)
    if session.out.form in (NDJSON, RAW, JSON):
        session.out.document(answer)
    return told(answer, done)


def _ended(step: dict[str, Any]) -> str:
    reason = step.get("reason")
    return f"{step.get('how', '-')}: {reason}" if reason else str(step.get("how", "-"))


def _short(text: bytes) -> str:
    shown = text.decode("utf-8", "backslashreplace").replace("\t", " ").replace("\n", " ")
    return shown if len(shown) <= DATA_SHOWN else shown[: DATA_SHOWN - 3] + "..."


_ACTIONS: dict[str, Callable[[Session, dict[str, Any], Box], int]] = {
    "ls": _list,
    "show": _show,
    "requeue": _requeue,
    "purge": _purge,
}
