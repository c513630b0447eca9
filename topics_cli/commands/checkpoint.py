"""`topics checkpoint`: one that holds everything up to now, and its answer once it is durable."""

from __future__ import annotations

import json
from typing import Any

from topics_cli import exits
from topics_cli.amounts import counted, show_size
from topics_cli.output import API_FORMS
from topics_cli.session import Session
from topics_cli.times import show_duration


def checkpoint(session: Session, _values: dict[str, Any]) -> int:
    """Ask for a checkpoint, and wait for it."""
    answer = session.client.call(session.client.request("POST", "/v0/admin/checkpoint")).body
    session.warn(answer)
    if session.out.form in API_FORMS:
        session.out.document(answer)
        return exits.DONE
    done = json.loads(answer)
    topics, sealed = counted(done["topics"], "topic"), counted(done["segments"], "segment")
    took = show_duration(done["took_ms"])
    session.out.line(f"{done['number']}\t{topics}\t{sealed} sealed\t{show_size(done['bytes'])} beside them\t{took}")
    return exits.DONE
