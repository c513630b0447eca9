"""`topics router`: made, shown, changed and dropped, and what it copies."""

from __future__ import annotations

import json
import time

import pytest

from tests.cli.support import Daemon

pytestmark = pytest.mark.slow


def _wait(shared: Daemon, topic: str, wanted: bytes) -> None:
    over = time.monotonic() + 20
    while (seen := shared.run("tail", topic, "--from", "0").stdout) != wanted:
        assert time.monotonic() < over, seen
        time.sleep(0.05)


def test_a_router_copies_what_it_is_told_to(shared: Daemon, topic: str) -> None:
    name, dest = f"{topic}-r", f"{topic}-to"
    shared.ok("write", topic, "--tag", "old", "before")
    words = ["router", "create", name, "--source", topic, "--dest", dest, "--tag", "o*", "--start", "earliest"]
    assert shared.ok(*words) == f"{name}\tcreated\n".encode()
    assert shared.ok(*words) == f"{name}\texists\n".encode()
    assert shared.ok(*words, "--preserve-tag", "false") == f"{name}\tchanged\n".encode()
    assert shared.run(*words, "--must-be-new").returncode == 1
    shared.ok("write", topic, "--tag", "other", "after")
    shared.ok("write", topic, "--tag", "no", "never")
    _wait(shared, dest, b"before\nafter\n")
    row = shared.ok("router", "ls", name).decode().rstrip("\n").split("\t")
    assert row[:5] == [name, topic, dest, "o*", "0"]
    state = json.loads(shared.ok("router", "info", name, "--json"))
    assert (state["lag"], state["forwarded_total"], state["blocked"]) == (0, 2, None)
    assert shared.ok("router", "set", name, "--tag", "") == f"{name}\tchanged\n".encode()
    shared.ok("write", topic, "--tag", "no", "now")
    _wait(shared, dest, b"before\nafter\nnow\n")
    assert json.loads(shared.ok("router", "info", name, "--json"))["filter"] is None
    assert shared.ok("router", "drop", name) == f"{name}\tdropped\n".encode()
    assert shared.run("router", "drop", name).returncode == 1
    assert shared.ok("router", "ls", name) == b""


def test_what_cannot_be_is_said(shared: Daemon, topic: str) -> None:
    there, back = f"{topic}-there", f"{topic}-back"
    assert shared.run("router", "create", there).returncode == 2
    assert shared.run("router", "create", "--source", topic).returncode == 2
    assert shared.run("router", "set", there, "--source", topic, "--dest", "x").returncode == 1
    assert shared.run("router", "info", there).returncode == 1
    shared.ok("router", "create", there, "--source", f"{topic}-a", "--dest", f"{topic}-b")
    elsewhere = shared.run("router", "create", there, "--source", f"{topic}-a", "--dest", f"{topic}-c")
    assert (elsewhere.returncode, b"topic_exists_incompatible" in elsewhere.stderr) == (1, True)
    assert b"drop what has this one" in elsewhere.stderr, "and nothing of a topic's type"
    cycle = shared.run("router", "create", back, "--source", f"{topic}-b", "--dest", f"{topic}-a")
    assert (cycle.returncode, b"router_cycle" in cycle.stderr) == (1, True)
    shared.ok("router", "create", back, "--source", f"{topic}-b", "--dest", f"{topic}-a", "--allow-cycle", "true")
