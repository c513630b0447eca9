"""`topics cursor`: the places of readers that the daemon keeps."""

from __future__ import annotations

import json
from typing import Any, Final

from topics_cli import exits
from topics_cli.ask import agreed
from topics_cli.client import topic_path
from topics_cli.exits import ApiError, BadAnswer, usage
from topics_cli.listing import Column, cell, show_list
from topics_cli.output import API_FORMS
from topics_cli.screen import show_pairs
from topics_cli.session import Session, check_name
from topics_cli.times import show_time

_FIELDS: Final = ("name", "seq", "lag", "epoch", "updated")
_HEADS: Final = [
    Column("NAME"),
    Column("SEQ", True),
    Column("LAG", True),
    Column("EPOCH", True),
    Column("UPDATED"),
]


def cursor(session: Session, values: dict[str, Any]) -> int:
    """List, show, create, set or drop cursors of a topic."""
    topic, action, name, seq = check_name(values["topic"]), values["action"], values["name"], values["seq"]
    target = topic_path(topic) + "/cursors"
    if action == "ls":
        show_list(
            session,
            target,
            "cursors",
            _HEADS,
            _cells,
            fields=_FIELDS,
            prefix=name or "",
            empty=f"{topic} has no cursor; topics tail {topic} --server-cursor NAME makes one",
        )
        return exits.DONE
    if not name:
        raise usage("which cursor?", f"topics cursor ls {topic} lists them")
    target += "/" + check_name(name)
    if action == "create":
        return _create(session, target, name, seq or 0, is_dry=values["dry_run"])
    if action == "set":
        if seq is None:
            raise usage("which seq?", f"topics cursor set {topic} {name} SEQ; 0 is the beginning")
        if values["dry_run"]:
            session.out.line(f"{name}\twould be set to {seq}")
            return exits.DONE
        wanted = {"seq": seq, "if_seq": values["if_seq"]}
        body = json.dumps({key: value for key, value in wanted.items() if value is not None}).encode()
        answer = session.client.call(session.client.request("PUT", target, body)).body
    elif action == "drop":
        seq = json.loads(session.client.get(target).body)["seq"]
        if values["dry_run"]:
            session.out.line(f"{name}\twould be dropped: it is at {seq}")
            return exits.DONE
        if not agreed(session, values, f"drop cursor {name} of {topic}, which is at {seq}?"):
            return exits.FAILED
        answer = session.client.call(session.client.request("DELETE", target)).body
        if session.out.form not in API_FORMS:
            session.out.line(f"{name}\tdropped")
            return exits.DONE
    else:
        answer = session.client.get(target).body
    session.warn(answer)
    if session.out.form in API_FORMS:
        session.out.document(answer)
    else:
        show_pairs(session, list(zip(_FIELDS, _cells(json.loads(answer)), strict=True)))
    return exits.DONE


def _create(session: Session, target: str, name: str, seq: int, *, is_dry: bool) -> int:
    """Make a cursor; one that exists is left as it is."""
    try:
        answer = session.client.get(target).body
        said = "exists"
    except ApiError as error:
        if error.status != 404 or error.code == "topic_not_found":
            raise
        said = "would be created" if is_dry else "created"
        answer = b"{}"
        if not is_dry:
            body = json.dumps({"seq": seq}).encode()
            answer = session.client.call(session.client.request("PUT", target, body)).body
    session.warn(answer)
    if session.out.form in API_FORMS:
        session.out.document(answer)
    else:
        session.out.line(f"{name}\t{said}")
    return exits.DONE


def _cells(entry: dict[str, Any]) -> list[str]:
    if "seq" not in entry:
        raise BadAnswer("no cursor")
    updated = entry.get("updated_ts")
    shown = "-" if updated is None else show_time(updated)
    return [*(cell(entry.get(name)) for name in ("name", "seq", "lag", "epoch")), shown]
