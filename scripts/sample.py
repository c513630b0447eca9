"""Makes `sample/events.ndjson`: 200 events of an invented bottling line, the same at every run.

`make run` and the README write them. They are small, plausible and of several shapes: readings, states, alarms. The
numbers keep the form that the machine gave them (`21.50`, `1.2e3`), because topics gives back what it was given.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Final

SAMPLE: Final = Path(__file__).resolve().parents[1] / "sample" / "events.ndjson"
COUNT: Final = 200
_STARTED_MS: Final = 1_767_589_200_000
_MACHINES: Final = ("filler-1", "filler-2", "capper-1", "labeler-1", "conveyor-3", "boiler-1")
_STATES: Final = ("running", "starved", "blocked", "cleaning", "stopped")
_ALARMS: Final = (
    ("E104", "bottle jam at infeed"),
    ("E207", "cap hopper low"),
    ("E311", "pressure above limit"),
    ("W018", "label roll nearly empty"),
)


def events() -> list[str]:
    """The events as lines of JSON."""
    dice = random.Random(200)
    now_ms, bottles, lines = _STARTED_MS, 0, []
    for _ in range(COUNT):
        now_ms += dice.randrange(40, 2500)
        machine = dice.choice(_MACHINES)
        head = f'{{"at":{now_ms},"machine":"{machine}",'
        kind = dice.choices(("reading", "count", "state", "alarm"), (10, 6, 3, 1))[0]
        if kind == "reading":
            celsius, bar = f"{dice.gauss(21, 3):.2f}", f"{dice.uniform(1.1, 4.4):.1f}"
            lines.append(f'{head}"kind":"reading","celsius":{celsius},"bar":{bar}}}')
        elif kind == "count":
            bottles += dice.randrange(20, 90)
            rate = f"{dice.uniform(1.0, 2.2):.1f}e3"
            lines.append(f'{head}"kind":"count","bottles":{bottles},"per_hour":{rate}}}')
        elif kind == "state":
            lines.append(f'{head}"kind":"state","state":"{dice.choice(_STATES)}"}}')
        else:
            code, text = dice.choice(_ALARMS)
            lines.append(f'{head}"kind":"alarm","code":"{code}","text":{json.dumps(text)}}}')
    return lines


def main() -> None:
    """Write the file."""
    SAMPLE.parent.mkdir(exist_ok=True)
    SAMPLE.write_text("".join(line + "\n" for line in events()), encoding="utf-8")


if __name__ == "__main__":
    main()
