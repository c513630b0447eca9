"""One small Spark session for all tests of this directory, and a daemon that they share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.support import Daemon, running
from tests.extras import extra


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of it is slow: a JVM starts."""
    for item in items:
        if item.path.parent.name == "spark":
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The session: two cores, little memory."""
    extra("pyspark", "spark")
    from topics_lake.errors import LakeError
    from topics_lake.spark import session

    try:
        made = session(
            "local[2]",
            **{
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
                "spark.sql.shuffle.partitions": "2",
                "spark.sql.streaming.pollingDelay": "20ms",
            },
        )
    except LakeError as error:
        if os.environ.get("SPARK_REQUIRED"):
            raise
        pytest.skip(f"{error.what}: {error.hint}")
    from topics_lake.source import TopicsSource

    made.dataSource.register(TopicsSource)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def daemon() -> Iterator[Daemon]:
    """A daemon; tests use topics of their own."""
    yield from running()
