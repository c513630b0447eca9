"""Priority is manual, or recency that halves every 30 seconds."""

from engine.core.priority import effective_priority
from engine.types import TopicConfig


def test_a_manual_priority_wins_over_recency() -> None:
    assert effective_priority(TopicConfig(priority=-7), 1000, None, 1000) == -7


def test_recency_halves_every_thirty_seconds_and_ends_after_three_hundred() -> None:
    config = TopicConfig()
    assert [effective_priority(config, 0, None, idle) for idle in (0, 30_000, 60_000, 299_999, 300_000)] == [
        500,
        250,
        125,
        0,
        0,
    ]


def test_reading_counts_as_recency_and_automatic_priority_can_be_off() -> None:
    assert effective_priority(TopicConfig(), 0, 300_000, 300_000) == 500
    assert effective_priority(TopicConfig(auto_priority=False), 300_000, 300_000, 300_000) == 0
