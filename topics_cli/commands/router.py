"""`topics router`: what is copied from topic to topic."""

from __future__ import annotations

import json
from typing import Any, Final

from topics_cli import exits
from topics_cli.ask import agreed
from topics_cli.client import quote
from topics_cli.exits import ApiError, BadAnswer, Failure, usage
from topics_cli.listing import Column, cell, show_list
from topics_cli.output import API_FORMS
from topics_cli.screen import show_pairs
from topics_cli.session import Session, check_name

_FIELDS: Final = ("router", "source", "dest", "filter", "lag", "forwarded", "blocked")
_HEADS: Final = [
    Column("ROUTER"),
    Column("SOURCE"),
    Column("DEST"),
    Column("FILTER"),
    Column("LAG", True),
    Column("FORWARDED", True),
    Column("BLOCKED"),
]
_FLAGS: Final = ("preserve_node", "preserve_tag", "create_dest", "allow_cycle")


def router(session: Session, values: dict[str, Any]) -> int:
    """List, create, change, show or drop routers."""
    action, name = values["action"], values["name"]
    if action == "ls":
        show_list(
            session,
            "/v0/routers",
            "routers",
            _HEADS,
            _cells,
            fields=_FIELDS,
            prefix=name or "",
            empty="there is no router; topics router create NAME --source A --dest B makes one",
        )
        return exits.DONE
    if not name:
        raise usage("which router?", "topics router ls lists them")
    target = "/v0/routers/" + quote(name)
    if action == "drop":
        state = json.loads(session.client.get(target).body)
        ends = f"{state['source']} to {state['dest']}"
        if values["dry_run"]:
            session.out.line(f"{name}\twould be dropped: {ends}")
            return exits.DONE
        if not agreed(session, values, f"drop router {name}, {ends}?"):
            return exits.FAILED
        answer = session.client.call(session.client.request("DELETE", target)).body
        if session.out.form in API_FORMS:
            session.out.document(answer)
        else:
            session.out.line(f"{name}\tdropped")
        return exits.DONE
    if action == "info":
        _show(session, session.client.get(target).body)
        return exits.DONE
    there = json.loads(session.client.get(target).body) if action == "set" else _there(session, target)
    if action == "create" and there is not None and values["must_be_new"]:
        raise Failure(f"router {name} exists", "router_exists", "drop it first, or leave --must-be-new out")
    definition = _definition(values, there or {})
    same = there is not None and all(there.get(key) == value for key, value in definition.items())
    if values["dry_run"]:
        would = "stays as it is" if same else f"would be {'created' if there is None else 'changed'}"
        session.out.line(f"{name}\t{would}: {definition['source']} to {definition['dest']}")
        return exits.DONE
    body = json.dumps(definition).encode()
    answer = session.client.call(session.client.request("PUT", target, body)).body
    session.warn(answer)
    if session.out.form in API_FORMS:
        session.out.document(answer)
    else:
        made = "exists" if same and values["action"] == "create" else "changed"
        session.out.line(f"{name}\t{'created' if json.loads(answer)['created'] else made}")
    return exits.DONE


def _there(session: Session, target: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(session.client.get(target).body)
        return found
    except ApiError as error:
        if error.code != "router_not_found":
            raise
        return None


def _definition(values: dict[str, Any], there: dict[str, Any]) -> dict[str, Any]:
    """What the options say, and for the rest what is there already."""
    kept = ("source", "dest", "filter", *_FLAGS)
    definition = {key: there[key] for key in kept if key in there}
    for key in ("source", "dest"):
        if values[key] is not None:
            definition[key] = check_name(values[key])
        elif key not in definition:
            raise usage(f"a router needs --{key}", "topics router create NAME --source A --dest B")
    for key in _FLAGS:
        if values[key] is not None:
            definition[key] = values[key] == "true"
    if values["tag"] is not None:
        is_prefix = values["tag"].endswith("*")
        definition["filter"] = ["tag", "Glob" if is_prefix else "Eq", values["tag"]] if values["tag"] else None
    if values["start"] is not None:
        definition["start"] = values["start"]
    return definition


def _show(session: Session, body: bytes) -> None:
    state = json.loads(body)
    if session.out.form in API_FORMS:
        session.out.document(body)
        return
    if "source" not in state:
        raise BadAnswer("no router")
    shown = [(key, json.dumps(value) if isinstance(value, list) else cell(value)) for key, value in state.items()]
    show_pairs(session, [pair for pair in shown if pair[0] != "performance"])


def _cells(entry: dict[str, Any]) -> list[str]:
    tag = entry["filter"][2] if entry.get("filter") else None
    rest = (entry.get("lag"), entry.get("forwarded_total"), entry.get("blocked"))
    return [entry["router"], entry["source"], entry["dest"], cell(tag), *map(cell, rest)]
