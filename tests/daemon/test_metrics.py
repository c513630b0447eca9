"""Metrics: what Prometheus reads, that nothing is missing, that labels and cost are bounded, and who sees what."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # its types are a package of their own, for this one line
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.daemon.kit import DaemonProcess, Events, clean_environment, daemon_process, post, request, watch
from topics_daemon.gauges import METERS
from topics_daemon.metrics import BITS, RECENT_MAX, Metrics, Tally

THIN = Path(__file__).with_name("thin_slices.py")
MONITORING = Path(__file__).resolve().parents[2] / "docs" / "monitoring"


def scrape(daemon: DaemonProcess, key: str = "") -> dict[str, Metric]:
    """All families, by the parser that Prometheus' own client has."""
    auth = [f"Authorization: Bearer {key}"] if key else []
    answer = daemon.ask(request("GET", "/v0/metrics", None, *auth))
    assert answer.status == 200, answer
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = list(text_string_to_metric_families(answer.body.decode()))
    assert len({family.name for family in families}) == len(families)
    return {family.name: family for family in families}


def value(families: dict[str, Metric], name: str, **labels: str) -> float:
    """One series; 0 where it is not given."""
    family = families.get(name.removesuffix("_total")) or families[re.sub("_(bucket|sum|count)$", "", name)]
    found = [
        sample.value for sample in family.samples if sample.name == name and labels.items() <= sample.labels.items()
    ]
    assert len(found) <= 1, found
    return float(found[0]) if found else 0.0


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    """A daemon that has met everything once: writes, reads, losses, a stream, errors, a limit."""
    with daemon_process("--max-topics", "4") as process:
        process.ask(request("PUT", "/v0/topics/capped", {"cap_records": 2}))
        process.write("capped", 1, 2, 3)
        process.write("synced", 1, ack="fsync")
        process.read("capped")
        assert process.ask(request("GET", "/v0/topics/none")).status == 404
        assert process.ask(request("GET", "/nothing")).status == 404
        process.ask(request("PUT", "/v0/topics/capped/cursors/reader", {"seq": 1}))
        process.ask(request("PUT", "/v0/routers/capped%3Esynced", {"source": "capped", "dest": "synced"}))
        process.ask(request("PUT", "/v0/topics/a", {"type": "queue"}))
        for name in ("a", "b", "c"):
            process.ask(post(f"/v0/topics/{name}", {"records": [{"data": 1}]}))
        yield process


def test_every_metric_of_the_table_is_given_with_its_kind_and_labels(daemon: DaemonProcess) -> None:
    families = scrape(daemon)
    for meter in METERS:
        family = families[meter.name.removesuffix("_total")]
        assert family.type == meter.kind
        assert family.documentation == meter.help
        assert family.samples, meter.name
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(meter.labels), sample
    assert set(families) == {meter.name.removesuffix("_total") for meter in METERS}


def test_names_follow_the_rules_of_prometheus() -> None:
    for meter in METERS:
        assert re.fullmatch(r"(topics|process)_[a-z_]+[a-z]", meter.name)
        assert meter.name.endswith("_total") is (meter.kind == "counter")
        assert not re.search(r"_(ms|kb|mb|percent|millis)(_|$)", meter.name)


def test_the_figures_are_those_of_what_was_done(daemon: DaemonProcess) -> None:
    families = scrape(daemon)
    assert value(families, "topics_topics") == 4
    assert value(families, "topics_topics_by_class", **{"class": "disk"}) == 4
    assert value(families, "topics_records_written_total") == 6
    assert value(families, "topics_records_live") == 5
    assert value(families, "topics_records_evicted_total", reason="cap") == 1
    assert value(families, "topics_tombstones_total", reason="cap") == 1
    assert value(families, "topics_records_read_total") == 2
    assert value(families, "topics_throttled_total", why="max_topics") == 1
    write = "POST /v0/topics/:topic"
    assert value(families, "topics_requests_total", route=write, status="201") == 2
    assert value(families, "topics_requests_total", route=write, status="200") == 2
    assert value(families, "topics_requests_total", route=write, status="429") == 1
    assert value(families, "topics_request_seconds_count", route=write) == 5
    assert value(families, "topics_requests_total", route="GET /v0/topics/:topic", status="404") == 1
    assert value(families, "topics_requests_total", route="other", status="404") == 1
    assert value(families, "topics_wal_syncs_total") == value(families, "topics_wal_sync_seconds_count") >= 1
    assert value(families, "topics_topic_head_seq", topic="capped") == 3
    assert value(families, "topics_topic_records", topic="capped") == 2
    assert value(families, "topics_cursor_lag", topic="capped", cursor="reader") == 2
    assert value(families, "topics_routers") == 1
    assert value(families, "topics_router_lag", router="capped>synced") == 0
    assert value(families, "topics_ready") == value(families, "topics_recovery_progress") == 1
    assert value(families, "topics_metrics_truncated") == 0
    assert value(families, "process_open_fds") > 5
    assert value(families, "topics_disk_free_bytes") > 0


