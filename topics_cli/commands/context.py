"""`topics context`: named places of daemons, in one file of the user."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any, Final

from topics_cli import exits
from topics_cli.exits import Failure, usage
from topics_cli.listing import Column
from topics_cli.output import API_FORMS
from topics_cli.screen import show_objects, show_pairs, show_rows
from topics_cli.session import Session
from topics_cli.where import PLACE_KEYS, contexts_path, find, read_contexts

NO_CONTEXT: Final = "none"
_NAME_MARKS: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


def context(session: Session, values: dict[str, Any]) -> int:
    """List, show, set, use or drop contexts."""
    action, name = values["action"] or "ls", values["name"]
    path = contexts_path(os.environ)
    if not path:
        raise Failure("there is no place for contexts", "no_home", "set HOME or XDG_CONFIG_HOME", exits.CONFIGURATION)
    contexts, used = read_contexts(path) if os.path.exists(path) else ({}, "")
    if action == "ls":
        _list(session, contexts, used)
        return exits.DONE
    if action == "show" and not name:
        where = session.where()
        show_pairs(session, [("where", where.label), ("why there", where.why), ("key file", where.key_file or "-")])
        return exits.DONE
    if not name or not _NAME_MARKS.issuperset(name) or (name == NO_CONTEXT and action != "use"):
        raise usage("which context?", "a name of letters, digits and . _ -; topics context ls lists them")
    if action == "set":
        contexts[name] = _given(session, values)
    elif name not in contexts and name != NO_CONTEXT:
        raise Failure(f"there is no context {name!r}", "not_found", "topics context ls lists them", exits.NOTHING)
    elif action == "show":
        show_pairs(session, [(key, contexts[name].get(key, "-")) for key in PLACE_KEYS])
        return exits.DONE
    elif action == "use":
        used = "" if name == NO_CONTEXT else name
    else:
        del contexts[name]
        used = "" if used == name else used
    if values["dry_run"]:
        change = {"set": "written", "use": "used", "drop": "dropped"}[action]
        session.out.line(f"{name}\twould be {change}")
        return exits.DONE
    _write(path, contexts, used)
    session.talk.note(f"topics: {path}: {used or 'no context'} is in use")
    return exits.DONE


def _list(session: Session, contexts: dict[str, dict[str, str]], used: str) -> None:
    if session.out.form in API_FORMS:
        objects = [{"name": name, "used": name == used, **place} for name, place in sorted(contexts.items())]
        show_objects(session, objects)
        return
    if not contexts:
        session.talk.note("topics: there is no context; topics context set NAME --socket PATH (or --url URL) makes one")
        return
    heads = [Column("USED"), Column("NAME"), Column("WHERE"), Column("KEY FILE")]
    rows = [
        ["*" if name == used else "-", name, place.get("socket") or place.get("url", ""), place.get("key_file", "-")]
        for name, place in sorted(contexts.items())
    ]
    show_rows(session, heads, rows)


def _given(session: Session, values: dict[str, Any]) -> dict[str, str]:
    """The place that the options name, checked; paths are kept whole, since the file is elsewhere."""
    if not values["socket"] and not values["url"]:
        raise usage("a context is a place", "give --socket PATH or --url http://HOST:PORT")
    find(values["socket"], values["url"])
    place = {"socket": os.path.abspath(values["socket"])} if values["socket"] else {"url": values["url"]}
    if values["key_file"]:
        place["key_file"] = os.path.abspath(values["key_file"])
    return place


def _write(path: str, contexts: dict[str, dict[str, str]], used: str) -> None:
    """Replace the file whole. A JSON string is a TOML string, but for DEL, which no place can hold."""
    lines = [f"use = {json.dumps(used, ensure_ascii=False)}\n"] if used else []
    for name, place in sorted(contexts.items()):
        lines.append(f"\n[contexts.{json.dumps(name)}]\n")
        lines += [
            f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in place.items() if key in PLACE_KEYS
        ]
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix="contexts-")
        with open(handle, "w", encoding="utf-8") as file:
            file.writelines(lines)
        os.replace(temporary, path)
    except (OSError, ValueError) as error:
        raise Failure(f"{path} cannot be written: {error}", "cannot_write", "", exits.FAILED) from error
