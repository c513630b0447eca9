"""`topics get`: records by seq, each as the API gives it, or only its data."""

from __future__ import annotations

from topics_cli import exits
from topics_cli.client import topic_path
from topics_cli.cut import end_of, seq_of
from topics_cli.exits import ApiError, BadAnswer
from topics_cli.framing import framing_of
from topics_cli.output import NDJSON
from topics_cli.render import Render
from topics_cli.session import Session, check_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def get(session: Session, values: dict[str, Any]) -> int:
    """Show records; a seq that has none is named, and makes the exit status 3."""
    topic = check_name(values["topic"])
    if values["raw"]:
        session.out.form = "raw"
    render = Render(session.out, values, framing_of(values), many=False, default=NDJSON)
    code = exits.DONE
    for seq in (seq for seqs in values["seq"] for seq in seqs):
        try:
            body = session.client.get(f"{topic_path(topic)}/records/{seq}").body
        except ApiError as error:
            if error.code != "not_found":
                raise
            code = exits.NOTHING
            session.out.flush()
            session.report(error)
            continue
        if not body.startswith(b'{"$seq":%d,' % seq):
            raise BadAnswer(f"not record {seq}")
        line = _record_line(body)
        if session.out.form == "raw":
            at = line.index(b'"data":') + 7
            line = b'{"$seq":%d,"data":%b}' % (seq_of(line), line[at : end_of(line, at)])
        render.records(topic, [line])
    render.end()
    return code


def _record_line(body: bytes) -> bytes:
    """The record as it is rendered in lists: without the answer's `performance`."""
    at = body.rfind(b',"performance":{')
    return body[:at] + b"}" if at > 0 else body
