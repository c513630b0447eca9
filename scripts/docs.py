"""Writes the generated pages: `python -m scripts.docs` (`make docs`).

Each page is a function from the code's own tables to text, listed in `PAGES`; `tests/docs/test_reference.py` makes them
again and compares, so that a page that lags behind the code fails `make quick`.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from engine.errors import RETRYABLE, STATUS, WHEN, Code, StoreError
from engine.types import TopicConfig
from scripts import completions, manual
from topics_cli import exits
from topics_cli.options import Command, Option
from topics_cli.own_codes import OWN
from topics_cli.table import COMMANDS, CONFIG_FIELDS
from topics_cli.table_quick import COMMON
from topics_daemon.config import SETTINGS, Kind, Setting, show
from topics_daemon.gauges import METERS
from topics_daemon.head import Content
from topics_daemon.keys import scope_names
from topics_daemon.openapi import document
from topics_daemon.openapi_routes import OPERATIONS
from topics_daemon.routes.table import ROUTES, Body, Route

ROOT: Final = Path(__file__).resolve().parents[1]

_MADE: Final = "<!-- Made by `make docs`; change the code, not this page. -->\n"

ROUTE_ABOUT: Final = {key: operation.about for key, operation in OPERATIONS.items() if key[1].startswith("/v0/")}
"""What each route is for, by method and path; the two spellings of a probe count as one."""

_MEDIA: Final = {
    Content.JSON: "application/json",
    Content.NDJSON: "application/x-ndjson",
    Content.LINES: "text/x-lines",
}


def _table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += [
        "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows
    ]
    return "\n".join(lines) + "\n"


def errors_page() -> str:
    """Error codes of the wire, exit codes of both programs."""
    codes = sorted(Code, key=lambda code: STATUS[code])
    rows = [(STATUS[code], f"`{code}`", "yes" if code in RETRYABLE else "", WHEN[code]) for code in codes]
    own = [(f"`{code}`", " or ".join(map(str, numbers)), meaning) for code, (numbers, meaning) in OWN.items()]
    stores = [
        (kind.exit_code, f"`{kind.__name__}`", (kind.__doc__ or "").strip().split("\n")[0]) for kind in _store_errors()
    ]
    return (
        f"{_MADE}# Errors and exit codes\n\n"
        'Every answer from 400 up has the body `{"error":{"code","message","detail"?}}`. `code` is stable, `message` '
        "says what to do. *Again* says whether the same request may succeed later.\n\n"
        "## On the wire\n\n"
        + _table(("status", "code", "again", "when"), rows)
        + "\n## Exit codes of `topics`\n\n"
        + _table(("code", "meaning"), list(exits.MEANINGS.items()))
        + "\n## Codes of `topics`\n\nFailures that are the command line's own, in `topics: <what> (<code>)`.\n\n"
        + _table(("code", "exit code", "meaning"), own)
        + "\n## When a store cannot be opened\n\nWhat `topicsd` exits with, and what `Engine(path)` raises.\n\n"
        + _table(("exit code", "exception", "meaning"), stores)
        + "\nA configuration that cannot be used is 78, a mistake in the arguments of `topicsd` 64.\n"
    )


def _store_errors() -> list[type[StoreError]]:
    found: list[type[StoreError]] = []
    waiting: list[type[StoreError]] = list(StoreError.__subclasses__())
    while waiting:
        kind = waiting.pop(0)
        found.append(kind)
        waiting += kind.__subclasses__()
    return sorted(found, key=lambda kind: (kind.exit_code, kind.__name__))


def _range(setting: Setting) -> str:
    if setting.choices:
        return ", ".join(f"`{choice}`" for choice in setting.choices)
    if setting.kind in (Kind.COUNT, Kind.SIZE, Kind.TIME):
        high = "" if setting.high == 2**64 - 1 else _quantity(setting, setting.high)
        return f"{_quantity(setting, setting.low)} … {high}".rstrip()
    return ""


def _quantity(setting: Setting, value: int) -> str:
    return f"{value} ms" if setting.kind is Kind.TIME and value else show(setting, value)


def configuration_page() -> str:
    """Every setting of the daemon."""
    rows = []
    for setting in SETTINGS:
        value = _quantity(setting, setting.default) if setting.kind is Kind.TIME else show(setting, setting.default)
        default = f"`{value}`" if value else ""
        rows.append((f"`{setting.variable}`", default, setting.kind.value, _range(setting), setting.help))
    return (
        f"{_MADE}# Configuration of `topicsd`\n\n"
        "Built-in default < file (`/etc/topics/topics.toml`, `$XDG_CONFIG_HOME/topics/topics.toml`, or "
        "`--config FILE`) < environment < flag. The key in a file is the variable in lower case without `TOPICS_`, the "
        'flag the same with dashes: `TOPICS_DATA_DIR`, `data_dir = "…"`, `--data-dir`. Sizes take `64MiB`, times '
        "`250ms`, `5s`, `1h`. `topicsd --print-config` shows every value and where it came from. A mistake stops the "
        "start with exit code 78 and a line for each; an unknown `TOPICS_…` variable is a warning.\n\n"
        + _table(("variable", "default", "kind", "range", ""), rows)
    )


def _documented(path: str, kind: str) -> list[tuple[str, str, str]]:
    """Name, value and text of each field of a class (or of the module itself, `kind` "") that has a text below it."""
    module = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    body: list[ast.stmt] = module.body
    if kind:
        body = next(node.body for node in body if isinstance(node, ast.ClassDef) and node.name == kind)
    rows = []
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name) or node.value is None:
            continue
        text = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
            text = re.sub(r"\s+", " ", after.value.value)
        rows.append((f"`{node.target.id}`", f"`{ast.unparse(node.value)}`", text))
    return rows


def _settings_of(method: str) -> dict[str, str]:
    """Which setting each field of bounds is taken from, by the method of `Config` that makes them."""
    module = ast.parse((ROOT / "topics_daemon/config.py").read_text(encoding="utf-8"))
    made = next(node for node in ast.walk(module) if isinstance(node, ast.FunctionDef) and node.name == method)
    return {
        f"`{keyword.arg}`": f"`TOPICS_{str(node.slice.value).upper()}`"
        for keyword in (node for node in ast.walk(made) if isinstance(node, ast.keyword))
        for node in ast.walk(keyword.value)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)
    }


def _plain(value: str) -> str:
    """`64 * MIB` as 64 MiB, a member of an enum as its value."""
    value = re.sub(r"(\* )?\b([KM])IB\b", lambda found: f"{'' if found[1] else '1 '}{found[2]}iB", value)
    return re.sub(r"OnCorruption\.(\w+)", lambda found: found[1].lower(), value)


def _bounds(kind: str, method: str | None = None) -> str:
    rows = [(name, _plain(value), text) for name, value, text in _documented("engine/limits.py", kind)]
    rows = [row for row in rows if row[0] not in ("`KIB`", "`MIB`")]
    if method is None:
        return _table(("name", "value", "reason"), rows)
    settings = _settings_of(method)
    with_settings = [(name, value, settings.get(name, ""), text) for name, value, text in rows]
    return _table(("name", "value", "setting", "reason"), with_settings)


def limits_page() -> str:
    """The bounds that clients, operators and files can meet, with their reasons."""
    return (
        f"{_MADE}# Limits\n\nEvery queue, name, body, batch and wait has a bound. These are the ones that clients, "
        "operators and files can meet, as `engine/limits.py` has them; what bounds one mechanism stands at the head of "
        "its file. Where a setting is named the bound is configuration ([configuration.md](configuration.md), which "
        "also has those of connections); the constants are part of a promise or a format.\n\n## Of requests\n\n"
        + _bounds("Limits", "limits")
        + "\n## Of the store\n\n"
        + _bounds("EngineSettings", "engine_settings")
        + "\n## Constants\n\n"
        + _bounds("")
    )


def _option(option: Option) -> str:
    value = "|".join(option.choices) or option.metavar
    text = f"`{', '.join(option.flags)}{f' {value}' if value else ''}`"
    return text + (" …" if option.many else "")


def _usage(command: Command) -> str:
    words = ["topics", command.name]
    words += ["[options]"] if command.options else []
    for argument in command.arguments:
        word = argument.metavar + ("…" if argument.many else "")
        words.append(word if argument.required else f"[{word}]")
    return " ".join(words)


def command_line_page() -> str:
    """Every command of `topics`, from the table that its parsers are made from."""
    head = (
        f"{_MADE}# The command line\n\nData goes to standard output, everything about the work to standard error. "
        "Exit codes are in [errors.md](errors.md). Every command also takes:\n\n"
    )
    parts = [head, *(f"- {_option(option)}: {option.help}\n" for option in COMMON)]
    for command in COMMANDS.values():
        parts.append(f"\n## `topics {command.name}`\n\n{command.summary}\n\n    {_usage(command)}\n")
        lines = [f"- `{argument.metavar}`: {argument.help}\n" for argument in command.arguments]
        lines += [f"- {_option(option)}: {option.help}\n" for option in command.options]
        parts += ["\n", *lines] if lines else []
        if command.examples:
            parts.append("\n```text\n" + "".join(f"{example}\n" for example in command.examples) + "```\n")
    return "".join(parts)


def documented_routes() -> list[tuple[str, str, Route]]:
    """Method, path and route of all but the short spellings of the probes."""
    return [
        (method, "/" + "/".join(pattern), route)
        for pattern, methods in ROUTES.items()
        if pattern[0] == "v0"
        for method, route in methods.items()
    ]


def routes_page() -> str:
    """Every route of the daemon, and every field of a topic's configuration."""
    routes = []
    for method, path, route in documented_routes():
        kinds = "" if route.body is Body.IGNORED else ", ".join(f"`{_MEDIA[kind]}`" for kind in sorted(route.kinds))
        routes.append((method, f"`{path}`", scope_names(route.scope), kinds, ROUTE_ABOUT[method, path]))
    helps = {name: text for name, _, text, _ in CONFIG_FIELDS}
    defaults = msgspec.to_builtins(TopicConfig())
    fields = [(f"`{name}`", f"`{json.dumps(value)}`", helps[name]) for name, value in defaults.items()]
    return (
        f"{_MADE}# Routes\n\nOver TCP and the Unix socket alike, HTTP/1.1. Errors are in [errors.md](errors.md). The "
        "README shows answers; `tests/conformance/` holds every sentence of the wire. "
        "Where API keys are configured, a request needs one of that scope ([access](../access.md)).\n\n"
        + _table(("method", "path", "scope", "body", ""), routes)
        + "\n## Configuration of a topic\n\nWhat `PUT /v0/topics/:topic` takes, any subset of it, and what every "
        "answer shows.\n\n" + _table(("field", "default", ""), fields)
    )


