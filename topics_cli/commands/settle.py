"""`topics ack`, `nack`, `extend`: what becomes of claimed jobs, by seq or as they were claimed, from standard input.

A line of input is a seq, or a JSON object with `$seq` (or `seq`) and perhaps `lease_id`. Where the lease is known the
request is fenced: a lease that is not ours any more changes nothing. What was skipped is named, and makes the exit
status 6.
"""

from __future__ import annotations

import os
from _json import encode_basestring

from topics_cli import exits
from topics_cli.claimed import holder
from topics_cli.client import topic_path
from topics_cli.cut import told
from topics_cli.exits import ApiError, Failure, usage
from topics_cli.framing import LINE, Cutter
from topics_cli.output import API_FORMS
from topics_cli.session import Session, check_name
from topics_cli.signals import POLLIN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

SEQS_MAX = 1000
"""Seqs that one request may list."""
IDLE_S = 0.02
"""Input that has paused for so long is sent."""
LINE_BYTES_MAX = 16 << 20
READ_BYTES = 1 << 16

Lease = tuple[int, str]
"""A job's seq and its lease, "" where that is not known."""


def ack(session: Session, values: dict[str, Any]) -> int:
    """The jobs are done."""
    return _settle(session, values, "ack", "acked", "")


def nack(session: Session, values: dict[str, Any]) -> int:
    """The jobs are given back."""
    if values["delay"] is not None and values["backoff"]:
        raise usage("--delay and --backoff both say when", "give one of them")
    if values["dead"] and (values["delay"] is not None or values["backoff"]):
        raise usage("--dead moves the jobs away: there is no delay", "leave --delay and --backoff out")
    more = ',"delay":"backoff"' if values["backoff"] else ""
    if values["delay"] is not None:
        more += f',"delay_ms":{values["delay"]}'
    if values["reason"] is not None:
        more += f',"reason":{encode_basestring(values["reason"])}'
    if values["dead"]:
        more += ',"dead_letter":true'
    try:
        return _settle(session, values, "nack", "nacked", more)
    except ApiError as error:
        if values["dead"] and b'"field":"dead_letter"' in error.body:
            queue = values["queue"]
            error.hint = f"name one: topics set {queue} dead_letter={queue}-dead; topics ack deletes the jobs instead"
        raise


def extend(session: Session, values: dict[str, Any]) -> int:
    """The jobs are still being worked on."""
    more = f',"lease_ms":{values["lease"]}' if values["lease"] is not None else ""
    return _settle(session, values, "extend", "extended", more)


def _settle(session: Session, values: dict[str, Any], verb: str, done: str, more: str) -> int:
    queue = check_name(values["queue"])
    node = holder(values)
    count = skipped = 0
    for leases in _batches(session, values):
        body = settle_body(node, leases, more)
        request = session.client.request("POST", f"{topic_path(queue)}/{verb}", body)
        answer = session.client.call(request).body
        session.warn(answer)
        why = skipped_of(answer)
        count += told(answer, done) if verb != "extend" else len(leases) - len(why)
        skipped += len(why)
        for seq, reason in why:
            session.talk.say(f"topics: {queue} {seq} was not {done}: {reason} (skipped)")
        if session.out.form in API_FORMS:
            session.out.document(answer)
    if session.out.form not in API_FORMS:
        session.out.line(f"{queue}\t{count} {done}")
    return exits.STALE if skipped else exits.DONE


def settle_body(node: str, leases: list[Lease], more: str) -> bytes:
    """The body of an ack, nack or extend; fenced when the leases are known."""
    body = f'{{"node":{encode_basestring(node)},"seqs":[{",".join(str(seq) for seq, _ in leases)}]'
    if leases[0][1]:
        body += f',"lease_ids":[{",".join(encode_basestring(lease) for _, lease in leases)}]'
    return (body + more + "}").encode()


def skipped_of(answer: bytes) -> list[tuple[int, str]]:
    """The seqs that did not count, and why."""
    if b'"skipped":[]' in answer:
        return []
    import json

    whole = json.loads(answer)
    detail = whole.get("skipped_detail") or []
    found = []
    for place, seq in enumerate(whole["skipped"]):
        reason = detail.get(str(seq)) if isinstance(detail, dict) else detail[place] if place < len(detail) else None
        if isinstance(reason, dict):
            reason = reason.get("detail")
        found.append((int(seq), str(reason or "skipped")))
    return found


def _batches(session: Session, values: dict[str, Any]) -> Iterator[list[Lease]]:
    """What to settle, at most `SEQS_MAX` at a time, those with leases apart from those without."""
    words = values["seq"]
    if words and words != ["-"]:
        named = [_read(word.encode(), f"argument {place}") for place, word in enumerate(words, 1)]
        yield from _cut(named)
        return
    if not words and os.isatty(0):
        raise usage("which jobs?", "give their seqs, or pipe claimed jobs in: topics claim Q | topics ack Q -")
    waiting: list[Lease] = []
    cutter, place, ended = Cutter(LINE, LINE_BYTES_MAX), 0, False
    while not ended:
        session.stop.check()
        if not session.stop.wait([(0, POLLIN)], IDLE_S if waiting else None):
            yield from _cut(waiting)
            waiting = []
            continue
        data = os.read(0, READ_BYTES)
        ended = not data
        for line in cutter.end() if ended else cutter.feed(data):
            place += 1
            if line.strip():
                waiting.append(_read(line.strip(), f"line {place}"))
        if len(waiting) >= SEQS_MAX:
            yield from _cut(waiting)
            waiting = []
    yield from _cut(waiting)


def _cut(leases: list[Lease]) -> Iterator[list[Lease]]:
    for group in ([lease for lease in leases if lease[1]], [lease for lease in leases if not lease[1]]):
        for start in range(0, len(group), SEQS_MAX):
            yield group[start : start + SEQS_MAX]


def _read(text: bytes, where: str) -> Lease:
    """A seq, or a claimed job."""
    if text.isdigit() and len(text) <= 20:
        return int(text), ""
    import json

    try:
        entry = json.loads(text)
        seq = entry["$seq"] if "$seq" in entry else entry["seq"]
        lease = entry.get("lease_id") or ""
        if isinstance(seq, int) and isinstance(lease, str):
            return seq, lease
    except (ValueError, LookupError, TypeError, AttributeError):
        pass
    raise Failure(
        f"{where} is neither a seq nor a claimed job", "bad_input", "lines are seqs, or what `topics claim` prints"
    )
