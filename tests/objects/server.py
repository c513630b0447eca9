"""A server of the S3 protocol as a process of its own: moto's, whose log of requests is what counts are held against.

    python -m tests.objects.server

runs one until it is interrupted, and says where.
"""

from __future__ import annotations

import http.client
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from typing import Any, Final

from tests.cli.support import die_with_us

START_S: Final = 60
BUCKET: Final = "history"
ENVIRON: Final = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}

_LINE: Final = re.compile(r'"(?:\x1b\[[0-9;]*m)*([A-Z]+) (/\S*) HTTP/1\.[01](?:\x1b\[[0-9;]*m)*" (\d{3})')
_RUN: Final = "from moto.server import main; main()"


class Server:
    """One server with one empty bucket; what it holds ends with it."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the server
        command = [sys.executable, "-c", _RUN, "-H", "127.0.0.1", "-p", str(self.port)]
        environ = {**os.environ, "S3_IGNORE_SUBDOMAIN_BUCKETNAME": "1", "MOTO_S3_CUSTOM_ENDPOINTS": self.url}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=environ,
            preexec_fn=die_with_us,  # noqa: PLW1509  # it makes one system call; dies with a test that is killed
        )
        end = time.monotonic() + START_S
        while not self._makes_bucket():
            if self._process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise RuntimeError(f"no server of the S3 protocol: {self.log()[-2000:]}")
            time.sleep(0.1)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def place(self, prefix: str = "topics", port: int | None = None) -> str:
        """The bucket as a cold tier, perhaps through a proxy."""
        return f"s3://{BUCKET}/{prefix}?endpoint=http://127.0.0.1:{port or self.port}"

    def _makes_bucket(self) -> bool:
        try:
            return self.ask("PUT", f"/{BUCKET}") == 200
        except OSError:
            return False

    def ask(self, method: str, path: str, body: bytes = b"") -> int:
        """One request of the test's own; returns the status."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body or None, {"x-test": "1"})
            answer = connection.getresponse()
            answer.read()
            return answer.status
        finally:
            connection.close()

    def pause(self) -> None:
        """The process is stopped: connections are taken by the kernel, and nobody answers."""
        self._process.send_signal(19)

    def go_on(self) -> None:
        self._process.send_signal(18)

    def log(self) -> str:
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), size, 0).decode(errors="replace")

    def requests(self, prefix: str = "topics") -> Counter[str]:
        """What its own log says was asked of a prefix, by operation."""
        found: Counter[str] = Counter()
        for method, target, _ in _LINE.findall(self.log()):
            path, _, query = target.partition("?")
            if path.rstrip("/") == f"/{BUCKET}" and "list-type" in query:
                found["list"] += f"prefix={prefix}/" in query.replace("%2F", "/")
            elif path.startswith(f"/{BUCKET}/{prefix}/"):
                found[{"POST": "put"}.get(method, method.lower())] += 1
        return found

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


def main() -> None:
    server: Any = Server()
    print(server.place(), " ".join(f"{name}={value}" for name, value in ENVIRON.items()), flush=True)
    try:
        server._process.wait()
    except KeyboardInterrupt:
        server.stop()


if __name__ == "__main__":
    main()
