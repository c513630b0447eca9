"""Did you mean: names that come near to one that does not exist."""

from __future__ import annotations

import json
from difflib import get_close_matches

from topics_cli.client import Client
from topics_cli.exits import Failure

TOPICS_MAX = 1000
"""How many names are looked at."""


def nearest(word: str, known: list[str]) -> list[str]:
    """The known words that are like `word`, best first; a difference of case alone counts as none."""
    folded = {name.lower(): name for name in known}
    return [folded[name] for name in get_close_matches(word.lower(), list(folded), n=3, cutoff=0.6)]


def nearest_topics(client: Client, topic: str) -> str:
    """A hint for a topic that does not exist, "" when nothing helps."""
    try:
        answer = client.get(f"/v0/topics?page_size={TOPICS_MAX}")
        names = [str(entry["topic"]) for entry in json.loads(answer.body)["topics"]]
    except (Failure, ValueError, LookupError, TypeError, RecursionError):
        return ""
    if not names:
        return "there is no topic yet; topics write makes one"
    near = nearest(topic, names)
    return f"did you mean {' or '.join(near)}?" if near else "topics ls shows the topics that exist"
