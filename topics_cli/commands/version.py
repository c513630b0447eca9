"""`topics version`: what is running here and there."""

from __future__ import annotations

import json
from typing import Any

from engine.version import DISK_FORMAT, VERSION
from topics_cli import exits
from topics_cli.exits import Failure
from topics_cli.output import JSON, NDJSON
from topics_cli.session import Session

API = "v0"


def version(session: Session, _values: dict[str, Any]) -> int:
    """Show the versions of the client, of the daemon (when one answers), of the API and of disk formats."""
    daemon: str | None = None
    try:
        daemon = str(json.loads(session.client.get("/v0/health").body)["version"])
    except (Failure, ValueError, LookupError, TypeError):
        pass
    if session.out.form in (JSON, NDJSON):
        session.out.line(
            json.dumps({"client": VERSION, "daemon": daemon, "api": API, "formats": {"disk": DISK_FORMAT}})
        )
    else:
        session.out.line(f"topics {VERSION}")
        session.out.line(f"daemon {daemon or '- (none answers)'}")
        session.out.line(f"api {API}")
        session.out.line(f"disk format {DISK_FORMAT}")
    return exits.DONE
