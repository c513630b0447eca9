"""Routers found by name, source and dest."""

from __future__ import annotations

import random

import pytest

from engine.routers.roster import Roster
from engine.routers.router import Router, RouterSpec


def test_a_page_of_one_source_or_dest_is_what_a_filter_of_all_leaves() -> None:
    dice = random.Random(3)
    roster, routers = Roster(), []
    for number in range(60):
        name = f"{dice.choice('ab')}{number:02}"
        routers.append(Router(100 + number, name, dice.randrange(3), 10 + dice.randrange(5), RouterSpec(), 0))
        roster.add(routers[-1])
    roster.remove(routers.pop(7))
    routers.sort(key=lambda router: router.name)
    for prefix in ("", "a", "b4", "c"):
        for after in ("", "a30", routers[20].name, "z"):
            for source in (None, 0, 1, 9):
                for dest in (None, 10, 12, 99):
                    wanted = [
                        router
                        for router in routers
                        if router.name.startswith(prefix)
                        and router.name > after
                        and source in (None, router.source)
                        and dest in (None, router.dest)
                    ]
                    assert list(roster.page(prefix, after, source, dest)) == wanted


def test_a_page_of_one_source_looks_at_its_routers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    roster = Roster()
    for number in range(50):
        roster.add(Router(100 + number, f"r{number}", number % 5, 10, RouterSpec(), 0))
    looked: list[str] = []

    class Names(dict[str, Router]):
        def __getitem__(self, name: str) -> Router:
            looked.append(name)
            return super().__getitem__(name)

    monkeypatch.setattr(roster, "by_name", Names(roster.by_name))
    assert list(roster.page("", "", 9)) == []
    assert looked == []
    assert len(list(roster.page("", "", 3, 10))) == len(looked) == 10
