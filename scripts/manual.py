"""Manual pages from the option table, the settings and two documents; `make docs` writes them under `man/`.

The pages use the `man` macros that groff and mandoc share, and no request beyond them, so that both format them
without a warning.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from engine.version import VERSION
from topics_cli import exits
from topics_cli.options import Argument, Command, Option
from topics_cli.table import COMMANDS
from topics_cli.table_quick import COMMON
from topics_daemon.config import SETTINGS, Kind, Setting, show

ROOT: Final = Path(__file__).resolve().parents[1]
DATED: Final = "2026-11-28"
"""When the words of these pages were last looked over; the option table may be newer."""
ENVIRONMENT: Final = (
    ("TOPICS_SOCKET, TOPICS_URL", "where the daemon is, unless --socket or --url says so"),
    ("TOPICS_KEY, TOPICS_KEY_FILE", "the API key, or the file whose first line it is"),
    ("TOPICS_NODE", "name that leases are held under (USER@HOST)"),
    ("TOPICS_DATA_DIR", "the store of the commands that work on one, and where its socket is looked for"),
    ("NO_COLOR, COLUMNS, LC_ALL", "as everywhere"),
)


_ESCAPES: Final = str.maketrans(
    {"\\": "\\e", "-": "\\-", "…": "...", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"}
)


def _text(text: str) -> str:
    """Text as roff reads it: what would be a request, an escape or a typographic sign is only itself."""
    plain = (
        text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...").replace("'", "\\(aq").replace("`", "\\(ga")
    )
    plain = plain.replace("^", "\\(ha").replace("~", "\\(ti")
    return "\\&" + plain if plain.startswith(".") else plain


def _bold(text: str) -> str:
    return f"\\fB{_text(text)}\\fR"


def _italic(text: str) -> str:
    return f"\\fI{_text(text)}\\fR"


def _page(name: str, section: int, about: str, body: str) -> str:
    head = f'.TH {name.upper()} {section} {DATED} "topics {VERSION}"\n'
    made = '.\\" Made by "make docs"; change the code, not this page.\n'
    return f"{made}{head}.SH NAME\n{_text(name)} \\- {_text(about)}\n{body}"


def _item(head: str, text: str) -> str:
    return f".TP\n{head}\n{_text(text)}\n"


def _option(option: Option) -> str:
    value = "|".join(option.choices) or option.metavar
    head = ", ".join(_bold(flag) for flag in option.flags) + (f" {_italic(value)}" if value else "")
    return _item(head, option.help + (" May be given more than once." if option.many else ""))


def _argument_text(argument: Argument) -> str:
    return argument.help + (f" One of {', '.join(argument.choices)}." if argument.choices else "")


def _synopsis(command: Command) -> str:
    words = [_bold(f"topics {command.name}")]
    words += ["[" + _italic("options") + "]"] if command.options else []
    for argument in command.arguments:
        word = _italic(argument.metavar) + ("\\&..." if argument.many else "")
        words.append(word if argument.required else f"[{word}]")
    return " ".join(words)


def _example(lines: tuple[str, ...]) -> str:
    return ".RS 4\n.nf\n" + "".join(f"{_text(line)}\n" for line in lines) + ".fi\n.RE\n"


def _see(*pages: str) -> str:
    named = [f"\\fB{_text(name)}\\fR({section})" for name, section in (page.rsplit(".", 1) for page in pages)]
    return ".SH SEE ALSO\n" + ",\n".join(named) + "\n"


def command_page(command: Command) -> str:
    """The page of one command."""
    parts = [f".SH SYNOPSIS\n{_synopsis(command)}\n.SH DESCRIPTION\n{_text(command.summary)}\n"]
    if command.arguments:
        parts.append(".SH ARGUMENTS\n")
        parts += [_item(_italic(argument.metavar), _argument_text(argument)) for argument in command.arguments]
    if command.options:
        parts += [".SH OPTIONS\n", *(_option(option) for option in command.options)]
    if not command.passes_through:
        parts.append(f".PP\nThe options that every command takes are in {_bold('topics')}(1).\n")
    if command.examples:
        parts += [".SH EXAMPLES\n", _example(command.examples)]
    parts.append(f".SH EXIT STATUS\n0 when done; {_bold('topics')}(1) lists the others.\n")
    parts.append(_see("topics.1", "topicsd.8"))
    about = command.summary[:1].lower() + command.summary[1:].rstrip(".?")
    return _page(f"topics-{command.name}", 1, about, "".join(parts))


def topics_page() -> str:
    """The page of the program: commands, common options, exit codes."""
    commands = [_item(f"\\fBtopics\\-{_text(c.name)}\\fR(1)", c.summary) for c in COMMANDS.values()]
    codes = [_item(str(number), meaning) for number, meaning in exits.MEANINGS.items()]
    parts = [
        f".SH SYNOPSIS\n{_bold('topics')} [{_italic('options')}] {_italic('command')} [{_italic('arguments')}]\n",
        (
            ".SH DESCRIPTION\nThe command line of a topics daemon: write, read and follow topics, run jobs of queues,\n"
            "look after a store. Data goes to standard output, everything about the work to standard error.\n"
        ),
        ".SH COMMANDS\n",
        *commands,
        ".SH OPTIONS\nEvery command takes these.\n",
        *(_option(option) for option in COMMON),
        ".SH EXIT STATUS\n",
        *codes,
        ".SH ENVIRONMENT\n",
        *(_item(_bold(names), text) for names, text in ENVIRONMENT),
        ".SH FILES\n",
        _item(_bold(".topics.toml"), "where the daemon is, for a directory and those below it"),
        _item(_bold("/run/topics/topics.sock"), "the daemon's socket"),
        _see("topicsd.8", "topics.toml.5", "topics-format.5", "topics-formats.5"),
    ]
    return _page("topics", 1, "write, read and follow topics of a daemon", "".join(parts))


def _setting_text(setting: Setting) -> str:
    choices = f" One of {', '.join(setting.choices)}." if setting.choices else ""
    value = show(setting, setting.default)
    unit = " ms" if setting.kind is Kind.TIME and value else ""
    return f"{setting.help} ({setting.kind.value}{f', default {value}{unit}' if value else ''}){choices}"


def daemon_page() -> str:
    """The page of the daemon."""
    flags = [_item(f"{_bold(s.flag)} {_italic('VALUE')}", _setting_text(s)) for s in SETTINGS if not s.secret]
    secret = [_item(_bold(s.variable), _setting_text(s)) for s in SETTINGS if s.secret]
    parts = [
        f".SH SYNOPSIS\n{_bold('topicsd')} [{_bold('--config')} {_italic('FILE')}] [{_italic('options')}]\n",
        (
            ".SH DESCRIPTION\nServes the topics of a data directory over a Unix socket and TCP.\n"
            "A value is taken from the option, else the variable (TOPICS_ and the name in upper case), else the file,\n"
            "else the default.\n"
        ),
        ".SH OPTIONS\n",
        _item(f"{_bold('--config')} {_italic('FILE')}", "Read settings from this file instead of the usual ones."),
        _item(_bold("--print-config"), "Show every setting and where its value came from."),
        _item(_bold("--version"), "Show the version."),
        *flags,
        ".SH ENVIRONMENT\nEvery option also as a variable, and, because others can read a command line:\n",
        *secret,
        ".SH SIGNALS\n",
        _item(_bold("SIGTERM, SIGINT"), "Stop in good order: what was asked for is answered, what was acked is kept."),
        _item(_bold("SIGHUP"), "Read the API keys again."),
        ".SH EXIT STATUS\n",
        *(_item(str(code), exits.MEANINGS[code]) for code in (exits.DONE, exits.FAILED, exits.CONFIGURATION)),
        _item("73", "the data directory or the socket belongs to another daemon"),
        _see("topics.1", "topics.toml.5", "topics-formats.5"),
    ]
    return _page("topicsd", 8, "the daemon that keeps topics", "".join(parts))


def toml_page() -> str:
    """The page of the two files that are configured by."""
    rows = [_item(_bold(setting.name), _setting_text(setting)) for setting in SETTINGS]
    context = (
        ("socket", "path of the daemon's socket, from this file's directory"),
        ("url", "its address, http://HOST:PORT"),
        ("key_file", "file whose first line is the API key"),
    )
    parts = [
        ".SH DESCRIPTION\nTwo files are called so. Both are TOML.\n",
        ".SS The daemon's\n/etc/topics/topics.toml, then $XDG_CONFIG_HOME/topics/topics.toml, whose values win;\n",
        f"with {_bold('topicsd --config')} only the one that is named. A key that is not known stops the start.\n",
        *rows,
        (
            ".SS A directory\\(aqs\nThe file .topics.toml in a directory says where the daemon is for commands that\n"
            "run in it or below it. Only a file of the user or of root counts.\n"
        ),
        *(_item(_bold(name), text) for name, text in context),
        _see("topicsd.8", "topics.1"),
    ]
    return _page("topics.toml", 5, "configuration of the daemon, and of where commands find it", "".join(parts))


def document_page(path: str, name: str, about: str) -> str:
    """A page made of a document in Markdown: its headings, paragraphs, lists, tables and blocks."""
    body, lines = [".SH DESCRIPTION\n"], iter((ROOT / path).read_text(encoding="utf-8").splitlines())
    paragraph: list[str] = []
    is_table = False

    def flush() -> None:
        if paragraph:
            body.append(_inline(" ".join(paragraph)) + "\n")
            paragraph.clear()

    for line in lines:
        if line.startswith("|"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
            is_rule = set(line) <= set("|-: ")
            if is_table and not is_rule:
                rest = "; ".join(cell for cell in cells[1:] if cell)
                body.append(f".TP\n{_inline(cells[0]) or '-'}\n{_inline(rest) or '-'}\n")
            flush()
            is_table = is_table or is_rule
            continue
        if is_table:
            body.append(".PP\n")
            is_table = False
        if line.startswith("```"):
            flush()
            block = []
            for inner in lines:
                if inner.startswith("```"):
                    break
                block.append(inner)
            body.append(_example(tuple(block)))
        elif line.startswith("#"):
            flush()
            level, _, title = line.partition(" ")
            if level != "#":
                body.append(f".{'SH' if level == '##' else 'SS'} {_inline(title)}\n")
        elif re.match(r"\s*[-*] |\d+\. ", line):
            flush()
            body.append(".IP \\(bu 2\n")
            paragraph.append(re.sub(r"^\s*([-*]|\d+\.) ", "", line))
        elif not line.strip():
            was_text = bool(paragraph)
            flush()
            if was_text:
                body.append(".PP\n")
        elif not line.startswith("<!--"):
            paragraph.append(line.strip())
    flush()
    text = re.sub(r"(\.PP\n)+(?=\.(SH|SS|TP|IP|RS|PP))|(\.PP\n)+\Z", "", "".join(body))
    text = re.sub(r"(?<=\.SH DESCRIPTION\n)(\.PP\n)+", "", text)
    text = re.sub(r"(\.S[HS] [^\n]*\n)(?=\.S[H])", "", text)
    return _page(name, 5, about, text + _see("topics.1", "topicsd.8"))


def _inline(text: str) -> str:
    text = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", text).replace("\\|", "|")
    parts = re.split(r"(`[^`]+`|\*\*[^*]+\*\*|\*[^*\s][^*]*\*)", text)
    made = []
    for part in parts:
        if part.startswith(("`", "**")):
            # A long one may be broken after a comma.
            made.append(_bold(part.strip("`*")).replace(",", ",\\:"))
        elif part.startswith("*") and part.endswith("*") and len(part) > 2:
            made.append(_italic(part.strip("*")))
        else:
            made.append(_text(part))
    line = "".join(made)
    return "\\&" + line if line.startswith((".", "'")) else line


PAGES: Final[dict[str, Callable[[], str]]] = {
    "man/topics.1": topics_page,
    **{f"man/topics-{command.name}.1": partial(command_page, command) for command in COMMANDS.values()},
    "man/topicsd.8": daemon_page,
    "man/topics.toml.5": toml_page,
    "man/topics-format.5": lambda: document_page(
        "docs/reference/framing.md", "topics-format", "records on standard input and output of topics"
    ),
    "man/topics-formats.5": lambda: document_page("FORMATS.md", "topics-formats", "the files of a store of topics"),
}