def metrics_page() -> str:
    """Every metric."""
    rows = [
        (
            f"`{meter.name}`",
            meter.kind,
            ", ".join(f"`{label}`" for label in meter.labels),
            "yes" if meter.shared else "",
            meter.help,
        )
        for meter in METERS
    ]
    return (
        f"{_MADE}# Metrics\n\nWhat `GET /v0/metrics` gives; [monitoring](../monitoring/README.md) says how to scrape "
        "it. *Limited* are those that a key gets which is limited to some names: what says nothing of other topics.\n\n"
        + _table(("metric", "kind", "labels", "limited", ""), rows)
    )


def adr_index() -> str:
    """The list of decisions."""
    rows = []
    for path in sorted((ROOT / "docs/adr").glob("[0-9]*.md")):
        text = path.read_text(encoding="utf-8")
        title = text.split("\n", 1)[0].lstrip("# ")
        status = re.search(r"^Status: (.*)$", text, re.MULTILINE)
        number, _, name = title.partition(": ")
        rows.append((f"[{number}]({path.name})", name, status[1].rstrip(".") if status else ""))
    return (
        f"{_MADE}# Decisions\n\nWhere topics differs from the design that it started from, and what was decided beyond "
        "it: context, decision, consequences. *Not yet built* means that the decision stands and the code does not. "
        "Numbers that are missing were given to nothing.\n\n" + _table(("number", "decision", "status"), rows)
    )


def openapi_page() -> str:
    """The document that the daemon serves, to be read and compared."""
    return json.dumps(document(), indent=2, ensure_ascii=False) + "\n"


PAGES: Final[dict[str, Callable[[], str]]] = {
    "docs/reference/errors.md": errors_page,
    "docs/reference/configuration.md": configuration_page,
    "docs/reference/limits.md": limits_page,
    "docs/reference/metrics.md": metrics_page,
    "docs/reference/command-line.md": command_line_page,
    "docs/reference/routes.md": routes_page,
    "docs/reference/openapi.json": openapi_page,
    "docs/adr/README.md": adr_index,
    "completions/bash/topics": completions.bash,
    "completions/zsh/_topics": completions.zsh,
    "completions/fish/topics.fish": completions.fish,
    **manual.PAGES,
}


def main() -> None:
    """Write all pages, and name those that changed."""
    for name, make in PAGES.items():
        path, text = ROOT / name, make()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"docs: {name}")


if __name__ == "__main__":
    main()
