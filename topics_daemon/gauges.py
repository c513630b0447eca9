"""From what the daemon and the engine know to metrics: one table of them (`METERS`), and one function that fills it in.

A scrape costs the same however many topics there are: sums are kept while things change (`engine.core.census`), and
only the topics touched last have series of their own. A key that is limited to some names gets what says nothing of
others: `shared` metrics, the number of topics that it may use, and series of the first of those by name, because which
were touched last depends on what others do.

The documentation is made from the table; a test holds that each of its metrics is really given.
"""

from __future__ import annotations

import os
import platform
import resource
import time
from collections.abc import Generator, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from engine import scan
from engine.delivery import signs
from engine.queue.events import TimePassed
from engine.segment.objects import Requests
from engine.topic.history import NotCached
from engine.types import Reason
from engine.version import VERSION
from topics_daemon.auth import Caller
from topics_daemon.exposition import Family, Sample
from topics_daemon.metrics import RECENT_MAX, Times
from topics_daemon.routers import routers_of

if TYPE_CHECKING:
    from engine.core import Core
    from engine.core.host import Host
    from topics_daemon.daemon import Daemon

BUCKET_FIRST: Final = 15
"""Bits of the least bucket that is shown: 33 µs; faster ones are in it."""
BUCKET_LAST: Final = 36
"""Bits of the greatest: 69 s."""
CURSORS_MAX: Final = 1000
"""Cursors with series of their own."""
ROUTERS_MAX: Final = 1000
"""Routers with series of their own."""
STEP_TOPICS: Final = 32
"""Topics, or routers, that are looked at before others may come first: up to 20 µs each."""
_NO_BUCKET: Final = Requests()
_PAGE: Final = resource.getpagesize()


