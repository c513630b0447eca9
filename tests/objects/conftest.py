"""The bucket that daemons of these tests have for their cold tier."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.extras import extra
from tests.objects.server import Server


@pytest.fixture(scope="module")
def bucket_server() -> Iterator[Server]:
    extra("obstore", "s3-test")
    extra("moto", "s3-test")
    one = Server()
    yield one
    one.stop()
