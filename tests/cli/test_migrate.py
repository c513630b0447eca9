"""The programs of `sample/migrate/` against the real peers, with the daemon or the program killed in the middle."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.bench import servers
from tests.cli.support import PYTHON, ROOT, Daemon, started, topics_program
from tests.waiting import until

pytestmark = pytest.mark.slow

ENTRIES: Final = 2500
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(mortal: Daemon, tmp_path: Path) -> Start:
    """Start a program of `sample/migrate/`, in an environment in which `topics` is a command."""
    program = topics_program(tmp_path / "bin")
    environment = mortal.environment(PATH=f"{program.parent}:{os.environ['PATH']}")

    def starts(name: str, *words: str) -> subprocess.Popen[str]:
        return started([PYTHON, str(ROOT / "sample/migrate" / name), *words], environment)

    return starts


def _ended(process: subprocess.Popen[str], code: int = 0) -> str:
    out, said = process.communicate(timeout=120)
    assert process.returncode == code, (out, said)
    return out + said


def _records(daemon: Daemon, topic: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in daemon.ok("tail", topic, "--from", "0", "-o", "ndjson").splitlines()]


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """A Redis of its own: run a command with redis-cli. `redis("port")` is where it listens."""
    if not servers.installed("redis-server") or not servers.installed("redis-cli"):
        pytest.skip("redis-server and redis-cli are not on this machine")
    with servers.redis(tmp_path, "everysec") as server:

        def command(*words: str, stdin: str | None = None) -> str:
            if words == ("port",):
                return str(server.port)
            line = ["redis-cli", "-p", str(server.port), *words]
            return subprocess.run(line, input=stdin, capture_output=True, text=True, check=True, timeout=60).stdout

        command(stdin="".join(f"XADD s {n + 1}-{n % 3} n {n} text 'entry {n}'\n" for n in range(ENTRIES)))
        yield command


def test_a_stream_is_moved_whole_in_order_and_once(mortal: Daemon, redis: Callable[..., str], start: Start) -> None:
    where = f"127.0.0.1:{redis('port')}"
    process = start("redis-stream.py", where, "s", "s")
    until(lambda: b"s" in mortal.run("ls", "s", "--fields", "topic").stdout)
    os.killpg(process.pid, signal.SIGKILL)  # of the program and of the write under way
    process.communicate()
    process = start("redis-stream.py", where, "s", "s")
    time.sleep(0.2)
    mortal.kill()
    mortal.start()
    _ended(process)
    assert "s: 0 entries" in _ended(start("redis-stream.py", where, "s", "s"))
    records = _records(mortal, "s")
    assert [record["data"]["n"] for record in records] == [str(n) for n in range(ENTRIES)]
    assert records[4]["meta"] == {"redis_id": "5-1"}
    assert records[4]["data"] == {"n": "4", "text": "entry 4"}


def test_what_is_no_object_or_no_text_is_told_apart(mortal: Daemon, redis: Callable[..., str], start: Start) -> None:
    redis("DEL", "s")
    redis(stdin='XADD s * a 1 a 2\nXADD s * b "\\xff\\x00"\n')
    _ended(start("redis-stream.py", f"127.0.0.1:{redis('port')}", "s", "odd"))
    assert [record["data"] for record in _records(mortal, "odd")] == [
        [["a", "1"], ["a", "2"]],
        {"b": {"$base64": "/wA="}},
    ]


def test_groups_become_cursors_before_what_is_not_acknowledged(
    mortal: Daemon, redis: Callable[..., str], start: Start
) -> None:
    for group in ("fresh", "half", "acked"):
        redis("XGROUP", "CREATE", "s", group, "0")
    redis("XREADGROUP", "GROUP", "half", "me", "COUNT", "10", "STREAMS", "s", ">")
    redis("XACK", "s", "half", "1-0", "2-1")
    redis("XREADGROUP", "GROUP", "acked", "me", "COUNT", "3", "STREAMS", "s", ">")
    redis("XACK", "s", "acked", "1-0", "2-1", "3-2")
    _ended(start("redis-stream.py", "--groups", f"127.0.0.1:{redis('port')}", "s", "s"))
    cursors = mortal.ok("cursor", "ls", "s", "--fields", "name,seq").decode().splitlines()
    assert sorted(cursors) == ["acked\t3", "fresh\t0", "half\t2"]


def test_new_entries_are_followed_until_it_is_stopped(mortal: Daemon, redis: Callable[..., str], start: Start) -> None:
    process = start("redis-stream.py", "--follow", f"127.0.0.1:{redis('port')}", "s", "s")
    until(lambda: mortal.run("ls", "s", "--fields", "count").stdout.strip() == str(ENTRIES).encode())
    redis("XADD", "s", "*", "n", "last")
    until(lambda: b'"last"' in mortal.run("tail", "s", "-n", "1").stdout)
    process.send_signal(signal.SIGINT)
    _ended(process)
    assert "s: 0 entries" in _ended(start("redis-stream.py", f"127.0.0.1:{redis('port')}", "s", "s"))
    assert mortal.ok("ls", "s", "--fields", "count").strip() == str(ENTRIES + 1).encode()


def test_a_topic_that_has_other_records_is_refused(mortal: Daemon, redis: Callable[..., str], start: Start) -> None:
    mortal.ok("write", "mine", "hello")
    said = _ended(start("redis-stream.py", f"127.0.0.1:{redis('port')}", "s", "mine"), 1)
    assert "its last record did not come from Redis" in said
    assert len(_records(mortal, "mine")) == 1


class Tube:
    """A connection to beanstalkd, for what a test puts there."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connection = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.stream = self.connection.makefile("rwb")

    def __call__(self, command: str, body: bytes | None = None) -> list[str]:
        self.stream.write(command.encode() + b"\r\n" + (b"" if body is None else body + b"\r\n"))
        self.stream.flush()
        words = self.stream.readline().decode().split()
        if words[0] in ("RESERVED", "OK"):
            self.stream.read(int(words[-1]) + 2)
        return words

    def put(self, body: bytes, priority: int = 5, delay: int = 0) -> str:
        return self(f"put {priority} {delay} 120 {len(body)}", body)[1]


