"""Planted bugs of routers, each with the play of `routers` in which it has to show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

import engine.core.forwarding as forwarding_module
import engine.core.rerouting as rerouting_module
from engine.core.commit import Commit
from engine.core.forwarded import apply_copies
from engine.core.forwarding import Forwarding
from engine.core.forwards import Forwards
from engine.core.rerouting import Rerouting
from engine.core.slot import Slot
from engine.formats.forward import RouterBody
from engine.routers.copies import Stretch, copies, missed, take
from engine.routers.graph import hops_limit
from engine.routers.router import Router, RouterSpec
from engine.types import Durability
from tests.sim.mutants import Mutant, Patch, Plant, patched

ROUTERS: list[Mutant] = []


def _mutant(
    scenario: str, *, sharded: bool = False, durability: Durability = Durability.DISK
) -> Callable[[Plant], Plant]:
    def add(plant: Plant) -> Plant:
        where = f"router-{scenario}-{durability.value}@{3 if sharded else 1}"
        ROUTERS.append(Mutant("router-" + plant.__name__.lstrip("_").replace("_", "-"), plant, (where,)))
        return plant

    return add


@_mutant("chain")
def _cursor_left_behind_by_a_start(patch: Patch) -> None:
    """Content and cursor apart: a crash copies again what is there."""
    old = apply_copies

    def apply(slot: Slot, router: Router, *rest: Any, **more: Any) -> None:
        cursor = router.cursor
        old(slot, router, *rest, **more)
        router.cursor = cursor

    patch.set(rerouting_module, "apply_copies", apply)


@_mutant("chain")
def _copies_not_made_again_by_a_start(patch: Patch) -> None:
    """The cursor is kept, the copies are not."""

    def land(self: Rerouting, slot: Slot, router: Router, to: int, *_: Any) -> None:
        router.cursor = to

    patch.set(Rerouting, "_land", land)


@_mutant("chain")
def _cursor_not_in_the_image(patch: Patch) -> None:
    old = Router.body

    def body(self: Router, spec: RouterSpec) -> RouterBody:
        cursor, self.cursor = self.cursor, 0
        try:
            return old(self, spec)
        finally:
            self.cursor = cursor

    patch.set(Router, "body", body)


@_mutant("taken-down")
def _positions_though_the_source_is_taken_down_later(patch: Patch) -> None:
    patch.set(Forwards, "carries", lambda self, slot: False)


@_mutant("chain", sharded=True, durability=Durability.FSYNC)
def _copies_of_another_shard_shown_before_a_sync(patch: Patch) -> None:
    def wait(self: Commit, slot: Slot, lsn: int, ticket: Any, answer: Any) -> None:
        ticket.complete(answer)

    old = Forwarding._land

    def land(self: Forwarding, *rest: Any) -> None:
        with patched() as inner:
            inner.set(Commit, "wait_durable", wait)
            old(self, *rest)

    patch.set(Forwarding, "_land", land)


@_mutant("chain", durability=Durability.FSYNC)
def _copies_shown_before_a_sync(patch: Patch) -> None:
    """An fsync dest must not show what the disk may lose."""
    old = Forwarding._land

    def land(self: Forwarding, *rest: Any) -> None:
        add = Commit.add
        with patched() as inner:
            inner.set(Commit, "add", lambda commit, change, end, sync: add(commit, change, end, sync=False))
            old(self, *rest)

    patch.set(Forwarding, "_land", land)


@_mutant("cycle")
def _one_round_too_many(patch: Patch) -> None:
    old = hops_limit
    patch.set(forwarding_module, "hops_limit", lambda *args: old(*args) + 1)


@_mutant("cycle")
def _hops_not_counted_by_a_start(patch: Patch) -> None:
    """What was forwarded before a crash goes round again after it."""
    old = apply_copies

    def apply(slot: Slot, *rest: Any, **more: Any) -> None:
        old(slot, *rest, **more)
        slot.hops = None

    patch.set(rerouting_module, "apply_copies", apply)


@_mutant("blocked")
def _records_skipped_where_the_dest_is_full(patch: Patch) -> None:
    old = Stretch.first
    patch.set(Stretch, "first", lambda self, count: old(self, count)._replace(to=self.to))


@_mutant("ring")
def _losses_go_round(patch: Patch) -> None:
    """A gap is a loss of the topic that it came into, and the next router begins to count anew."""
    old = take
    patch.set(forwarding_module, "take", lambda *args, **more: old(args[0], None, *args[2:], **more))


@_mutant("ring")
def _losses_counted_anew_by_a_start(patch: Patch) -> None:
    """A loss that was forwarded before a crash is one of its last source after it."""
    old = missed
    patch.set(rerouting_module, "missed", lambda count, hops=0: old(count))


@_mutant("trim")
def _losses_of_the_source_not_said(patch: Patch) -> None:
    old = take
    patch.set(forwarding_module, "take", lambda *args, **more: old(*args, **more)._replace(lost=0))


@_mutant("late")
def _times_not_raised_by_a_start(patch: Patch) -> None:
    """A copy would come back with another `$ts` than it was seen with."""
    old = copies
    patch.set(rerouting_module, "copies", lambda parts, first, _floor: old(parts, first, 0))


@_mutant("fan-out")
def _a_dropped_router_comes_back(patch: Patch) -> None:
    patch.set(Rerouting, "drop", lambda self, frame: None)


@_mutant("fan-out")
def _filter_forgotten_by_a_start(patch: Patch) -> None:
    old = Router.of

    def of(body: RouterBody, dest: int) -> Router:
        router = old(body, dest)
        router.spec = router.next_spec = RouterSpec()
        return router

    patch.set(Router, "of", staticmethod(of))


@_mutant("fan-out")
def _where_it_began_forgotten_by_a_start(patch: Patch) -> None:
    old = Router.of

    def of(body: RouterBody, dest: int) -> Router:
        return old(msgspec.structs.replace(body, start="now"), dest)

    patch.set(Router, "of", staticmethod(of))


@_mutant("changed")
def _copies_as_defined_before_a_change_that_is_staged(patch: Patch) -> None:
    """The log has the change before the pass, so a start makes these copies otherwise than they were seen."""
    old = Forwarding._stage

    def stage(self: Forwarding, slot: Slot, chosen: Any, now: int) -> bool:
        routers = [router for _, group in chosen for router, _ in group]
        specs = [router.next_spec for router in routers]
        for router in routers:
            router.next_spec = router.spec
        try:
            return old(self, slot, chosen, now)
        finally:
            for router, spec in zip(routers, specs, strict=True):
                router.next_spec = spec

    patch.set(Forwarding, "_stage", stage)