def test_histograms_are_cumulative_and_end_in_their_count(daemon: DaemonProcess) -> None:
    families = scrape(daemon)
    for name in ("topics_request_seconds", "topics_wal_sync_seconds"):
        series: dict[str, list[tuple[float, float]]] = {}
        for sample in families[name].samples:
            if sample.name.endswith("_bucket"):
                series.setdefault(sample.labels.get("route", ""), []).append((float(sample.labels["le"]), sample.value))
        for route, buckets in series.items():
            assert buckets == sorted(buckets)
            assert [count for _, count in buckets] == sorted(count for _, count in buckets)
            assert buckets[-1][0] == float("inf")
            labels = {"route": route} if route else {}
            assert buckets[-1][1] == value(families, name + "_count", **labels)


@pytest.mark.slow
def test_a_checkpoint_shows() -> None:
    with daemon_process() as daemon:
        daemon.write("t", 1)
        before = scrape(daemon)
        assert value(before, "topics_checkpoint_seconds") == 0
        assert value(before, "topics_checkpoint_uncovered_bytes") > 0
        assert daemon.ask(request("POST", "/v0/admin/checkpoint")).status == 200
        after = scrape(daemon)
        assert value(after, "topics_checkpoint_age_seconds") < 60
        assert value(after, "topics_checkpoint_failing") == value(after, "topics_checkpoint_failures_total") == 0
        assert value(after, "topics_checkpoint_uncovered_bytes") < value(before, "topics_checkpoint_uncovered_bytes")


def test_json_says_the_same(daemon: DaemonProcess) -> None:
    answer = daemon.ask(request("GET", "/v0/metrics", None, "Accept: application/json"))
    metrics = answer.json["metrics"]
    assert metrics["topics_records_written_total"] == {
        "type": "counter",
        "help": "Records of writes that were applied.",
        "series": [{"labels": {}, "value": 6}],
    }
    assert {series["part"] for series in metrics["topics_request_seconds"]["series"]} == {"bucket", "sum", "count"}
    assert "server_total_ms" in answer.json["performance"]
    both = daemon.ask(request("GET", "/v0/metrics", None, "Accept: application/json;q=0.5, text/plain"))
    assert both.headers["content-type"].startswith("text/plain")


@pytest.mark.slow
def test_long_polls_and_streams_are_counted_once_and_apart() -> None:
    with daemon_process() as daemon:
        daemon.write("t", 1)
        url = watch(daemon, {"t": {}})
        with Events(daemon, url) as events, daemon.wire() as wire:
            events.next()
            wire.send(post("/v0/topics/t/diff", {"from_seq": 1, "wait_ms": 50}))
            assert wire.answer().status == 200
            families = scrape(daemon)
            assert value(families, "topics_watchers") == value(families, "topics_watch_sessions") == 1
            assert value(families, "topics_requests_total", route="long poll", status="200") == 1
            assert value(families, "topics_requests_total", route="GET /v0/watch/:param", status="200") == 1
            assert value(families, "topics_requests_total", route="POST /v0/topics/:topic/diff") == 0
            assert value(families, "topics_connections") >= 3


