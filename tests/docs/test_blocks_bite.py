"""The reader of command blocks sees what is there, and takes nothing for what it is not."""

from __future__ import annotations

import pytest

from tests.docs import blocks

DOCUMENT = """Text.

```console
$ echo one
one
$ echo two \\
    three
two three
```

```python
print(1)
```

```text
1
```

```json
{}
```
"""


def test_blocks_are_found_with_what_they_print() -> None:
    console, python = blocks.blocks(DOCUMENT)
    assert (console.line, console.info, console.prints) == (3, "console", None)
    assert (python.line, python.info, python.body, python.prints) == (11, "python", "print(1)\n", "1\n")
    assert blocks.steps(console.body) == [("echo one", "one\n"), ("echo two \\\n    three", "two three\n")]


def test_a_block_that_begins_with_output_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="begins with a command"):
        blocks.steps("one\n$ echo one\n")


def test_what_each_command_printed_is_kept_apart() -> None:
    commands = blocks.steps("$ echo one\none\n$ echo two\ntwo\n")
    assert blocks.printed("\x1eone\n\x1etwo\n") == ["one\n", "two\n"]
    assert blocks.script(commands).count("\x1e") == 2


@pytest.mark.parametrize(
    ("said", "real", "is_same"),
    [
        ("one\n", "one\n", True),
        ("one\n", "one\ntwo\n", False),
        ("one\n", "", False),
        ("", "an error\n", False),
        ('{"$ts":1767589200226}', '{"$ts":1767589299999}', True),
        ('{"$seq":1}', '{"$seq":2}', False),
        ('{"a":1,…}', '{"a":1,"b":2}', True),
        ('{"a":1,…}', '{"a":2,"b":2}', False),
        ("one\n…\nfour\n", "one\ntwo\nthree\nfour\n", True),
        ("one\n…\nfour\n", "one\ntwo\nthree\nfive\n", False),
        ("a.c", "abc", False),
    ],
)
def test_outputs_are_compared_but_for_times_and_ellipses(said: str, real: str, is_same: bool) -> None:
    assert blocks.same(said, real) is is_same
