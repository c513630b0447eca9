"""Programs for which files of a directory never open, as of a disk or a server that has stopped answering."""

from __future__ import annotations

import threading
from pathlib import Path

from engine.fs import OpenMode, OsFs

_SCRIPT = """\
import runpy, sys
sys.path.insert(0, {root!r})
from tests.hanging import hang
hang({sign!r})
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""


def hang(sign: str) -> None:
    """Once the file `sign` is there, whoever opens a file in the directory that it names waits for ever."""
    opened = OsFs.open

    def open_(self: OsFs, path: str, mode: OpenMode) -> int:
        name = Path(sign)
        if name.exists() and Path(self.root, path).is_relative_to(name.read_text()):
            threading.Event().wait()
        return opened(self, path, mode)

    OsFs.open = open_  # type: ignore[method-assign]  # in this process, whose disk hangs


def launcher(sign: Path, module: str) -> Path:
    """A script beside `sign` that runs a module so."""
    script = sign.with_suffix(f".{module}.py")
    script.write_text(_SCRIPT.format(root=str(Path(__file__).parents[1]), sign=str(sign), module=module))
    return script
