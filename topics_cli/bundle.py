"""The modules of the quick commands in one file, so that starting opens one file instead of thirty.

The installed script (`packaging/bin/topics`) reads this module's code out of that file, and lets `serve` answer imports
from it. The file is a cache like those that Python keeps of single modules, lies beside them, and is no more trusted:
it holds the same code, says for each module which source it was made of (its time and size), and a module whose source
is another now is imported as usual. The script lets `keep` write it anew when it was missing, unreadable or stale, and
it may write there; whoever packages topics for a directory that its users may not write to runs
`python -m topics_cli.bundle` once.

    marshal of {"python": sys.version, "modules": {name: (path, is package, mtime, size, start, end)}}, then the code

It must not import anything that is not there anyway: it runs before all other modules (not even `__future__`, which is
a module as well).
"""

import sys
from _frozen_importlib import ModuleSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MODULES = (
    "__future__",
    "topics_cli",
    "topics_cli.app",
    "topics_cli.bundle",
    "topics_cli.claimed",
    "topics_cli.client",
    "topics_cli.commands",
    "topics_cli.commands.claim",
    "topics_cli.commands.diff",
    "topics_cli.commands.get",
    "topics_cli.commands.ls",
    "topics_cli.commands.settle",
    "topics_cli.commands.tail",
    "topics_cli.commands.write",
    "topics_cli.cursor",
    "topics_cli.cut",
    "topics_cli.encode",
    "topics_cli.exits",
    "topics_cli.framing",
    "topics_cli.help",
    "topics_cli.intake",
    "topics_cli.listing",
    "topics_cli.options",
    "topics_cli.output",
    "topics_cli.pages",
    "topics_cli.parse",
    "topics_cli.pump",
    "topics_cli.render",
    "topics_cli.session",
    "topics_cli.signals",
    "topics_cli.table",
    "topics_cli.table_lake",
    "topics_cli.table_quick",
    "topics_cli.talk",
    "topics_cli.times",
    "topics_cli.where",
    "topics_cli.wire",
)
"""What a quick command may import (a test holds it against what they do), and what completions ask for (`ls`)."""


class Bundle:
    """A finder and loader of the modules in the file."""

    def __init__(self, data: bytes, index: "dict[str, Any]") -> None:
        self._data = memoryview(data)[index["start"] :]
        self._modules = index["modules"]
        self.is_stale = False
        """Whether a module was found to be another now."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """Where a module is: here, when its source is the one that it was made of."""
        entry = self._modules.get(name)
        if entry is None:
            return None
        if _stamp(entry[0]) != entry[2:4]:
            self.is_stale = True
            return None
        spec = ModuleSpec(name, self, origin=entry[0], is_package=entry[1])  # type: ignore[arg-type]  # it loads
        spec.has_location = True
        if entry[1]:
            spec.submodule_search_locations = [entry[0].rpartition("/")[0]]
        return spec

    def create_module(self, _spec: ModuleSpec) -> None:
        """Nothing special."""

    def exec_module(self, module: "Any") -> None:
        """Run a module's code."""
        from marshal import loads

        start, end = self._modules[module.__name__][4:]
        exec(loads(self._data[start:end]), module.__dict__)


def serve(data: bytes, index: "dict[str, Any]") -> Bundle:
    """Answer imports from a file that was read; its script has looked whether it is of this Python."""
    bundle = Bundle(data, index)
    sys.meta_path.insert(0, bundle)
    return bundle


def keep(path: str) -> None:
    """Write the file if we may; never a failure: the next run is slower, that is all."""
    from posix import W_OK, access

    if access(path.rpartition("/")[0], W_OK) and not sys.dont_write_bytecode:
        try:
            write(path)
        except (OSError, ValueError, ImportError):
            pass


def write(path: str) -> None:
    """Write the file, in one step: from the modules' own caches, made where they are missing."""
    import os
    from importlib.machinery import PathFinder, SourceFileLoader
    from marshal import dumps

    modules: dict[str, tuple[str, bool, int, int, int, int]] = {}
    code = b""
    package: list[str] | None = None
    for name in MODULES:
        above, _, _ = name.rpartition(".")
        spec = PathFinder.find_spec(name, [os.path.dirname(modules[above][0])] if above else package)
        if spec is None or not isinstance(spec.loader, SourceFileLoader) or spec.origin is None:
            raise ImportError(name)
        piece = dumps(spec.loader.get_code(name))
        is_package = spec.submodule_search_locations is not None
        modules[name] = (spec.origin, is_package, *_stamp(spec.origin), len(code), len(code) + len(piece))
        code += piece
    index = {"python": sys.version, "modules": modules, "start": 0}
    while len(head := dumps(index)) != index["start"]:
        index["start"] = len(head)
    fresh = f"{path}.{os.getpid()}"
    try:
        with open(fresh, "xb") as file:
            file.write(head + code)
        os.replace(fresh, path)
    except OSError:
        if os.path.exists(fresh):
            os.unlink(fresh)
        raise


def _stamp(path: str) -> tuple[int, int]:
    """What tells a source from another: its time (ns) and size."""
    from posix import stat

    try:
        found = stat(path)
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def default_path() -> str:
    """Where the file lies: beside the caches of the modules."""
    directory = __file__.rpartition("/")[0]
    return f"{directory}/__pycache__/quick.{sys.implementation.cache_tag}.bin"


if __name__ == "__main__":
    write(default_path())
