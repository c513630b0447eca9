"""`topics detach` and `topics attach`: a topic goes from one daemon to another, seqs and all."""

from __future__ import annotations

import json
import os
from typing import Any, Final

from topics_cli import exits
from topics_cli.amounts import counted
from topics_cli.ask import agreed
from topics_cli.client import topic_path
from topics_cli.exits import usage
from topics_cli.output import API_FORMS
from topics_cli.session import Session, check_name

PATIENCE_S: Final = 86_400.0
"""A topic is copied as long as that takes."""


def detach(session: Session, values: dict[str, Any]) -> int:
    """Offer a topic, or take it back."""
    topic = check_name(values["topic"])
    target = topic_path(topic) + "/detach"
    if values["cancel"]:
        if values["to"] is not None:
            raise usage("--to and --cancel contradict each other", "give one of them")
        if values["dry_run"]:
            return _would(session, topic, "would be taken back")
        answer = session.client.call(session.client.request("DELETE", target, lingers_s=PATIENCE_S)).body
        return _said(session, answer, f"{topic}\tis here and takes writes")
    if values["to"] is None:
        raise usage("where to?", "say --to DIR, or --to s3://bucket/prefix: a place that both daemons reach")
    place = _place(values["to"], "--to")
    if values["dry_run"]:
        return _would(session, topic, f"would be sealed, and offered in {place}")
    if not agreed(session, values, f"let topic {topic} take no more writes here, and offer it in {place}?"):
        return exits.FAILED
    asked = {"to": place} | ({"url": values["to_url"]} if values["to_url"] else {})
    body = json.dumps(asked).encode()
    answer = session.client.call(session.client.request("POST", target, body, lingers_s=PATIENCE_S)).body
    session.warn(answer)
    found = json.loads(answer)
    what = f"{found['state']}\t{found['to']}\tup to seq {found['last_seq']}\ttoken {found['token']}"
    _said(session, answer, f"{topic}\t{what}")
    session.out.flush()
    if found["state"] == "offered":
        session.talk.note(f"topics: take it over with: topics attach {topic} --from {place}")
    return exits.DONE


def attach(session: Session, values: dict[str, Any]) -> int:
    """Take a topic over."""
    topic = check_name(values["topic"])
    if values["place"] is None:
        raise usage("where from?", "say --from with what detach was told with --to")
    asked: dict[str, str] = {"topic": topic, "place": _place(values["place"], "--from")}
    if values["token"]:
        asked["token"] = values["token"]
    where = session.where()
    asked["url"] = values["as_url"] or (f"unix:{os.path.abspath(where.path)}" if where.path else where.label)
    body = json.dumps(asked).encode()
    request = session.client.request("POST", "/v0/admin/attach", body, lingers_s=PATIENCE_S)
    answer = session.client.call(request).body
    session.warn(answer)
    found = json.loads(answer)
    how = "attached" if found["created"] else "was here already"
    return _said(session, answer, f"{topic}\t{how}\tgoes on behind seq {found['head_seq']}")


def _place(text: str, flag: str) -> str:
    """A place as the daemon is told it: directories are named from the root on."""
    if text.startswith("s3://"):
        return text
    if "://" in text:
        hint = "a directory, or s3://bucket/prefix; the daemon itself goes into --for (detach) or --as (attach)"
        raise usage(f"{flag} is {text!r}, which is no place that files are put into", hint)
    return os.path.abspath(text)


def _would(session: Session, topic: str, what: str) -> int:
    state = json.loads(session.client.get(topic_path(topic) + "?touch=false").body)
    moved = f" (now: {state['moved']['state']}, {state['moved']['to']})" if "moved" in state else ""
    session.out.line(f"{topic}\t{what}: {counted(state['count'], 'record')} up to seq {state['head_seq']}{moved}")
    return exits.DONE


def _said(session: Session, answer: bytes, line: str) -> int:
    if session.out.form in API_FORMS:
        session.out.document(answer)
    else:
        session.out.line(line)
    return exits.DONE
