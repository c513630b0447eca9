"""Commands that the documents only mention, in a line of text or an indented block: nothing runs these as they stand.

What of them is ours is looked up (the command, its options, what may stand where one of a few words must); what is
somebody else's has to be known here, with how it is tried or why it cannot be.
"""

from __future__ import annotations

import re
import shlex
from typing import Final, NamedTuple

from topics_cli.options import FLAG
from topics_cli.table import COMMANDS
from topics_cli.table_quick import COMMON

NO_MANAGER: Final = "needs systemd as process 1; tests/daemon/test_supervisor.py speaks its protocols in its place"
OUTSIDE: Final = {
    "systemctl enable": "run with --root by tests/docs/test_operating.py; --now " + NO_MANAGER,
    "systemctl --user": "run with --root --global by tests/docs/test_operating.py; --now " + NO_MANAGER,
    "systemctl restart": NO_MANAGER,
    "systemctl status": NO_MANAGER,
    "systemctl edit": NO_MANAGER,
    "journalctl -u": "needs a journal; what it would show is the log on standard error, which tests/daemon read",
    "rsync -a": "tests/docs/test_operating.py copies with tar, which is named beside it",
    "kill -9": "what the crash gate and tests/cli/test_kill.py do",
    "pip install": "would fetch packages; .ci/run installs the same extras from lock files",
    "spark-submit --master": "needs a cluster; tests/spark runs the same job on a local one",
    "curl -N": "README shows what comes with it",
}
"""By the first two words: how a command of others is tried, or why it is not."""

_INLINE: Final = re.compile(r"`([^`\n]+)`")
_BLOCK: Final = re.compile(r"(?:^\n)((?: {4}\S.*\n)+)", re.MULTILINE)
_FENCE: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_FIRST: Final = re.compile(r"(topics|topicsd|make|systemctl|journalctl|rsync|kill|pip|spark-submit|curl) (?=[\w.'-])")


class Mention(NamedTuple):
    """A command line in a document."""

    line: int
    text: str


def mentions(document: str) -> list[Mention]:
    """Every command line that a document mentions outside of blocks that are run."""
    text = _FENCE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), document)
    found = [(match.start(1), match[1]) for match in _INLINE.finditer(text)]
    for match in _BLOCK.finditer(text):
        at = match.start(1)
        for line in match[1].splitlines(keepends=True):
            found.append((at, line.strip()))
            at += len(line)
    return [Mention(text.count("\n", 0, at) + 1, said) for at, said in sorted(found) if _FIRST.match(said)]


def mistake(text: str) -> str:
    """What is wrong with a `topics` command line, "" when nothing is."""
    words = _words(text)[1:]
    if words[0].startswith("-"):
        return "" if words[0] in ("--help", "--version") else f"no option {words[0]} before a command"
    if words[0] == "help":
        words = words[1:] or ["help"]
        return "" if words[0] in ("help", "[COMMAND]") or words[0] in COMMANDS else f"no command {words[0]}"
    command = COMMANDS.get(words[0])
    if command is None:
        return f"no command {words[0]}"
    if command.passes_through:
        return ""
    flags = {flag: option for option in (*command.options, *COMMON) for flag in option.flags}
    place = 0
    rest = words[1:]
    while rest and rest[0] != "--":
        word, *rest = rest
        if word.startswith("-") and word != "-":
            name, equals, _ = word.partition("=")
            option = flags.get(name)
            if option is None:
                return f"topics {command.name} has no option {name}"
            if option.kind is not FLAG and not equals:
                rest = rest[1:]
        else:
            if place >= len(command.arguments):
                return f"topics {command.name} takes no {word}"
            argument = command.arguments[place]
            if argument.choices and word not in argument.choices:
                return f"{word} is no {argument.metavar} of topics {command.name}"
            place += not argument.many
    return ""


def _words(text: str) -> list[str]:
    """The words of one command: up to a pipe, a comment, or words that say what it does."""
    words = shlex.split(re.split(r"\s#\s|\s{2,}", text)[0].replace("…", "").replace("\\|", "|"))
    end = next((at for at, word in enumerate(words) if word in ("|", ">", ";", "&&")), len(words))
    return words[:end]
