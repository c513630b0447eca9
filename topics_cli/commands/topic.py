"""One topic as a whole: `info`, `create`, `set`, `drop`."""

from __future__ import annotations

import json
from typing import Any

from topics_cli import exits
from topics_cli.amounts import counted
from topics_cli.ask import agreed
from topics_cli.client import topic_path
from topics_cli.exits import ApiError, Failure, usage
from topics_cli.listing import cell
from topics_cli.nearest import nearest
from topics_cli.options import read
from topics_cli.output import API_FORMS
from topics_cli.screen import show_pairs
from topics_cli.session import Session, check_name
from topics_cli.table import CONFIG_FIELDS
from topics_cli.times import show_time

_FIELDS = {name: (kind, choices) for name, kind, _, choices in CONFIG_FIELDS}


def info(session: Session, values: dict[str, Any]) -> int:
    """Show one topic."""
    body = session.client.get(topic_path(check_name(values["topic"])) + "?touch=false").body
    state = json.loads(body)
    if session.out.form in API_FORMS:
        session.out.document(body)
        return exits.DONE
    pairs = []
    for name, value in state.items():
        if name in ("config", "performance"):
            continue
        if name in ("last_write_ts", "last_read_ts"):
            shown = f"{value} ({show_time(value)})" if value is not None else "never"
            pairs.append((name, shown))
        elif name == "queue":
            pairs += [(f"queue.{key}", cell(inner)) for key, inner in value.items()]
        elif name == "damage":
            pairs.append((name, ", ".join(f"{item['from']}-{item['to']}" for item in value)))
        else:
            pairs.append((name, cell(value) if not isinstance(value, dict | list) else json.dumps(value)))
    pairs += [(f"config.{name}", "null" if value is None else cell(value)) for name, value in state["config"].items()]
    show_pairs(session, pairs)
    return exits.DONE


def create(session: Session, values: dict[str, Any]) -> int:
    """Create a topic. One that exists is left as it is, and what differs is said."""
    topic = check_name(values["topic"])
    config = {name: _value(name, values[name]) for name, *_ in CONFIG_FIELDS if values[name] is not None}
    try:
        there = json.loads(session.client.get(topic_path(topic) + "?touch=false").body)
    except ApiError as error:
        if error.code != "topic_not_found":
            raise
    else:
        if values["must_be_new"]:
            raise Failure(f"topic {topic} exists", "topic_exists", "drop it first, or leave --must-be-new out")
        return _exists(session, topic, config, there)
    if config.get("max_deliveries") and not config.get("dead_letter"):
        session.talk.note(
            "topics: warning: without --dead-letter a job is tried again for ever, whatever --max-deliveries"
        )
    return _put(session, topic, config)


def _exists(session: Session, topic: str, config: dict[str, Any], there: dict[str, Any]) -> int:
    now = dict(there["config"])
    differing = [name for name, value in config.items() if now.get(name) != value]
    if "type" in differing:
        what = f"topic {topic} is a {now['type']}; the type of a topic never changes"
        raise Failure(what, "topic_exists_incompatible", "use another name, or drop it first")
    if session.out.form in API_FORMS:
        answer = {"topic": topic, "created": False, "config": now, "epoch": there["epoch"]}
        session.out.line(json.dumps(answer, separators=(",", ":")))
    else:
        session.out.line(f"{topic}\texists")
    if differing:
        wanted = " ".join(f"{name}={cell(config[name])}" for name in differing)
        session.talk.say(f"topics: warning: {topic} exists with another configuration, and was left as it is")
        session.talk.say(f"  change it with: topics set {topic} {wanted}")
    return exits.DONE


def _put(session: Session, topic: str, config: dict[str, Any]) -> int:
    request = session.client.request("PUT", topic_path(topic), json.dumps(config).encode())
    body = session.client.call(request).body
    session.warn(body)
    if session.out.form in API_FORMS:
        session.out.document(body)
    else:
        session.out.line(f"{topic}\t{'created' if json.loads(body)['created'] else 'changed'}")
    return exits.DONE


def set_config(session: Session, values: dict[str, Any]) -> int:
    """Change the configuration of a topic that exists."""
    topic = check_name(values["topic"])
    config: dict[str, Any] = {}
    for word in values["field=value"]:
        name, equals, value = word.partition("=")
        name = name.replace("-", "_")
        if not equals:
            raise usage(f"{word!r} is not FIELD=VALUE", "such as ttl_ms=7d")
        if name not in _FIELDS:
            near = nearest(name, list(_FIELDS))
            hint = f"did you mean {' or '.join(near)}?" if near else f"fields: {', '.join(_FIELDS)}"
            raise usage(f"there is no field {name!r}", hint)
        kind, choices = _FIELDS[name]
        try:
            config[name] = _value(name, read(kind, value, choices))
        except ValueError as error:
            raise usage(f"{name}: {error}") from error
    there = json.loads(session.client.get(topic_path(topic) + "?touch=false").body)["config"]
    if values["dry_run"]:
        for name, value in config.items():
            session.out.line(f"{topic}\t{name} would be {cell(value)}, is {cell(there.get(name))}")
        return exits.DONE
    return _put(session, topic, config)


def _value(name: str, value: Any) -> Any:
    """A field's value as the wire has it."""
    if _FIELDS[name][1] == ("true", "false"):
        return value == "true"
    if name in ("priority", "dead_letter") and value == "null":
        return None
    if name == "priority":
        try:
            return int(value)
        except ValueError:
            raise usage(f"priority {value!r} is not a whole number or null") from None
    return value


def drop(session: Session, values: dict[str, Any]) -> int:
    """Drop a topic, after showing what would go."""
    topic = check_name(values["topic"])
    state = json.loads(session.client.get(topic_path(topic) + "?touch=false").body)
    what = f"{counted(state['count'], 'record')}, {counted(state['bytes'], 'byte')}"
    if values["dry_run"]:
        session.out.line(f"{topic}\twould be dropped: {what}")
        return exits.DONE
    if not agreed(session, values, f"drop {topic} with {what}?"):
        return exits.FAILED
    query = "?if_empty=true" if values["if_empty"] else ""
    body = session.client.call(session.client.request("DELETE", topic_path(topic) + query)).body
    if session.out.form in API_FORMS:
        session.out.document(body)
    else:
        session.out.line(f"{topic}\tdropped: {what}")
    return exits.DONE
