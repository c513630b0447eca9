"""How much a topic matters to delivery: never to seqs, or to what is readable (operations.md, "Priorities")."""

from __future__ import annotations

from engine.types import TopicConfig


def effective_priority(config: TopicConfig, last_write_ts: int | None, last_read_ts: int | None, now: int) -> int:
    """Manual priority, or recency: 500 that halves every 30 s of idleness, 0 after 300 s (operations.md)."""
    if config.priority is not None:
        return config.priority
    if not config.auto_priority:
        return 0
    touched = max(last_write_ts or 0, last_read_ts or 0)
    idle_ms = now - touched
    return 0 if idle_ms >= 300_000 else int(500 * 2.0 ** (-max(idle_ms, 0) / 30_000))
