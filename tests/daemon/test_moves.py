"""Topics that move between real daemons: under load, with a tail that follows, with SIGKILL of either side, and with
several who want the same topic at the same moment. Every record that was acked is there once, at its seq."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine.errors import Code
from tests.daemon.kit import (
    Answer,
    DaemonProcess,
    Events,
    clean_environment,
    daemon_process,
    post,
    request,
    start,
    watch,
)
from tests.waiting import until

pytestmark = pytest.mark.slow

WAIT_S = 60.0


@contextmanager
def place() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="topics-place-") as name:
        yield name


def url_of(daemon: DaemonProcess) -> str:
    return f"http://127.0.0.1:{daemon.port}"


def detach(daemon: DaemonProcess, topic: str, to: str) -> Answer:
    return daemon.ask(post(f"/v0/topics/{topic}/detach", {"to": to}))


def attach(daemon: DaemonProcess, topic: str, where: str) -> Answer:
    return daemon.ask(post("/v0/admin/attach", {"topic": topic, "place": where, "url": url_of(daemon)}))


def held(daemon: DaemonProcess, topic: str) -> dict[int, Any]:
    """Every record by its seq."""
    found: dict[int, Any] = {}
    from_seq = 0
    while True:
        answer = daemon.ask(post(f"/v0/topics/{topic}/diff", {"from_seq": from_seq, "limit": 1000}))
        if answer.status == 409 and answer.code == Code.TOPIC_MOVED:
            return found
        assert answer.status == 200, answer
        page = answer.json
        for record in page["records"]:
            assert record["$seq"] not in found
            found[record["$seq"]] = record["data"]
        from_seq = page["next_from_seq"]
        if page["caught_up"]:
            return found


def state(daemon: DaemonProcess, topic: str) -> str:
    answer = daemon.ask(request("GET", f"/v0/topics/{topic}"))
    if answer.status == 404:
        return "absent"
    return str(answer.json.get("moved", {}).get("state", "here"))


class Writer(threading.Thread):
    """Writes numbers one by one, and goes where the topic goes; each has a key, so a retry is no second record."""

    def __init__(self, port: int, topic: str) -> None:
        super().__init__(daemon=True)
        self.acked: dict[int, int] = {}
        self.ports = [port]
        self.ended = threading.Event()
        self.problem = ""
        self._topic = topic

    def run(self) -> None:
        value = 0
        while not self.ended.is_set():
            value += 1
            seq = self._write(value)
            if seq is None:
                return
            if seq in self.acked:
                self.problem = f"seq {seq} was given twice"
            self.acked[seq] = value

    def _write(self, value: int) -> int | None:
        body = json.dumps({"records": [{"data": value}], "idempotency_key": f"k{value}", "create": False}).encode()
        while not self.ended.is_set():
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.ports[-1], timeout=10)
                connection.request("POST", f"/v0/topics/{self._topic}", body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                content = json.loads(answer.read())
                connection.close()
            except (OSError, http.client.HTTPException, ValueError):
                time.sleep(0.05)
                continue
            if answer.status == 200:
                return int(content["first_seq"])
            error = content["error"]
            if error["code"] == "topic_moved" and error["detail"]["to"].startswith("http"):
                self.ports.append(int(error["detail"]["to"].rpartition(":")[2]))
            elif error["code"] not in ("topic_moved", "topic_moving", "not_ready", "shutting_down"):
                self.problem = f"{answer.status} {error}"
                return None
            time.sleep(0.02)
        return None


def test_a_topic_moves_under_load_and_a_tail_follows() -> None:
    with daemon_process() as old, daemon_process() as new, place() as where:
        old.ask(request("PUT", "/v0/topics/t"))
        for first in range(0, 3000, 500):
            old.write("t", *range(-first - 500, -first))
        old.ask(request("POST", "/v0/admin/checkpoint"))
        gone = [7, 8, 2999]
        assert old.ask(post("/v0/topics/t/delete", {"seqs": gone})).json["deleted"] == 3
        writer = Writer(old.port, "t")
        tailing = ["tail", "t", "-f", "--from", "0", "-o", "ndjson"]
        command = [sys.executable, "-m", "topics_cli", "--url", url_of(old), *tailing]
        with tempfile.TemporaryFile() as out:
            tail = subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, env=clean_environment())
            try:
                writer.start()
                until(lambda: len(writer.acked) > 50, "nothing is written")
                assert detach(old, "t", where).json["state"] == "offered"
                assert attach(new, "t", where).status == 201
                moved_at = len(writer.acked)
                until(lambda: len(writer.acked) > moved_at + 100, f"the writer stays behind {writer.problem}")
                writer.ended.set()
                writer.join(WAIT_S)
                found = held(new, "t")

                def read() -> int:
                    return os.pread(out.fileno(), 1 << 26, 0).count(b"\n")

                until(lambda: read() >= len(found), f"the tail has {read()} of {len(found)} lines")
            finally:
                tail.terminate()
                _, said = tail.communicate(timeout=WAIT_S)
            lines = [json.loads(line) for line in os.pread(out.fileno(), 1 << 26, 0).splitlines()]
        assert writer.problem == ""
        assert writer.ports == [old.port, new.port]
        assert b"has moved; going on at " + url_of(new).encode() in said
        assert [line["$seq"] for line in lines] == sorted(found)
        assert {line["$seq"]: line["data"] for line in lines} == found
        assert set(range(1, max(found) + 1)) - found.keys() == set(gone)
        assert {seq: found.get(seq) for seq in writer.acked} == writer.acked
        assert state(old, "t") == "taken"
        for daemon in (old, new):
            daemon.is_well()
        restart(new)
        assert held(new, "t") == found


def restart(daemon: DaemonProcess, *, kill: bool = False) -> None:
    """End a daemon, and start it again in the same place."""
    if kill:
        daemon.process.kill()
        daemon.process.wait(WAIT_S)
    elif daemon.process.poll() is None:
        daemon.stop()
    again = start(daemon.directory)
    daemon.process, daemon.port, daemon.socket_path = again.process, again.port, again.socket_path


def test_sigkill_of_either_side_at_any_moment_leaves_one_owner() -> None:
    """The command is begun, and its daemon killed a little later each time, until it is through."""
    with daemon_process() as old, daemon_process() as new, place() as where:
        old.ask(request("PUT", "/v0/topics/t"))
        acked: dict[int, int] = {}
        for first in range(0, 4000, 500):
            seq = old.write("t", *range(first, first + 500))["first_seq"]
            acked.update({seq + index: first + index for index in range(500)})
        assert old.ask(post("/v0/topics/t/delete", {"before_seq": 11})).status == 200
        for seq in range(1, 11):
            del acked[seq]
        for round_, side in enumerate((old, old, old, new, new, new)):
            command = detach if side is old else attach
            if side is new and state(old, "t") == "here":
                assert detach(old, "t", where).status == 200
            thread = threading.Thread(target=_quietly, args=(command, side, where), daemon=True)
            thread.start()
            time.sleep(0.01 + 0.08 * (round_ % 3))
            restart(side, kill=True)
            thread.join(WAIT_S)
            owners = [name for name, one in (("old", old), ("new", new)) if state(one, "t") == "here"]
            assert len(owners) <= 1, f"{owners} take writes"
            if owners == ["old"]:
                value = 100_000 + round_
                acked[old.write("t", value)["first_seq"]] = value
        if state(new, "t") != "here":
            assert detach(old, "t", where).status == 200
            assert attach(new, "t", where).status == 201
        assert attach(new, "t", where).json["created"] is False
        until(lambda: state(old, "t") == "taken", "the old daemon never sees where its topic is")
        refused = old.ask(post("/v0/topics/t", {"records": [{"data": 1}]}))
        assert (refused.status, refused.code) == (409, Code.TOPIC_MOVED)
        assert held(new, "t") == acked
        assert new.write("t", "on")["first_seq"] == max(acked) + 1
        restart(old)
        refused = old.ask(post("/v0/topics/t", {"records": [{"data": 1}]}))
        assert (refused.status, refused.code) == (409, Code.TOPIC_MOVED)
        new.process.kill()
        new.process.wait(WAIT_S)
        old.stop()
        exports = [str(path.parent) for path in Path(where, "moves", "t").glob("*/TAKEN")]
        for directory in (str(old.directory / "data"), str(new.directory / "data"), *exports):
            check = [sys.executable, "-m", "topics_cli", "fsck", directory]
            said = subprocess.run(check, capture_output=True, text=True, env=clean_environment(), check=False)
            assert (said.returncode, said.stdout) == (0, "no problems found\n"), said
        restart(new)
        assert len(held(new, "t")) == len(acked) + 1
        restart(old)


def _quietly(command: Callable[[DaemonProcess, str, str], Answer], side: DaemonProcess, where: str) -> None:
    try:
        command(side, "t", where)
    except (OSError, AssertionError):
        pass  # it was killed


def test_of_several_who_want_a_topic_one_gets_it() -> None:
    with daemon_process() as old, daemon_process() as one, daemon_process() as other, place() as where:
        for round_ in range(3):
            topic = f"t{round_}"
            old.write(topic, *range(200))
            assert detach(old, topic, where).status == 200
            asks: list[Callable[[], Answer]] = [
                partial(attach, one, topic, where),
                partial(attach, other, topic, where),
            ]
            if round_:
                asks.append(partial(old.ask, request("DELETE", f"/v0/topics/{topic}/detach")))
            with ThreadPoolExecutor(3) as pool:
                answers = [future.result() for future in [pool.submit(ask) for ask in asks]]
            fine = [answer for answer in answers if answer.status < 400]
            assert len(fine) == 1, answers
            assert all(answer.code == Code.TOPIC_MOVED for answer in answers if answer.status >= 400), answers
            owners = [daemon for daemon in (old, one, other) if state(daemon, topic) == "here"]
            assert len(owners) == 1
            assert owners[0].write(topic, "on")["first_seq"] == 201


def test_what_is_refused_and_what_is_said() -> None:
    with daemon_process() as old, daemon_process() as new, place() as where:
        old.write("a", 1)
        old.write("q", 1, config={"type": "queue"})
        old.write("e", 1, config={"durability": "ephemeral"})
        router = {"source": "a", "dest": "b"}
        assert old.ask(request("PUT", "/v0/routers/a>b", json.dumps(router))).status == 201
        answer = detach(old, "a", where)
        assert (answer.status, answer.json["error"]["detail"]["reason"]) == (409, "routers")
        assert detach(old, "e", where).json["error"]["detail"]["reason"] == "ephemeral"
        assert detach(old, "none", where).code == Code.TOPIC_NOT_FOUND
        for wrong in ("shared", "http://host:4000", "s3://", "/proc/nowhere"):
            assert detach(old, "q", wrong).code == Code.INVALID_REQUEST, wrong
        assert state(old, "q") == "here"
        assert detach(old, "q", str(old.directory / "data")).code == Code.INVALID_REQUEST
        assert attach(new, "q", where).code == Code.NOT_FOUND
        assert old.ask(post("/v0/topics/q/claim", {"node": "w"})).status == 200
        assert detach(old, "q", where).json["state"] == "offered"
        settle = {"node": "w", "seqs": [1]}
        for path, body in (
            ("/v0/topics/q", {"records": [{"data": 2}]}),
            ("/v0/topics/q/claim", {"node": "w"}),
            ("/v0/topics/q/ack", settle),
            ("/v0/topics/q/delete", {"seqs": [1]}),
        ):
            answer = old.ask(post(path, body))
            assert (answer.status, answer.code) == (409, Code.TOPIC_MOVED), path
            assert answer.json["error"]["detail"]["to"] == where
        assert old.ask(request("PUT", "/v0/topics/q", '{"ttl_ms":5}')).code == Code.TOPIC_MOVED
        assert old.ask(request("PUT", "/v0/topics/q/cursors/c", '{"seq":1}')).code == Code.TOPIC_MOVED
        assert len(held(old, "q")) == 1
        assert attach(new, "q", where).status == 201
        again = new.ask(request("GET", "/v0/topics/q")).json["queue"]
        assert (again["written"], again["ready"], again["in_flight"]) == (1, 1, 0)
        until(lambda: state(old, "q") == "taken", "the old daemon never sees where its topic is")
        assert detach(old, "q", where).code == Code.TOPIC_MOVED
        assert old.ask(request("DELETE", "/v0/topics/q")).json["deleted"] is True
        answer = old.ask(post("/v0/topics/q", {"records": [{"data": 2}]}))
        assert answer.code == Code.TOPIC_NOT_FOUND, "a dropped name that has moved is made anew by a write"
        answer = new.ask(request("GET", "/v0/metrics"))
        assert b'topics_moves_total{op="attach"} 1' in answer.body


def test_a_damaged_export_is_refused_and_can_be_taken_back() -> None:
    with daemon_process() as old, daemon_process() as new, place() as where:
        old.write("t", *range(500))
        token = detach(old, "t", where).json["token"]
        victim = next(Path(where, "moves", "t", token).rglob("*.data"))
        whole = victim.read_bytes()
        victim.write_bytes(whole[:300] + bytes([whole[300] ^ 1]) + whole[301:])
        answer = attach(new, "t", where)
        assert (answer.status, answer.code) == (409, Code.TOPIC_DAMAGED)
        assert state(new, "t") == "absent"
        assert old.ask(request("DELETE", "/v0/topics/t/detach")).json["state"] == "here"
        assert old.write("t", 500)["first_seq"] == 501
        shutil.rmtree(Path(where, "moves"))
        assert detach(old, "t", where).json["last_seq"] == 501
        assert attach(new, "t", where).json["head_seq"] == 501


def test_a_watch_at_the_old_daemon_is_told_where_the_topic_went() -> None:
    with daemon_process() as old, daemon_process() as new, place() as where:
        old.write("t", 1, 2)
        old.write("other", 1)
        stream = watch(old, {"t": {"from_seq": 0}, "other": {"from_seq": 0}})
        with Events(old, stream) as events:
            seen = [events.next()[:2] for _ in range(4)]
            assert sorted(kind for kind, _ in seen) == ["caught-up", "caught-up", "record", "record"]
            assert detach(old, "t", where).status == 200
            assert attach(new, "t", where).status == 201
            kind, told, _ = events.next()
            assert (kind, told) == (
                "error",
                {"code": 409, "error": "topic_moved", "topics": ["t"], "to": url_of(new)},
            )
            old.write("other", 2)
            kind, told, _ = events.next()
            assert (kind, told["topic"]) == ("record", "other")