@pytest.mark.slow
def test_a_key_that_is_limited_sees_nothing_of_other_names() -> None:
    environ = clean_environment(TOPICS_API_KEYS="full,mine:read:mine,writer:write")
    with daemon_process(environ=environ) as daemon:
        for name in ("mine.a", "other"):
            config = request("PUT", f"/v0/topics/{name}", {"type": "queue"}, "Authorization: Bearer full")
            assert daemon.ask(config).status == 201
        for name in ("mine.a", "mine.b", "other", "another"):
            body = {"records": [{"data": 1}]}
            daemon.ask(post(f"/v0/topics/{name}", body, "Authorization: Bearer full"))
            cursor = request("PUT", f"/v0/topics/{name}/cursors/c", {"seq": 1}, "Authorization: Bearer full")
            assert daemon.ask(cursor).status == 201
        ends = {"source": "mine.a", "dest": "mine.b"}
        made = daemon.ask(request("PUT", "/v0/routers/mine.r", ends, "Authorization: Bearer full"))
        assert made.status == 201
        assert daemon.ask(request("GET", "/v0/metrics")).status == 401
        assert daemon.ask(request("GET", "/v0/metrics", None, "Authorization: Bearer writer")).status == 403
        everything, mine = scrape(daemon, "full"), scrape(daemon, "mine")
        assert value(everything, "topics_topics") == 4
        assert value(mine, "topics_topics") == 2
        assert value(mine, "topics_metrics_truncated") == 0
        assert set(mine) == {meter.name.removesuffix("_total") for meter in METERS if meter.shared}
        topics = {
            sample.labels["topic"] for family in mine.values() for sample in family.samples if "topic" in sample.labels
        }
        assert topics == {"mine.a", "mine.b"}


@pytest.mark.slow
def test_labels_are_bounded_and_a_scrape_costs_the_same_at_20_000_topics() -> None:
    with daemon_process() as daemon, daemon.wire() as wire:

        def write_topics(first: int, last: int) -> None:
            for start in range(first, last, 500):
                names = range(start, min(start + 500, last))
                wire.send(post("/v0/write", {"topics": {f"t{n}": {"records": [{"data": 1}]} for n in names}}))
                assert wire.answer().status in (200, 201)

        def cpu_s() -> float:
            """The processor's time of one scrape: nobody else who uses the machine is in it."""
            schedstat = Path(f"/proc/{daemon.pid}/schedstat")
            best = 9.0
            for _ in range(3):
                began = int(schedstat.read_text().split()[0])
                for _ in range(10):
                    wire.send(request("GET", "/v0/metrics"))
                    wire.answer()
                best = min(best, (int(schedstat.read_text().split()[0]) - began) / 1e10)
            return best

        write_topics(0, 100)
        least = cpu_s()
        write_topics(100, 2000)
        few = cpu_s()
        assert value(scrape(daemon), "topics_metrics_truncated") == 1
        write_topics(2000, 20_000)
        many = cpu_s()
        families = scrape(daemon)
        assert value(families, "topics_topics") == 20_000
        series = families["topics_topic_records"].samples
        assert len(series) == RECENT_MAX
        assert len(daemon.ask(request("GET", "/v0/metrics")).body) < 500_000
        figures = [f"{cost * 1000:.2f} ms" for cost in (least, few, many)]
        print("a scrape at 100, 2,000 and 20,000 topics:", *figures)
        assert many < 1.5 * few + 0.001, figures
        assert many < RECENT_MAX / 100 * least + 0.001, "no more than the series that it may have"
        # What was touched last is there: also what was only read.
        daemon.read("t5")
        daemon.write("t6", 1)
        shown = {sample.labels["topic"] for sample in scrape(daemon)["topics_topic_records"].samples}
        assert {"t5", "t6"} <= shown


def test_a_tally_knows_each_status_and_every_time() -> None:
    tally = Tally("r")
    for status in (200, 200, 201, 404, 500, 207):
        tally.add(b"HTTP/1.1 %d X\r\n" % status, time.perf_counter_ns())
    assert sum(tally.buckets) == 6
    assert tally.statuses == {201: 1, 404: 1, 500: 1, 207: 1}
    tally.note((1 << (BITS - 1)) - 1)
    assert tally.buckets[BITS - 1] == 1


class Named:
    """Stands for a slot."""

    def __init__(self, name: str) -> None:
        self.name = name


