"""A slice of `tests.tools.mangled`: damaged files of closed history cost their own records and no others."""

from __future__ import annotations

from functools import cache

import pytest

from tests.tools.mangled import KINDS, Store, one


@cache
def stores() -> tuple[Store, Store]:
    return Store("ours"), Store("theirs")


def test_a_table_of_tags_of_another_store_is_not_believed_although_its_header_does_not_check() -> None:
    ours, theirs = stores()
    one(ours, theirs, ".tags", ".tags 5 919")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_done_to_a_file_costs_its_own_records_at_most(kind: str) -> None:
    ours, theirs = stores()
    outcomes = {one(ours, theirs, kind, f"{kind} 7 {number}") for number in range(120)}
    assert "whole" in outcomes
    assert kind in (".idx", ".tags") or "gap" in outcomes
