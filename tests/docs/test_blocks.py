"""Every command block of the documents works as printed, against a real daemon in a directory of its own."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.bench import servers
from tests.docs import blocks
from tests.docs.blocks import Block
from tests.extras import extra
from tests.style.sources import ROOT, tracked

BIN: Final = Path(sys.executable).parent
DOCUMENTS: Final = [
    path
    for path in tracked()
    if path.suffix == ".md"
    and not {"reference", "adr"} & set(path.parts)
    and blocks.blocks(blocks.document(ROOT / path))
]
WAIT_SECONDS: Final = 60


class Place(NamedTuple):
    """Where a document's commands run: a directory with the sample, and a daemon that they find by themselves."""

    directory: Path
    environ: dict[str, str]
    ports: dict[str, str]
    """What a document calls the ports of the daemon and of peers, and what they are here."""

    def run(self, command: list[str], text: str) -> subprocess.CompletedProcess[str]:
        for said, real in self.ports.items():
            text = text.replace(said, real)
        text = text.replace(".venv/bin/", "")
        return subprocess.run(
            [*command, text],
            cwd=self.directory,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
        )


@pytest.fixture(scope="module", params=DOCUMENTS, ids=str)
def document(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


@pytest.fixture(scope="module")
def place(document: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("docs")
    shutil.copytree(ROOT / "sample", directory / "sample")
    port_file = directory / "port"
    environ = {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "HOME": str(directory),
        "LANG": "C.UTF-8",
        "XDG_RUNTIME_DIR": str(directory / "run"),
    }
    daemon_environ = {**environ, "TOPICS_PORT": "0", "TOPICS_PORT_FILE": str(port_file)}
    (directory / "run").mkdir(mode=0o700)
    with (directory / "log").open("wb") as log:
        daemon = subprocess.Popen([BIN / "topicsd"], cwd=directory, env=daemon_environ, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + WAIT_SECONDS
        while not _is_ready(port_file):
            assert daemon.poll() is None, (directory / "log").read_text(encoding="utf-8")
            assert time.monotonic() < deadline, "the daemon did not start"
            time.sleep(0.02)
        port = port_file.read_text(encoding="ascii").strip()
        with ExitStack() as peers:
            yield Place(
                directory, environ, {"127.0.0.1:4000": f"127.0.0.1:{port}", **_peers(document, peers, directory)}
            )
    finally:
        daemon.send_signal(signal.SIGTERM)
        code = daemon.wait(WAIT_SECONDS)
        assert code == 0, (code, (directory / "log").read_text(encoding="utf-8"))


PEERS: Final[dict[str, tuple[tuple[str, ...], Callable[[Path], AbstractContextManager[servers.Server]]]]] = {
    "6379": (("redis-server", "redis-cli"), partial(servers.redis, appendfsync="everysec")),
    "11300": (("beanstalkd",), servers.beanstalkd),
}
"""By the port that a document names: what has to be there, and how it is started."""


def _peers(document: Path, stack: ExitStack, directory: Path) -> dict[str, str]:
    """Start the peers that a document's commands talk to; without one of them the document's test skips."""
    ports = {}
    bodies = "".join(block.body for block in blocks.blocks(blocks.document(ROOT / document)))
    for said, (needed, started) in PEERS.items():
        if re.search(rf"(127\.0\.0\.1:|-p |127\.0\.0\.1\", ){said}\b", bodies):
            if missing := [name for name in needed if not shutil.which(name)]:
                pytest.skip(f"{document}: this machine has no {', '.join(missing)}")
            ports[said] = str(stack.enter_context(started(directory)).port)
    return ports


def _is_ready(port_file: Path) -> bool:
    if not port_file.exists() or not (port := port_file.read_text(encoding="ascii").strip()):
        return False
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", int(port), timeout=WAIT_SECONDS)) as connection:
        connection.request("GET", "/v0/ready")
        return connection.getresponse().status == 200


@pytest.mark.slow
def test_the_commands_of_a_document_work_as_printed(document: Path, place: Place) -> None:
    for block in blocks.blocks(blocks.document(ROOT / document)):
        where = f"{document}:{block.line}"
        if needs := sorted(tool for tool in ("curl", "jq") if tool in block.body and not shutil.which(tool)):
            pytest.skip(f"{where}: this machine has no {', '.join(needs)}")
        if "topics export" in block.body:
            extra("duckdb", "lake")
            extra("pyarrow")
        if block.info == "console make":
            _look_up(where, block)
        elif block.info == "console":
            _run_console(where, block, place)
        else:
            _run_script(where, block, place)


def _look_up(where: str, block: Block) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    command = blocks.target(block.body).command
    target = re.fullmatch(r"make ([a-z-]+)", command)
    assert target, f"{where}: {command} is no target"
    assert re.search(rf"^{target[1]}:", makefile, re.MULTILINE), f"{where}: make has no target {target[1]}"


def _run_console(where: str, block: Block, place: Place) -> None:
    commands = blocks.steps(block.body)
    done = place.run(["bash", "-c"], blocks.script(commands))
    outputs = blocks.printed(done.stdout)
    assert len(outputs) == len(commands), f"{where}: {done.stdout}{done.stderr}"
    for step, real in zip(commands, outputs, strict=True):
        assert blocks.same(step.prints, real), (
            f"{where}: $ {step.command}\n--- said\n{step.prints}--- printed\n{real}"
        )  # fmt: skip


def _run_script(where: str, block: Block, place: Place) -> None:
    command = [sys.executable, "-c"] if block.info == "python" else ["bash", "-euo", "pipefail", "-c"]
    done = place.run(command, block.body)
    assert done.returncode == 0, f"{where}: {done.returncode}\n{done.stdout}{done.stderr}"
    if block.prints is not None:
        assert blocks.same(block.prints, done.stdout), f"{where}: said\n{block.prints}printed\n{done.stdout}"


@pytest.mark.slow
def test_what_make_run_prints_is_what_the_readme_shows() -> None:
    targets = [
        blocks.target(block.body)
        for block in blocks.blocks(blocks.document(ROOT / "README.md"))
        if block.info == "console make"
    ]
    shown = next(step.prints for step in targets if step.command == "make run")
    done = subprocess.run(
        ["scripts/run.sh"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "VENV": str(BIN.parent), "HOME": os.environ.get("HOME", "/")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert blocks.same(shown, done.stdout), done.stdout
