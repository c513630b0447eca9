"""`topics explain`: what happened to one record."""

from __future__ import annotations

import json
from typing import Any, Final

from topics_cli import exits
from topics_cli.client import topic_path
from topics_cli.cold import with_tier
from topics_cli.cut import ts_of
from topics_cli.exits import ApiError, Failure, NoDaemon
from topics_cli.findings import Sheet
from topics_cli.pinned import is_within, pinned
from topics_cli.progress import Progress
from topics_cli.screen import show_pairs
from topics_cli.session import Session, check_name
from topics_cli.store_dir import data_dir, holder
from topics_cli.times import show_time

LOG_BYTES_MAX: Final = 64 << 20
"""How much log is replayed for the story of one record that a running daemon has."""
_PLACE = ("file", "offset", "length", "cold")
_SHOWN = ("reason", *_PLACE, "earliest_seq", "head_seq")


def explain(session: Session, values: dict[str, Any]) -> int:
    """Tell a record's story; 3 when it is not there to be read."""
    topic, seq = check_name(values["topic"]), values["seq"]
    if values["dir"] is None:
        try:
            found = _by_daemon(session, topic, seq)
        except NoDaemon as gone:
            gone.hint += "; without one: --dir DIR"
            raise
    else:
        path = data_dir(values["dir"])
        if holder(path) is not None:
            with pinned(session, {"topics": [topic]}, within=path) as export:
                found = from_directory(session, export["path"], topic, seq)
        else:
            found = from_directory(session, path, topic, seq)
    _show(session, found)
    return exits.DONE if found["state"] == "live" else exits.NOTHING


def from_directory(session: Session, path: str, topic: str, seq: int) -> dict[str, Any]:
    """The story out of a directory that nobody writes to."""
    import msgspec

    from engine.clock import OsClock
    from engine.errors import StoreError
    from engine.tools.explain import explain as explained
    from engine.tools.readonly import ReadOnlyFs

    progress = Progress(session, path)
    fs = ReadOnlyFs(path)
    try:
        found: dict[str, Any] = msgspec.to_builtins(
            explained(with_tier(fs, None), OsClock(), topic, seq, progress.heard)
        )
    except StoreError as error:
        raise Failure(str(error), "store_damaged", "`topics fsck` lists all of it", exits.DAMAGE) from error
    finally:
        progress.end()
        fs.shut()
    return found


def _by_daemon(session: Session, topic: str, seq: int) -> dict[str, Any]:
    """What a running daemon knows at once."""
    found: dict[str, Any] = {"topic": topic, "seq": seq, "events": []}
    try:
        body = session.client.get(f"{topic_path(topic)}/records/{seq}").body
        found |= {"state": "live", "events": [{"what": "written", "ts": ts_of(body), "file": "", "offset": None}]}
        found |= _pinned(session, topic, seq, "live", _PLACE)
    except ApiError as error:
        if error.code != "not_found":
            raise
        detail = json.loads(error.body)["error"]["detail"]
        found |= {"state": detail["why"], "earliest_seq": detail["earliest_seq"], "head_seq": detail["head_seq"]}
        path, events = _logged(session, topic, seq, detail["why"])
        found |= _pinned(session, topic, seq, detail["why"], ("reason",), path)
        if found.pop("is_within", False):
            found["events"] = events
    return found


def _pinned(
    session: Session, topic: str, seq: int, state: str, names: tuple[str, ...], path: str | None = None
) -> dict[str, Any]:
    """What files say beyond that, where this process may look into a pin and they know the same state; else nothing.

    `is_within` says whether the daemon's data directory is `path`.
    """
    try:
        with pinned(session, {"topics": [topic]}) as export:
            there = from_directory(session, export["path"], topic, seq)
            is_ours = path is not None and is_within(export["path"], path)
    except (Failure, OSError):  # no right to it, another machine, another user
        return {}
    return {name: there[name] for name in names if there["state"] == state} | ({"is_within": True} if is_ours else {})


def _logged(session: Session, topic: str, seq: int, state: str) -> tuple[str | None, list[dict[str, Any]]]:
    """What has happened to a record since the last checkpoint: the data directory, and what its log says.

    This looks before a pin is made, for that begins with a checkpoint. The log is being written: what it says is only
    believed where it comes to the state that the daemon gives.
    """
    try:
        path = data_dir(None)
        store = json.loads(session.client.get("/v0/admin/store").body)
        if holder(path) is not None and store["checkpoint"]["uncovered_bytes"] <= LOG_BYTES_MAX:
            there = from_directory(session, path, topic, seq)
            return path, there["events"] if there["state"] == state else []
    except (Failure, OSError):
        pass
    return None, []


def _show(session: Session, found: dict[str, Any]) -> None:
    sheet = Sheet(session)
    if sheet.is_data:
        session.out.line(json.dumps(found, ensure_ascii=True, separators=(",", ":")))
        return
    pairs = [("topic", found["topic"]), ("seq", str(found["seq"])), ("state", found["state"].replace("_", " "))]
    known = [name for name in _SHOWN if found.get(name) not in (None, "", False)]
    pairs += [(name.replace("_", " "), str(found[name])) for name in known]
    for event in found["events"]:
        where = f" ({event['file']}, offset {event['offset']})" if event["file"] else ""
        pairs.append((show_time(event["ts"]) if event["ts"] is not None else "earlier", event["what"] + where))
    show_pairs(session, pairs)
