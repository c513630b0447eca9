"""Running cases against one server: each with its own `Api`, several at a time, nothing shared but the server."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.conformance.kit import Api, Case, Failed, Keys
from tests.conformance.rawjson import NotJson
from tests.conformance.wire import Target, WireError
from tests.conformance.wire2 import OnlyHttp1

AT_ONCE = 6
ONLY_HTTP1 = "says what only HTTP/1.1 can say"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a case went: `failure` is what was wrong, `skipped` why it was not run, both None when it passed."""

    case: Case
    failure: str | None
    skipped: str | None
    seconds: float


def run_case(case: Case, target: Target, keys: Keys) -> Outcome:
    """Run one case and clean up after it."""
    missing = case.missing(target, keys)
    if missing is not None:
        return Outcome(case, None, missing, 0.0)
    started = time.monotonic()
    api = Api(target, keys)
    failure = skipped = None
    try:
        case.run(api)
    except OnlyHttp1:
        skipped = ONLY_HTTP1
    except (Failed, WireError, NotJson, OSError) as error:
        failure = f"{type(error).__name__}: {error}"
    except Exception as error:  # an answer of another shape than a case expects (a missing key, a wrong type)
        last = traceback.extract_tb(error.__traceback__)[-1]
        failure = f"{type(error).__name__}: {error} (line {last.lineno} of {last.name})"
    try:
        api.close()
    except (Failed, WireError, NotJson, OSError) as error:
        failure = failure or f"cleaning up: {error}"
    return Outcome(case, failure, skipped, time.monotonic() - started)


def run_all(cases: list[Case], target: Target, keys: Keys) -> Iterator[Outcome]:
    """Run cases, a few at a time; outcomes come in the order of the cases."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(lambda one: run_case(one, target, keys), cases)
