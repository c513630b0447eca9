"""`topics claim`: jobs of a queue, leased to us, a line each with its lease."""

from __future__ import annotations

from _json import encode_basestring

from topics_cli import exits
from topics_cli.claimed import claimed_lines, holder
from topics_cli.client import topic_path
from topics_cli.cut import end_of
from topics_cli.exits import Failure, OutputClosed
from topics_cli.framing import framing_of
from topics_cli.output import JSON, NDJSON, RAW
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
    _show(session, render, queue, values, lines)
    if not lines and session.out.is_terminal:
        what = f"{queue} has no job that is ready" + (" and has this tag" if values["tag"] is not None else "")
        session.talk.note(f"topics: {what}" + ("" if values["wait"] else "; --wait 30s waits for one"))
    return exits.DONE if lines else exits.NOTHING


def _show(session: Session, render: Render, queue: str, values: dict[str, Any], lines: list[bytes]) -> None:
    """Print the jobs; those that nobody will see, because the output fails, are given back as if never claimed."""
    out = session.out
    ends: list[int] = []
    """Behind each job, in bytes of output."""
    try:
        for line in lines:
            render.records(queue, [_data_alone(line) if out.form == RAW else line])
            ends.append(out.taken)
        render.end()
        out.flush()
    except (Failure, OutputClosed) as reason:
        shown = 0 if out.form == JSON else sum(end <= out.brought for end in ends)
        said = _give_back(session, queue, holder(values), lines[shown:])
        if isinstance(reason, Failure):
            reason.hint = said
        raise


def _give_back(session: Session, queue: str, node: str, lines: list[bytes]) -> str:
    """Give jobs back; what became of them."""
    from topics_cli.amounts import counted
    from topics_cli.commands.settle import settle_body
    from topics_cli.launch import Job

    if not lines:
        return ""
    jobs = [Job(line) for line in lines]
    jobs_said = counted(len(jobs), "job")
    body = settle_body(node, [(job.seq, job.lease_id) for job in jobs], ',"delivered":false')
    try:
        session.client.call(session.client.request("POST", f"{topic_path(queue)}/nack", body))
    except Failure:
        return f"{jobs_said} could not be given back: free when their leases end"
    return f"{jobs_said} given back, as if never claimed"


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
