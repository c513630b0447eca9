"""Each rule of the house complains about an offence planted for it, and about nothing in a text that keeps it."""

from __future__ import annotations

import ast

import pytest

from tests.style import rules


@pytest.mark.parametrize(
    ("module", "code", "wrong"),
    [
        ("engine.wal.shard", "from engine.store.scan import scan", True),
        ("engine.wal.shard", "import engine.topic.topic", True),
        ("engine.wal.shard", "from engine import core", True),
        ("engine.wal.shard", "from engine import Engine", True),
        ("engine.wal.shard", "def f():\n    from engine.core import Core", True),
        ("engine.wal.shard", "from ..store import scan", True),
        ("engine.wal.shard", "from engine.attic import thing", True),
        (
            "engine.wal.shard",
            "from engine.wal.frame import pack\nfrom engine.fs import Fs\nimport engine.formats",
            False,
        ),
        ("engine.fs", "from engine.formats import frame", True),
        ("engine.errors", "from engine.names import check", False),
        ("engine.store.scan", "from engine.topic import apply_append", False),
        ("engine.core", "from topics_daemon.main import main", True),
        ("topics_daemon.main", "from engine.core import Core\nfrom engine import Engine", False),
        ("topics_daemon.main", "from topics_cli.app import main", True),
        ("topics_cli.app", "from topics_daemon.config import SETTINGS", True),
        ("topics_cli.app", "from engine.core import Core", True),
        ("topics_cli.app", "from engine.tools import fsck", True),
        ("topics_cli.app", "def f():\n    from engine.tools import fsck", False),
        ("topics_cli.app", "from engine.errors import Code", False),
    ],
)
def test_an_import_that_points_sideways_or_up_is_found(module: str, code: str, wrong: bool) -> None:
    assert bool(rules.wrong_imports(module, ast.parse(code))) is wrong


def test_a_circle_of_imports_is_found() -> None:
    modules = {
        "engine.wal.a": ast.parse("import engine.wal.b"),
        "engine.wal.b": ast.parse("from engine.wal.c import x"),
        "engine.wal.c": ast.parse("import engine.wal.a"),
    }
    assert set(rules.import_circle(modules)) == set(modules)
    modules["engine.wal.c"] = ast.parse("def f():\n    import engine.wal.a")
    assert rules.import_circle(modules) == []


@pytest.mark.parametrize(
    "code",
    [
        "import os",
        "import os.path",
        "from time import monotonic",
        "import random",
        "import asyncio",
        "import threading",
        "open('x')",
        "print(1)",
        "from datetime import datetime",
        "os.unlink('x')",
        "async def f(): ...",
        "import _socket\nimport socket",
    ],
)
def test_a_way_past_the_seams_is_found(code: str) -> None:
    assert rules.touches_outside("engine.wal.shard", ast.parse(code))
    assert not rules.touches_outside("engine.fs", ast.parse(code))


def test_the_driver_may_wait_but_not_touch_files() -> None:
    assert not rules.touches_outside("engine.driver", ast.parse("import threading, time, os\nos.getpid()"))
    assert rules.touches_outside("engine.driver", ast.parse("import os\nos.unlink('x')"))
    assert rules.touches_outside("engine.driver", ast.parse("from os import unlink"))
    assert rules.touches_outside("engine.driver", ast.parse("import socket"))


def test_a_package_that_the_engine_has_no_business_with_is_found() -> None:
    assert rules.foreign_packages("engine.core", ast.parse("import httpx"))
    assert rules.foreign_packages("engine.core", ast.parse("import pyarrow"))
    assert not rules.foreign_packages("engine.export.arrow", ast.parse("import pyarrow"))
    assert not rules.foreign_packages("engine.core", ast.parse("import struct, xxhash, msgspec"))


def test_what_grew_too_long_is_found() -> None:
    body = "\n".join("    x = 1" for _ in range(rules.FUNCTION_LINES_MAX))
    assert rules.too_long("a.py", "", ast.parse(f"def f():\n{body}"))
    assert not rules.too_long("a.py", "", ast.parse(f"def f():\n{body.removesuffix('x = 1').rstrip()}"))
    assert rules.too_long("a.py", "\n" * (rules.FILE_LINES_MAX + 1), ast.parse(""))
    assert not rules.too_long("a.py", "\n" * rules.FILE_LINES_MAX, ast.parse(""))


def test_a_file_that_does_not_say_what_it_is_is_found() -> None:
    assert rules.without_essay("a.py", "", ast.parse("x = 1"))
    assert rules.without_essay("a.py", "", ast.parse(""))
    assert not rules.without_essay("p/__init__.py", "", ast.parse(""))


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("x = f()  # type: ignore", True),
        ("x = f()  # type: ignore[arg-type]", True),
        ("x = f()  # type: ignore  # it is so", True),
        ("x = f()  # type: ignore[arg-type]  # the stub forgets None", False),
        ("x = f()  # noqa", True),
        ("x = f()  # noqa: B017  # any error will do", False),
        ("x = f()", False),
    ],
)
def test_a_silenced_check_without_reason_is_found(line: str, wrong: bool) -> None:
    assert bool(rules.silenced_without_reason("engine/a.py", line, ast.parse(line))) is wrong


def test_a_note_to_oneself_is_found() -> None:
    assert rules.unfinished("engine/a.py", "# TO" + "DO: later", ast.parse(""))


def test_an_init_file_that_works_is_found() -> None:
    assert rules.more_than_exports("__init__.py", ast.parse("x = f()"))
    assert rules.more_than_exports("__init__.py", ast.parse("def f(): ..."))
    keeps = '"""Doc."""\nif TYPE_CHECKING:\n    import x\nfrom a import b\n__all__ = ["b"]\ndef __getattr__(n): ...'
    assert not rules.more_than_exports("__init__.py", ast.parse(keeps))


def test_words_of_a_workplace_are_found() -> None:
    assert rules.forbidden_words("README.md", "see /wo" + "rk/notes")
    assert rules.forbidden_words("x.lock", "--index-url https://py" + "pi.org/simple")
    assert not rules.forbidden_words("README.md", "the work of /workers/")
