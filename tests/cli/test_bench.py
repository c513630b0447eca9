"""`topics bench`: what it measures is what it did, it keeps its bounds, and it takes away what it made."""

from __future__ import annotations

import json
import random
import re
import signal
import socket
import statistics
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.cli.support import Daemon, Terminal, finish
from topics_cli import exits
from topics_cli.latencies import Latencies
from topics_cli.load import payload
from topics_cli.loaded import Seen, exposition, histogram, squeezed

pytestmark = pytest.mark.slow


def test_quantiles_are_within_three_percent_of_what_was_measured() -> None:
    chance = random.Random(7)
    values = [int(chance.lognormvariate(13, 2)) for _ in range(20_000)]
    halves = [Latencies(), Latencies()]
    for place, value in enumerate(values):
        halves[place % 2].add(value)
    whole = Latencies()
    for half in halves:
        whole.merge(half.counts, half.total, half.largest)
    assert (whole.count, whole.largest) == (len(values), max(values))
    assert whole.mean == pytest.approx(statistics.mean(values) / 1e6)
    values.sort()
    for part in (0.01, 0.5, 0.9, 0.99, 0.999, 1.0):
        exact = values[max(0, int(part * len(values)) - 1)] / 1e6
        assert exact <= whole.quantile(part) * 1.0001 <= exact * 1.04
    assert sum(count for _, count in whole.doubling()) == len(values)
    assert Latencies().quantile(0.5) == Latencies().mean == 0.0


def test_a_payload_has_its_size_and_is_json() -> None:
    for size in (40, 200, 5000):
        assert len(payload(size)) == len(payload(size, 123)) == size
        assert json.loads(payload(size, 123))["sent_ns"] == 123


def test_plots_fit_their_width_however_long_it_ran() -> None:
    slots = [5] * 10_000
    assert squeezed(slots, 50) == [5.0] * 50
    assert squeezed([1, 2], 50) == [1.0, 2.0]
    seen = Latencies()
    for power in range(40):
        seen.add(1 << power)
    lines = histogram(seen, 79)
    assert len(lines) <= 12
    assert all(len(line) <= 79 for line in lines)
    assert histogram(Latencies(), 79) == []


def objects(out: bytes) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.splitlines()]


def test_every_mode_moves_records_and_leaves_no_topic_behind(mortal: Daemon) -> None:
    runs = objects(mortal.ok("bench", "--duration", "1s", "-p", "2", "-o", "json"))
    assert [run["mode"] for run in runs] == ["write", "read", "tail", "queue"]
    for run in runs:
        assert isinstance(run["records"], int)
        assert run["records"] > 0, run
        assert run["lost"] == 0
        slots = run["records_per_100ms"]
        assert isinstance(slots, list)
        assert sum(slots) == run["records"]
    assert mortal.ok("ls") == b""


def written(daemon: Daemon) -> float:
    """Records written since the daemon started, by its own metrics."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(daemon.socket)
        sock.sendall(b"GET /v0/metrics HTTP/1.1\r\nHost: x\r\nAccept: application/json\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: sock.recv(1 << 20), b""))
    families = json.loads(answer.partition(b"\r\n\r\n")[2])["metrics"]
    return sum(float(sample["value"]) for sample in families["topics_records_written_total"]["series"])


def test_what_it_says_was_written_was_written(mortal: Daemon) -> None:
    (run,) = objects(mortal.ok("bench", "write", "--duration", "1s", "--batch", "7", "-c", "3", "-o", "json"))
    said = int(str(run["records"]))
    assert said == int(str(run["requests"])) * 7
    assert said <= written(mortal) <= said + 3 * 7


def test_it_ends_with_its_records_and_keeps_its_rate(shared: Daemon) -> None:
    begun = time.monotonic()
    (run,) = objects(
        shared.ok("bench", "write", "--duration", "60s", "--records", "500", "--batch", "5", "-c", "2", "-o", "json")
    )
    assert time.monotonic() - begun < 25
    assert 500 <= int(str(run["records"])) <= 510
    (run,) = objects(
        shared.ok("bench", "write", "--duration", "2s", "--rate", "100", "--batch", "5", "-c", "2", "-o", "json")
    )
    assert 120 <= int(str(run["records"])) <= 205


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_what_was_seen_and_without_its_topics(mortal: Daemon, signum: int) -> None:
    process = mortal.start_command("bench", "tail", "--duration", "60s", "-p", "2")
    over = time.monotonic() + 15
    while mortal.ok("ls").count(b"bench-") < 2:
        assert time.monotonic() < over
    time.sleep(0.5)
    code, out, said = finish(process, signum)
    assert (code, said) == (128 + signum, b"")
    assert out.startswith(b"tail\t")
    assert mortal.ok("ls") == b""


def test_a_daemon_that_goes_away_for_good_ends_it(mortal: Daemon) -> None:
    process = mortal.start_command("bench", "write", "--duration", "60s", "--retry-for", "0")
    over = time.monotonic() + 15
    while b"bench-" not in mortal.ok("ls"):
        assert time.monotonic() < over
    mortal.kill()
    code, _, said = finish(process)
    assert code == exits.NO_DAEMON
    assert b"still there: bench-" in said
    mortal.start()
    assert b"bench-" in mortal.ok("ls")


def test_without_a_daemon_it_says_so(place: Path, shared: Daemon) -> None:
    done = shared.run("bench", "write", "--socket", str(place / "none"))
    assert done.returncode == exits.NO_DAEMON
    assert b"still there" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["sideways"],
        ["write", "--duration", "0"],
        ["write", "--duration", "100d"],
        ["write", "-c", "0"],
        ["write", "-p", "65"],
        ["write", "--batch", "0"],
        ["write", "--batch", "1000", "--size", "1MiB"],
        ["write", "--rate", "0"],
    ],
)
def test_bounds_are_mistakes_on_the_command_line(shared: Daemon, words: list[str]) -> None:
    done = shared.run("bench", *words)
    assert done.returncode == exits.USAGE, done
    assert b"bench-" not in shared.ok("ls", "bench-")


def test_metrics_can_be_scraped_meanwhile(mortal: Daemon) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    from tests.bench.servers import free_port

    port = free_port()
    process = mortal.start_command("bench", "write", "--duration", "20s", "--prometheus", str(port))
    over = time.monotonic() + 15
    found: dict[str, float] = {}
    while not found.get("topics_bench_records_total"):
        assert time.monotonic() < over
        try:
            text = urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read().decode()
        except OSError:
            time.sleep(0.05)
            continue
        found = {
            sample.name: sample.value for family in text_string_to_metric_families(text) for sample in family.samples
        }
    assert finish(process, signal.SIGINT)[0] == 130
    seen = Seen("write")
    assert 'topics_bench_requests_total{mode="write"} 0' in exposition([seen])


def test_a_terminal_gets_a_plot_that_fits_it(shared: Daemon) -> None:
    terminal = Terminal(shared.environment(), "bench", "write", "--duration", "1s")
    code, drawn = terminal.end()
    assert code == 0
    lines = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line).rpartition("\r")[2] for line in drawn.decode().split("\r\n")]
    assert "records/s" in "".join(lines)
    assert "█" in "".join(lines)
    assert len(lines) <= 24
    assert max(len(line) for line in lines) <= 80