def test_the_names_touched_last_are_kept_and_no_more() -> None:
    metrics = Metrics()
    for number in range(3 * RECENT_MAX):
        slot: Any = Named(f"t{number}")
        metrics.touched.add(slot)
        metrics.tick(0.0)
    assert metrics.recent_names() == [f"t{number}" for number in range(2 * RECENT_MAX, 3 * RECENT_MAX)]
    metrics.reads.add(f"t{2 * RECENT_MAX}")
    assert metrics.recent_names()[-1] == f"t{2 * RECENT_MAX}"
    metrics.reads.update(f"r{number}" for number in range(5 * RECENT_MAX))
    assert len(metrics.recent_names()) == RECENT_MAX
    assert not metrics.reads


@pytest.mark.slow
def test_a_queue_has_series_that_follow_its_jobs() -> None:
    with daemon_process() as daemon:
        config = {"type": "queue", "dead_letter": "dead"}
        assert daemon.ask(request("PUT", "/v0/topics/q", config)).status == 201
        daemon.write("q", *range(6))
        assert daemon.ask(post("/v0/topics/q/claim", {"node": "n", "max": 4})).json["count"] == 4
        for verb, more in (
            ("ack", {"seqs": [1]}),
            ("nack", {"seqs": [2], "delay_ms": 60_000}),
            ("nack", {"seqs": [3], "dead_letter": True}),
        ):
            answer = daemon.ask(post(f"/v0/topics/q/{verb}", {"node": "n", **more}))
            assert answer.json["skipped"] == [], answer
        time.sleep(0.01)
        families = scrape(daemon)
        given = {
            name: value(families, f"topics_queue_{name}", topic="q")
            for name in ("ready", "in_flight", "delayed", "acked_total", "dead_lettered_total")
        }
        wanted = {"ready": 2, "in_flight": 1, "delayed": 1, "acked_total": 1, "dead_lettered_total": 1}
        assert given == wanted
        assert 0 < value(families, "topics_queue_oldest_ready_seconds", topic="q") < 60
        assert value(families, "topics_queue_ready", topic="dead") == 1


def metrics_in(expression: str) -> set[str]:
    """The metrics that a PromQL expression names."""
    return set(re.findall(r"\b(?:topics|process)_[a-z_]+", re.sub(r'"[^"]*"', '""', expression)))


def labels_in(expression: str) -> set[str]:
    """The labels by which it selects and groups."""
    selected = re.findall(r"([a-z_]+)(?:=~|!~|!=|=)\"", expression)
    grouped = [
        name.strip() for names in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for name in names.split(",")
    ]
    return {*selected, *grouped}


def check_expression(expression: str, families: dict[str, Metric], legend: str = "") -> None:
    """Assert that an expression names series and labels that are really given."""
    given = {sample.name: set(sample.labels) for family in families.values() for sample in family.samples}
    named = metrics_in(expression)
    assert named <= set(given), f"{expression}: {named - set(given)}"
    labels = {"instance", "job"}.union(*(given[name] for name in named))
    assert labels_in(expression) <= labels, expression
    assert set(re.findall(r"{{\s*(\w+)\s*}}", legend)) <= labels, legend


def test_the_dashboard_shows_what_is_given(daemon: DaemonProcess) -> None:
    families = scrape(daemon)
    board = json.loads((MONITORING / "dashboard.json").read_text())
    assert {"title", "uid", "schemaVersion", "panels", "templating"} <= set(board)
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, f"{panel['title']} lies on another panel"
        assert at["x"] + at["w"] <= 24
        taken |= cells
    shown = set()
    for panel in panels:
        for target in panel["targets"]:
            check_expression(target["expr"], families, target["legendFormat"])
            shown |= metrics_in(target["expr"])
    assert len(shown) >= 20


def test_the_alert_rules_speak_of_what_is_given(daemon: DaemonProcess) -> None:
    families = scrape(daemon)
    groups = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules) >= 10
    for rule in rules:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["summary"]
        check_expression(rule["expr"], families)
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))


def lost(given: Any, kept: Any, path: str = "") -> list[str]:
    """What of one JSON value is not in another one, by its path."""
    if isinstance(given, dict) and isinstance(kept, dict):
        return [word for name in given for word in lost(given[name], kept.get(name), f"{path}/{name}")]
    if isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        return [word for at, pair in enumerate(zip(given, kept, strict=True)) for word in lost(*pair, f"{path}/{at}")]
    return [] if given == kept else [path]


