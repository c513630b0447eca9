"""`topics status`: one screen of a daemon, and `--watch`, on a terminal and in a pipe."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.support import Daemon, Terminal, finish, read_until
from topics_cli.vitals import Pace, Reading, full_in_s
from topics_cli.watching import sparkline

pytestmark = pytest.mark.slow

BARS = " .:-=+*#@"


def _reading(at_s: float, **values: float) -> Reading:
    families = {name: {"series": [{"labels": {}, "value": value}]} for name, value in values.items()}
    return Reading(families, at_s)


def test_a_sparkline_shows_the_last_values_and_anything_above_zero() -> None:
    assert sparkline([0.0, 1.0, 8.0, 4.0], 6, BARS) == "   .@="
    assert sparkline([5.0, 0.001, 8.0], 2, BARS) == ".@"
    assert sparkline([0.0, 0.0], 3, BARS) == "   "
    assert sparkline([], 3, BARS) == "   "


def test_a_counter_that_begins_again_is_no_negative_rate() -> None:
    assert Pace(_reading(0.0, x=100), _reading(2.0, x=130)).of("x") == 15
    assert Pace(_reading(0.0, x=100), _reading(2.0, x=30)).of("x") == 15
    assert Pace(_reading(0.0), _reading(2.0)).of("x") == 0


def test_a_disk_that_lasts_for_a_month_is_not_said_to_fill() -> None:
    assert full_in_s(1000.0, 10.0) == 100
    assert full_in_s(1e12, 0.0) is None
    assert full_in_s(1e12, 1.0) is None
    assert full_in_s(29 * 86_400.0, 1.0) == 29 * 86_400
    assert full_in_s(31 * 86_400.0, 1.0) is None, "a month ahead nobody has to do anything yet"


def test_one_screen_says_what_matters(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, "x")
    text = shared.ok("status").decode()
    names = [line.split("\t")[0].strip() for line in text.splitlines()]
    for name in ("version", "uptime", "state", "topics", "disk", "records", "log", "checkpoint", "memory", "clients"):
        assert name in names, text
    assert "survives a crash of the process" in text
    assert "\nshards\t0: " in text, "each shard of the log is listed"


def test_each_shard_of_the_log_is_listed(place: Path) -> None:
    daemon = Daemon(place, TOPICS_WAL_SHARDS="2")
    daemon.start()
    try:
        text = daemon.ok("status").decode()
        shards = json.loads(daemon.ok("status", "--json"))["store"]["shards"]
    finally:
        daemon.stop()
    shards_said = r"^shards\t(0: .* in 1 file, .* not synced); (1: .* in 1 file, .* not synced)$"
    assert re.search(shards_said, text, re.MULTILINE), text
    assert [shard["shard"] for shard in shards] == [0, 1]


def test_hot_topics_and_who_is_behind_are_listed(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, stdin=b"x\n" * 9000)
    shared.ok("cursor", "set", topic, f"{topic}-reader", "1")
    writer = shared.start_command("write", f"{topic}-hot", "--rate", "300/s", stdin=subprocess.PIPE)
    assert writer.stdin is not None
    writer.stdin.write(b"x\n" * 20_000)
    writer.stdin.flush()
    over = time.monotonic() + 30
    while not re.search(rf"^hot topics\t.*{topic}-hot [\d,]+/s", text := _status(shared), re.MULTILINE):
        assert time.monotonic() < over, text
    finish(writer, signal.SIGTERM)
    assert re.search(rf"^lag\t.*cursor {topic}-reader 8,999 behind", text, re.MULTILINE), text


def _status(daemon: Daemon) -> str:
    return daemon.ok("status").decode()


def test_as_json_it_says_no_less(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, "x")
    said = json.loads(shared.ok("status", "--json"))
    assert said["ready"]["status"] == "ready"
    assert said["store"]["checkpoint"]["phase"]
    assert said["metrics"]["metrics"]["topics_ready"]["series"][0]["value"] == 1


def test_in_a_pipe_it_is_a_line_each_time(shared: Daemon) -> None:
    process = shared.start_command("status", "--watch", "--interval", "100ms")
    lines = read_until(process, 3)
    code, _, said = finish(process, signal.SIGTERM)
    assert (code, said) == (143, b"")
    for line in lines:
        cells = line.decode().split("\t")
        assert dict(cell.split("=") for cell in cells[1:]).keys() >= {"written_per_s", "disk_free_bytes", "pressure"}


def test_as_ndjson_it_is_an_object_each_time_and_rates_are_of_what_happened(shared: Daemon, topic: str) -> None:
    process = shared.start_command("status", "--watch", "--interval", "300ms", "-o", "ndjson")
    read_until(process, 1)
    shared.ok("write", topic, "--batch", "100", stdin=b"x\n" * 1000)
    written = 0.0
    for line in read_until(process, 4, limit_s=30):
        written = max(written, json.loads(line)["written_per_s"])
    assert finish(process, signal.SIGINT)[0] == 130
    assert written > 100


def test_on_a_terminal_it_is_a_screen_that_is_put_back_and_waits_for_a_daemon_that_was_killed(mortal: Daemon) -> None:
    mortal.ok("write", "hot", "x")
    terminal = Terminal(mortal.environment(), "status", "--watch", "--interval", "200ms")
    seen = terminal.read_until(b"requests")
    assert b"\x1b[?1049h" in seen
    assert f"topics at {mortal.socket}: ready".encode() in seen
    mortal.kill()
    terminal.read_until(b"waiting for it ...")
    terminal.seen = b""
    mortal.start()
    terminal.read_until(b": ready", limit_s=20)
    terminal.type(b"\x03")
    code, seen = terminal.end()
    assert code == 130
    assert seen.endswith(b"\x1b[?25h\x1b[?1049l"), "the terminal is left as it was"


def test_watching_where_no_daemon_ever_was_ends_at_once(shared: Daemon) -> None:
    done = shared.run("status", "--watch", TOPICS_SOCKET="/nowhere/at/all")
    assert done.returncode == 69
    assert b"no daemon" in done.stderr
