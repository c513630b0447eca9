"""Threats of faults.md's security table that concern a whole daemon: names, injected lines, links, descriptors, errors.

Those of single protocols are in `test_hostile.py`, `test_websocket_hostile.py`, `test_http2_hostile.py` and
`test_deadlines.py`; `tests/faults/test_catalogue.py` knows that each row has a test.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.fs import OpenMode, OsFs
from tests.daemon import http2_kit
from tests.daemon.kit import (
    DaemonProcess,
    Events,
    NoAnswer,
    clean_environment,
    daemon_process,
    post,
    records_of,
    request,
    start,
    watch,
)
from tests.daemon.socket_kit import handshake
from topics_daemon.config import SEGMENT_HANDLES
from topics_daemon.lifecycle import FDS_RESERVED

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with daemon_process() as running:
        running.write("t", 1)
        yield running


def rebound(data: bytes, host: str) -> bytes:
    """The same request to another host."""
    assert b"Host: localhost" in data
    return data.replace(b"Host: localhost", b"Host: " + host.encode(), 1)


def test_S01_a_rebound_name_is_421_before_routing_on_streams_and_web_sockets_too(daemon: DaemonProcess) -> None:
    url = watch(daemon, {"t": {}})
    asked = [
        request("GET", url, None, "Accept: text/event-stream"),
        handshake(),
        request("GET", "/v0/topics/q/work?node=n", None, "Accept: text/event-stream"),
        request("GET", "/nothing"),
        request("PATCH", "/v0/topics/t"),
        post("/v0/topics/t", {"records": [{"data": 1}]}),
    ]
    for data in asked:
        for host in ("evil.example", f"evil.example:{daemon.port}", "localhost.evil.example", "127.0.0.1.evil.example"):
            answer = daemon.ask(rebound(data, host))
            assert (answer.status, answer.code) == (421, "misdirected"), (data, host)
    assert records_of(daemon.read("t")) == [1]


UNNAMED = {
    "this host, as a browser may be led to it": "0.0.0.0",
    "the same with our port": "0.0.0.0:PORT",
    "the same in short": "0",
    "the same in IPv6": "[::]",
    "the same in IPv6 with our port": "[::]:PORT",
    "a loopback address inside of IPv6": "[::ffff:127.0.0.1]",
    "a loopback address in short": "127.1",
    "a loopback address as one number": "2130706433",
    "a loopback address in octal": "0177.0.0.1",
    "a loopback address in hexadecimal": "0x7f.0.0.1",
    "a loopback address with a zero in front": "127.0.0.01",
    "an address beside the network": "128.0.0.1",
    "the root behind a name": "localhost.",
    "the root behind an address": "127.0.0.1.",
    "the root behind a name, with our port": "localhost.:PORT",
    "a name below ours": "evil.localhost",
    "a port that is none": "localhost:PORT0000",
    "two ports": "localhost:PORT:80",
    "a port without digits": "localhost:",
    "a port that is a word": "localhost:http",
    "IPv6 without brackets": "::1",
    "IPv6 with a zone": "[::1%lo]",
    "a bracket without end": "[::1",
    "a credential in front": "localhost@0.0.0.0",
    "a path behind": "localhost/0.0.0.0",
    "two names": "localhost, 0.0.0.0",
    "nothing": "",
}
"""Values of `Host` over TCP that none of `localhost`, `127.0.0.0/8`, `[::1]` is, with any port."""


@pytest.mark.parametrize("host", UNNAMED.values(), ids=UNNAMED)
def test_S01_what_leads_here_by_another_name_is_421(daemon: DaemonProcess, host: str) -> None:
    """As `Host`, as the authority of an absolute target, and as `:authority` (or `host`) of HTTP/2."""
    host = host.replace("PORT", str(daemon.port))
    answer = daemon.ask(f"GET /v0/topics/t HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert (answer.status, answer.code) == (421, "misdirected")
    path = "/v0/topics/t"
    if not set(host) & set("/ "):
        for scheme in ("http", "https", "HTTP"):
            # The target's authority takes the place of the header, which may say what it likes.
            answer = daemon.ask(f"GET {scheme}://{host}{path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert answer.status == 421, scheme
    refused = 421 if host else 400  # an empty field says nothing in HTTP/2, as if it were not there
    with http2_kit.Client(daemon) as client:
        assert client.answer(client.begin("GET", path, host=host))[0] == refused
        number = client.h2.get_next_available_stream_id()
        client.h2.send_headers(
            number, [(":method", "GET"), (":scheme", "http"), (":path", path), ("host", host)], end_stream=True
        )
        client.flush()
        assert client.answer(number)[0] == refused


def test_S01_the_authority_of_the_target_decides_and_two_that_differ_are_refused(daemon: DaemonProcess) -> None:
    """RFC 9112, 3.2.2: what stands in the target counts, and `Host` is not looked at; HTTP/2 may not say both."""

    def status(target: str, *hosts: str) -> int:
        lines = "".join(f"Host: {host}\r\n" for host in hosts)
        return daemon.ask(f"GET {target} HTTP/1.1\r\n{lines}\r\n".encode()).status

    ours = f"http://127.0.0.1:{daemon.port}/v0/topics/t"
    assert status(ours, "0.0.0.0") == status("http://[::1]/v0/topics/t", "0.0.0.0") == 200
    assert status("http://0.0.0.0/v0/topics/t", "localhost") == 421
    assert status("/v0/topics/t", "localhost", "0.0.0.0") == status(ours, "localhost", "localhost") == 400
    assert status("/v0/topics/t") == status(ours) == 400, "HTTP/1.1 without a Host"
    for authority, host in (("localhost", "0.0.0.0"), ("0.0.0.0", "localhost"), ("localhost", "localhost:80")):
        with http2_kit.Client(daemon) as client:
            client.begin("GET", "/v0/topics/t", ("host", host), host=authority)
            assert client.is_ended()
            assert not client.statuses
    with http2_kit.Client(daemon) as client:
        assert client.answer(client.begin("GET", "/v0/topics/t", ("host", "localhost")))[0] == 200


def test_S01_a_listener_on_all_addresses_is_reached_by_the_names_that_were_allowed() -> None:
    environ = clean_environment(TOPICS_API_KEYS="full", TOPICS_ALLOWED_HOSTS="localhost,db.example:4000,10.0.0.0/8")
    with daemon_process("--host", "0.0.0.0", environ=environ) as daemon:

        def status(host: str) -> int:
            return daemon.ask(
                f"GET /v0/topics HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer full\r\n\r\n".encode()
            ).status

        for host in ("0.0.0.0", f"0.0.0.0:{daemon.port}", "[::]", "127.0.0.1", "db.example", "db.example:80"):
            assert status(host) == 421, host
        for host in ("db.example:4000", "DB.example:4000", "10.1.2.3", f"10.255.0.1:{daemon.port}"):
            assert status(host) == 200, host


def test_S02_pages_of_other_sites_are_403_whatever_they_ask(daemon: DaemonProcess) -> None:
    url = watch(daemon, {"t": {}})
    origins = ("http://evil.example", "null", "http://localhost:9")
    for header in (*(f"Origin: {origin}" for origin in origins), "Sec-Fetch-Site: cross-site"):
        for method, path, body in (
            ("GET", "/v0/topics/t", None),
            ("GET", url, None),
            ("GET", "/v0/metrics", None),
            ("POST", "/v0/topics/t", {"records": [{"data": 1}]}),
            ("DELETE", "/v0/topics/t", None),
            ("PUT", "/v0/topics/new", {}),
        ):
            answer = daemon.ask(request(method, path, body, header))
            assert (answer.status, answer.code) == (403, "forbidden"), (method, path, header)
            assert not [name for name in answer.headers if name.startswith("access-control")]
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert daemon.ask(post("/v0/topics/t", b'{"records":[{"data":1}]}', kind=kind)).status == 415
    assert records_of(daemon.read("t")) == [1]


@pytest.mark.parametrize(
    "said",
    [
        b"EHLO mail.example\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"SSH-2.0-x\r\n",
        b"\0",
    ],
    ids=["SMTP", "RESP", "TLS", "SSH", "NUL"],
)
def test_S04_what_speaks_another_protocol_is_closed_at_once(daemon: DaemonProcess, said: bytes) -> None:
    for unix in (False, True):
        with daemon.wire(unix=unix) as wire:
            wire.send(said)
            with pytest.raises(NoAnswer, match=r"closed|reset"):
                wire.answer()


def test_S12_names_never_become_paths(tmp_path: Path) -> None:
    names = ["STORE", "LOCK", "meta", "wal", "quarantine", "topics", "exports", "a..b", "con", "x" * 255, "a:b._-"]
    daemon = start(tmp_path)
    try:
        for bad in ("..", ".hidden", "-rf", "a/b", "a%2Fb", "..%2F..%2Fetc%2Fpasswd", "a%5Cb", "a%00b", "~", "%C3%A9"):
            answer = daemon.ask(post(f"/v0/topics/{bad}", {"records": [{"data": 1}]}))
            assert answer.status in (400, 404), bad
        for name in names:
            daemon.write(name, name)
            assert daemon.ask(request("PUT", f"/v0/topics/{name}/cursors/{name}", {"seq": 1})).status == 201
        assert daemon.ask(post("/v0/admin/checkpoint", {})).status == 200
        found = {part for path in (tmp_path / "data").rglob("*") for part in path.relative_to(tmp_path / "data").parts}
        assert not {"a..b", "con", "x" * 255, "a:b._-"} & found
        assert daemon.stop() == 0
        daemon = start(tmp_path)
        assert all(records_of(daemon.read(name)) == [name] for name in names)
    finally:
        daemon.stop()


def test_S18_nothing_that_a_client_wrote_begins_a_line_of_a_stream_or_of_a_head(daemon: DaemonProcess) -> None:
    forged = "x\r\nevent: error\ndata: {}\n\nid: 9"
    raw = (
        b'{"records":[{"data":{"a":\r\n"event: error",\n"b":\r1}},%b]}'
        % json.dumps({"data": forged, "tag": forged, "node": forged, "meta": {forged: forged}}).encode()
    )
    assert daemon.ask(post("/v0/topics/lines", raw)).status == 201
    with Events(daemon, watch(daemon, {"lines": {}}, include_tags=True)) as events:
        name, data, _ = events.next()
        assert name == "record"
        assert [record["data"] for record in data["records"]] == [{"a": "event: error", "b": 1}, forged]
        assert data["records"][1]["$tag"] == data["records"][1]["$node"] == forged
        assert events.next()[0] == "caught-up"
    for path in ("/v0/topics/a%0d%0aSet-Cookie:%20x", "/v0/watch/wid_%0d%0aX:y", "/v0/topics?cursor=%0d%0aX:y"):
        answer = daemon.ask(request("GET", path))
        assert answer.status in (400, 404)
        assert not {"set-cookie", "x"} & set(answer.headers)
    warned = daemon.ask(post("/v0/topics/lines", {"records": [{"data": 1}], "new\r\nX: y": 1}))
    assert "x" not in warned.headers
    assert warned.json["warnings"]


def test_S21_no_link_is_followed_where_a_file_of_the_store_is_meant(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    fs = OsFs(str(tmp_path / "data"), create=True)
    os.symlink(precious, tmp_path / "data" / "link")
    for mode in OpenMode:
        with pytest.raises(OSError, match=r"symbolic link|exists"):
            fs.open("link", mode)
    assert precious.read_text() == "mine"
    for name in ("LOCK", "STORE"):
        root = tmp_path / f"links-{name}"
        root.mkdir(mode=0o700)
        os.symlink(precious, root / name)
        command = [
            sys.executable,
            "-m",
            "topics_daemon.main",
            "--data-dir",
            str(root),
            "--port",
            "0",
            "--socket",
            "none",
        ]
        done = subprocess.run(command, capture_output=True, env=clean_environment(), timeout=20, check=False)
        assert done.returncode in (73, 74, 76, 77), done.stderr
        assert precious.read_text() == "mine"


FILES = FDS_RESERVED + 44
"""Descriptors of a daemon that may have few: 44 connections are left."""
FEW: str = """
import resource, sys
sys.path.insert(0, {root!r})
resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files}))
from topics_daemon.main import main
sys.exit(main())
"""


def test_without_a_bound_there_are_as_many_connections_as_there_may_be_files(tmp_path: Path) -> None:
    launcher = tmp_path / "few.py"
    launcher.write_text(FEW.format(root=str(ROOT), files=FILES))
    daemon = start(tmp_path, "--max-connections", "0", launcher=launcher)
    wires = [daemon.wire() for _ in range(45)]
    try:
        assert wires[-1].answer().json["error"]["detail"] == {"limit": "max_connections", "max": 44}
        wires[0].send(post("/v0/topics/t", {"records": [{"data": 1}]}))
        assert wires[0].answer().status == 201
        assert "fewer connections" not in daemon.log
    finally:
        for wire in wires:
            wire.close()
        daemon.stop()


def test_F24_S23_connections_end_before_descriptors_do_and_no_data_path_fails(tmp_path: Path) -> None:
    launcher = tmp_path / "few.py"
    launcher.write_text(FEW.format(root=str(ROOT), files=FILES))
    daemon = start(tmp_path, "--segment-max-events", "10", "--cache-bytes", "1MiB", launcher=launcher)
    wires = []
    try:
        for _ in range(100):
            daemon.write("old", *["x" * 4000] * 10)
        assert daemon.ask(post("/v0/admin/checkpoint", {})).status == 200
        (said,) = [json.loads(line) for line in daemon.log.splitlines() if "fewer connections" in line]
        assert said["max_connections"] == 44
        for number in range(120):
            wire = daemon.wire()
            wires.append(wire)
            if number < said["max_connections"]:
                wire.send(post("/v0/topics/t", {"records": [{"data": 1}]}))
                assert wire.answer().status in (200, 201)
            else:
                # A moment in which all of them read why, and many are turned away: the descriptors last.
                assert wire.answer().json["error"]["detail"] == {"limit": "max_connections", "max": 44}
            assert len(os.listdir(f"/proc/{daemon.pid}/fd")) < FILES - SEGMENT_HANDLES - 86
        # The connections that are there go on reading a hundred old segments, writing, and making checkpoints.
        assert len(list((tmp_path / "data" / "topics").rglob("*.data"))) >= 100
        for at in range(0, 1000, 10):
            wires[at % 40].send(post("/v0/topics/old/diff", {"from_seq": at, "limit": 10}))
            assert wires[at % 40].answer().json["records"][0]["$seq"] == at + 1
        wires[0].send(post("/v0/admin/checkpoint", {}))
        assert wires[0].answer().status == 200
        wires[1].send(request("GET", "/v0/ready"))
        assert wires[1].answer().status == 200
        assert "Too many open files" not in daemon.log
    finally:
        for wire in wires:
            wire.close()
        assert daemon.stop() == 0


BUGGY: str = """
import sys
sys.path.insert(0, {root!r})
from engine.core import Core
def broken(self, name, **more):
    if name == "bug":
        raise RuntimeError("s3cret payload in /var/lib/topics")
    return really(self, name, **more)
