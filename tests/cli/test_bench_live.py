"""A load test that is watched: what Prometheus and Grafana are given is what `topics bench` and the daemon expose."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import pytest
import yaml  # type: ignore[import-untyped]  # its types are a package of their own, for this one line
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.bench.servers import free_port
from tests.cli.support import PYTHON, ROOT, Daemon, clean_environment, die_with_us
from tests.daemon.test_metrics import check_expression, lost, metrics_in
from topics_cli.loaded import Seen, exposition

pytestmark = pytest.mark.slow

MONITORING = ROOT / "docs" / "monitoring"
LIVE = """
duration = "20s"
drain = "5s"
[daemon]
start = true
port = {port}
[topics.orders]
[[producers]]
name = "shop"
topic = "orders"
rate = 100
batch = 5
[[readers]]
name = "stream"
kind = "sse"
topic = "orders"
"""


def exposed(daemon: Daemon) -> dict[str, Metric]:
    """Every family of a daemon that has been asked something, and of a load test."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(daemon.socket)
        head = b"GET /v0/metrics HTTP/1.1\r\nHost: x\r\n"
        sock.sendall(head + b"\r\n" + head + b"Connection: close\r\n\r\n")
        answers = b"".join(iter(lambda: sock.recv(1 << 20), b""))
    text = answers.rpartition(b"\r\n\r\n")[2].decode()
    text += exposition([Seen("shop")])
    return {family.name: family for family in text_string_to_metric_families(text)}


def test_the_dashboard_of_a_load_test_shows_what_is_given(mortal: Daemon) -> None:
    mortal.ok("write", "seen", "x")
    mortal.ok("set", "seen", "durable=true")
    mortal.ok("write", "seen", "y")
    families = exposed(mortal)
    board = json.loads((MONITORING / "bench-dashboard.json").read_text())
    shown = set()
    for panel in board["panels"]:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        for target in panel.get("targets", ()):
            if "topics_throttled_total" not in target["expr"]:  # It has no series before the first 429.
                check_expression(target["expr"], families, target["legendFormat"])
            shown |= metrics_in(target["expr"])
    clients = {name for name in shown if name.startswith("topics_bench_")}
    assert len(clients) >= 4
    assert len(shown - clients) >= 8
    with pytest.raises(AssertionError):
        check_expression("rate(topics_bench_recrods_total[1m])", families)


def test_the_dashboard_of_a_load_test_is_one_for_grafanas_own_types() -> None:
    plugins.register_default_plugins()
    board = json.loads((MONITORING / "bench-dashboard.json").read_text())
    written = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(board)))
    assert lost(board, written) == []
    assert board["uid"] != json.loads((MONITORING / "dashboard.json").read_text())["uid"]


def test_what_is_provisioned_is_there() -> None:
    config = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    assert [(MONITORING / name).exists() for name in config["rule_files"]] == [True]
    jobs = {job["job_name"]: job for job in config["scrape_configs"]}
    assert jobs["topics"]["metrics_path"] == "/v0/metrics"
    (bench,) = jobs["topics_bench"]["static_configs"][0]["targets"]
    assert f"--prometheus {bench.rpartition(':')[2]}" in (MONITORING / "README.md").read_text()
    (source,) = yaml.safe_load((MONITORING / "grafana/datasources/topics.yml").read_text())["datasources"]
    assert {"name", "type", "url", "access"} <= set(source)
    (provider,) = yaml.safe_load((MONITORING / "grafana/dashboards/topics.yml").read_text())["providers"]
    assert provider["options"] == {"path": "$TOPICS_MONITORING"}
    assert {path.name for path in MONITORING.glob("*.json")} == {"dashboard.json", "bench-dashboard.json"}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Prometheus) is not installed")
def test_prometheus_own_tool_takes_the_configuration() -> None:
    command = ["promtool", "check", "config", str(MONITORING / "prometheus.yml")]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def asked(port: int, query: str) -> list[dict[str, Any]]:
    """The series that a query of Prometheus gives; none while it does not answer."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/api/v1/query?query={quote(query)}", timeout=5) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            return found
    except OSError:
        return []


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")
def test_a_prometheus_sees_a_run_while_it_runs(tmp_path: Path) -> None:
    ports = {"4000": free_port(), "9109": free_port()}
    text = (MONITORING / "prometheus.yml").read_text().replace("scrape_interval: 5s", "scrape_interval: 1s")
    for was, port in ports.items():
        text = text.replace(f"127.0.0.1:{was}", f"127.0.0.1:{port}")
    (tmp_path / "prometheus.yml").write_text(text)
    shutil.copyfile(MONITORING / "alerts.yml", tmp_path / "alerts.yml")
    (tmp_path / "live.toml").write_text(LIVE.format(port=ports["4000"]))
    web = free_port()
    options = [f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/tsdb"]
    words = ["bench", "run", str(tmp_path / "live.toml"), "--out", str(tmp_path / "out")]
    commands = [
        ["prometheus", *options, f"--web.listen-address=127.0.0.1:{web}", "--log.level=error"],
        [PYTHON, "-m", "topics_cli", *words, "--prometheus", str(ports["9109"])],
    ]
    started = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=clean_environment(),
            stdout=subprocess.DEVNULL,
            preexec_fn=die_with_us,  # noqa: PLW1509  # one system call
        )
        for command in commands
    ]
    try:
        queries = ('topics_bench_records_total{mode="shop"} > 0', "topics_records_written_total > 0")
        over = time.monotonic() + 60
        while not all(asked(web, query) for query in queries):
            assert time.monotonic() < over, [asked(web, query) for query in queries]
            assert started[1].poll() is None, "the run ended before it was seen"
            time.sleep(0.2)
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(30)
    assert started[1].returncode == 143
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["verdict"] == "reconciled"
