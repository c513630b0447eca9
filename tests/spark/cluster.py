"""A standalone master with two workers, each a process of its own, and jobs that are handed to it by spark-submit."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import ROOT, clean_environment, die_with_us
from topics_lake.archive import write_archive
from topics_lake.errors import LakeError
from topics_lake.spark import java_home

PATIENCE_S = 600
NEEDED = ("msgspec", "numpy", "pyarrow", "xxhash")
"""What executors need beside the archive of the packages."""
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""What a JVM is told that ends soon."""
_DEPLOY = "org.apache.spark.deploy"
_PORTS = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")


class Cluster:
    """Where jobs go."""

    def __init__(self, root: Path, home: Path, url: str, environment: dict[str, str]) -> None:
        self.root = root
        self._home = home
        self._url = url
        self._environment = environment

    def submit(self, job: str | Path, *words: str, python: str = sys.executable, archives: str = "") -> Any:
        """Run a job with the packages from topics-spark.zip alone. `python`: that of executors; `archives`: what is
        unpacked beside them."""
        package = self.root / "topics-spark.zip"
        write_archive(str(package))
        more = ("--archives", archives) if archives else ()
        return subprocess.run(
            [
                *(str(self._home / "bin" / "spark-submit"), "--master", self._url),
                *("--executor-memory", "520m", "--driver-memory", "520m", "--conf", "spark.ui.enabled=false"),
                *("--py-files", str(package), *more, str(job), *words),
            ],
            cwd=self.root,
            env={
                **self._environment,
                "PYTHONPATH": "",
                "PYSPARK_PYTHON": python,
                "PYSPARK_DRIVER_PYTHON": sys.executable,
            },
            capture_output=True,
            timeout=PATIENCE_S,
        )

    def export(
        self, pin: str, topic: str, lake: Path, *words: str, python: str = sys.executable, archives: str = ""
    ) -> Any:
        """Export a topic of a pin; the process, what was said of the topic, and the summary."""
        words = (topic, "--to", str(lake), "--dir", pin, *words)
        done = self.submit(ROOT / "packaging/spark/topics_export_job.py", *words, python=python, archives=archives)
        said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]
        return done, *(said or [None, None])

    def kill_an_executor(self) -> bool:
        """SIGKILL to one executor, if there is any."""
        for path in Path("/proc").glob("[0-9]*"):
            try:
                words = (path / "cmdline").read_bytes()
                if b"CoarseGrainedExecutorBackend" in words and (path / "cwd").readlink().is_relative_to(self.root):
                    os.kill(int(path.name), signal.SIGKILL)
                    return True
            except OSError:
                continue
        return False

    def executors(self) -> int:
        """On how many workers executors have run."""
        logs = [(self.root / name).read_text(errors="replace") for name in ("one.log", "two.log")]
        return sum("Asked to launch executor" in log for log in logs)


@contextmanager
def cluster(root: Path) -> Iterator[Cluster]:
    """A master and two workers that live as long as the context. Skips where there is no Java."""
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = {
        **clean_environment(),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_WORKER_DIR": str(root / "work"),
        # A dozen JVMs that live for seconds: what the second compiler does for them nobody has the good of.
        "JAVA_TOOL_OPTIONS": SHORT_LIVED,
    }
    try:
        java = java_home() or os.environ.get("JAVA_HOME")
    except LakeError as error:
        if os.environ.get("SPARK_REQUIRED"):
            raise
        pytest.skip(f"{error.what}: {error.hint}")
    if java:
        environment["JAVA_HOME"] = java
    spark_class = str(home / "bin" / "spark-class")
    with _process(root / "master.log", environment, spark_class, f"{_DEPLOY}.master.Master", *_PORTS):
        url = _said(root / "master.log", r"Starting Spark master at (spark://\S+)")
        words = (spark_class, f"{_DEPLOY}.worker.Worker", *_PORTS, "--cores", "1", "--memory", "700m", url)
        with _process(root / "one.log", environment, *words), _process(root / "two.log", environment, *words):
            for name in ("one.log", "two.log"):
                _said(root / name, r"(Successfully registered with master)")
            yield Cluster(root, home, url, environment)


@contextmanager
def _process(log: Path, environment: dict[str, str], *words: str) -> Iterator[None]:
    with log.open("wb") as out:
        running = subprocess.Popen(
            words,
            env=environment,
            stdout=out,
            stderr=out,
            preexec_fn=die_with_us,  # noqa: PLW1509 # one system call
        )
    try:
        yield
    finally:
        running.terminate()
        try:
            running.wait(30)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait(30)


def _said(log: Path, pattern: str) -> str:
    """Wait for a line in a log; its first group."""
    over = time.monotonic() + PATIENCE_S
    while time.monotonic() < over:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found is not None:
            return found[1]
        time.sleep(0.2)
    raise AssertionError(log.read_text(errors="replace"))


def bare_python(directory: Path) -> str:
    """A Python that has nothing but its own library: what executors start with elsewhere."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True, timeout=PATIENCE_S)
    python = str(directory / "bin" / "python")
    for name in NEEDED:
        assert subprocess.run([python, "-c", f"import {name}"], capture_output=True).returncode == 1
    return python


def packed_environment(directory: Path) -> Path:
    """A bare Python with the packages that executors need, as an archive."""
    bare_python(directory)
    (packages,) = (directory / "lib").glob("python*/site-packages")
    for name in NEEDED:
        module = __import__(name)
        source = Path(str(module.__file__)).parent
        # Headers and tests of pyarrow are half of it.
        shutil.copytree(source, packages / name, ignore=shutil.ignore_patterns("tests", "include", "__pycache__"))
        libraries = source.with_name(f"{name}.libs")
        if libraries.exists():
            shutil.copytree(libraries, packages / libraries.name)
    packed = directory.with_suffix(".tar.gz")  # of a .tar Spark forgets what may be run
    with tarfile.open(packed, "w:gz", compresslevel=0) as archive:
        archive.add(directory, ".")
    return packed
