"""`topics delete`: records by seq, by tag, or below a seq; for good."""

from __future__ import annotations

import json
from typing import Any

from topics_cli import exits
from topics_cli.amounts import counted
from topics_cli.ask import can_ask, confirmed
from topics_cli.client import topic_path
from topics_cli.cut import seq_of, told
from topics_cli.exits import usage
from topics_cli.output import API_FORMS
from topics_cli.pages import Wanted, lines_of
from topics_cli.session import Session, check_name

SEQS_MAX = 1000
"""Seqs that one request may list."""


def delete(session: Session, values: dict[str, Any]) -> int:
    """Delete records, or count those that would go."""
    topic = check_name(values["topic"])
    selector = _selector(values)
    if values["dry_run"]:
        count = _count(session, topic, selector)
        session.out.line(f"{topic}\t{counted(count, 'record')} would be deleted")
        return exits.DONE
    if not values["yes"] and can_ask():
        count = _count(session, topic, selector)
        if not confirmed(session, f"delete {counted(count, 'record')} of {topic} for good?"):
            session.talk.say("topics: nothing was deleted")
            return exits.FAILED
    deleted = 0
    seqs = selector.pop("seqs", None)
    for start in range(0, len(seqs), SEQS_MAX) if seqs is not None else (None,):
        body = dict(selector)
        if seqs is not None and start is not None:
            body["seqs"] = seqs[start : start + SEQS_MAX]
        request = session.client.request("POST", topic_path(topic) + "/delete", json.dumps(body).encode())
        answer = session.client.call(request).body
        session.warn(answer)
        deleted += told(answer, "deleted")
        if session.out.form in API_FORMS:
            session.out.document(answer)
    if session.out.form not in API_FORMS:
        session.out.line(f"{topic}\t{counted(deleted, 'record')} deleted")
    return exits.DONE


def _selector(values: dict[str, Any]) -> dict[str, Any]:
    selector: dict[str, Any] = {}
    if values["before"] is not None:
        selector["before_seq"] = values["before"]
    if values["tag"] is not None and values["tag_prefix"] is not None:
        raise usage("--tag and --tag-prefix both choose tags", "give one of them")
    if values["tag"] is not None:
        selector["match"] = ["tag", "Eq", values["tag"]]
    if values["tag_prefix"] is not None:
        selector["match"] = ["tag", "Glob", values["tag_prefix"] + "*"]
    if values["more"] and not values["seq"]:
        raise usage(f"{values['more'][0]!r} says nothing without --seq", "topics delete TOPIC --seq 5 7-9")
    if values["seq"]:
        selector["seqs"] = [seq for word in (*values["seq"], *values["more"]) for seq in _read_seqs(word)]
    if not selector:
        raise usage("which records?", "say --before SEQ, --tag TAG, --tag-prefix TAG or --seq SEQ")
    return selector


def _read_seqs(word: str) -> list[int]:
    """The seqs of `5`, `7-9` or `5,7-9`."""
    seqs: list[int] = []
    for part in word.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isdigit() and last.isdigit() and first.isascii() and last.isascii() and len(last) < 20):
            raise usage(f"--seq {word!r} is not a seq, a range or a list", "such as 5, 7-9 or 5,7,9")
        if not int(first) <= int(last) < int(first) + 1_000_000:
            raise usage(f"--seq {part!r} is not a range of at most a million seqs", "use --before for more")
        seqs.extend(range(int(first), int(last) + 1))
    return seqs


def _count(session: Session, topic: str, selector: dict[str, Any]) -> int:
    """How many live records the selector means now."""
    client = session.client
    state = client.get(topic_path(topic) + "?touch=false").body
    head = told(state, "head_seq")
    earliest = told(state, "earliest_seq")
    seqs = set(selector["seqs"]) if "seqs" in selector else None
    end = min(head, selector.get("before_seq", head + 1) - 1)
    begin = earliest - 1
    if seqs:
        begin, end = max(begin, min(seqs) - 1), min(end, max(seqs))
    if end <= begin:
        return 0
    lines = lines_of(client, topic, Wanted(match=selector.get("match"), meta=False, data=False), begin, end)
    return sum(seqs is None or seq_of(line) in seqs for line in lines)
