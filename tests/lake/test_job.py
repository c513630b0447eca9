"""The job for spark-submit: it knows what the command knows, and what needs no Spark does without."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine import Engine
from tests.cli.support import ROOT, clean_environment
from tests.extras import extra
from topics_cli.table import COMMANDS

extra("pyarrow")

from tests.lake.making import export_pin, new_pin  # noqa: E402 # pyarrow may be missing
from topics_lake.pinned import pin_of_directory  # noqa: E402 # pyarrow may be missing

JOB = ROOT / "packaging/spark/topics_export_job.py"
OF_SPARK_SUBMIT = {"--master", "--memory"}
OF_THE_SCREEN = {"--json"}


def job() -> Any:
    spec = importlib.util.spec_from_file_location("topics_export_job", JOB)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*words: str) -> subprocess.CompletedProcess[bytes]:
    environment = {**clean_environment(), "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, str(JOB), *words], env=environment, capture_output=True, timeout=120)


def test_it_has_every_option_of_the_command() -> None:
    wanted = (
        {flag for option in COMMANDS["spark-export"].options for flag in option.flags} - OF_SPARK_SUBMIT - OF_THE_SCREEN
    )
    known = {flag for action in job().parser()._actions for flag in action.option_strings}
    assert wanted <= known


@pytest.mark.slow
def test_a_dry_run_and_a_check_need_no_spark(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with Engine(str(tmp_path / "store")) as log:
        log.write("shop.a", list(range(30)))
        log.write("shop.b", [1])
        pin = new_pin(log, tmp_path / "store")
        dry = run("shop.*", "--to", str(lake), "--dir", pin, "--from", "11", "--until", "20", "--dry-run")
        assert [json.loads(line).get("rows") for line in dry.stdout.splitlines()] == [10, 0, 10]
        assert not lake.exists()
        export_pin(pin, lake, ["shop.a"])
    assert run("shop.*", "--to", str(lake), "--verify").returncode == 0
    assert run("nobody", "--to", str(lake), "--verify").returncode == 1
    next(lake.rglob("*.parquet")).write_bytes(b"")
    checked = run("shop.a", "--to", str(lake), "--verify")
    assert (checked.returncode, b"was touched" in checked.stdout) == (1, True)


@pytest.mark.slow
def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    to = ("--to", str(tmp_path / "lake"))
    for words, what in (
        (("t", *to), b"from where?"),
        (("t", *to, "--dir", str(tmp_path)), b"neither a store nor a pin"),
        (("t", *to, "--dir", str(tmp_path), "--from", "0"), b"seqs begin at 1"),
        (("t", *to, "--dir", str(tmp_path), "--format", "delta"), b"not supported yet"),
    ):
        done = run(*words)
        assert (done.returncode, what in done.stderr) == (1, True), (words, done)
    assert run("t", *to, "--full", "--since-last").returncode == 2
    assert run("t", *to, "--max-file-bytes", "many").returncode == 2


def test_a_stopped_store_is_pinned_where_executors_see_it_and_nothing_is_left(tmp_path: Path) -> None:
    with Engine(str(tmp_path / "store")) as log:
        log.write("t", [1, 2])
    scratch = tmp_path / "lake.scratch"
    with pin_of_directory(str(tmp_path / "store"), ["t"], str(scratch)) as path:
        assert Path(path).is_relative_to(scratch)
    assert not scratch.exists()
