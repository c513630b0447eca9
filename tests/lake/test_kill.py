"""SIGKILL at every step of an export, with a reader that never stops: no loss, no duplicate, nothing foreign."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from engine import Engine
from tests.cli.support import ROOT, clean_environment
from tests.extras import extra

extra("pyarrow")
extra("duckdb", "lake")

from tests.lake.making import export_pin, new_pin, plain  # noqa: E402 # pyarrow may be missing
from topics_lake.lake import Lake  # noqa: E402 # pyarrow may be missing

pytestmark = pytest.mark.slow
SCRIPT = """
import os, signal, sys
from topics_lake import export, files
from topics_lake.lake import Lake

pin, lake, at = sys.argv[1:]
def kill(name):
    if name == at:
        os.kill(os.getpid(), signal.SIGKILL)

if at == "file":
    close = files.FileWriter.close
    def cut(self):
        self._file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    files.FileWriter.close = cut
elif at == "renamed":
    sync = export.Lake.commit
    def commit(self, made, batch):
        sync(self, made, batch)
        os.kill(os.getpid(), signal.SIGKILL)
    export.Lake.commit = commit
into = Lake(lake)
with into.turn():
    list(export.Export(into, pin, export.Settings(task_bytes=1), step=kill).run(["t"]))
"""
STEPS = ("tasks", "file", "files", "manifest", "commit", "renamed", "gaps", "end")


def test_killed_at_every_step_and_run_again_until_it_is_done(tmp_path: Path) -> None:
    lake, stop, wrong = tmp_path / "lake", threading.Event(), []
    counts = [0]

    def read() -> None:
        while not stop.is_set():
            seqs = [seq for _, seq, _ in plain(lake)]
            if len(set(seqs)) != len(seqs) or len(seqs) < counts[0] or (seqs and len(seqs) % 200):
                wrong.append(seqs)
            counts[0] = len(seqs)

    reader = threading.Thread(target=read)
    with Engine(str(tmp_path / "store")) as log:
        log.create("t", cap_records=1_000_000)
        log.write("t", list(range(100)))
        log.delete("t", before_seq=101)
        reader.start()
        environment = {**clean_environment(), "PYTHONPATH": str(ROOT)}
        for step in STEPS:
            log.write("t", list(range(200)))
            pin = new_pin(log, tmp_path / "store")
            words = [sys.executable, "-c", SCRIPT, pin, str(lake)]
            killed = subprocess.run([*words, step], env=environment, capture_output=True, timeout=120)
            assert killed.returncode == -signal.SIGKILL, (step, killed)
            export_pin(pin, lake, ["t"], task_bytes=1)
    stop.set()
    reader.join()
    assert not wrong
    assert [seq for _, seq, _ in plain(lake)] == list(range(101, 101 + 200 * len(STEPS)))
    assert [first for _, first in Lake(str(lake)).starts("t")] == [1, *range(301, 101 + 200 * len(STEPS), 200)]
    names = {path.name.partition("-")[0] for path in lake.rglob("*") if path.is_file()}
    assert names == {"part", "_batch.json"}
    assert os.listdir(f"{lake}.staging") == ["LOCK"]
