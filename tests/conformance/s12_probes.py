"""§12, the two probes: health and ready, under both their names."""

from __future__ import annotations

import time

from tests.conformance.kit import Api, case, each, has, holds, same


@each("12 probes", [(path, path) for path in ("/v0/health", "/healthz")])
def health_answers_while_the_process_serves(api: Api, path: str) -> None:
    """`GET /v0/health`, `/healthz` → `{status:"ok", version, uptime_ms}` while the process serves."""
    answer = api.call("GET", path, status=200).json
    same(answer["status"], "ok", "status")
    holds(isinstance(answer["version"], str) and answer["version"] != "", f"version {answer['version']!r}")
    holds(type(answer["uptime_ms"]) is int and answer["uptime_ms"] >= 0, f"uptime_ms {answer['uptime_ms']!r}")


@case("12 probes")
def uptime_goes_up(api: Api) -> None:
    """`uptime_ms`: the process's age, in milliseconds."""
    first = api.call("GET", "/v0/health", status=200).json["uptime_ms"]
    time.sleep(0.05)
    second = api.call("GET", "/v0/health", status=200).json["uptime_ms"]
    holds(30 <= second - first < 10_000, f"uptime_ms went from {first} to {second} in 50 ms")


@each("12 probes", [(path, path) for path in ("/v0/ready", "/readyz")])
def ready_says_that_replay_is_done(api: Api, path: str) -> None:
    """`GET /v0/ready`, `/readyz` → `{status:"ready", wal_replay_complete, topics}` or 503."""
    answer = api.call("GET", path, status=200).json
    same(answer["status"], "ready", "status")
    same(answer["wal_replay_complete"], True, "wal_replay_complete")
    holds(type(answer["topics"]) is int, f"topics {answer['topics']!r}")


@case("12 probes")
def ready_counts_topics(api: Api) -> None:
    """`topics`: how many there are."""
    api.put(api.topic())
    answer = api.call("GET", "/v0/ready", status=200).json
    has(answer, ["topics"], "ready")
    holds(answer["topics"] >= 1, f"topics {answer['topics']}")
