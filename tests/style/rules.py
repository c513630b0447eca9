"""The rules of `test_tidy.py` as pure functions: from a syntax tree or a text to a list of complaints.

The layers are those of ARCHITECTURE.md. A room may import itself and the rooms of lower layers, never a sibling of its
own layer nor anything above; imports under `TYPE_CHECKING` count, for a type is a dependency too.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Final

FILE_LINES_MAX: Final = 600
"""Past this a file is split by noun."""
FUNCTION_LINES_MAX: Final = 70
"""A function fits a screen."""

# The vocabulary is one room of small files that know each other.
VOCABULARY: Final = (
    "errors",
    "limits",
    "names",
    "ranges",
    "types",
    "commands",
    "clock",
    "fs",
    "version",
    "scan",
    "_scan",
    "_checks",
)
LAYERS: Final[tuple[frozenset[str], ...]] = (
    frozenset({"vocabulary"}),
    frozenset({"engine.fragment", "engine.tagset"}),
    frozenset({"engine.formats"}),
    frozenset({"engine.segment"}),
    frozenset({"engine.topic", "engine.queue", "engine.wal"}),
    frozenset({"engine.routers"}),
    frozenset({"engine.store", "engine.delivery"}),
    frozenset({"engine.checkpoint"}),
    frozenset({"engine.core"}),
    frozenset({"engine.driver", "engine.tools", "engine.export", "engine.move"}),
    frozenset({"topics_objects"}),
    frozenset({"topics_daemon", "topics_lake"}),
)
_PROGRAMS: Final = ("topics_daemon", "topics_cli", "topics_lake", "topics_objects")
SEAMS: Final = frozenset({"engine.fs", "engine.clock"})
DRIVER: Final = "engine.driver"
"""The blocking driver of `from engine import Engine`: the one place of the engine that may wait and use a thread."""

# fmt: off
_OUTSIDE: Final = frozenset({
    "asyncio", "concurrent", "datetime", "fcntl", "glob", "http", "io", "logging",
    "mmap", "multiprocessing", "os", "pathlib", "random", "sched", "secrets", "select",
    "selectors", "shutil", "signal", "socket", "socketserver", "ssl", "subprocess", "tempfile",
    "threading", "time", "urllib", "uuid", "warnings",
})
# fmt: on
_OUTSIDE_CALLS: Final = frozenset({"open", "print", "input", "exec", "eval", "breakpoint"})
_DRIVER_MAY: Final = frozenset({"threading", "time", "os"})
"""`os` for the process's id, and nothing else of it."""
_PACKAGES: Final = frozenset({"xxhash", "msgspec", "engine"})
_EXPORT_PACKAGES: Final = frozenset({"pyarrow", "numpy"})

FileRule = Callable[[str, str, ast.Module], list[str]]


def room(module: str) -> str | None:
    """The room of a module in `LAYERS`, or None for what is not ours."""
    top, _, rest = module.partition(".")
    if top in _PROGRAMS:
        return top
    if top != "engine":
        return None
    first = rest.partition(".")[0]
    if not first:
        return "engine"
    return "vocabulary" if first in VOCABULARY else f"engine.{first}"


