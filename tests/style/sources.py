"""The project's own files, for the tests that read them: what is in the repository, never what lies about.

`tracked()` asks git where there is a clone, so that a file that nobody committed is not judged, and walks the tree
where there is none (an unpacked source archive).
"""

from __future__ import annotations

import ast
import functools
import gc
import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]

_NOT_OURS: Final = {".venv", ".git", "build", "dist", "__pycache__", "topics-data"}
_CODE_ROOMS: Final = ("engine", "topics_daemon", "topics_cli", "topics_lake", "topics_objects", "tests", "scripts")


@functools.cache
def tracked() -> tuple[Path, ...]:
    """Every file of the project, relative to `ROOT`, sorted."""
    if (ROOT / ".git").exists():
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
        found = [Path(name) for name in listed if name]
    else:
        found = [
            path.relative_to(ROOT)
            for path in ROOT.rglob("*")
            if path.is_file() and not _NOT_OURS & set(path.relative_to(ROOT).parts)
        ]
    return tuple(sorted(path for path in found if (ROOT / path).is_file()))


@functools.cache
def python_files() -> tuple[Path, ...]:
    """Every Python file of the packages, the tests and the scripts, relative to `ROOT`."""
    return tuple(path for path in tracked() if path.suffix == ".py" and path.parts[0] in _CODE_ROOMS)


def text(path: Path) -> str:
    """The text of a tracked file."""
    return (ROOT / path).read_text(encoding="utf-8")


@functools.cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a tracked Python file."""
    collects = gc.isenabled()
    gc.disable()  # To look for garbage among so many nodes takes longer than to make them.
    try:
        return ast.parse(text(path), filename=str(path))
    finally:
        if collects:
            gc.enable()


def module_name(path: Path) -> str:
    """`engine/wal/shard.py` → `engine.wal.shard`; a package's `__init__.py` → the package."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
