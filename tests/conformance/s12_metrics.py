"""§12 and §13, metrics: text and JSON, the names, the scope, and that prefixes apply to labels; what the store is."""

from __future__ import annotations

import re

from tests.conformance.kit import Api, Needs, case, has, holds, same

_LINE = re.compile(rb'[a-zA-Z_:][a-zA-Z0-9_:]*(\{[a-z_]+="([^"\\\n]|\\.)*"(,[a-z_]+="([^"\\\n]|\\.)*")*\})? \S+')
TEXT = (("Accept", "text/plain"),)


@case("12 metrics")
def metrics_are_text_for_prometheus(api: Api) -> None:
    """`GET /v0/metrics` (`read`): Prometheus text."""
    response = api.call("GET", "/v0/metrics", headers=TEXT, status=200).response
    holds((response.header("content-type") or "").startswith("text/plain"), "content type is not text/plain")
    lines = response.body.split(b"\n")
    same(lines.pop(), b"", "what follows the last line")
    for line in lines:
        holds(line.startswith((b"# HELP ", b"# TYPE ")) or _LINE.fullmatch(line) is not None, f"line {line!r}")
    for name in (b"topics_build_info", b"topics_ready", b"topics_topics", b"topics_uptime_seconds"):
        holds(any(line.startswith(name) for line in lines), f"{name.decode()} is missing")


NAMES = """
build_info ready recovery_progress uptime_seconds topics topics_by_class records_live bytes_live
requests_total request_seconds records_written_total records_read_total records_evicted_total tombstones_total
wal_frames_total wal_bytes_total wal_syncs_total wal_rotations_total wal_sync_seconds wal_queue_bytes
wal_read_only checkpoint_seconds checkpoint_age_seconds disk_free_bytes disk_bytes damage_ranges watchers
watch_lagging router_lag cursor_lag queue_ready queue_in_flight queue_delayed queue_oldest_ready_seconds
pressure loop_lag_seconds throttled_total cold_reads_total cold_read_seconds_total cold_requests_total
object_store_cost_dollars_total metrics_truncated
"""


@case("12 metrics")
def every_name_is_there_from_the_start(api: Api) -> None:
    """At least: the list of operations.md, also where nothing has been counted under a name so far."""
    text = api.call("GET", "/v0/metrics", headers=TEXT, status=200).raw.decode()
    same([name for name in NAMES.split() if f"# TYPE topics_{name} " not in text], [], "names that are missing")


@case("12 metrics")
def the_store_shows_files_bytes_tiers_damage_shards_and_the_last_checkpoint(api: Api) -> None:
    """`GET /v0/admin/store`: files, bytes, tiers, damage, shards, last checkpoint."""
    api.write(api.topic(), 1)
    api.call("POST", "/v0/admin/checkpoint", status=200)
    store = api.call("GET", "/v0/admin/store", status=200).json
    has(store, ["files", "bytes", "tiers", "damage", "shards", "checkpoint"], "store")
    has(store["tiers"], ["hot", "cold"], "tiers")
    holds(store["files"] > 0 and store["bytes"] > 0, "no files, or none with bytes")
    holds(store["checkpoint"]["last"]["ts"] > 0, "the last checkpoint is not shown")


@case("12 metrics")
def metrics_are_json_when_asked(api: Api) -> None:
    """JSON on `Accept: application/json`."""
    answer = api.call("GET", "/v0/metrics", headers=(("Accept", "application/json"),), status=200).json
    has(answer, ["metrics", "performance"], "metrics")
    has(answer["metrics"], ["topics_build_info", "topics_ready", "topics_topics"], "metrics")


@case("12 metrics", Needs.KEYS)
def metrics_take_the_scope_read(api: Api) -> None:
    """Scope read: metrics."""
    api.refused("GET", "/v0/metrics", status=403, code="forbidden", key=api.keys.write)
    api.call("GET", "/v0/metrics", key=api.keys.read, status=200)


@case("12 metrics", Needs.KEYS)
def prefixes_apply_to_labels(api: Api) -> None:
    """Prefixes apply to metrics labels."""
    outside = api.also_drop("outside-of-the-prefix-metrics")
    api.write(outside, 1)
    api.write(api.topic(), 1)
    text = api.call("GET", "/v0/metrics", headers=TEXT, key=api.keys.prefixed, status=200).raw
    holds(outside.encode() not in text, "a label shows a name outside of the prefix")
    full = api.call("GET", "/v0/metrics", headers=TEXT, status=200).raw
    holds(outside.encode() in full, "a topic that was just written has no series")
