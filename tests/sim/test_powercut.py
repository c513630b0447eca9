"""A few power cuts on a real file system, where the machine allows making one; `make crash` does many."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.powercut import NotPossibleError, power_cuts

pytestmark = pytest.mark.slow


def test_after_power_cuts_on_ext4_every_promise_holds(tmp_path: Path) -> None:
    try:
        report = power_cuts(tmp_path, 6, seed=1)
    except NotPossibleError as error:
        pytest.skip(f"no power cuts here: {error}")
    assert report.wrong == []
    assert report.cuts == 6
    assert report.acked > 0
