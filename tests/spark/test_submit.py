"""The job under spark-submit: a standalone master, two workers, the packages from topics-spark.zip alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import Engine
from tests.export.pins import pin_path
from tests.extras import extra

extra("pyspark", "spark")
extra("pyarrow")

from tests.lake.making import plain  # noqa: E402 # pyarrow may be missing
from tests.spark.cluster import Cluster, cluster, packed_environment  # noqa: E402 # pyarrow may be missing

RECORDS = 60_000


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture(scope="module")
def pin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("store")
    with Engine(str(root)) as log:
        for start in range(0, RECORDS, 10_000):
            log.write("big", list(range(start, start + 10_000)))
            log._wait(log.core.checkpoint())
        yield pin_path(log, str(root))


def test_two_workers_of_a_standalone_master_export_every_record_once(
    workers: Cluster, pin: str, tmp_path: Path
) -> None:
    done, topic, summary = workers.export(pin, "big", tmp_path / "lake", "--task-bytes", "100000")
    assert done.returncode == 0, done.stderr.decode()
    assert (topic["rows"], topic["files"] >= 2, summary["rows"]) == (RECORDS, True, RECORDS)
    assert [seq for _, seq, _ in plain(tmp_path / "lake")] == list(range(1, RECORDS + 1))
    assert workers.executors() == 2


def test_executors_that_lack_the_libraries_get_them_as_an_archive(workers: Cluster, pin: str, tmp_path: Path) -> None:
    packed = packed_environment(tmp_path / "environment")
    done, topic, _ = workers.export(
        pin, "big", tmp_path / "lake", python="./environment/bin/python", archives=f"{packed}#environment"
    )
    assert done.returncode == 0, done.stderr.decode()
    assert topic["rows"] == RECORDS
    assert [seq for _, seq, _ in plain(tmp_path / "lake")] == list(range(1, RECORDS + 1))
