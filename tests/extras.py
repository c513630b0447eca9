"""Packages of the extras, for the tests that need them: without them a test skips with the reason, unless it must not.

With SPARK_REQUIRED (for buckets: S3_REQUIRED) set, as in `.ci/run`, a package that is missing is a failure.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest


def extra(module: str, name: str = "export") -> Any:
    """A module of the extra `name`, or the test (the whole file, at its top) skips."""
    setup = "s3" if name.startswith("s3") else "spark"
    if os.environ.get(f"{setup.upper()}_REQUIRED"):
        return importlib.import_module(module)
    reason = f"{module} is not installed: pip install 'topics[{name}]', or make setup-{setup}"
    return pytest.importorskip(module, reason=reason)
