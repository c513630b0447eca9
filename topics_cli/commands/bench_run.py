"""`topics bench run`: a scenario, and a directory that says what came of it and whether it adds up (`harness`).

Exit status: 0 reconciled; 5 when it does not add up; 78 for a scenario that cannot be run.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Final

from topics_cli import exits
from topics_cli.exits import Failure, usage
from topics_cli.harness.run import Run, exit_code
from topics_cli.harness.scenario import Scenario, load
from topics_cli.listing import Column
from topics_cli.loaded import show
from topics_cli.nearest import nearest
from topics_cli.output import API_FORMS
from topics_cli.screen import show_rows
from topics_cli.session import Session

SHIPPED: Final = Path(__file__).resolve().parents[1] / "harness" / "scenarios"
OF_MODES: Final = ("duration", "records", "connections", "processes", "batch", "size", "rate", "durability", "prefix")
"""Options of the other modes: here the scenario says it all."""


def bench_run(session: Session, values: dict[str, Any]) -> int:
    """Run a scenario, list those there are, or check one."""
    given = [name for name in OF_MODES if values[name] is not None]
    if given:
        raise usage(f"--{given[0]} is not for run", "the scenario says it")
    if values["list"]:
        return _list(session)
    if not values["file"]:
        raise usage("which scenario?", "topics bench run FILE, or a name out of: topics bench run --list")
    path = _find(values["file"])
    scenario = load(str(path))
    if values["dry_run"]:
        session.out.line(json.dumps(scenario.as_object(), indent=1, ensure_ascii=False))
        session.out.flush()
        return exits.DONE
    if scenario.daemon.start and (values["socket"] or values["url"]):
        raise usage("the scenario starts a daemon of its own", "leave --socket and --url out; or take start = true out")
    run = Run(session, scenario, str(path), _directory(values["out"], scenario), values["prometheus"])
    summary = run.go()
    _say(session, run, summary)
    return exit_code(run, summary)


def shipped() -> dict[str, Path]:
    """The scenarios that come with the package, by name."""
    return {path.stem: path for path in sorted(SHIPPED.glob("*.toml"))}


def _list(session: Session) -> int:
    rows = []
    for name, path in shipped().items():
        scenario = load(str(path))
        rows.append([name, f"{scenario.duration_s:g}s", scenario.about])
    show_rows(session, [Column("SCENARIO"), Column("TAKES", True), Column("ABOUT")], rows)
    session.out.flush()
    return exits.DONE


def _find(word: str) -> Path:
    path = Path(word)
    if path.exists():
        return path
    found = shipped().get(word)
    if found is None:
        near = nearest(word, list(shipped()))
        hint = f"did you mean {' or '.join(near)}?" if near else _NAMES
        raise Failure(f"there is no scenario {word}", "bad_scenario", hint, exits.CONFIGURATION)
    return found


def _directory(given: str | None, scenario: Scenario) -> Path:
    path = Path(given or f"bench-{scenario.name}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
    try:
        path.mkdir(parents=True, exist_ok=True)
        if os.listdir(path):
            raise Failure(f"{path} is not empty", "not_empty", "results go into a new directory: --out DIR")
    except OSError as error:
        raise Failure(f"{path} cannot be made: {error.strerror}", "bad_out", "give another: --out DIR") from error
    return path


def _say(session: Session, run: Run, summary: dict[str, Any]) -> None:
    if session.out.form in API_FORMS:
        session.out.line(json.dumps(summary | {"directory": str(run.directory)}, separators=(",", ":")))
    else:
        show(session, list(run.totals.values()))
        for check in summary["checks"]:
            if not check["is_good"]:
                session.talk.say(f"topics: {check['subject']}: {check['question']}: {check['said']}")
        session.out.line(f"{summary['verdict']}\t{run.directory / 'report.html'}")
    session.out.flush()


_NAMES: Final = "give a file, or a name out of: topics bench run --list"