class Meter(msgspec.Struct, frozen=True):
    """One metric: what it is called, what it is, and its labels."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    shared: bool = False
    """Whether a key that is limited to some names gets it too: it says nothing of topics."""


def _gauge(name: str, text: str, *labels: str, shared: bool = False) -> Meter:
    return Meter("topics_" + name, "gauge", text, labels, shared)


def _counter(name: str, text: str, *labels: str) -> Meter:
    return Meter("topics_" + name, "counter", text, labels)


METERS: Final[tuple[Meter, ...]] = (
    _gauge("build_info", "Always 1; the labels say what runs.", "version", "python", "compiled", shared=True),
    _gauge("ready", "Whether a request would succeed.", shared=True),
    _gauge("recovery_progress", "How far the replay of the log is, 0 to 1.", shared=True),
    _gauge("uptime_seconds", "Age of the process.", shared=True),
    _gauge("topics", "Topics that there are (for a key limited to some names: of those names).", shared=True),
    _gauge("topics_by_class", "Topics by durability.", "class"),
    _gauge("records_live", "Live records of all topics."),
    _gauge("bytes_live", "Bytes of data, meta, node and tag of all live records."),
    _counter("requests_total", "Requests answered, by route and status.", "route", "status"),
    Meter("topics_request_seconds", "histogram", "Time from a whole request to its answer, by route.", ("route",)),
    _counter("records_written_total", "Records of writes that were applied."),
    _counter("records_read_total", "Records of pages read; one that several watchers share counts once."),
    _counter("records_evicted_total", "Live records lost to caps and age.", "reason"),
    _counter("tombstones_total", "Tombstones told to readers.", "reason"),
    _counter("wal_frames_total", "Frames of the write-ahead log; goes on over restarts."),
    _counter("wal_bytes_total", "Bytes of the write-ahead log's stream, gaps included; goes on over restarts."),
    _counter("wal_syncs_total", "Syncs that succeeded."),
    _counter("wal_rotations_total", "Times the log went on in another file."),
    Meter("topics_wal_sync_seconds", "histogram", "Time from the beginning of a sync to its result."),
    _gauge("wal_queue_bytes", "Bytes of the log that are not synced yet."),
    _gauge("wal_read_only", "Whether (part of) the store takes no writes, because its log failed."),
    _gauge("wal_full", "Whether the log finds no space for its next file: writes get 507 once this one is full."),
    _gauge("checkpoint_seconds", "How long the last checkpoint since the start took; 0 before it."),
    _gauge("checkpoint_age_seconds", "Time since the last checkpoint, or since the start while there was none."),
    _gauge("checkpoint_uncovered_bytes", "Bytes of the log that no checkpoint holds yet."),
    _gauge("checkpoint_failing", "Whether the last checkpoint failed; the log and the older ones are kept."),
    _counter("checkpoint_failures_total", "Checkpoints that failed."),
    _counter("files_left_total", "Files that could not be removed; the next start tries again."),
    _gauge("disk_free_bytes", "Free bytes of the data directory's file system."),
    _gauge("disk_free_inodes", "Files that can still be made there; 2^62 where they are made as they are needed."),
    _gauge("disk_bytes", "Bytes of the files in the data directory.", "kind"),
    _gauge("cache_bytes", "Bytes of records held in memory."),
    _gauge("damage_ranges", "Ranges of records that are known to be lost to corruption."),
    _counter("damage_found_total", "How often reads have met damage in segments since the start."),
    _counter("damage_records_total", "Live records that were lost by it."),
    _counter("cold_reads_total", "Reads of the cold tier that are done."),
    _counter("cold_read_seconds_total", "Time that they took, from the question to the answer."),
    _counter(
        "cold_requests_total",
        "What was asked of the cold tier, by operation: of a bucket every request, of a directory every job.",
        "op",
    ),
    _counter("cold_failures_total", "How often it failed, by operation.", "op"),
    _counter("cold_bytes_total", "Bytes of objects that came from the bucket (get) and went to it (put).", "op"),
    _counter("cold_retries_total", "Requests of the bucket that were attempts beyond the first."),
    _counter(
        "object_store_cost_dollars_total",
        "Estimate of what the requests cost, by TOPICS_COLD_PRICES; no storage.",
        "op",
    ),
    _counter("cold_moved_total", "Segments that were moved to the cold tier since the start."),
    _counter("cold_merges_total", "Segments of the cold tier that were made of small ones since the start."),
    _counter("cold_merged_total", "Small segments that were joined for that."),
    _counter("cold_merged_bytes_total", "Bytes of records that were read for that."),
    _gauge("cold_merges_left", "Segments that are still to be made until the next checkpoint."),
    _counter("cold_swept_total", "Files of the cold tier that a crash had left there, and that were removed."),
    _gauge("cold_failing", "Whether the cold tier does not take what it is given."),
    _counter("moves_total", "Detaches, cancels and attaches that ended well since the start, by operation.", "op"),
    _counter("moves_failed_total", "How many were refused or failed.", "op"),
    _gauge("moves_under_way", "How many are being worked on."),
    _gauge("moves_offered", "Topics that were detached and that nobody has attached yet."),
    _gauge("watchers", "Open streams."),
    _gauge("watch_sessions", "Watch sessions, with a stream or without."),
    _gauge("watch_lagging", "Open streams that have something they could not send yet."),
    _gauge("connections", "Open connections."),
    _gauge("multiplexed_requests", "Open requests of all connections of HTTP/2, streams and long polls among them."),
    _gauge("request_buffer_bytes", "Bytes of request bodies that are on their way in."),
    _gauge("pressure", "How hard the daemon is pressed, 0 to 1: above 0.8 for a second, writes are told to come back."),
    _gauge("pressure_sign", "Signs that the pressure is made from, 0 to 1.", "sign"),
    _gauge("topics_waiting", "Topics that wait for their turn to be delivered."),
    _gauge("topics_set_aside", "Topics of negative priority that are not pushed while the daemon is pressed."),
    _gauge("loop_lag_seconds", "Worst delay of a timer within the last seconds."),
    _counter("throttled_total", "Requests answered 429, by the limit that was met.", "why"),
    _gauge("topic_records", "Live records of a topic; of the topics touched last.", "topic", shared=True),
    _gauge("topic_bytes", "Live bytes of a topic; of the topics touched last.", "topic", shared=True),
    _gauge("topic_head_seq", "Last seq of a topic; of the topics touched last.", "topic", shared=True),
    _gauge(
        "cursor_lag",
        "Records between a cursor and its topic's head; of the topics touched last, at most 1000 cursors.",
        "topic",
        "cursor",
        shared=True,
    ),
    _gauge("routers", "Routers that there are (for a key limited to some names: of those names).", shared=True),
    _counter("records_forwarded_total", "Copies that routers have made."),
    _gauge(
        "router_lag", "Records of its source that a router has not examined; of 1000 routers.", "router", shared=True
    ),
    _gauge("router_blocked", "Whether a router waits for its dest; of the same routers.", "router", shared=True),
    _gauge("queue_ready", "Jobs that a claim could get; of the topics touched last.", "topic", shared=True),
    _gauge("queue_in_flight", "Jobs under a lease; of the topics touched last.", "topic", shared=True),
    _gauge("queue_delayed", "Jobs that are to be tried again later; of the topics touched last.", "topic", shared=True),
    _gauge(
        "queue_oldest_ready_seconds",
        "How long the first ready job has been ready; 0 for none, absent where its record would have to be read.",
        "topic",
        shared=True,
    ),
    Meter(
        "topics_queue_acked_total",
        "counter",
        "Jobs that were done, ever; of the topics touched last.",
        ("topic",),
        True,
    ),
    Meter(
        "topics_queue_dead_lettered_total",
        "counter",
        "Jobs that went to the dead letters, ever; of the topics touched last.",
        ("topic",),
        True,
    ),
    _gauge("metrics_truncated", "Whether there are topics without series of their own.", shared=True),
    Meter("process_cpu_seconds_total", "counter", "CPU time of the process.", ()),
    Meter("process_resident_memory_bytes", "gauge", "Resident memory of the process.", ()),
    Meter("process_virtual_memory_bytes", "gauge", "Virtual memory of the process.", ()),
    Meter("process_start_time_seconds", "gauge", "When the process started, in seconds since the epoch.", ()),
    Meter("process_open_fds", "gauge", "Open file descriptors of the process.", ()),
    Meter("process_max_fds", "gauge", "How many it may open.", ()),
)


class _Page:
    """The series of one scrape, by metric."""

    def __init__(self) -> None:
        self.samples: dict[str, list[Sample]] = {}

    def put(self, name: str, value: float, suffix: str = "", **labels: str) -> None:
        """Add a series."""
        self.samples.setdefault(name, []).append(Sample(suffix, labels, value))

    def put_times(self, name: str, times: Times, **labels: str) -> None:
        """Add a histogram: cumulative counts up to 2^bits nanoseconds."""
        count = sum(times.buckets[:BUCKET_FIRST])
        for bits in range(BUCKET_FIRST, BUCKET_LAST + 1):
            count += times.buckets[bits]
            self.put(name, count, "_bucket", **labels, le=repr((1 << bits) / 1e9))
        total = count + sum(times.buckets[BUCKET_LAST + 1 :])
        self.put(name, total, "_bucket", **labels, le="+Inf")
        self.put(name, times.took_ns / 1e9, "_sum", **labels)
        self.put(name, total, "_count", **labels)


def collect(daemon: Daemon, caller: Caller) -> Generator[None, None, list[Family]]:
    """Every metric that `caller` may see, now; others may come first at each `yield`."""
    page = _Page()
    limited = bool(caller.prefixes)
    core = daemon.core
    compiled = str(int(scan.is_compiled()))
    page.put("topics_build_info", 1, version=VERSION, python=platform.python_version(), compiled=compiled)
    healthy = core is not None and daemon.serving and core.read_only is None and not core.commit.stalled
    page.put("topics_ready", int(healthy))
    page.put("topics_recovery_progress", 1.0 if core is not None else round(daemon.progress, 4))
    page.put("topics_uptime_seconds", round(time.monotonic() - daemon.started_s, 3))
    if core is not None:
        yield from _put_topics(page, daemon, core, caller)
    if not limited:
        _put_requests(page, daemon)
        _put_daemon(page, daemon)
        _put_process(page, daemon)
        if core is not None:
            _put_engine(page, daemon, core)
            _put_log(page, core)
            _put_checkpoints(page, daemon, core)
            _put_cold(page, daemon, core)
            _put_moves(page, daemon)
    given = page.samples
    return [
        Family(meter.name, meter.kind, meter.help, given.get(meter.name, []))
        for meter in METERS
        if meter.shared or not limited
    ]


def _put_topics(page: _Page, daemon: Daemon, core: Core, caller: Caller) -> Iterator[None]:
    """How many topics there are, and series of those touched last."""
    catalog = core.catalog
    count = sum(map(catalog.count, caller.prefixes)) if caller.prefixes else len(catalog.names)
    page.put("topics_topics", count)
    shown = cursors = 0
    for name in _names(daemon, core, caller):
        slot = catalog.visible.get(name)
        if slot is None:
            continue
        shown += 1
        if not shown % STEP_TOPICS:
            yield
        page.put("topics_topic_records", slot.topic.count, topic=name)
        page.put("topics_topic_bytes", slot.topic.bytes, topic=name)
        page.put("topics_topic_head_seq", slot.topic.head, topic=name)
        if slot.host is not None:
            _put_queue(page, slot.host, name, core.now())
        for cursor, place in islice((slot.cursors or {}).items(), CURSORS_MAX - cursors):
            cursors += 1
            page.put("topics_cursor_lag", max(slot.topic.head - place.seq, 0), topic=name, cursor=cursor)
    routers, after, more = 0, "", True
    while more and routers < ROUTERS_MAX:
        states, more = routers_of(core, caller, "", min(STEP_TOPICS, ROUTERS_MAX - routers), after)
        for state in states:
            page.put("topics_router_lag", state.lag, router=state.router)
            page.put("topics_router_blocked", int(state.blocked is not None), router=state.router)
            after = state.router
        routers += len(states)
        if more:
            yield
    page.put("topics_routers", len(core.catalog.routers) if not caller.prefixes else routers)
    page.put("topics_metrics_truncated", int(count > shown))


def _names(daemon: Daemon, core: Core, caller: Caller) -> list[str]:
    """The topics that have series of their own."""
    if not caller.prefixes:
        return daemon.metrics.recent_names()
    names: list[str] = []
    for prefix in caller.prefixes:
        names += (slot.name for slot in core.catalog.page(prefix, RECENT_MAX - len(names), "")[0])
    return names


def _put_queue(page: _Page, host: Host, name: str, now_ms: int) -> None:
    host.at(now_ms)
    host.settle()
    queue = host.queue
    try:
        oldest_ms = queue.counters(now_ms).oldest_ready_ms or 0
    except NotCached:
        queue.apply(TimePassed(now_ms))
    else:
        page.put("topics_queue_oldest_ready_seconds", oldest_ms / 1000, topic=name)
    page.put("topics_queue_ready", max(queue.ready, 0), topic=name)
    page.put("topics_queue_in_flight", queue.in_flight, topic=name)
    page.put("topics_queue_delayed", queue.delayed, topic=name)
    page.put("topics_queue_acked_total", queue.acked, topic=name)
    page.put("topics_queue_dead_lettered_total", queue.dead_lettered, topic=name)


def _put_requests(page: _Page, daemon: Daemon) -> None:
    metrics = daemon.metrics
    for tally in (*metrics.tallies.values(), metrics.long_polls, metrics.unrouted):
        total = sum(tally.buckets)
        if not total:
            continue
        counts = {200: total - sum(tally.statuses.values()), **tally.statuses}
        for status, count in sorted(counts.items()):
            if count:
                page.put("topics_requests_total", count, route=tally.route, status=str(status))
        page.put_times("topics_request_seconds", tally, route=tally.route)
    for why, count in sorted(metrics.throttled.items()):
        page.put("topics_throttled_total", count, why=why)


def _put_daemon(page: _Page, daemon: Daemon) -> None:
    page.put("topics_watchers", daemon.pump.stream_count)
    page.put("topics_watch_sessions", len(daemon.sessions))
    page.put("topics_watch_lagging", daemon.pump.lagging)
    page.put("topics_connections", len(daemon.connections))
    page.put("topics_multiplexed_requests", daemon.http2_requests)
    page.put("topics_request_buffer_bytes", daemon.buffered_bytes)
    page.put("topics_pressure", round(daemon.governor.pressure, 4))
    for sign, value in signs(daemon.governor.seen).items():
        page.put("topics_pressure_sign", round(value, 4), sign=sign)
    page.put("topics_topics_waiting", len(daemon.pump.ready))
    page.put("topics_topics_set_aside", len(daemon.pump.ready.aside))
    page.put("topics_loop_lag_seconds", round(max(daemon.metrics.lags), 6))


def _put_engine(page: _Page, daemon: Daemon, core: Core) -> None:
    catalog, census = core.catalog, core.catalog.census
    for durability, count in census.by_class.items():
        page.put("topics_topics_by_class", count, **{"class": durability.value})
    page.put("topics_records_live", catalog.records_live)
    page.put("topics_bytes_live", catalog.bytes_live)
    page.put("topics_records_written_total", census.written)
    page.put("topics_records_read_total", census.read)
    page.put("topics_records_forwarded_total", census.forwarded)
    before = daemon.metrics.lost_before
    for reason in (Reason.CAP, Reason.TTL):
        lost = catalog.cache.lost[reason] - before.get(reason, 0)
        page.put("topics_records_evicted_total", lost, reason=reason.value)
    for reason, count in census.told.items():
        page.put("topics_tombstones_total", count, reason=reason.value)
    page.put("topics_cache_bytes", catalog.cache.bytes_held)
    page.put("topics_damage_ranges", census.damage_ranges)


def _put_log(page: _Page, core: Core) -> None:
    wal = core.wal
    page.put("topics_wal_frames_total", wal.order - 1)
    page.put("topics_wal_bytes_total", sum(shard.tip_lsn for shard in wal.shards))
    page.put("topics_wal_syncs_total", wal.syncs)
    page.put("topics_wal_rotations_total", wal.rotations)
    page.put("topics_wal_queue_bytes", core.wal.unsynced_bytes)
    page.put("topics_wal_read_only", int(core.read_only is not None))
    page.put("topics_wal_full", int(any(shard.full is not None for shard in wal.shards)))
    page.put("topics_disk_bytes", wal.bytes_allocated, kind="wal")


def _put_checkpoints(page: _Page, daemon: Daemon, core: Core) -> None:
    keeper, last = core.keeper, core.keeper.last
    age_s = time.monotonic() - daemon.started_s if last is None else max(0, core.now() - last.ts) / 1000
    page.put("topics_checkpoint_seconds", 0.0 if last is None else last.took_ms / 1000)
    page.put("topics_checkpoint_age_seconds", round(age_s, 3))
    page.put("topics_checkpoint_uncovered_bytes", keeper.uncovered_bytes)
    page.put("topics_checkpoint_failing", int(keeper.problem is not None))
    page.put("topics_checkpoint_failures_total", keeper.failures)
    page.put("topics_files_left_total", daemon.metrics.files_left)


def _put_moves(page: _Page, daemon: Daemon) -> None:
    """Topics on their way to or from other daemons."""
    moves = daemon.handovers
    for op, count in moves.requests.items():
        page.put("topics_moves_total", count, op=op)
    for op, count in moves.failed.items():
        page.put("topics_moves_failed_total", count, op=op)
    page.put("topics_moves_under_way", moves.under_way)
    page.put("topics_moves_offered", moves.offered)


def _put_cold(page: _Page, daemon: Daemon, core: Core) -> None:
    """The cold tier, as it is seen from here; and the damage that reads have met."""
    readers, mover = daemon.readers, core.keeper.mover
    page.put("topics_damage_found_total", core.damage.segments)
    page.put("topics_damage_records_total", core.damage.records)
    page.put("topics_cold_reads_total", readers.cold_reads)
    page.put("topics_cold_read_seconds_total", round(readers.cold_seconds, 6))
    made, failed = {"get": readers.cold_reads, **mover.requests}, {"get": readers.cold_failures, **mover.failed}
    bucket = daemon.cold_requests
    if bucket is not None:
        made, failed = bucket.made, bucket.failed
    else:
        bucket = _NO_BUCKET
    for op, size in bucket.bytes.items():
        page.put("topics_cold_bytes_total", size, op=op)
    page.put("topics_cold_retries_total", bucket.retries)
    for op, dollars in bucket.cost(daemon.cold_prices).items():
        page.put("topics_object_store_cost_dollars_total", round(dollars, 9), op=op)
    for op, count in made.items():
        page.put("topics_cold_requests_total", count, op=op)
    for op, count in failed.items():
        page.put("topics_cold_failures_total", count, op=op)
    page.put("topics_cold_moved_total", mover.moved)
    page.put("topics_cold_merges_total", mover.merges.made)
    page.put("topics_cold_merged_total", mover.merges.joined)
    page.put("topics_cold_merged_bytes_total", mover.merges.bytes)
    page.put("topics_cold_merges_left", mover.merges.left)
    page.put("topics_cold_swept_total", mover.swept)
    page.put("topics_cold_failing", int(mover.problem is not None))


def _put_process(page: _Page, daemon: Daemon) -> None:
    """The process, from /proc; what cannot be read is left out."""
    page.put_times("topics_wal_sync_seconds", daemon.metrics.syncs)
    times = os.times()
    page.put("process_cpu_seconds_total", round(times.user + times.system, 2))
    page.put("process_start_time_seconds", round(daemon.metrics.started, 3))
    page.put("process_max_fds", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    try:
        with open("/proc/self/statm", "rb") as file:
            virtual, resident = file.read().split()[:2]
        page.put("process_virtual_memory_bytes", int(virtual) * _PAGE)
        page.put("process_resident_memory_bytes", int(resident) * _PAGE)
        page.put("process_open_fds", len(os.listdir("/proc/self/fd")) - 1)
        if daemon.core is not None:
            space = daemon.core.fs.space()
            page.put("topics_disk_free_bytes", space.bytes_free)
            page.put("topics_disk_free_inodes", space.inodes_free)
    except OSError:
        # A sandbox without /proc: the rest is worth telling all the same.
        pass
