"""Whatever command a document mentions exists, and is run somewhere, or it is said why not."""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.docs import blocks
from tests.docs.mentioned import OUTSIDE, mentions, mistake
from tests.style.sources import ROOT, tracked

DOCUMENTS: Final = [path for path in tracked() if path.suffix == ".md" and not {"reference", "adr"} & set(path.parts)]
_OURS: Final = re.compile(r"`(topics (?=[\w.'-])[^`\n]+)`")
MAKEFILE: Final = (ROOT / "Makefile").read_text(encoding="utf-8")


def _wrong(text: str) -> str:
    first, second = text.split()[:2]
    if first == "topics":
        return mistake(text)
    if first == "make":
        return "" if re.search(rf"^{re.escape(second)}:", MAKEFILE, re.MULTILINE) else f"make has no target {second}"
    if first == "topicsd":
        return "" if second.startswith("-") else f"topicsd takes no {second}"
    return "" if f"{first} {second}" in OUTSIDE else f"nothing says how `{first} {second}` is tried"


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_a_command_that_a_document_mentions_is_one(document: object) -> None:
    found = [
        f"{document}:{mention.line}: `{mention.text}`: {wrong}"
        for mention in mentions(blocks.document(ROOT / str(document)))
        if (wrong := _wrong(mention.text))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("room", ["engine", "topics_cli", "topics_daemon", "topics_lake", "topics_objects"])
def test_a_command_that_a_text_of_the_program_mentions_is_one(room: str) -> None:
    """What a message advises, too: fsck sent people to a command that nobody had written."""
    found = []
    for path in tracked():
        if path.suffix == ".py" and path.parts[0] == room:
            text = (ROOT / path).read_text(encoding="utf-8")
            found += [f"{path}: `{said}`: {mistake(said)}" for said in _OURS.findall(text) if mistake(said)]
    assert not found, "\n".join(found)


def test_every_command_of_others_is_mentioned_somewhere() -> None:
    said = [mention.text for path in DOCUMENTS for mention in mentions(blocks.document(ROOT / path))]
    units = (ROOT / "packaging/topicsd.service").read_text(encoding="utf-8")
    stale = [known for known in OUTSIDE if not any(text.startswith(known) for text in said) and known not in units]
    assert not stale


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("topics tail t --from 3 -o raw | wc", ""),
        (r"topics tail t \| grep x", ""),
        ("topics set T cap_bytes=10GiB", ""),
        ("topics work q -- grep -x y", ""),
        ("topics dlq ls mails", ""),
        ("topics tial t", "no command tial"),
        ("topics tail t --form 3", "topics tail has no option --form"),
        ("topics dlq lst mails", "lst is no ACTION of topics dlq"),
        ("topics status now", "topics status takes no now"),
        ("topics help [COMMAND]", ""),
        ("topics help tail", ""),
        ("topics help tial", "no command tial"),
        ("make nothing", "make has no target nothing"),
        ("systemctl stop topicsd", "nothing says how `systemctl stop` is tried"),
    ],
)
def test_what_is_none_is_noticed(text: str, wrong: str) -> None:
    assert _wrong(text) == wrong


def test_mentions_are_found_in_lines_and_blocks_and_not_where_they_are_run() -> None:
    block = "    topics fsck DIR    what is wrong\n    other\n"
    document = f"Say `topics ls` or `ls`.\n\n{block}\n```console\n$ topics nope\n```\n"
    assert [(found.line, found.text) for found in mentions(document)] == [
        (1, "topics ls"),
        (3, "topics fsck DIR    what is wrong"),
    ]
