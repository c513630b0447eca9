"""What holds for every test: nothing leaves this machine, and which tests are run beside which others.

A connection to anything but a Unix socket or the loopback range is refused before it is tried, and so is the look-up
of any host but localhost. Tests that start a daemon reach it on 127.0.0.1 or its socket; subprocesses are not covered.
"""

from __future__ import annotations

import gc
import ipaddress
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from engine import scan


def _is_here(host: Any) -> bool:
    name = host.decode() if isinstance(host, bytes) else host
    if name in (None, "", "localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback or ipaddress.ip_address(name).is_unspecified
    except ValueError:
        return False


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So it is below a shell that runs in the background, and so would the programs have it that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


# No example has a deadline: on a busy machine one of 0.2 ms took half a second.
settings.register_profile("topics", deadline=None)
settings.load_profile("topics")


class _LoopbackSocket(socket.socket):
    """A socket that reaches this machine only."""

    def connect(self, address: Any) -> None:
        self._check(address)
        super().connect(address)

    def connect_ex(self, address: Any) -> int:
        self._check(address)
        return super().connect_ex(address)

    def _check(self, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and not _is_here(address[0]):
            raise PermissionError(f"a test tried to connect to {address[0]!r}")


@pytest.fixture(autouse=True, scope="session")
def _nothing_leaves_this_machine() -> Iterator[None]:
    real_socket, real_lookup = socket.socket, socket.getaddrinfo

    def look_up(host: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_here(host):
            raise PermissionError(f"a test tried to look up {host!r}")
        return real_lookup(host, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "socket", _LoopbackSocket)
        patch.setattr(socket, "getaddrinfo", look_up)
        yield
    assert socket.socket is real_socket


@pytest.fixture(scope="module", params=["python", "compiled"])
def each_way(request: pytest.FixtureRequest) -> Iterator[None]:
    """A module's tests twice: by Python alone, and with what is compiled (engine/scan.py)."""
    if request.param == "compiled" and not scan.is_built():
        pytest.skip("nothing is compiled here: see docs/dependencies.md, Building")
    before = scan.is_compiled()
    scan.choose(compiled=request.param == "compiled")
    yield
    scan.choose(compiled=before)


def pytest_report_header() -> str:
    """Which of the two every other test uses."""
    return f"records are taken apart and rendered by {'compiled code' if scan.is_compiled() else 'Python alone'}"


_ALL_SLOW = re.compile(r"^pytestmark = pytest\.mark\.slow$", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What `-m "not slow"` leaves out to its last test is not even imported: that would be half of the way to them."""
    if config.option.markexpr != "not slow" or collection_path.suffix != ".py":
        return None
    return bool(_ALL_SLOW.search(collection_path.read_text(encoding="utf-8"))) or None


LONGEST = (
    "tests/spark",
    "tests/spark/test_submit.py",
    "tests/spark/test_java.py",
    "tests/lake/test_compact.py",
    "tests/objects/test_compact.py",
    "tests/sim/test_crashes.py",
    "tests/docs/test_blocks.py",
    "tests/daemon/test_lifecycle.py",
    "tests/cli/test_thousand_jobs.py",
    "tests/daemon/test_pressure.py",
    "tests/cli/test_recipes.py",
    "tests/conformance/test_conformance.py",
    "tests/cli/test_bites.py",
    "tests/cli/test_export.py",
    "tests/daemon/test_openapi.py",
    "tests/lake/test_job.py",
    "tests/lake/test_kill.py",
    "tests/cli/test_worker.py",
    "tests/store/test_salvage.py",
    "tests/store/test_flips.py",
    "tests/cli/test_package.py",
    "tests/docs/test_site.py",
    "tests/sim/test_bites.py",
    "tests/sim/test_routers.py",
    "tests/cli/test_bench_run.py",
    "tests/daemon/test_intake.py",
    "tests/queue/test_model.py",
    "tests/core/test_checkpoint_lives.py",
)
"""What would else be left alone at the end, the dearest first; all other files follow by their number of tests.
Of Spark's, those have a line of their own that start every JVM themselves."""


class _ByRoom(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """A worker takes a file whole, and those that share a JVM with Spark as one: two would cost a minute."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "tests/spark" if file.startswith("tests/spark/") and file not in LONGEST else file

    def _assign_work_unit(self, node: Any) -> None:
        """The first of `LONGEST` that nobody has, before all others."""
        for scope in reversed(LONGEST):
            if scope in self.workqueue:
                self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    """Which tests keep together, whatever `--dist` says."""
    missing = [name for name in LONGEST if not (config.rootpath / name).exists()]
    if missing:
        raise pytest.UsageError(f"tests/conftest.py puts first what is not there: {missing}")
    return _ByRoom(config, log)


gc.disable()
"""Until the tests begin: modules and tests come to stay, and to look through them for garbage takes a fifth of it."""


def pytest_collection_finish() -> None:
    """What is there now stays to the end: no collection of garbage needs to look at it again."""
    gc.freeze()
    gc.enable()