def test_the_dashboard_is_one_for_grafanas_own_types() -> None:
    """Read into Grafana's types and written again, nothing is missing: a member that they do not know would be."""
    plugins.register_default_plugins()
    board = json.loads((MONITORING / "dashboard.json").read_text())

    def written(value: Any) -> Any:
        return json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(value)))

    assert lost(board, written(board)) == []
    misspelt = json.loads(json.dumps(board).replace('"legendFormat"', '"legend"').replace('"timezone"', '"zone"'))
    assert lost(misspelt, written(misspelt)), "this would notice"


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("grafana") is None,
    reason="Grafana's server is not installed; Debian's packages, PyPI, npm and Maven Central do not have it (its own"
    " downloads do), so elsewhere its types alone say that the dashboard is one",
)
def test_a_grafana_takes_the_dashboard(tmp_path: Path) -> None:
    board = json.loads((MONITORING / "dashboard.json").read_text())
    where = {"GF_PATHS_DATA": str(tmp_path / "data"), "GF_PATHS_LOGS": str(tmp_path), "GF_PATHS_PLUGINS": str(tmp_path)}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    quiet = {"GF_ANALYTICS_REPORTING_ENABLED": "false", "GF_ANALYTICS_CHECK_FOR_UPDATES": "false"}
    listens = {"GF_SERVER_HTTP_ADDR": "127.0.0.1", "GF_SERVER_HTTP_PORT": str(port)}
    home = os.environ.get("GF_PATHS_HOME", "/usr/share/grafana")
    grafana = subprocess.Popen(
        ["grafana", "server", "--homepath", home], env={**os.environ, **where, **quiet, **listens}, cwd=tmp_path
    )

    def ask(path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Authorization": "Basic YWRtaW46YWRtaW4="}
        asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return json.load(answer)

    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                ask("/api/health")
                break
            except OSError:
                assert grafana.poll() is None, "Grafana has ended"
                assert time.monotonic() < deadline, "Grafana does not start"
                time.sleep(0.2)
        taken = ask("/api/dashboards/db", {"dashboard": {**board, "id": None}, "overwrite": True})
        assert taken["status"] == "success"
        shown = ask(f"/api/dashboards/uid/{taken['uid']}")["dashboard"]
        assert [panel["title"] for panel in shown["panels"]] == [panel["title"] for panel in board["panels"]]
    finally:
        grafana.terminate()
        grafana.wait(60)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Prometheus) is not installed")
def test_prometheus_own_tool_takes_the_rules_and_finds_no_fault_with_the_metrics(daemon: DaemonProcess) -> None:
    rules = subprocess.run(
        ["promtool", "check", "rules", str(MONITORING / "alerts.yml")], capture_output=True, text=True, timeout=60
    )
    assert rules.returncode == 0, rules.stdout + rules.stderr
    page = daemon.ask(request("GET", "/v0/metrics")).body
    linted = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, timeout=60)
    assert (linted.returncode, linted.stdout + linted.stderr) == (0, b"")


def test_others_are_served_while_a_scrape_looks_at_many_topics() -> None:
    names = [f"scraped-{number}" for number in range(500)]

    def health(families: bytes) -> int:
        return sum(map(int, re.findall(rb'requests_total\{route="GET /v0/health",[^}]*\} (\d+)', families)))

    with daemon_process(launcher=THIN) as daemon, daemon.wire() as scraper, daemon.wire() as other:
        daemon.ask(post("/v0/write", {"topics": {name: {"records": [{"data": name}]} for name in names}}))
        before = health(daemon.ask(request("GET", "/v0/metrics")).body)
        os.kill(daemon.pid, signal.SIGSTOP)
        scraper.send(request("GET", "/v0/metrics"))
        other.send(request("GET", "/v0/health"))
        os.kill(daemon.pid, signal.SIGCONT)
        assert other.answer().status == 200
        page = scraper.answer().body
    assert health(page) == before + 1, "what was asked for later was answered while its topics were looked at"
    assert all(page.count(f'{{topic="{name}"}}'.encode()) == 3 for name in names)
