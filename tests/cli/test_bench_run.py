"""`topics bench run`: whole runs against real daemons. What adds up is said to, and what was meddled with is not."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.cli.middleman import Answered, Asked, Middleman, middleman
from tests.cli.support import PYTHON, ROOT, Daemon, clean_environment, finish
from topics_cli import exits
from topics_cli.commands.bench_run import shipped

pytestmark = pytest.mark.slow

ATTACHED = """
duration = "1500ms"
drain = "10s"
sample = "300ms"

[topics.orders]

[[producers]]
name = "shop"
topic = "orders"
rate = 200
batch = 10
size = 80

[[readers]]
name = "pages"
topic = "orders"
limit = 10
"""


def written(place: Path, text: str) -> str:
    """A scenario in a file."""
    path = place / "mine.toml"
    path.write_text(text)
    return str(path)


def summary_of(out: Path) -> dict[str, Any]:
    """What a run says of itself."""
    found: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return found


def wrong(summary: dict[str, Any]) -> dict[str, str]:
    """Questions that were not answered well."""
    return {check["question"]: check["said"] for check in summary["checks"] if not check["is_good"]}


class Page(HTMLParser):
    """What a page would fetch or run, and whether every element that must be closed is."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.charts = 0
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == ["html"] or not self._open, self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Count, and remember what is open."""
        self.charts += tag == "svg"
        self.fetched += [str(value) for name, value in attrs if name in ("src", "href", "data", "srcset")]
        if tag in ("script", "link", "iframe", "object", "img"):
            self.fetched.append(tag)
        if tag in ("html", "table", "tr", "td", "div", "figure", "details", "pre", "ul", "li", "dl", "svg", "style"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """What is closed was opened last."""
        if self._open and tag in self._open:
            assert self._open.pop() == tag


def test_a_run_leaves_everything_that_an_audit_needs(shared: Daemon, tmp_path: Path) -> None:
    out = tmp_path / "results"
    done = shared.run("bench", "run", "smoke", "--out", str(out), TOPICS_SOCKET="none")
    assert done.returncode == exits.DONE, (done.stdout, done.stderr)
    assert done.stdout.splitlines()[-1].startswith(b"reconciled\t")
    summary = summary_of(out)
    assert summary["verdict"] == "reconciled"
    assert {check["question"] for check in summary["checks"]} >= {"whole", "acked", "kept", "read", "counts", "metrics"}
    (metrics,) = [check["said"] for check in summary["checks"] if check["question"] == "metrics"]
    acked = sum(group["records"] for group in summary["groups"].values() if group["kind"] == "producer")
    assert f"rose by {acked:,}; {acked:,} by what clients saw" in metrics
    samples = [json.loads(line) for line in (out / "samples.ndjson").read_text().splitlines()]
    assert len(samples) >= 4
    assert sum(sample["groups"]["web"]["records"] for sample in samples) == summary["groups"]["web"]["records"]
    assert any(sample["server"]["topics_records_written_total"] for sample in samples if sample["server"])
    assert all(sample["process"]["resident_bytes"] > 0 for sample in samples)
    resolved = json.loads((out / "resolved.json").read_text())
    assert resolved["producers"][0]["connections"] == 1
    assert json.loads((out / "environment.json").read_text())["daemon_is"] == "started for the run"
    assert (out / "scenario.toml").read_bytes() == shipped()["smoke"].read_bytes()
    assert not (out / "daemon-data").exists()
    page = (out / "report.html").read_text()
    parsed = Page(page)
    assert parsed.fetched == []
    assert parsed.charts >= 6
    assert "url(" not in page
    assert not re.search(r"https?://", page)


def test_a_daemon_that_is_killed_in_the_middle_is_reconciled_all_the_same(tmp_path: Path) -> None:
    done = run_alone("restart", tmp_path / "out")
    assert done.returncode == exits.DONE, (done.stdout, done.stderr)
    summary = summary_of(tmp_path / "out")
    assert summary["restarts"] == 1
    assert [event["event"] for event in summary["events"]][:2] == ["killed", "started again"]
    samples = [json.loads(line) for line in (tmp_path / "out" / "samples.ndjson").read_text().splitlines()]
    assert any(sample["server"] is None for sample in samples), "it was seen to be away"
    assert sum(group["lost"] for group in summary["groups"].values()) > 0
    assert "killed" in (tmp_path / "out" / "report.html").read_text()


def run_alone(scenario: str, out: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    """A run that starts its own daemon."""
    command = [PYTHON, "-m", "topics_cli", "bench", "run", scenario, "--out", str(out), *words]
    return subprocess.run(command, cwd=ROOT, env=clean_environment(), capture_output=True, timeout=120, check=False)


def through(daemon: Daemon, place: Path, meddle: Callable[[Middleman, Asked], Answered | None]) -> dict[str, str]:
    """Run a scenario through a proxy that meddles; what does not add up."""
    with middleman(daemon.socket, meddle) as url:
        words = ("bench", "run", written(place, ATTACHED), "--url", url, "--out", str(place / "out"))
        done = daemon.run(*words, TOPICS_SOCKET="")
    summary = summary_of(place / "out")
    assert done.returncode == (exits.LOSS if wrong(summary) else exits.DONE), (done.stdout, done.stderr)
    page = (place / "out" / "report.html").read_text()
    assert ("It does not add up" in page) == bool(wrong(summary))
    for said in wrong(summary).values():
        assert said in done.stderr.decode()
    return wrong(summary)


def topics_of(daemon: Daemon, out: Path) -> list[str]:
    """What a run has left on its daemon."""
    return [line.split(b"\t")[0].decode() for line in daemon.ok("ls", summary_of(out)["prefix"]).splitlines()]


def is_write(asked: Asked) -> bool:
    """Whether records are written."""
    return asked.method == "POST" and asked.path.endswith("?return_seqs=false")


def test_an_honest_proxy_changes_nothing(shared: Daemon, tmp_path: Path) -> None:
    assert through(shared, tmp_path, lambda _proxy, _asked: None) == {}
    assert topics_of(shared, tmp_path / "out") == [], "the topics of a run that adds up are dropped"


def test_a_record_that_is_lost_after_its_ack_is_found(shared: Daemon, tmp_path: Path) -> None:
    lost: list[int] = []

    def meddle(proxy: Middleman, asked: Asked) -> Answered | None:
        if not is_write(asked) or lost:
            return None
        answered = proxy.ask(asked)
        lost.append(json.loads(answered.body)["last_seq"] - 3)
        path = asked.path.partition("?")[0] + "/delete"
        body = json.dumps({"seqs": lost}).encode()
        assert proxy.ask(Asked("POST", path, {"content-type": "application/json"}, body)).status == 200
        return answered

    found = through(shared, tmp_path, meddle)
    assert found["kept"] == f"acked, not there, and nothing says why: 1 record ({lost[0]})"
    assert "by what clients saw" in found["counts"]
    (kept,) = topics_of(shared, tmp_path / "out")
    assert shared.ok("drop", kept, "--yes"), "the topic stays as evidence, and can be dropped"


def test_a_batch_that_is_written_twice_is_found(shared: Daemon, tmp_path: Path) -> None:
    seen: list[int] = []

    def meddle(proxy: Middleman, asked: Asked) -> Answered | None:
        if not is_write(asked) or seen:
            return None
        again = Asked(asked.method, asked.path, asked.headers | {"idempotency-key": "another"}, asked.body)
        answered = proxy.ask(asked)
        seen.append(json.loads(proxy.ask(again).body)["first_seq"])
        return answered

    found = through(shared, tmp_path, meddle)
    assert found["no more"] == f"there twice: 10 records ({seen[0]}-{seen[0] + 9})"
    assert found["read"].startswith("acked to nobody: 10 records")


def test_a_record_that_never_reached_a_reader_is_found(shared: Daemon, tmp_path: Path) -> None:
    left_out: list[int] = []

    def meddle(proxy: Middleman, asked: Asked) -> Answered | None:
        if not asked.path.endswith("/diff") or b"wait_ms" not in asked.body or left_out:
            return None
        answered = proxy.ask(asked)
        lines = answered.body.splitlines(keepends=True)
        if len(lines) < 4:
            return answered
        left_out.append(json.loads(lines.pop(1))["$seq"])
        return Answered(answered.status, answered.content_type, b"".join(lines))

    assert through(shared, tmp_path, meddle) == {"read": f"missing: 1 record ({left_out[0]})"}


def test_a_producer_that_is_refused_is_a_finding_of_a_run_that_ends_in_order(shared: Daemon, tmp_path: Path) -> None:
    full = ATTACHED.replace("[topics.orders]", '[topics.orders]\ncap_records = 50\ndiscard = "reject"')
    words = ("bench", "run", written(tmp_path, full), "--out", str(tmp_path / "out"))
    done = shared.run(*words)
    assert done.returncode == exits.LOSS, done
    summary = summary_of(tmp_path / "out")
    assert list(wrong(summary)) == ["whole"]
    assert "topic_full" in wrong(summary)["whole"]
    assert (tmp_path / "out" / "report.html").exists()
    (kept,) = topics_of(shared, tmp_path / "out")
    shared.ok("drop", kept, "--yes")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_load_and_the_rest_follows_in_order(shared: Daemon, tmp_path: Path, signum: int) -> None:
    scenario = written(tmp_path, ATTACHED.replace("1500ms", "60s"))
    process = shared.start_command("bench", "run", scenario, "--out", str(tmp_path / "out"))
    samples, over = tmp_path / "out" / "samples.ndjson", time.monotonic() + 20
    while not samples.exists() or samples.read_bytes().count(b"\n") < 3:
        assert time.monotonic() < over
        time.sleep(0.05)
    code, out, said = finish(process, signum)
    assert code == 128 + signum, (out, said)
    summary = summary_of(tmp_path / "out")
    assert summary["interrupted"]
    assert summary["verdict"] == "reconciled"
    assert "ended early by a signal" in (tmp_path / "out" / "report.html").read_text()
    assert topics_of(shared, tmp_path / "out") == []


def test_lines_tags_and_fsync_arrive_as_they_were_sent(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b'{"n":1.10,"t":"\\u00e4"}\n[1,2]\n"x"\n')
    text = """
        duration = "30s"
        [daemon]
        start = true
        options = ["--segment-max-events", "50"]
        [topics.a]
        cap_records = 200
        [[producers]]
        topic = "a"
        file = "lines"
        json = true
        rate = 1500
        batch = 7
        ack = "fsync"
        node = "here"
        tags = ["one", "two"]
        records = 700
        [[readers]]
        topic = "a"
        [[readers]]
        topic = "a"
        kind = "sse"
    """
    done = run_alone(written(tmp_path, text), tmp_path / "out", "-o", "json")
    assert done.returncode == exits.DONE, (done.stdout, done.stderr)
    assert json.loads(done.stdout)["verdict"] == "reconciled"
    (kept,) = [check["said"] for check in summary_of(tmp_path / "out")["checks"] if check["question"] == "kept"]
    assert "told to be lost as asked" in kept


def test_what_comes_with_it_is_listed_and_checked_without_a_daemon(place: Path, shared: Daemon) -> None:
    listed = shared.ok("bench", "run", "--list").decode()
    assert all(re.search(rf"^{re.escape(name)}\t", listed, re.MULTILINE) for name in shipped())
    resolved = json.loads(shared.ok("bench", "run", "restart", "--dry-run"))
    assert resolved["faults"] == [{"kind": "kill", "at_s": 3.0, "down_s": 0.7}]
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["run"], exits.USAGE, b"which scenario?"),
        (["run", "smoke", "--batch", "3"], exits.USAGE, b"--batch is not for run"),
        (["run", "smokes"], exits.CONFIGURATION, b"did you mean smoke?"),
        (["run", "smoke", "--url", "http://127.0.0.1:1"], exits.USAGE, b"starts a daemon of its own"),
        (["run", "smoke", "--out", str(ROOT)], exits.FAILED, b"is not empty"),
        (["write", "x.toml"], exits.USAGE, b"topics bench run x.toml"),
    ],
)
def test_mistakes_are_said_before_anything_is_done(shared: Daemon, words: list[str], code: int, said: bytes) -> None:
    done = shared.run("bench", *words)
    assert (done.returncode, said in done.stderr) == (code, True), done
    assert done.stdout == b""
