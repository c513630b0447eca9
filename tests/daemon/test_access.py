"""Access over a real daemon: the table route × scope × prefix cell by cell, and that nothing of other names shows.

The table has a row for each route and is computed from http-api.md §13 by hand (`ROWS`), not from the daemon's own:
a test makes sure that no route is left out of it.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.daemon.kit import Answer, DaemonProcess, NoAnswer, clean_environment, daemon_process, request
from topics_daemon.routes.table import ROUTES

pytestmark = pytest.mark.slow

MINE, FOREIGN, NONE, NEITHER = "tenant42:log", "other:log", "tenant42:none", "other:none"
"""A topic within the prefix, one outside, and names of the same kinds that do not exist."""
QUEUES: Final = "tenant42:queue", "other:queue"
SCOPES: Final = ("read", "write", "delete", "admin")
_FINE: Final = ((200, 201), (400,))
"""What is answered to who may; also where what is asked for cannot be done here (a `place`)."""
COMBINATIONS: Final = [c for size in range(1, 5) for c in itertools.combinations(SCOPES, size)]
WRITE: Final = {"records": [{"data": 1}]}
WRITE_WITH_CONFIG: Final = {**WRITE, "config": {"cap_records": 1_000_000}}

# method, path, body (":topic" stands for the name), scopes it takes, how the name is found
ROWS: Final[list[tuple[str, str, Any, set[str], str]]] = [
    ("GET", "/v0/topics", None, {"read"}, "list"),
    ("GET", "/v0/topics/:topic", None, {"read"}, "name"),
    ("GET", "/v0/routers", None, {"read"}, "list"),
    ("GET", "/v0/routers/:topic>", None, {"read"}, "name"),
    ("PUT", "/v0/routers/:topic>", {"source": ":topic", "dest": ":topic2"}, {"admin"}, "name"),
    ("DELETE", "/v0/routers/:topic>", None, {"delete"}, "name"),
    ("PUT", "/v0/topics/:topic", {}, {"admin"}, "name"),
    ("DELETE", "/v0/topics/:topic", None, {"delete"}, "name"),
    ("POST", "/v0/topics/:topic", WRITE, {"write"}, "name"),
    ("POST", "/v0/topics/:topic", WRITE_WITH_CONFIG, {"write", "admin"}, "name"),
    ("POST", "/v0/topics/:topic/records?stream=true", None, {"write"}, "lines"),
    ("POST", "/v0/topics/:topic/diff", {}, {"read"}, "name"),
    ("POST", "/v0/topics/:topic/delete", {"seqs": [9]}, {"delete"}, "name"),
    ("POST", "/v0/topics/:topic/claim", {"node": "n", "match": "none"}, {"read", "write"}, "queue"),
    ("POST", "/v0/topics/:topic/ack", {"node": "n", "seqs": [9]}, {"write"}, "queue"),
    ("POST", "/v0/topics/:topic/nack", {"node": "n", "seqs": [9]}, {"write"}, "queue"),
    ("POST", "/v0/topics/:topic/extend", {"node": "n", "seqs": [9]}, {"write"}, "queue"),
    ("POST", "/v0/topics/:topic/requeue", {"seqs": [9]}, {"read", "write"}, "queue"),
    ("GET", "/v0/topics/:topic/leases", None, {"read"}, "queue"),
    ("GET", "/v0/topics/:topic/work", None, {"read", "write"}, "worker"),
    ("GET", "/v0/topics/:topic/cursors", None, {"read"}, "name"),
    ("GET", "/v0/topics/:topic/cursors/place", None, {"read"}, "name"),
    ("PUT", "/v0/topics/:topic/cursors/place", {"seq": 1}, {"write"}, "name"),
    ("DELETE", "/v0/topics/:topic/cursors/gone", None, {"delete"}, "cursor"),
    ("DELETE", "/v0/topics/:topic/work?node=n", None, {"read", "write"}, "queue"),
    ("GET", "/v0/topics/:topic/records/1", None, {"read"}, "name"),
    ("POST", "/v0/write", {"topics": {":topic": WRITE}}, {"write"}, "name"),
    ("POST", "/v0/write", {"topics": {":topic": WRITE_WITH_CONFIG}}, {"write", "admin"}, "name"),
    ("POST", "/v0/diff", {"topics": {":topic": {}}}, {"read"}, "name"),
    ("POST", "/v0/watch", {"topics": {":topic": {}}}, {"read"}, "name"),
    ("GET", "/v0/watch/:param", None, {"read"}, "session"),
    ("GET", "/v0/ws", None, set(), "socket"),
    ("GET", "/v0/openapi.json", None, set(), "any key"),
    ("GET", "/v0/metrics", None, {"read"}, "list"),
    ("POST", "/v0/admin/checkpoint", None, {"admin"}, "whole"),
    ("GET", "/v0/admin/store", None, {"admin"}, "whole"),
    ("POST", "/v0/admin/exports", {"topics": [":topic"]}, {"admin"}, "name"),
    ("GET", "/v0/admin/exports", None, {"admin"}, "whole"),
    ("DELETE", "/v0/admin/exports/:param", None, {"admin"}, "whole"),
    ("POST", "/v0/topics/:topic/detach", {"to": "no place"}, {"admin"}, "place"),
    ("DELETE", "/v0/topics/:topic/detach", None, {"admin"}, "cursor"),
    ("POST", "/v0/admin/attach", {"topic": ":topic", "place": "no place"}, {"admin"}, "place"),
    ("GET", "/healthz", None, set(), "probe"),
    ("GET", "/readyz", None, set(), "probe"),
    ("GET", "/v0/health", None, set(), "probe"),
    ("GET", "/v0/ready", None, set(), "probe"),
]


_OF_A_TOPIC: Final = ("name", "queue", "worker", "cursor", "place", "lines")


def key_name(scopes: tuple[str, ...], prefix: str) -> str:
    return "key-" + "-".join(scopes) + ("-limited" if prefix else "")


def entries() -> str:
    every = [f"{key_name(c, p)}:{'+'.join(c)}:{p}" for c in COMBINATIONS for p in ("", "tenant42:")]
    return ",".join(["full", *every, "two:read:tenant42:|zone", "dead:read+admin:tenant42:"])


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with daemon_process(environ=clean_environment(TOPICS_API_KEYS=entries())) as process:
        for name in (MINE, FOREIGN, "zone", "zoo", "tenant4", "tenant43:log"):
            assert ask(process, "POST", f"/v0/topics/{name}", WRITE, "full").status == 201
        for name in (MINE, FOREIGN):
            assert ask(process, "PUT", f"/v0/topics/{name}/cursors/place", {"seq": 1}, "full").status == 201
            router = {"source": name, "dest": name + "2"}
            assert ask(process, "PUT", f"/v0/routers/{name}>", router, "full").status == 201
        for name in QUEUES:
            assert ask(process, "PUT", f"/v0/topics/{name}", {"type": "queue"}, "full").status == 201
        yield process


def ask(daemon: DaemonProcess, method: str, path: str, body: Any = None, key: str = "", *headers: str) -> Answer:
    """One request with a key, or with none."""
    auth = [f"Authorization: Bearer {key}"] if key else []
    return daemon.ask(request(method, path, body, *auth, *headers))


def stream_status(daemon: DaemonProcess, url: str, key: str) -> int:
    with daemon.wire() as wire:
        auth = [f"Authorization: Bearer {key}"] if key else []
        wire.send(request("GET", url, None, "Accept: text/event-stream", *auth))
        return int(wire.until(b"\r\n").split(b" ")[1])


def with_name(value: Any, name: str) -> Any:
    return json.loads(json.dumps(value).replace(":topic", name)) if value is not None else None


def _as_param(found: re.Match[str]) -> str:
    return f"{found[1].partition('/')[0]}/:param"


def test_the_table_has_a_row_for_each_route() -> None:
    routes = {("/" + "/".join(path), method) for path, methods in ROUTES.items() for method in methods}
    rows = {
        (re.sub("(records/1|cursors/[a-z]+|routers/:topic>)$", _as_param, path).partition("?")[0], method)
        for method, path, *_ in ROWS
    }
    assert routes == rows


@pytest.mark.parametrize("scopes", COMBINATIONS, ids="+".join)
@pytest.mark.parametrize("prefix", ["", "tenant42:"], ids=["all names", "prefix"])
def test_each_cell_of_the_table(daemon: DaemonProcess, scopes: tuple[str, ...], prefix: str) -> None:
    """What a key with these scopes and this prefix may do: every route, with a name inside and a name outside."""
    key = key_name(scopes, prefix)
    for method, path, body, needed, kind in ROWS:
        if kind in ("session", "socket"):
            continue
        drops = method == "DELETE" and kind == "name"
        names = (NONE, NEITHER) if drops else QUEUES if kind in ("queue", "worker") else (MINE, FOREIGN)
        for name in names:
            foreign = kind == "whole" or (kind in _OF_A_TOPIC and not name.startswith(prefix))
            refused = not needed <= set(scopes) or (bool(prefix) and foreign)
            if kind == "worker" and not refused:
                assert stream_status(daemon, path.replace(":topic", name) + "?node=n", key) == 200
                continue
            answer = ask(daemon, method, path.replace(":topic", name), with_name(body, name), key)
            cell = f"{method} {path} {body} with {key} on {name}"
            # A stream of lines without a length is told so, once everything else is well.
            well = (411,) if kind == "lines" else _FINE[kind == "place"]
            assert answer.status == 403 if refused else answer.status in well, f"{cell}: {answer}"
            if refused:
                assert answer.code == "forbidden", cell


@pytest.mark.parametrize(("method", "path", "body", "needed", "kind"), ROWS)
@pytest.mark.parametrize("key", ["", "wrong", "FULL", "full-", "ful"])
def test_without_a_known_key_everything_but_probes_is_401(
    daemon: DaemonProcess, method: str, path: str, body: Any, needed: set[str], kind: str, key: str
) -> None:
    if kind == "session":
        url = ask(daemon, "POST", "/v0/watch", {"topics": {MINE: {}}}, "full").json["stream_url"]
        assert stream_status(daemon, url, key) == 401
        return
    for name in (MINE, NONE):
        answer = ask(daemon, method, path.replace(":topic", name), with_name(body, name), key)
        assert answer.status == (200 if kind == "probe" else 401), answer
        if kind != "probe":
            assert answer.code == "unauthorized"
            assert answer.headers["www-authenticate"] == "Bearer"


def test_a_stream_is_opened_by_the_key_that_made_the_session_alone(daemon: DaemonProcess) -> None:
    reader, limited = key_name(("read",), ""), key_name(("read",), "tenant42:")
    url = ask(daemon, "POST", "/v0/watch", {"topics": {MINE: {}}}, reader).json["stream_url"]
    assert stream_status(daemon, url, "") == 401
    assert stream_status(daemon, url, "wrong") == 401
    assert stream_status(daemon, url, key_name(("write",), "")) == 403
    assert stream_status(daemon, url, limited) == 403
    assert stream_status(daemon, url, "full") == 403
    assert stream_status(daemon, f"{url}?token={limited}", "") == 403
    assert stream_status(daemon, f"{url}?token=wrong", "") == 401
    # A header wins over the query.
    assert stream_status(daemon, f"{url}?token={reader}", "wrong") == 401
    assert stream_status(daemon, f"{url}?token={reader}", "") == 200
    assert stream_status(daemon, url, reader) == 200
    foreign = ask(daemon, "POST", "/v0/watch", {"topics": {FOREIGN: {}}}, reader).json["stream_url"]
    assert stream_status(daemon, foreign, limited) == 403


def test_a_worker_may_give_its_key_in_the_query(daemon: DaemonProcess) -> None:
    url, both = f"/v0/topics/{QUEUES[0]}/work?node=n", key_name(("read", "write"), "tenant42:")
    assert stream_status(daemon, f"{url}&token={both}", "") == 200
    assert stream_status(daemon, f"{url}&token={both}", "wrong") == 401
    assert stream_status(daemon, f"{url}&token=wrong", "") == 401
    assert stream_status(daemon, f"{url}&token={key_name(('read',), '')}", "") == 403


def test_an_unknown_wid_is_404_before_any_key_is_looked_at(daemon: DaemonProcess) -> None:
    for key in ("", "wrong", "full", key_name(("write",), "")):
        for wid in ("wid_" + "A" * 22, "x"):
            assert ask(daemon, "GET", f"/v0/watch/{wid}", None, key, "Accept: text/event-stream").status == 404


def test_a_token_in_the_query_counts_for_streams_alone(daemon: DaemonProcess) -> None:
    assert ask(daemon, "GET", f"/v0/topics/{MINE}?token=full").status == 401
    assert ask(daemon, "POST", "/v0/watch?token=full", {"topics": {MINE: {}}}).status == 401
    assert ask(daemon, "GET", f"/v0/topics/{MINE}?token=s3cret", None, "full").json["warnings"] == [
        "unknown field token"
    ]


def same_but_for_time(one: Answer, other: Answer) -> None:
    """Assert that two answers cannot be told apart, but for the time that they took."""
    bodies = [re.sub(rb'"server_total_ms":[0-9.e-]+', b"", answer.body) for answer in (one, other)]
    assert bodies[0] == bodies[1]
    assert one.status == other.status
    assert set(one.headers) == set(other.headers)


def test_a_forbidden_name_answers_the_same_whether_or_not_it_exists(daemon: DaemonProcess) -> None:
    for method, path, body, _, kind in ROWS:
        if kind in ("name", "queue", "worker"):
            answers = [
                ask(daemon, method, path.replace(":topic", name), with_name(body, name), "all")
                for name in (FOREIGN, NEITHER)
                for all in [key_name(SCOPES, "tenant42:")]
            ]
            same_but_for_time(answers[0], answers[1])
    for path in ("/v0/watch?lenient=true", "/v0/watch"):
        key = key_name(("read",), "tenant42:")
        pair = [ask(daemon, "POST", path, {"topics": {MINE: {}, name: {}}}, key) for name in (FOREIGN, NEITHER)]
        assert pair[0].status == 403
        same_but_for_time(*pair)


def test_one_forbidden_name_refuses_the_whole_request_and_nothing_was_done(daemon: DaemonProcess) -> None:
    key = key_name(("read", "write"), "tenant42:")
    head = ask(daemon, "GET", f"/v0/topics/{MINE}", None, "full").json["head_seq"]
    assert ask(daemon, "POST", "/v0/write", {"topics": {MINE: WRITE, FOREIGN: WRITE}}, key).status == 403
    both = {MINE: WRITE, "tenant42:b": WRITE_WITH_CONFIG}
    assert ask(daemon, "POST", "/v0/write", {"topics": both}, key).status == 403
    assert ask(daemon, "GET", f"/v0/topics/{MINE}", None, "full").json["head_seq"] == head
    assert ask(daemon, "GET", "/v0/topics/tenant42:b", None, "full").status == 404


def test_lists_counts_and_cursors_show_nothing_of_other_names(daemon: DaemonProcess) -> None:
    limited = key_name(("read",), "tenant42:")
    everything = {one["topic"] for one in ask(daemon, "GET", "/v0/topics", None, "full").json["topics"]}
    assert {FOREIGN, "tenant4", "tenant43:log"} <= everything
    visible = sorted(name for name in everything if name.startswith("tenant42:"))
    listed = ask(daemon, "GET", "/v0/topics", None, limited).json
    assert [one["topic"] for one in listed["topics"]] == visible
    assert "next_cursor" not in listed
    for prefix in ("o", "tenant43", "zone", "other:log"):
        assert ask(daemon, "GET", f"/v0/topics?prefix={prefix}", None, limited).json["topics"] == []
    assert [t["topic"] for t in ask(daemon, "GET", "/v0/topics?prefix=tenant", None, limited).json["topics"]] == visible
    # A page that ends where the visible names end has no cursor, whatever follows for others.
    page = ask(daemon, "GET", f"/v0/topics?page_size={len(visible)}", None, limited).json
    assert "next_cursor" not in page
    lines = ask(daemon, "GET", "/v0/topics", None, limited, "Accept: application/x-ndjson").body
    assert b"other" not in lines
    assert ask(daemon, "GET", "/v0/ready", None, limited).json["topics"] == len(visible)
    assert ask(daemon, "GET", "/v0/ready", None, "full").json["topics"] == len(everything)
    assert ask(daemon, "GET", "/v0/ready").json["topics"] == 0


def test_a_list_over_several_prefixes_is_paged_in_order(daemon: DaemonProcess) -> None:
    everything = sorted(one["topic"] for one in ask(daemon, "GET", "/v0/topics", None, "full").json["topics"])
    wanted = [name for name in everything if name.startswith(("tenant42:", "zone"))]
    seen: list[str] = []
    cursor = ""
    for _ in range(len(wanted)):
        page = ask(daemon, "GET", f"/v0/topics?page_size=1{cursor}", None, "two").json
        seen += [one["topic"] for one in page["topics"]]
        if "next_cursor" not in page:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert seen == wanted
    assert "zone" in wanted


def test_names_in_a_configuration_are_checked_and_hidden(daemon: DaemonProcess) -> None:
    queue = {"type": "queue", "dead_letter": FOREIGN}
    assert ask(daemon, "PUT", "/v0/topics/tenant42:q", queue, "dead").status == 403
    nested = {**WRITE, "config": queue}
    key = key_name(SCOPES, "tenant42:")
    assert ask(daemon, "POST", "/v0/topics/tenant42:q", nested, key).status == 403
    assert ask(daemon, "POST", "/v0/write", {"topics": {"tenant42:q": nested}}, key).status == 403
    assert ask(daemon, "GET", "/v0/topics/tenant42:q", None, "full").status == 404
    assert ask(daemon, "PUT", "/v0/topics/tenant42:q", queue, "full").status == 201
    shown = ask(daemon, "GET", "/v0/topics/tenant42:q", None, "full").json["config"]
    assert shown["dead_letter"] == FOREIGN
    for answer in (
        ask(daemon, "GET", "/v0/topics/tenant42:q", None, "dead"),
        ask(daemon, "PUT", "/v0/topics/tenant42:q", {}, "dead"),
    ):
        assert answer.status == 200
        assert answer.json["config"] == {**shown, "dead_letter": None}
    ask(daemon, "DELETE", "/v0/topics/tenant42:q", None, "full")


HOSTILE: Final = [
    b"",
    b" ",
    b"Bearer",
    b"Bearer ",
    b"full",
    b"Basic ZnVsbDo=",
    b"Bearer full, Bearer full",
    b"Bearer full full",
    b"Bearer\tfull",
    b'Bearer "full"',
    b"Bearer full\xff",
    b"Bearer \xc3\xa9",
    b"Bearer " + b"A" * 7000,
    b"Digest username=full",
    b"Bearer full:read",
    b"Bearer full\x00",
    b"Bearer \x7ffull",
]


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_authorization_headers_are_401_or_a_bad_request(daemon: DaemonProcess, value: bytes) -> None:
    head = b"GET /v0/topics/tenant42:log HTTP/1.1\r\nHost: localhost\r\nAuthorization: %b\r\n\r\n"
    with daemon.wire() as wire:
        wire.send(head % value)
        assert wire.answer().status in (401, 400)
    daemon.is_well()


@pytest.mark.parametrize(
    "lines",
    ["Authorization: Bearer full\r\nAuthorization: Bearer full", "Authorization: x\r\nAuthorization: Bearer full"],
)
def test_two_authorization_headers_are_a_bad_request(daemon: DaemonProcess, lines: str) -> None:
    assert ask(daemon, "GET", "/v0/topics", None, "", lines).status == 400


def test_the_order_of_checks(daemon: DaemonProcess) -> None:
    writer, limited = key_name(("write",), ""), key_name(("read",), "tenant42:")
    assert ask(daemon, "GET", "/v0/nothing").status == 404
    assert ask(daemon, "PATCH", "/v0/topics/x").status == 405
    assert ask(daemon, "GET", "/v0/topics/bad%20name").status == 401
    assert ask(daemon, "GET", "/v0/topics/bad%20name", None, writer).status == 403
    assert ask(daemon, "GET", "/v0/topics/bad%20name", None, limited).status == 400
    assert ask(daemon, "GET", f"/v0/topics/{NEITHER}", None, limited).status == 403
    assert ask(daemon, "GET", f"/v0/topics/{NONE}", None, limited).status == 404
    # A stranger's body is not read for its faults.
    assert ask(daemon, "POST", f"/v0/topics/{MINE}", "not json").status == 401
    assert daemon.ask(request("POST", f"/v0/topics/{MINE}", "x", kind="text/plain")).status == 401


def test_heads_of_strangers_are_not_remembered_and_known_ones_are_fast_and_judged_once(daemon: DaemonProcess) -> None:
    """The same head again and again on one connection, right and wrong ones in turn, gives the same verdicts."""
    with daemon.wire() as wire:
        for round_number in range(50):
            for key, status in (("full", 200), ("wrong", 401), (key_name(("write",), ""), 403)):
                wire.send(request("GET", f"/v0/topics/{MINE}", None, f"Authorization: Bearer {key}"))
                assert wire.answer().status == status, round_number


def test_keys_apply_on_the_unix_socket_too(daemon: DaemonProcess) -> None:
    line = request("GET", f"/v0/topics/{MINE}")
    assert daemon.ask(line, unix=True).status == 401
    assert daemon.ask(request("GET", f"/v0/topics/{MINE}", None, "Authorization: Bearer full"), unix=True).status == 200


def test_S16_no_key_is_in_the_log_nor_in_the_process_list(daemon: DaemonProcess) -> None:
    ask(daemon, "GET", "/v0/topics?token=full", None, "s3cret-unknown")
    arguments = Path(f"/proc/{daemon.pid}/cmdline").read_bytes()
    for text in (daemon.log, arguments.decode()):
        for secret in ("s3cret", "key-read", "full"):
            assert secret not in text


def test_S15_the_own_user_needs_no_key_where_it_was_said_so() -> None:
    environ = clean_environment(TOPICS_API_KEYS="reader:read", TOPICS_SOCKET_AUTH="peer")
    with daemon_process(environ=environ) as daemon:
        write = request("POST", "/v0/topics/t", WRITE)
        assert daemon.ask(write, unix=True).status == 201
        assert daemon.ask(write).status == 401
        # A key that is presented counts, also for the own user.
        assert (
            daemon.ask(request("POST", "/v0/topics/t", WRITE, "Authorization: Bearer reader"), unix=True).status == 403
        )
        assert daemon.ask(request("POST", "/v0/topics/t", WRITE, "Authorization: Bearer x"), unix=True).status == 401
        session = daemon.ask(request("POST", "/v0/watch", {"topics": {"t": {}}}), unix=True).json
        assert stream_status(daemon, session["stream_url"], "") == 401
        assert stream_status(daemon, session["stream_url"], "reader") == 403
        with daemon.wire(unix=True) as wire:
            wire.send(request("GET", session["stream_url"], None, "Accept: text/event-stream"))
            assert b" 200 " in wire.until(b"\r\n")


PROBES: Final = [path for _, path, _, _, kind in ROWS if kind == "probe"]


def test_probes_need_a_key_where_it_was_said_so() -> None:
    environ = clean_environment(TOPICS_API_KEYS="prober:read:tenant42:,writer:write", TOPICS_PROBE_AUTH="1")
    with daemon_process(environ=environ) as daemon:
        assert len(PROBES) == 4
        while ask(daemon, "GET", "/v0/ready", None, "writer").status == 503:
            time.sleep(0.01)
        for name in (MINE, FOREIGN):
            assert ask(daemon, "POST", f"/v0/topics/{name}", WRITE, "writer").status == 201
        for path in PROBES:
            for key in ("", "wrong", "probe", "Prober"):
                for unix in (False, True):
                    auth = [f"Authorization: Bearer {key}"] if key else []
                    answer = daemon.ask(request("GET", path, None, *auth), unix=unix)
                    assert (answer.status, answer.code) == (401, "unauthorized"), (path, key, unix)
                    assert answer.headers["www-authenticate"] == "Bearer"
                    assert not {"status", "version", "topics"} & answer.json.keys()
            assert ask(daemon, "GET", f"{path}?token=prober").status == 401, "the query is for streams alone"
            # What a key may do otherwise does not matter; what it may see does.
            for key, topics in (("prober", 1), ("writer", 2)):
                answer = ask(daemon, "GET", path, None, key)
                assert answer.status == 200
                assert answer.json.get("topics", topics) == topics, (path, key)
        os.kill(daemon.pid, signal.SIGHUP)
        assert ask(daemon, "GET", "/v0/ready").status == 401


def test_without_keys_probes_need_none_whatever_was_said() -> None:
    with daemon_process(environ=clean_environment(TOPICS_PROBE_AUTH="1")) as daemon:
        assert {ask(daemon, "GET", path).status for path in PROBES} == {200}


def test_S22_requests_of_one_connection_wait_in_it_instead_of_being_refused() -> None:
    environ = clean_environment(TOPICS_API_KEYS="a,b", TOPICS_MAX_INFLIGHT_PER_KEY="2")
    with daemon_process(environ=environ) as daemon, daemon.wire() as wire, daemon.wire() as other:
        one = request("POST", "/v0/topics/t", {**WRITE, "ack": "fsync"}, "Authorization: Bearer a")
        wire.send(one * 5)
        other.send(one.replace(b"Bearer a", b"Bearer b"))
        assert {wire.answer().status for _ in range(5)} <= {200, 201}
        assert other.answer().status in (200, 201)


@pytest.mark.parametrize(
    ("environ", "flags", "said"),
    [
        ({"TOPICS_API_KEYS": "s3cret:reed"}, [], "entry 1 is malformed"),
        ({"TOPICS_API_KEYS_FILE": "/nonexistent/keys"}, [], "No such file"),
        ({"TOPICS_HOST": "0.0.0.0"}, [], "no keys are configured"),
        ({"TOPICS_SOCKET_AUTH": "all"}, [], "must be one of keys, peer"),
    ],
)
def test_a_start_that_would_leave_the_door_open_is_78(
    environ: dict[str, str], flags: list[str], said: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "topics_daemon.main", "--data-dir", str(tmp_path / "d"), "--port", "0", *flags],
        env=clean_environment(**environ, TOPICS_SOCKET=str(tmp_path / "s" / "t.sock")),
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 78
    assert said in done.stderr
    assert "s3cret" not in done.stderr + done.stdout


def test_a_connection_lost_in_the_middle_of_a_wait_gives_its_place_back() -> None:
    environ = clean_environment(TOPICS_API_KEYS="a,b", TOPICS_MAX_SSE_CONNECTIONS_PER_KEY="2")
    with daemon_process(environ=environ) as daemon:
        ask(daemon, "POST", "/v0/topics/t", WRITE, "a")
        for _ in range(2):
            wires = []
            for status in (200, 200, 429):
                session = ask(daemon, "POST", "/v0/watch", {"topics": {"t": {}}}, "a").json
                wire = daemon.wire()
                wires.append(wire)
                auth = "Authorization: Bearer a"
                wire.send(request("GET", session["stream_url"], None, "Accept: text/event-stream", auth))
                if status == 200:
                    assert b" 200 " in wire.until(b"\r\n")
                    continue
                answer = wire.answer()
                assert answer.status == 429
                assert answer.json["error"]["detail"] == {"limit": "max_sse_connections_per_key", "max": 2}
            # Another key has places of its own.
            url = ask(daemon, "POST", "/v0/watch", {"topics": {"t": {}}}, "b").json["stream_url"]
            assert stream_status(daemon, url, "b") == 200
            for wire in wires:
                wire.close()
            for _ in range(200):
                url = ask(daemon, "POST", "/v0/watch", {"topics": {"t": {}}}, "a").json["stream_url"]
                if stream_status(daemon, url, "a") == 200:
                    break
            else:
                raise NoAnswer("no place became free")
