"""Did you mean: names that come near to one that does not exist."""

from __future__ import annotations

import json
from difflib import get_close_matches
from typing import Any

from topics_cli.client import Client
from topics_cli.exits import Failure

NAMES_MAX = 1000
"""How many names are looked at."""
_KINDS = {
    "cursor": ("/v0/topics/{}/cursors", "name", "topics cursor ls {}", "topics tail {} --server-cursor NAME"),
    "router": ("/v0/routers", "router", "topics router ls", "topics router create"),
    "topic": ("/v0/topics", "topic", "topics ls", "topics write"),
}
"""What has names: where they are listed, under which key, what shows and what makes them; of a topic's own first."""


def nearest(word: str, known: list[str]) -> list[str]:
    """The known words that are like `word`, best first; a difference of case alone counts as none."""
    folded = {name.lower(): name for name in known}
    return [folded[name] for name in get_close_matches(word.lower(), list(folded), n=3, cutoff=0.6)]


def nearest_names(client: Client, detail: dict[str, Any]) -> str:
    """A hint for the cursor, router or topic that an error says does not exist, "" when nothing helps."""
    kind = next((kind for kind in _KINDS if kind in detail), None)
    if kind is None:
        return ""
    path, key, lister, maker = (part.format(detail.get("topic")) for part in _KINDS[kind])
    try:
        answer = client.get(f"{path}?page_size={NAMES_MAX}")
        names = [str(entry[key]) for entry in json.loads(answer.body)[f"{kind}s"]]
    except (Failure, ValueError, LookupError, TypeError, RecursionError):
        return ""
    if not names:
        return f"there is no {kind} yet; {maker} makes one"
    near = nearest(str(detail[kind]), names)
    return f"did you mean {' or '.join(near)}?" if near else f"{lister} shows the {kind}s that exist"