really, Core.state = Core.state, broken
from topics_daemon.main import main
sys.exit(main())
"""


def test_S24_an_internal_error_has_an_id_and_says_no_path_trace_or_token(tmp_path: Path) -> None:
    launcher = tmp_path / "buggy.py"
    launcher.write_text(BUGGY.format(root=str(ROOT)))
    environ = clean_environment(TOPICS_API_KEYS="t0ken")
    with daemon_process(environ=environ, launcher=launcher) as daemon:
        auth = "Authorization: Bearer t0ken"
        assert daemon.ask(post("/v0/topics/bug", {"records": [{"data": "payl0ad"}]}, auth)).status == 201
        answer = daemon.ask(request("GET", "/v0/topics/bug", None, auth))
        assert (answer.status, answer.code) == (500, "internal")
        id_ = answer.json["error"]["detail"]["id"]
        for word in (b"s3cret", b"/", b"Traceback", b"RuntimeError", b"t0ken", b"payl0ad", b".py"):
            assert word not in answer.body
        lines = [line for line in daemon.log.splitlines() if id_ in line]
        assert len(lines) == 1, "the id leads to the log"
        assert "RuntimeError" in lines[0]
        for secret in ("s3cret", "t0ken", "payl0ad"):
            assert secret not in daemon.log
        assert daemon.ask(request("GET", "/v0/topics/none", None, auth)).status == 404
        assert daemon.stop() == 0
