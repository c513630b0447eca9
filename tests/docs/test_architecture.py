"""The map is the land: ARCHITECTURE.md draws the layers that are held, and has a line for each room."""

from __future__ import annotations

import re

from tests.style.rules import LAYERS, VOCABULARY
from tests.style.sources import ROOT, text, tracked

MAP = text(ROOT / "ARCHITECTURE.md")


def block_with(beginning: str) -> list[str]:
    """The lines of the fenced block whose first line begins so."""
    (found,) = [block for block in re.findall(r"```\n(.*?)```", MAP, re.DOTALL) if block.startswith(beginning)]
    return str(found).splitlines()


def full(name: str) -> str:
    """A room's name as the rules have it."""
    if name == "vocabulary":
        return name
    return f"topics_{name}" if name in ("daemon", "lake", "objects") else f"engine.{name}"


def test_the_layers_are_those_that_are_held() -> None:
    drawn = block_with("vocabulary ←")[0]
    layers = [frozenset(full(name) for name in layer.split(", ")) for layer in drawn.split(" ← ")]
    assert layers == [*LAYERS]


def test_each_room_has_its_line_and_each_line_its_room() -> None:
    lines = block_with("engine/  ")
    named: set[str] = set()
    top = ""
    for line in lines:
        if found := re.match(r"(\w+)/ ", line):
            top = found[1]
            named.add(top)
        elif (found := re.match(r"  (\w.*?)  ", line)) and top == "engine":
            named |= {f"engine.{word.rstrip('/')}" for word in found[1].split()}
    there: set[str] = set()
    for path in tracked():
        parts = path.with_suffix("").parts if path.suffix in (".py", ".sh") else ()
        if len(parts) > 1 and parts[0] not in ("packaging", "sample", "docs"):
            there |= {parts[0], f"engine.{parts[1]}"} if parts[0] == "engine" else {parts[0]}
    private = {"engine.__init__", "engine._checks", "engine._scan"}
    assert named == there - private
    assert {f"engine.{name}" for name in VOCABULARY} <= named | private
