"""Metrics as text for Prometheus (exposition format 0.0.4) and as JSON.

Pure: families in, bytes out. The format is small and its only reader's parser is in the tests; its writer's library
keeps a registry of its own under locks, which a daemon of one thread that has its figures already does not need.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any, Final, NamedTuple

TEXT: Final = b"text/plain; version=0.0.4; charset=utf-8"
STEP_SAMPLES: Final = 1024
"""Series that are rendered before others may come first: 1 µs each."""
_ESCAPED: Final = re.compile(r'[\\"\n]')
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}


class Sample(NamedTuple):
    """One series: what follows the family's name, labels, and the value."""

    suffix: str
    labels: dict[str, str]
    value: float


class Family(NamedTuple):
    """One metric with all of its series."""

    name: str
    kind: str
    help: str
    samples: list[Sample]


def _label(text: str) -> str:
    if not _ESCAPED.search(text):
        return text
    return _ESCAPED.sub(lambda found: _ESCAPES[found[0]], text)


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))


def as_text(families: list[Family]) -> Generator[None, None, bytes]:
    """The page that Prometheus scrapes; a family without series so far is there by its name. Others may come first at
    each `yield`."""
    lines = []
    for family in families:
        lines.append(f"# HELP {family.name} {family.help}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        for count, (suffix, labels, value) in enumerate(family.samples, 1):
            shown = ",".join(f'{name}="{_label(text)}"' for name, text in labels.items())
            lines.append(f"{family.name}{suffix}{'{' + shown + '}' if shown else ''} {_number(value)}")
            if not count % STEP_SAMPLES:
                yield
    return ("\n".join(lines) + "\n").encode()


def as_json(families: list[Family]) -> Generator[None, None, dict[str, Any]]:
    """The same as an object; a series of a histogram carries its part of the name as `part`."""
    shown: dict[str, Any] = {}
    for family in families:
        if family.samples:
            series = [
                {"labels": labels, "value": value, **({"part": suffix[1:]} if suffix else {})}
                for suffix, labels, value in family.samples
            ]
            shown[family.name] = {"type": family.kind, "help": family.help, "series": series}
            if len(series) >= STEP_SAMPLES:
                yield
    return shown
