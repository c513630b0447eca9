"""Routers of a real daemon: under load, killed again and again; and what a limited key sees of them."""

from __future__ import annotations

import json
import random
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.kit import DaemonProcess, NoAnswer, clean_environment, daemon_process, post, request, start

ROUNDS = 5
ROUTERS = {"a>b": ("a", "b", False), "b>c": ("b", "c", False), "x>y": ("x", "y", False), "y>z": ("y", "z", False)}
CYCLE = ("z>x", ("z", "x", True))


def put(daemon: DaemonProcess, name: str, source: str, dest: str, **body: Any) -> int:
    whole = {"source": source, "dest": dest, **body}
    return daemon.ask(request("PUT", f"/v0/routers/{name.replace('>', '%3E')}", whole)).status


def everything(daemon: DaemonProcess, topic: str) -> list[dict[str, Any]]:
    """All records of a topic."""
    found: list[dict[str, Any]] = []
    from_seq = 0
    while True:
        page = daemon.read(topic, from_seq=from_seq, limit=1000, max_bytes=8_000_000)
        assert page["tombstone"] is None
        found += page["records"]
        from_seq = page["next_from_seq"]
        if page["caught_up"]:
            return found


class Writer(threading.Thread):
    """Writes numbered records until the daemon is gone; what was not acked is tried again with its key."""

    def __init__(self, daemon: DaemonProcess, topic: str, first: int, again: tuple[int, int] | None) -> None:
        super().__init__()
        self.daemon_process, self.topic, self.next, self.unknown = daemon, topic, first, again
        self.dice = random.Random(first)

    def run(self) -> None:
        try:
            with self.daemon_process.wire() as wire:
                while True:
                    first, count = self.unknown or (self.next, self.dice.randrange(1, 30))
                    self.unknown = (first, count)
                    body = {
                        "records": [{"data": value} for value in range(first, first + count)],
                        "idempotency_key": f"{self.topic}-{first}",
                    }
                    wire.send(post(f"/v0/topics/{self.topic}", body))
                    if wire.answer().status not in (200, 201):
                        return
                    self.next, self.unknown = first + count, None
        except (OSError, NoAnswer):
            return


@pytest.mark.slow
def test_a_chain_and_a_cycle_lose_nothing_and_copy_nothing_twice_under_kills() -> None:
    dice = random.Random(7)
    seen: dict[tuple[str, int], dict[str, Any]] = {}
    progress: dict[str, tuple[int, tuple[int, int] | None]] = {"a": (1, None), "x": (1, None), "z": (1_000_001, None)}
    with tempfile.TemporaryDirectory(prefix="topics-routers-") as name:
        for round_ in range(ROUNDS):
            daemon = start(Path(name), "--checkpoint-bytes", "1MiB")
            try:
                for router, (source, dest, cyclic) in (*ROUTERS.items(), CYCLE):
                    assert put(daemon, router, source, dest, allow_cycle=cyclic, start="earliest") in (200, 201)
                writers = [Writer(daemon, topic, *progress[topic]) for topic in progress]
                for writer in writers:
                    writer.start()
                time.sleep(dice.uniform(0.4, 1.2))
                for topic in ("b", "c", "y", "x", "z"):
                    # Any place, and the newest copies, which the kill is about to come down on.
                    head = daemon.ask(request("GET", f"/v0/topics/{topic}")).json["head_seq"]
                    for place in (dice.randrange(max(head, 1)), max(head - 300, 0)):
                        for record in daemon.read(topic, from_seq=place, limit=500)["records"]:
                            key = topic, record["$seq"]
                            assert seen.setdefault(key, record) == record, "a record that was seen is another one"
                if round_ < ROUNDS - 1:
                    daemon.process.send_signal(signal.SIGKILL)
                    daemon.process.wait()
                else:
                    time.sleep(0.5)
                    daemon.process.send_signal(signal.SIGTERM)
                    daemon.process.wait(30)
                for writer in writers:
                    writer.join(30)
                    progress[writer.topic] = writer.next, writer.unknown
            finally:
                if daemon.process.poll() is None:
                    daemon.process.kill()
                    daemon.process.wait()
            assert "internal error" not in daemon.log, daemon.log
        daemon = start(Path(name))
        try:
            _check(daemon, progress, seen)
        finally:
            daemon.stop()


