"""Mistakes for the fuzzer to find: `python -m tests.scan.planted` compiles the C file with one at a time.

Each must be found by what is compared, or by the sanitizers, within seconds; one that is not is a hole in the tests.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.scan.fuzz import SOURCE, compiler

Planted = tuple[str, str, str]
"""What is wrong, and the text that becomes another."""

PLANTED: Final[tuple[Planted, ...]] = (
    ("reads a byte behind a string", "while (at < end && is_plain(*at))", "while (is_plain(*at))"),
    ("reads a word behind the end", "end - at >= 8; at += 8", "end - at >= 7; at += 8"),
    ("skips what is not blank", "if (word != same)", "if (word == same)"),
    ("reads an escape behind the end", "if (at == end)\n        return NULL;\n    if (*at != 'u')", "if (*at != 'u')"),
    ("reads digits behind the end", "while (at < end && *at >= '0' && *at <= '9')", "while (*at >= '0' && *at <= '9')"),
    ("reads a character behind the end", "if (end - at <= more ||", "if (end - at < more ||"),
    ("reads four digits behind the end", "if (end - at < 5)", "if (end - at < 1)"),
    ("takes overlong UTF-8 of two bytes", "lead >= 0xC2", "lead >= 0xC0"),
    ("takes overlong UTF-8 of three bytes", "lead == 0xE0 ? 0xA0", "lead == 0xE0 ? 0x80"),
    ("takes overlong UTF-8 of four bytes", "lead == 0xF0 ? 0x90", "lead == 0xF0 ? 0x80"),
    ("takes surrogates in UTF-8", "lead == 0xED ? 0x9F", "lead == 0xED ? 0xBF"),
    ("takes what is beyond U+10FFFF", "lead == 0xF4 ? 0x8F", "lead == 0xF4 ? 0xBF"),
    (
        "takes a control in a string",
        "if (*at < 0x20)\n                return NULL;",
        "if (*at < 0x20) { at++; continue; }",
    ),
    ("takes a control in a word", "(word - EACH(0x20))", "(word - EACH(0x1F))"),
    ("takes any letter of an escape", "((unsigned)byte | 0x20) - 'a' < 6", "((unsigned)byte | 0x20) - 'a' < 7"),
    ("nests one deeper", "if (depth == 0)\n        return NULL;", "if (depth < 0)\n        return NULL;"),
    ("takes a key twice", "(seen & 1u << field) || ", ""),
    ("takes a key that hides its name", " && memchr(*key, '\\\\', (size_t)*length) == NULL", ""),
    ("tells a wrong end of a member", "finish - whole, at - whole", "finish - whole + 1, at - whole"),
    ("takes one record more", "columns->count++ < columns->most", "columns->count++ <= columns->most"),
    ("has too many where others are wrong", "columns.count > columns.most && !rest", "columns.count > columns.most"),
    ("takes one line more", "PyList_Size(datas) == most", "PyList_Size(datas) > most"),
    ("takes a record without data", "if (!(seen & 1u << DATA))", "if (0)"),
    ("takes a leading zero", "at < end && *at == '0' ? at + 1 : digits_end", "digits_end"),
    ("takes what is behind the body", "return at == end && *begin != NULL", "return *begin != NULL"),
    ("forgets a text's length", "columns->last_length[field] == length &&", "columns->last_length[field] >= length &&"),
    (
        "shifts a column",
        "while (PyList_Size(*list) < columns->count)",
        "while (PyList_Size(*list) + 1 < columns->count)",
    ),
    ("leaves the end of a column open", "PyList_Size(columns.lists[field]) < columns.count)", "0)"),
    ("loses a carry", "number->digits[i] = '0';", "number->digits[i] = '1';"),
    ("counts a quote too few", "sizeof(\",'$tag':''\") - 1", "sizeof(\",'$tag':'\") - 1"),
    ("escapes nothing", "text[i] == '\"' || text[i] == '\\\\'", "text[i] == '\"'"),
)


def find(planted: Planted, seconds: int, *flags: str) -> str | None:
    """What the fuzzer says about a mistake, its last line; None when it found nothing."""
    name, old, new = planted
    text = SOURCE.read_text()
    assert text.count(old) == 1, f"{name}: its place is there {text.count(old)} times"
    with tempfile.TemporaryDirectory(prefix="topics-planted-") as directory:
        source = Path(directory, "_scan.c")
        source.write_text(text.replace(old, new))
        command = [sys.executable, "-m", "tests.scan.fuzz", "--seed", "1", "--seconds", str(seconds)]
        done = subprocess.run([*command, "--source", str(source), *flags], capture_output=True, text=True)
    assert "error: " not in done.stderr or "Sanitizer" in done.stderr, done.stderr
    told = [line for line in done.stderr.splitlines() if "Error" in line or "SUMMARY" in line or "runtime" in line]
    return None if done.returncode == 0 else (told or done.stderr.splitlines() or ["it ended"])[-1]


def main() -> int:
    """The command; words choose the mistakes whose names hold one of them."""
    words = sys.argv[1:]
    if (missing := compiler()) is not None:
        print(f"nothing can be planted: {missing}")
        return 0
    holes = 0
    for planted in PLANTED:
        if words and not any(word in planted[0] for word in words):
            continue
        flags = ("--sanitize",) if planted[0].startswith("reads") else ()
        told = find(planted, 20, *flags)
        holes += told is None
        print(f"{planted[0]}: {'NOT FOUND' if told is None else told[:100]}", flush=True)
    return 1 if holes else 0


if __name__ == "__main__":
    sys.exit(main())
