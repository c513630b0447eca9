"""`topics diff`: one page after a seq, exactly as the API gives it; with `--all`, page after page."""

from __future__ import annotations

from _json import encode_basestring

from topics_cli import exits
from topics_cli.client import JSON, NDJSON, topic_path
from topics_cli.cut import bare_data, texts, told
from topics_cli.exits import usage
from topics_cli.framing import LINE, frame
from topics_cli.pages import WAIT_MS, read_page
from topics_cli.session import Session, check_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FORMS = {"text": NDJSON, "raw": NDJSON, "ndjson": NDJSON, "json": JSON, "table": NDJSON}


def diff(session: Session, values: dict[str, Any]) -> int:
    """Show one page, or all from a seq on."""
    topic = check_name(values["topic"])
    if values["fields"] or values["template"]:
        raise usage("diff shows what the API gives", "topics tail --from takes --fields and --template")
    wait_ms, from_seq = values["wait"] or 0, values["from_seq"] or 0
    form = session.out.form or "json"
    came = 0
    while True:
        asked_ms = min(wait_ms, WAIT_MS)
        request = session.client.request(
            "POST",
            topic_path(topic) + "/diff",
            _body(values, from_seq, asked_ms, form),
            accept=FORMS[form],
            lingers_s=asked_ms / 1000,
        )
        body = session.client.call(request).body
        session.warn(body)
        next_seq, head = _ends(body)
        wait_ms -= asked_ms
        if next_seq == from_seq and wait_ms > 0 and b'"tombstone":{' not in body and b'{"$tombstone":' not in body:
            continue
        came += _show(session, topic, form, body)
        from_seq = next_seq
        if not values["all"] or next_seq >= head or (values["to_seq"] is not None and next_seq >= values["to_seq"]):
            break
        session.stop.check()
    return exits.NOTHING if values["wait"] is not None and not came else exits.DONE


def _body(values: dict[str, Any], from_seq: int, wait_ms: int, form: str) -> bytes:
    parts = [f'"from_seq":{from_seq}']
    for name, value in (("limit", values["limit"]), ("max_bytes", values["max_bytes"]), ("to_seq", values["to_seq"])):
        if value is not None:
            parts.append(f'"{name}":{value}')
    if wait_ms:
        parts.append(f'"wait_ms":{wait_ms}')
    if values["tag"] is not None:
        parts.append(f'"match":{encode_basestring(values["tag"])}')
    if values["node"]:
        parts.append(f'"node":[{",".join(encode_basestring(node) for node in values["node"])}]')
    if form == "raw":
        parts.append('"include_meta":false')
    else:
        parts.append('"include_tags":true')
    return ("{" + ",".join(parts) + "}").encode("utf-8", "surrogateescape")


def _show(session: Session, topic: str, form: str, body: bytes) -> int:
    """Show a page; returns how many records it had (for JSON, which is not looked into: whether it had any)."""
    if form == "json":
        session.out.document(body)
        # The first `"records":[` is the page's own: what stands before it is a name and a number.
        at = body.find(b'"records":[') + 11
        return 0 if body[at : at + 1] == b"]" else 1
    page, _ = read_page(body)
    if form == "ndjson":
        session.out.document(body.removesuffix(b"\n"))
    else:
        if page.gap is not None:
            gap = page.gap
            session.talk.note(f"gap {topic} {gap.first}-{gap.last} {gap.reason}")
        if form == "raw":
            session.out.write(frame(bare_data(page.lines), LINE))
        for text in texts(page.lines) if form != "raw" else ():
            session.out.text(text)
    return len(page.lines)


def _ends(body: bytes) -> tuple[int, int]:
    """Where a page ended, and the head."""
    at = max(body.rfind(b'"next_from_seq":'), 0)
    return told(body[at:], "next_from_seq"), told(body[at:], "head_seq")