@pytest.fixture
def tube(tmp_path: Path) -> Iterator[Tube]:
    if not servers.installed("beanstalkd"):
        pytest.skip("beanstalkd is not on this machine")
    with servers.beanstalkd(tmp_path) as server:
        tube = Tube(server.port)
        with tube.connection, tube.stream:
            tube("use mails")
            yield tube


def test_jobs_are_moved_once_by_priority_and_byte_for_byte(mortal: Daemon, tube: Tube, start: Start) -> None:
    for n in range(1000):
        tube.put(b"job %d" % n)
    urgent = tube.put(b"\xff\x00 first", priority=1)
    where = f"127.0.0.1:{tube.port}"
    process = start("beanstalkd-tube.py", where, "mails", "mails")
    until(lambda: b"mails" in mortal.run("ls", "mails", "--fields", "topic").stdout)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    process = start("beanstalkd-tube.py", where, "mails", "mails")
    time.sleep(0.2)
    mortal.kill()
    mortal.start()
    assert "left in mails: 0 reserved, 0 delayed, 0 buried" in _ended(process)
    records = _records(mortal, "mails")
    assert records[0]["meta"]["beanstalkd_id"] == urgent
    assert records[0]["data"] == {"$base64": "/wAgZmlyc3Q="}
    bodies = [record["data"] for record in records[1:]]
    assert sorted(bodies, key=lambda body: int(body[4:])) == [f"job {n}" for n in range(1000)]


def test_what_is_in_the_queue_already_is_only_deleted(mortal: Daemon, tube: Tube, start: Start) -> None:
    ident = tube.put(b"written, not deleted")
    tube.put(b"new")
    mortal.ok("create", "mails", "--type", "queue")
    line = json.dumps({"data": "written, not deleted", "meta": {"beanstalkd_id": ident}}).encode() + b"\n"
    mortal.ok("write", "mails", "--records", stdin=line)
    assert "mails: 1 jobs; left in mails: 0 reserved" in _ended(
        start("beanstalkd-tube.py", f"127.0.0.1:{tube.port}", "mails", "mails")
    )
    assert [record["data"] for record in _records(mortal, "mails")] == ["written, not deleted", "new"]


def test_delayed_and_buried_jobs_stay_until_they_are_asked_for(mortal: Daemon, tube: Tube, start: Start) -> None:
    tube.put(b"later", delay=3600)
    buried = tube.put(b"bad")
    tube("watch mails")
    assert tube("reserve-with-timeout 5")[:2] == ["RESERVED", buried]
    assert tube(f"bury {buried} 5") == ["BURIED"]
    tube.put(b"ready")
    where = f"127.0.0.1:{tube.port}"
    assert "mails: 1 jobs; left in mails: 0 reserved, 1 delayed, 1 buried" in _ended(
        start("beanstalkd-tube.py", where, "mails", "mails")
    )
    assert "mails: 2 jobs; left in mails: 0 reserved, 0 delayed, 0 buried" in _ended(
        start("beanstalkd-tube.py", "--all", where, "mails", "mails")
    )
    assert [record["data"] for record in _records(mortal, "mails")] == ["ready", "later", "bad"]