def statements(tree: ast.AST, lazy: bool = False) -> Iterator[tuple[ast.stmt, bool]]:
    """Each statement of a tree, and whether it is lazy: not run when the module is loaded.

    Expressions hold no statement, and most of a tree is expressions: to walk all of it takes ten times as long.
    """
    for block in ("body", "handlers", "orelse", "finalbody", "cases"):
        for node in getattr(tree, block, ()):
            typing_only = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
            if isinstance(node, ast.stmt):
                yield node, lazy
            yield from statements(node, lazy or typing_only or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def imports(module: str, tree: ast.Module, *, is_package: bool = False) -> Iterator[tuple[str, int, bool]]:
    """Each imported module with its line, and whether it is lazy."""
    for node, lazy in statements(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield name.name, node.lineno, lazy
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                parts = parts[: len(parts) - node.level + is_package]
                base = ".".join([*parts, *([base] if base else [])])
            # `from engine import core` names a room, `from engine import Engine` a member of the package itself.
            for name in node.names:
                names_room = base in ("engine", *_PROGRAMS) and name.name.islower()
                yield (f"{base}.{name.name}" if names_room else base), node.lineno, lazy


def _layer(name: str) -> int | None:
    return next((index for index, layer in enumerate(LAYERS) if name in layer), None)


def wrong_imports(module: str, tree: ast.Module, *, is_package: bool = False) -> list[str]:
    """Imports that point sideways or up."""
    here = room(module)
    complaints = []
    for target, line, lazy in imports(module, tree, is_package=is_package):
        there = room(target)
        if there is None or there == here or here in (None, "engine"):
            continue
        where = f"{module}:{line} imports {target}"
        if there == "engine":
            if here not in _PROGRAMS:
                complaints.append(f"{where}: the engine's own rooms name the room that they mean")
        elif here == "topics_cli":
            if there in ("engine.tools", "engine.export", "topics_objects", "topics_lake"):
                if not lazy:
                    complaints.append(f"{where}: offline work is imported inside the function that needs it")
            elif there != "vocabulary":
                complaints.append(
                    f"{where}: the command line knows the vocabulary, and lazily tools, export, buckets and the lake"
                )
        elif there == "topics_cli":
            complaints.append(f"{where}: nothing imports the command line")
        else:
            mine, theirs = _layer(here or ""), _layer(there)
            if mine is None or theirs is None:
                complaints.append(f"{where}: a room that ARCHITECTURE.md does not know")
            elif theirs >= mine:
                complaints.append(f"{where}: {here} stands beside or below {there}")
    return complaints


def import_circle(modules: Mapping[str, ast.Module]) -> list[str]:
    """One circle of imports made when modules are loaded, or an empty list."""
    edges = {
        name: {target for target, _, lazy in imports(name, tree) if not lazy and target in modules and target != name}
        for name, tree in modules.items()
    }
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        for target in sorted(edges[name]):
            if circle := visit(target, [*path, name]):
                return circle
        done.add(name)
        return []

    return next((circle for name in sorted(edges) if (circle := visit(name, []))), [])


def touches_outside(module: str, tree: ast.Module) -> list[str]:
    """Files, clocks, chance, threads and sockets that are reached past the seams."""
    if module in SEAMS:
        return []
    allowed = _DRIVER_MAY if module == DRIVER else frozenset()
    complaints = [
        f"{module}:{line} imports {target}: the engine reaches it through Fs or Clock, or not at all"
        for target, line, _ in imports(module, tree)
        if target.partition(".")[0] in _OUTSIDE - allowed
    ]
    complaints += [
        f"{module}:{node.lineno} takes names out of os"
        for node, _ in statements(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "os"
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _OUTSIDE_CALLS:
            complaints.append(f"{module}:{node.lineno} calls {node.func.id}()")
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "os" and node.attr != "getpid":
                complaints.append(f"{module}:{node.lineno} uses os.{node.attr}")
        elif isinstance(node, ast.AsyncFunctionDef | ast.Await):
            complaints.append(f"{module}:{node.lineno} is asynchronous")
    return complaints


def foreign_packages(module: str, tree: ast.Module) -> list[str]:
    """Packages that the engine has no business with."""
    allowed = _PACKAGES | (_EXPORT_PACKAGES if room(module) == "engine.export" else frozenset())
    return [
        f"{module}:{line} imports {target}"
        for target, line, _ in imports(module, tree)
        if (top := target.partition(".")[0]) not in allowed and top not in sys.stdlib_module_names
    ]


def too_long(path: str, text: str, tree: ast.Module) -> list[str]:
    """Files and functions that no longer fit."""
    complaints = []
    if (lines := text.count("\n")) > FILE_LINES_MAX:
        complaints.append(f"{path}: {lines} lines, more than {FILE_LINES_MAX}: split it by noun")
    for node, _ in statements(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                complaints.append(f"{path}:{node.lineno} {node.name} has {lines} lines, more than {FUNCTION_LINES_MAX}")
    return complaints


def without_essay(path: str, _text: str, tree: ast.Module) -> list[str]:
    """Files that do not open by saying what lives in them."""
    if path.endswith("__init__.py") and not tree.body:
        return []
    return [] if ast.get_docstring(tree) else [f"{path}: does not open with a docstring that says what lives here"]


_IGNORE: Final = re.compile(r"#\s*type:\s*ignore(?P<code>\[[\w, -]+\])?(?P<rest>.*)")
_NOQA: Final = re.compile(r"#\s*noqa(?P<code>:\s*[A-Z]+[0-9]+(?:,\s*[A-Z]+[0-9]+)*)?(?P<rest>.*)")


def silenced_without_reason(path: str, text: str, _tree: ast.Module) -> list[str]:
    """`type: ignore` and `noqa` without the code that they silence and a comment that says why."""
    if path.startswith("tests/style/"):
        return []
    return [
        f"{path}:{number} silences a check without code and reason"
        for number, line in enumerate(text.splitlines(), 1)
        for found in (_IGNORE.search(line), _NOQA.search(line))
        if found and not (found["code"] and re.match(r"\s*#\s*\w", found["rest"]))
    ]


def unfinished(path: str, text: str, _tree: ast.Module) -> list[str]:
    """Notes to oneself: work that is not done belongs into an issue, not into a comment."""
    if path.startswith("tests/style/"):
        return []
    note = re.compile(r"#\s*(TODO|FIXME|XXX|HACK)\b")
    return [f"{path}:{number} is a note" for number, line in enumerate(text.splitlines(), 1) if note.search(line)]


FILE_RULES: Final[tuple[FileRule, ...]] = (too_long, without_essay, silenced_without_reason, unfinished)


def more_than_exports(path: str, tree: ast.Module) -> list[str]:
    """Statements of an `__init__.py` beyond a docstring, imports, `__all__`, and a lazy `__getattr__` that imports."""
    complaints = []
    for node in tree.body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        imported = isinstance(node, ast.Import | ast.ImportFrom)
        typing_only = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        names = [t.id for t in getattr(node, "targets", [getattr(node, "target", None)]) if isinstance(t, ast.Name)]
        lazily = isinstance(node, ast.FunctionDef) and node.name == "__getattr__"
        if not (docstring or imported or typing_only or names == ["__all__"] or lazily):
            complaints.append(f"{path}:{node.lineno} does more than re-export")
    return complaints


# Spelled in halves, so that this file keeps its own rule.
FORBIDDEN: Final = re.compile(
    "|".join(
        re.escape(head + tail)
        for head, tail in (
            ("/wo", "rk/"),
            (".lib", "rary/"),
            ("/opt/wh", "eels"),
            ("/root/", ".pyenv"),
            ("python", "hosted.org"),
            ("py", "pi.org"),
            ("registry.npm", "js.org"),
            ("proxy.go", "lang.org"),
            ("static.crates", ".io"),
            ("deb.deb", "ian.org"),
            ("repo.maven", ".apache.org"),
        )
    )
)


def forbidden_words(path: str, text: str) -> list[str]:
    """Paths of a workplace and hosts of package registries."""
    return [
        f"{path}:{number} says {found[0]!r}"
        for number, line in enumerate(text.splitlines(), 1)
        if (found := FORBIDDEN.search(line))
    ]
