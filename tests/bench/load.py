"""One turn of load against one server, by a client in a process of its own: `wrk` where it is installed, else pumps.

A turn gives a `Turn`: requests, server CPU before and after, wall time, latencies, and what the client itself took.
An answer that is not a 2xx makes the turn an error, never a figure.
"""

from __future__ import annotations

import http.client
import json
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.figures import Turn
from tests.bench.servers import BenchError, Server

_LUA = """
wrk.method = "{method}"
wrk.path = "{path}"
{headers}
{body}
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format("BENCH %d %d %.3f %.3f %.3f %d\\n", summary.requests, summary.duration, latency:percentile(50),
    latency:percentile(99), latency:percentile(99.9), e.status + e.connect + e.read + e.write + e.timeout))
end
"""


WRK_LIMIT_S = 120
"""When wrk stops if nobody told it to."""


@dataclass(frozen=True, slots=True)
class Request:
    """The request that is sent over and over."""

    method: str
    path: str
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/json"),)


def ask(server: Server, request: Request) -> tuple[int, bytes]:
    """One request by the standard library: for setting up, and to learn how long an answer is."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request(request.method, request.path, request.body, dict(request.headers) if request.body else {})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def ask_json(server: Server, method: str, path: str, body: object = None) -> Any:
    """One JSON request that must succeed; its answer."""
    raw = None if body is None else json.dumps(body).encode()
    status, answer = ask(server, Request(method, path, raw))
    if status >= 400:
        raise BenchError(f"{method} {path}: {status} {answer[:300]!r}")
    return json.loads(answer)


def http_turn(server: Server, request: Request, connections: int, seconds: float) -> Turn:
    """Load by HTTP."""
    if shutil.which("wrk"):
        for longer in (1, 3, 10):  # large requests on a busy machine may all be under way when a short turn ends
            turn = _wrk_turn(server, request, connections, seconds * longer)
            if turn.count:
                return turn
        raise BenchError(f"{request.method} {request.path}: no answer in {seconds * 10} s")
    lines = [f"{request.method} {request.path} HTTP/1.1", "Host: localhost"]
    if request.body is not None:
        lines += [f"{name}: {value}" for name, value in request.headers] + [f"Content-Length: {len(request.body)}"]
    return pump_turn(server, "\r\n".join([*lines, "", ""]).encode() + (request.body or b""), connections, seconds)


def run_wrk(script: Path, server: Server, connections: int, seconds: float) -> subprocess.CompletedProcess[str]:
    """Let wrk load a server by a script and tell it when to stop: it knows whole seconds only."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{WRK_LIMIT_S}s", "--timeout", "10s", "-s", str(script)]
    with subprocess.Popen(
        [*command, f"http://127.0.0.1:{server.port}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=120)
    return subprocess.CompletedProcess(command, process.returncode, out, error)


def _wrk_turn(server: Server, request: Request, connections: int, seconds: float) -> Turn:
    with tempfile.TemporaryDirectory(prefix="topics-wrk-") as directory:
        body_file, script = Path(directory, "body"), Path(directory, "load.lua")
        body = ""
        if request.body is not None:
            body_file.write_bytes(request.body)
            body = f'wrk.body = io.open("{body_file}", "rb"):read("*a")'
        headers = "\n".join(f'wrk.headers["{name}"] = "{value}"' for name, value in request.headers)
        script.write_text(_LUA.format(method=request.method, path=request.path, headers=headers, body=body))
        before, own = server.cpu_s(), children_cpu_s()
        done = run_wrk(script, server, connections, seconds)
        own, used = children_cpu_s() - own, server.cpu_s() - before
    found = re.search(r"BENCH (\d+) (\d+) ([\d.]+) ([\d.]+) ([\d.]+) (\d+)", done.stdout)
    if found is None:
        raise BenchError(f"wrk: {done.stdout} {done.stderr}")
    count, duration_us, p50, p99, p999, errors = (float(text) for text in found.groups())
    if errors:
        raise BenchError(f"{request.method} {request.path}: {errors:.0f} errors in {count:.0f} requests: {done.stdout}")
    return Turn(int(count), used, duration_us / 1e6, p50, p99, p999, own)


def pump_turn(
    server: Server,
    blob: bytes,
    connections: int,
    seconds: float,
    *,
    done: str = "http",
    hello: bytes = b"",
    skip: int = 0,
) -> Turn:
    """Load by a pump: the same bytes over and over."""
    with tempfile.TemporaryDirectory(prefix="topics-pump-") as directory:
        request_file, hello_file = Path(directory, "request"), Path(directory, "hello")
        request_file.write_bytes(blob)
        hello_file.write_bytes(hello)
        command = [sys.executable, "-m", "tests.bench.pump", "--port", str(server.port), "--request", str(request_file)]
        command += ["--hello", str(hello_file), "--skip", str(skip), "--done", done]
        command += ["--connections", str(connections), "--seconds", str(seconds)]
        before = server.cpu_s()
        finished = subprocess.run(command, capture_output=True, text=True, timeout=120)
        used = server.cpu_s() - before
    if finished.returncode:
        raise BenchError(f"pump: {finished.stderr[-500:]}")
    seen = json.loads(finished.stdout)
    return Turn(
        seen["count"], used, seen["seconds"], seen["p50_us"], seen["p99_us"], seen["p999_us"], seen["client_cpu_s"]
    )


def children_cpu_s() -> float:
    """User + system CPU of all child processes that have ended, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
