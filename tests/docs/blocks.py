"""Command blocks of the documents: how they are found, run, and compared with what they say they print.

    ```console          lines that begin with `$ ` are commands, the lines below one are what it prints
    ```console make     a target of make and what it prints; looked up, not run (a test that runs the tests has no end)
    ```sh               a script; must end with 0
    ```python           a script; must end with 0, and print the next ```text block, if that follows at once

All blocks of a document run in order, in one directory, against one daemon. `…` in what is printed stands for anything
in a line, and alone on a line for any lines; times, epochs and durations are never compared.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

_FENCE: Final = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)
_TEXT: Final = re.compile(r"^```text\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)
_MARK: Final = "\x1e"


class Block(NamedTuple):
    """One block: where it is, what it is, its text, and the ```text block that follows at once."""

    line: int
    info: str
    body: str
    prints: str | None


class Step(NamedTuple):
    """A command of a console block, and what it is said to print."""

    command: str
    prints: str


def blocks(document: str) -> list[Block]:
    """All blocks that can be run, in order."""
    found = []
    for fence in _FENCE.finditer(document):
        info = fence["info"].strip()
        if info not in ("console", "console make", "sh", "python"):
            continue
        following = _TEXT.match(document[fence.end() :].lstrip("\n"))
        prints = following["body"] if following else None
        found.append(Block(document.count("\n", 0, fence.start()) + 1, info, fence["body"], prints))
    return found


def steps(body: str) -> list[Step]:
    """The commands of a console block; a command goes on after a backslash."""
    found: list[Step] = []
    lines = body.splitlines()
    while lines:
        line = lines.pop(0)
        if line.startswith("$ "):
            command = line[2:]
            while command.endswith("\\") and lines:
                command += "\n" + lines.pop(0)
            found.append(Step(command, ""))
        elif found:
            found[-1] = Step(found[-1].command, found[-1].prints + line + "\n")
        else:
            raise ValueError(f"a console block begins with a command, not with {line!r}")
    return found


def target(body: str) -> Step:
    """The command of a make block, and all that follows."""
    command, _, prints = body.partition("\n")
    return Step(command.removeprefix("$ "), prints)


def script(commands: list[Step]) -> str:
    """One bash script of all commands, with a mark before what each prints."""
    return "exec 2>&1\n" + "".join(f"printf '{_MARK}'\n{step.command}\n" for step in commands)


def printed(output: str) -> list[str]:
    """What each command of `script` printed."""
    return output.split(_MARK)[1:]


def _plain(text: str) -> str:
    text = re.sub(r"\b1[0-9]{12}\b", "TIME", text)
    text = re.sub(r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?Z?)?", "TIME", text)
    text = re.sub(r'"epoch":\d+', '"epoch":N', text)
    text = re.sub(r"\b(pid|kill -9|kill) \d+", r"\1 N", text)
    text = re.sub(r'("[a-z_]+_ms"):[\d.e-]+', r"\1:N", text)
    text = re.sub(r"\b(uptime\t)[\d.]+s", r"\1N", text)
    text = re.sub(r"/tmp/[\w./-]*?/(?=[\w-]+\.sock|data)", "/tmp/PLACE/", text)
    return "\n".join(line.rstrip() for line in text.strip("\n").split("\n"))


def same(said: str, real: str) -> bool:
    """Whether `real` is what the document said, but for times and what it left out with `…`."""
    lines = _plain(said).split("\n")
    pattern = "".join(r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*?") + r"\n" for line in lines)
    return re.fullmatch(pattern, _plain(real) + "\n") is not None


def document(path: Path) -> str:
    """The text of a document."""
    return path.read_text(encoding="utf-8")