def _check(
    daemon: DaemonProcess, progress: dict[str, tuple[int, tuple[int, int] | None]], seen: dict[tuple[str, int], Any]
) -> None:
    until = time.monotonic() + 60
    while any(router["lag"] for router in json.loads(daemon.ask(request("GET", "/v0/routers")).body)["routers"]):
        assert time.monotonic() < until, "the routers never catch up"
    found = {topic: everything(daemon, topic) for topic in ("a", "b", "c", "x", "y", "z")}
    datas = {topic: [record["data"] for record in records] for topic, records in found.items()}
    acked = set(range(1, progress["a"][0]))
    assert acked <= set(datas["a"])
    assert datas["b"] == datas["a"]
    assert datas["c"] == datas["a"]
    ring = set(range(1, progress["x"][0])) | set(range(1_000_001, progress["z"][0]))
    for topic in ("x", "y", "z"):
        assert len(set(datas[topic])) == len(datas[topic]), "nothing is there twice"
        assert ring <= set(datas[topic]), "nothing is lost"
    assert set(datas["x"]) == set(datas["y"]) == set(datas["z"])
    for records in found.values():
        times = [record["$ts"] for record in records]
        assert times == sorted(times)
        assert [record["$seq"] for record in records] == list(range(1, len(records) + 1))
    for (topic, seq), record in seen.items():
        assert found[topic][seq - 1] == record, "a record that was seen is another one"


@pytest.mark.slow
def test_a_limited_key_learns_nothing_of_routers_between_other_topics() -> None:
    environ = clean_environment(TOPICS_API_KEYS="full,mine:read+admin+delete:mine.")
    with daemon_process(environ=environ) as daemon:

        def ask(method: str, path: str, body: Any = None, key: str = "mine") -> Any:
            return daemon.ask(request(method, path, body, f"Authorization: Bearer {key}"))

        for name, source, dest in (
            ("mine.r", "mine.a", "mine.b"),
            ("other", "other.a", "other.b"),
            ("mine.odd", "mine.b", "other.c"),
            ("in", "other.d", "mine.d"),
        ):
            assert ask("PUT", f"/v0/routers/{name}", {"source": source, "dest": dest}, "full").status == 201
        assert [one["router"] for one in ask("GET", "/v0/routers").json["routers"]] == ["mine.r"]
        for name in ("other", "mine.odd", "in", "nothing"):
            assert ask("GET", f"/v0/routers/{name}").status == 403
            assert ask("DELETE", f"/v0/routers/{name}").status == 403
        assert ask("GET", "/v0/routers/mine.none").code == "router_not_found"
        assert ask("PUT", "/v0/routers/mine.x", {"source": "mine.a", "dest": "other.b"}).status == 403
        refused = ask("PUT", "/v0/routers/mine.x", {"source": "mine.a", "dest": "mine.d"})
        assert refused.code == "topic_exists_incompatible"
        assert b"other" not in refused.body
        assert refused.json["error"]["detail"] == {"reason": "router_dest_fan_in"}
        removed = ask("DELETE", "/v0/topics/mine.b").json["routers_removed"]
        assert removed == ["mine.odd", "mine.r"]


@pytest.mark.slow
def test_caps_are_checked_before_anything_is_made() -> None:
    with daemon_process("--max-routers", "1", "--max-topics", "3") as daemon:
        assert put(daemon, "one", "a", "b") == 201
        refused = daemon.ask(request("PUT", "/v0/routers/two", {"source": "c", "dest": "d"}))
        assert refused.code == "throttled"
        assert refused.json["error"]["detail"] == {"limit": "max_routers", "max": 1}
        assert daemon.ask(request("GET", "/v0/topics/c")).status == 404
        assert put(daemon, "one", "a", "b", preserve_tag=False) == 200, "what exists may change"
        assert daemon.ask(request("DELETE", "/v0/routers/one")).status == 200
        refused = daemon.ask(request("PUT", "/v0/routers/two", {"source": "c", "dest": "d"}))
        assert refused.json["error"]["detail"] == {"limit": "max_topics", "max": 3}
        assert daemon.ask(request("GET", "/v0/topics/c")).status == 404


@pytest.mark.slow
def test_a_router_whose_source_is_dropped_with_the_same_sync_has_its_answer() -> None:
    with daemon_process() as daemon:
        for round_ in range(10):
            source, dest = f"a{round_}", f"b{round_}"
            for name in (source, dest):
                assert daemon.ask(request("PUT", f"/v0/topics/{name}", {"durability": "fsync"})).status == 201
            router = {"source": source, "dest": dest}
            asked = (
                post(f"/v0/topics/{source}", {"records": [{"data": 1}]}),
                request("PUT", f"/v0/routers/r{round_}", router),
                request("DELETE", f"/v0/topics/{source}"),
            )
            wires = [daemon.wire() for _ in asked]
            for wire, data in zip(wires, asked, strict=True):
                wire.send(data)
            made = [wire.answer() for wire in wires][1]
            for wire in wires:
                wire.close()
            assert made.status == 201
            assert {name: made.json[name] for name in router} == router
