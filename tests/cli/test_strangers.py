"""Something answers where the daemon should be, and it is none: every command says so, in words of its own."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.cli.support import PYTHON, ROOT, RUN_S_MAX, clean_environment, run
from topics_cli import exits

pytestmark = pytest.mark.slow

KEY = "a-key-that-nobody-is-told"
COMMANDS = [
    line.split()
    for line in (
        "ls",
        "ls -o json",
        "info t",
        "info t -o json",
        "router ls",
        "router info r",
        "cursor ls t",
        "cursor info t c",
        "status",
        "status -o json",
        "doctor",
        "explain t 1",
        "checkpoint",
        "create t",
        "create t --type queue",
        "set t ttl_ms=7d",
        "drop t --yes",
        "delete t --before 5",
        "write t x",
        "tail t",
        "tail t u -o ndjson",
        "diff t --from 1",
        "diff t --from 1 -o text",
        "get t 1",
        "get t 1 -o raw",
        "claim q",
        "ack q 1",
        "nack q 1",
        "extend q 1",
        "work q -- true",
        "dlq ls q",
    )
]
HOT = [words for words in COMMANDS if words[0] in ("write", "tail", "diff", "get", "claim", "ack", "nack", "extend")]
NO_OBJECT = [
    b"",
    b"hello",
    b"\x1b[31mred\x1b[0m \x1b]0;title\x07",
    b"<html>\x1b[2J</html>",
    b"[]",
    b'["\\u001b[31m"]',
    b'"text"',
    b"5",
    b"null",
    b"\xff\xfe",
    b"[" * 100_000,
    b"{nope}\x1b[31m",
]
"""What no answer of a daemon begins like."""
NO_ANSWER = [b"{}", b'{"\\u001b[31m":"\\u001b[31m"}', b'{"error":{"code":1}}']
"""Objects without anything that was asked for."""
NAMES = [
    "topics",
    "routers",
    "cursors",
    "claimed",
    "count",
    "acked",
    "nacked",
    "extended",
    "skipped",
    "skipped_detail",
    "next_cursor",
    "config",
    "state",
    "version",
    "uptime_ms",
    "status",
    "metrics",
    "warnings",
    "records",
    "next_from_seq",
    "head_seq",
    "earliest_seq",
    "first_seq",
    "last_seq",
    "epoch",
    "type",
    "bytes",
    "created",
    "deleted",
    "performance",
    "queue",
    "damage",
    "last_write_ts",
    "name",
    "seq",
    "path",
    "id",
    "updated",
    "dest",
    "source",
    "filter",
]
VALUES = ["x", -1.5, 1e300, [], [5], [None], ["\ud800"], {}, {"x": []}, None, True]
MISSHAPEN = [
    b"{nope}",
    b'{"topics":',
    b'{"topics":' + b"[" * 100_000,
    b'{"topics":[],"next_cursor":"again"}',
    *(json.dumps(dict.fromkeys(NAMES, value)).encode() for value in VALUES),
    json.dumps({**dict.fromkeys(NAMES, "x"), "version": "1"}).encode(),
    json.dumps({**{name: {"series": 5} for name in NAMES}, "version": "1", "uptime_ms": 1}).encode(),
    b'{"version":"1","uptime_ms":1e999,"$seq":1,"data":}',
    b'{"claimed":[5],"count":1}',
    b'{x}\n{"$page":{"next_from_seq":1,"head_seq":1,"epoch":1}}\n',
    b'{"$tombstone":{}}\n{"$page":{"next_from_seq":1,"head_seq":1,"epoch":1}}\n',
]
"""Objects of which some commands may find what they need, and others something else there."""


class Stranger(ThreadingHTTPServer):
    """Answers whatever it is asked with 200 and one body."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.body = b""
        self.label = f"http://127.0.0.1:{self.server_port}"

    @property
    def environment(self) -> dict[str, str]:
        """What leads a command here."""
        return {**clean_environment(), "TOPICS_URL": self.label, "TOPICS_KEY": KEY}


class _Answer(BaseHTTPRequestHandler):
    def _any(self) -> None:
        assert isinstance(self.server, Stranger)
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    do_GET = do_POST = do_PUT = do_DELETE = _any  # noqa: N815  # the library calls them so

    def log_message(self, *_words: object) -> None:
        """Nothing is said."""


@pytest.fixture(scope="module")
def stranger() -> Iterator[Stranger]:
    with Stranger() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join(10)


def _check(stranger: Stranger, done: subprocess.CompletedProcess[bytes], *, is_plain: bool) -> None:
    said = done.stdout + done.stderr
    about = (stranger.body[:80], done.returncode, said)
    assert b"Traceback" not in said, about
    assert KEY.encode() not in said, about
    if is_plain:
        assert done.returncode == exits.NO_DAEMON == 69, about
        assert b"\x1b" not in said, about
        assert f"{stranger.label} answered what topicsd would not: ".encode() in said, about
        assert b"is that topicsd?" in said, about
    elif b"answered what topicsd would not" in said:
        assert done.returncode == exits.NO_DAEMON, about
        assert b"\x1b" not in done.stderr, about


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_what_is_no_answer_of_a_daemon_is_told_as_such(stranger: Stranger, words: list[str]) -> None:
    for body in NO_OBJECT + NO_ANSWER:
        stranger.body = body
        if body in NO_ANSWER and words[-2:] == ["-o", "json"] and words[0] != "status":
            continue  # An object is passed on as it came: who asked for that looks into it.
        _check(stranger, run(*words, environment=stranger.environment), is_plain=True)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_members_that_are_something_else_are_no_mistake_of_ours(stranger: Stranger, words: list[str]) -> None:
    for body in MISSHAPEN:
        stranger.body = body
        _check(stranger, run(*words, environment=stranger.environment), is_plain=False)


@pytest.mark.parametrize("words", HOT, ids=" ".join)
def test_the_quick_front_end_says_so_too(stranger: Stranger, words: list[str]) -> None:
    script = f"import sys; sys.path.append({str(ROOT)!r}); from topics_cli.app import main; sys.exit(main())"
    for body in (NO_OBJECT[2], NO_OBJECT[4], NO_ANSWER[1]):
        stranger.body = body
        done = subprocess.run(
            [PYTHON, "-I", "-S", "-c", script, *words],
            env=stranger.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=RUN_S_MAX,
            check=False,
        )
        _check(stranger, done, is_plain=True)
