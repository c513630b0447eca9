"""`python -m tests.conformance URL`: does the server at URL speak the wire that http-api.md describes?

Prints a table of sections and a line for each failure; exits 0 when all passed, 1 when a case failed, 69 when there
is no server. Without a URL it starts daemons of its own and goes through all their doors. `--only` picks cases by a
part of their section or name.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter

from tests.conformance.kit import Case, Keys
from tests.conformance.local import NoDaemon, all_doors, doors_of
from tests.conformance.run import Outcome, run_all
from tests.conformance.sections import all_cases
from tests.conformance.wire import Connection, Target


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("url", nargs="?", help="http://host:port or unix:///path.sock; none = daemons of its own")
    parser.add_argument("--url", dest="url_option", help="the same as an option")
    parser.add_argument("--key", default=os.environ.get("KEY"), help="a key that may do everything (or $KEY)")
    parser.add_argument("--read-key", help="a key of scope read")
    parser.add_argument("--write-key", help="a key of scope write")
    parser.add_argument("--prefix-key", help="a key of all scopes for the names of --prefix")
    parser.add_argument("--prefix", default="", help="what the names of the suite's topics start with")
    parser.add_argument("--only", action="append", default=[], help="part of a section or name (may be repeated)")
    parser.add_argument("--list", action="store_true", help="show the cases and their sentences; run nothing")
    parser.add_argument("--slowest", type=int, default=0, help="show so many of the slowest cases")
    return parser.parse_args()


def show(outcomes: list[Outcome], slowest: int) -> None:
    """Print the table, then the failures, then why cases were not run."""
    total, passed, failed, skipped = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for one in outcomes:
        section = one.case.section
        total[section] += 1
        (failed if one.failure else skipped if one.skipped else passed)[section] += 1
    print(f"{'section':<16}{'cases':>7}{'passed':>8}{'failed':>8}{'not run':>9}")
    for section in total:
        print(f"{section:<16}{total[section]:>7}{passed[section]:>8}{failed[section]:>8}{skipped[section]:>9}")
    print(f"{'all':<16}{total.total():>7}{passed.total():>8}{failed.total():>8}{skipped.total():>9}")
    for one in outcomes:
        if one.failure:
            print(f"\nFAILED §{one.case.section}: {one.case.name}\n  says: {one.case.sentence}\n  seen: {one.failure}")
    for reason, count in Counter(one.skipped for one in outcomes if one.skipped).items():
        print(f"\n{count} cases were not run: {reason}")
    for one in sorted(outcomes, key=lambda each: -each.seconds)[:slowest]:
        print(f"{one.seconds:8.2f} s  {one.case.section}: {one.case.name}")


def at_url(url: str, options: argparse.Namespace, cases: list[Case]) -> list[Outcome]:
    """Run the cases against somebody's server."""
    target = Target.parse(url)
    Connection(target).close()
    keys = Keys(options.key, options.read_key, options.write_key, options.prefix_key, options.prefix)
    return list(run_all(cases, target, keys))


def at_own_doors(cases: list[Case]) -> list[Outcome]:
    """Run the cases against daemons of our own, door by door."""
    outcomes: list[Outcome] = []
    with all_doors() as doors:
        for door, (target, keys) in doors.items():
            outcomes += run_all([one for one in cases if door in doors_of(one)], target, keys)
            print(f"{door}: {len(outcomes)} runs so far", flush=True)
    return outcomes


def main() -> int:
    """Run the suite."""
    options = arguments()
    url = options.url or options.url_option
    cases = [
        one for one in all_cases() if not options.only or any(p in f"{one.section} {one.name}" for p in options.only)
    ]
    if options.list:
        for one in cases:
            print(f"§{one.section}: {one.name}: {one.sentence}")
        print(f"{len(cases)} cases")
        return 0
    try:
        outcomes = at_url(url, options, cases) if url else at_own_doors(cases)
    except (OSError, ValueError, NoDaemon) as error:
        print(f"no server at {url or 'a door of our own'}: {error}", file=sys.stderr)
        return 69
    show(outcomes, options.slowest)
    return 1 if any(one.failure for one in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
