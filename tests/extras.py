"""Packages of the extras, for the tests that need them: without them a test skips with the reason, unless it must not.

With SPARK_REQUIRED set, as in `.ci/run`, a package that is missing is a failure.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest


def extra(module: str, name: str = "export") -> Any:
    """A module of the extra `name`, or the test (the whole file, at its top) skips."""
    if os.environ.get("SPARK_REQUIRED"):
        return importlib.import_module(module)
    reason = f"{module} is not installed: pip install 'topics[{name}]', or make setup-spark"
    return pytest.importorskip(module, reason=reason)
