"""`topics claim`: jobs of a queue, leased to us, a line each with its lease."""

from __future__ import annotations

from _json import encode_basestring

from topics_cli import exits
from topics_cli.claimed import claimed_lines, holder
from topics_cli.client import topic_path
from topics_cli.cut import end_of
from topics_cli.framing import framing_of
from topics_cli.output import NDJSON, RAW
from topics_cli.render import Render
from topics_cli.session import Session, check_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WAIT_MS_MAX = 30_000
"""The longest that the daemon waits for jobs; for more it is asked again."""


def claim(session: Session, values: dict[str, Any]) -> int:
    """Claim jobs and print them; 3 when there were none."""
    queue = check_name(values["queue"])
    render = Render(session.out, values, framing_of(values), many=False, default=NDJSON)
    left_ms = values["wait"] or 0
    while True:
        wait_ms = min(left_ms, WAIT_MS_MAX)
        body = claim_body(values, holder(values), 1 if values["max"] is None else values["max"], wait_ms)
        request = session.client.request("POST", topic_path(queue) + "/claim", body, lingers_s=wait_ms / 1000)
        answer = session.client.call(request).body
        session.warn(answer)
        lines = claimed_lines(answer)
        left_ms -= wait_ms
        if lines or left_ms <= 0:
            break
    if session.out.form == RAW:
        lines = [_data_alone(line) for line in lines]
    render.records(queue, lines)
    render.end()
    return exits.DONE if lines else exits.NOTHING


def claim_body(values: dict[str, Any], node: str, count: int, wait_ms: int) -> bytes:
    """The body of a claim."""
    body = f'{{"node":{encode_basestring(node)},"max":{count},"wait_ms":{wait_ms}'
    if values["lease"] is not None:
        body += f',"lease_ms":{values["lease"]}'
    if values["tag"] is not None:
        body += f',"match":{encode_basestring(values["tag"])}'
    return (body + "}").encode()


def _data_alone(line: bytes) -> bytes:
    """An entry that ends behind its data, as `-o raw` wants it."""
    at = line.index(b'"data":')
    return b"{" + line[at : end_of(line, at + 7)] + b"}"
