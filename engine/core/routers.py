"""Routers: made, changed, shown and dropped (http-api.md §9). What they do is `engine.core.forwarding`.

A router belongs to its dest: its RouterPut and RouterDrop lie in the dest's log, it is taken down with the dest's
image, and it is gone with either of its topics. Topics that a PUT makes are there before the router is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from engine.core.forwarded import RouterPut, StagedRouter, StagedRouterDrop
from engine.core.refusals import capped
from engine.core.slot import Slot
from engine.core.staged import StagedUnchanged
from engine.core.ticket import Ticket
from engine.errors import Code, Refused, invalid, topic_not_found
from engine.formats.forward import RouterDropBody, encode_router_body
from engine.formats.frame import FrameType
from engine.limits import ROOM_SLACK
from engine.names import check_topic_name, is_router_name
from engine.routers.graph import cycle
from engine.routers.router import Outlets, Router, RouterSpec
from engine.types import ConfigChanges, configured

if TYPE_CHECKING:
    from engine.core.core import Core

_PARKED: Final = ">"
"""In front of a router's name where commands wait: no topic is called so."""


class RouterState(NamedTuple):
    """What is shown of a router."""

    router: str
    source: str
    dest: str
    spec: RouterSpec
    forwarded_total: int
    cursor: int
    lag: int
    blocked: str | None


class _Unchanged(StagedUnchanged):
    """The answer to a PUT of a router that changes nothing."""

    __slots__ = ("_put",)

    def __init__(self, slot: Slot, ticket: Ticket[Any], put: RouterPut) -> None:
        super().__init__(slot, ticket)
        self._put = put

    def apply(self, catalog: Any, now_ms: int) -> Any:
        return self._put


def check_router_name(name: str) -> str:
    """Return `name`, or raise the 400 of what names no router."""
    if not is_router_name(name):
        raise invalid("a router's name must match ^[A-Za-z0-9][A-Za-z0-9._:>-]{0,254}$", "router")
    return name


def router_not_found(name: str) -> Refused:
    """The 404 that names the router."""
    return Refused(Code.ROUTER_NOT_FOUND, f"router {name!r} does not exist", {"router": name})


class Routers:
    """The routers of one running store."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._roster = core.catalog.routers

    def begin(self) -> None:
        """After a start: what has lost a topic is gone, the others go on."""
        by_id = self._core.catalog.by_id
        for router in list(self._roster.by_name.values()):
            if router.source not in by_id or router.dest not in by_id:
                self._roster.remove(router)
                continue
            router.cursor = router.tip = min(router.cursor, by_id[router.source].tip)
            router.active = True
            self._attach(router)

    # -- commands --------------------------------------------------------------------------------------------------

    def put(
        self,
        name: str,
        source: str,
        dest: str,
        spec: RouterSpec,
        said: Collection[str] = RouterSpec.__struct_fields__,
    ) -> Ticket[RouterPut]:
        """Make a router, or change one; where it goes from and to never changes (409), nor where it began.

        Of one that is there only those members of `spec` change that are `said`.
        """
        check_router_name(name)
        check_topic_name(source, "source")
        check_topic_name(dest, "dest")
        if source == dest:
            raise invalid("source and dest must be different topics", "dest")
        ticket: Ticket[RouterPut] = Ticket()
        attempt = partial(self._put, ticket, name, source, dest, spec, frozenset(said) - {"start"})
        if self._core.parking.blocks(_PARKED + name) or not attempt():
            self._core._park(_PARKED + name, ticket, attempt)
        return ticket

    def drop(self, name: str) -> Ticket[bool]:
        """Take a router away, and leave what it copied; the answer is whether there was one."""
        check_router_name(name)
        ticket: Ticket[bool] = Ticket()
        attempt = partial(self._drop, ticket, name)
        if self._core.parking.blocks(_PARKED + name) or not attempt():
            self._core._park(_PARKED + name, ticket, attempt)
        return ticket

    def get(self, name: str) -> RouterState:
        """One router, or 404."""
        router = self._roster.by_name.get(check_router_name(name))
        if router is None or not router.active:
            raise router_not_found(name)
        return self.shown(router)

    def page(
        self,
        prefix: str,
        size: int,
        after: str,
        wanted: Callable[[RouterState], bool] | None = None,
        *,
        source: str | None = None,
        dest: str | None = None,
    ) -> tuple[list[RouterState], bool]:
        """Up to `size` wanted routers by name, after a name, and whether there are more; those of one source, or into
        one dest, where these are named."""
        ends: list[int | None] = []
        for name in (source, dest):
            slot = None if name is None else self._core.catalog.tip.get(name)
            if name is not None and slot is None:
                return [], False
            ends.append(None if slot is None else slot.topic.id)
        found: list[RouterState] = []
        for router in self._roster.page(prefix, after, *ends):
            if not router.active:
                continue
            state = self.shown(router)
            if wanted is not None and not wanted(state):
                continue
            if len(found) == size:
                return found, True
            found.append(state)
        return found, False

    def shown(self, router: Router) -> RouterState:
        """What is shown of a router."""
        by_id = self._core.catalog.by_id
        source, dest = by_id[router.source], by_id[router.dest]
        lag = max(source.topic.head - router.cursor, 0)
        return RouterState(
            router.name,
            source.name,
            dest.name,
            router.spec,
            router.forwarded,
            router.cursor,
            lag,
            router.blocked if lag else None,
        )

    def leave(self, slot: Slot) -> list[Router]:
        """A topic is dropped, and so are its routers: these."""
        routers = self._roster.of_topic(slot.topic.id)
        for router in routers:
            self._detach(router)
        return routers

    # -- how it is done --------------------------------------------------------------------------------------------

    def _put(
        self, ticket: Ticket[RouterPut], name: str, source: str, dest: str, spec: RouterSpec, said: frozenset[str]
    ) -> bool:
        core, tip = self._core, self._core.catalog.tip
        begin, end = tip.get(source), tip.get(dest)
        known = self._roster.by_name.get(name)
        same = False
        if known is not None and begin is not None and end is not None:
            same = (known.source, known.dest) == (begin.topic.id, end.topic.id)
        if not same:
            self._check_fan_in(end, begin)
            if known is not None:
                raise self._taken(known)
            self._check_caps([slot for slot in (begin, end) if slot is None])
            if end is None and not spec.create_dest:
                raise topic_not_found(dest)
        if known is not None:
            spec = msgspec.structs.replace(known.next_spec, **{member: getattr(spec, member) for member in said})
        # One that is part of a cycle which another one closed may be put again as it is.
        closes = not same or (known is not None and known.next_spec.allow_cycle)
        if begin is not None and end is not None and closes:
            self._check_cycle(begin, end, spec)
        for missing in [missing for missing, slot in ((source, begin), (dest, end)) if slot is None]:
            if not core._room(core.catalog.shard_of(core._next_id()), ROOM_SLACK):
                return False
            core._create(missing, configured(missing, None, ConfigChanges()), None)
        if begin is None or end is None or not begin.visible or not end.visible:
            return False
        core._check_writable(begin.shard, begin)
        core._check_writable(end.shard, end)
        if same and known is not None and known.next_spec == spec:
            core.commit.add_free(_Unchanged(end, ticket, RouterPut(name, source, dest, spec, False)))
            return True
        return self._stage(ticket, name, begin, end, spec, known)

    def _stage(
        self,
        ticket: Ticket[RouterPut],
        name: str,
        source: Slot,
        dest: Slot,
        spec: RouterSpec,
        known: Router | None,
    ) -> bool:
        core = self._core
        now = core.now()
        router = known
        if router is None:
            cursor = source.topic.at(now).earliest_seq - 1 if spec.start == "earliest" else source.tip
            router = Router(core.catalog.last_id + 1, name, source.topic.id, dest.topic.id, spec, cursor)
        body = encode_router_body(router.body(spec))
        if not core._room(dest.shard, len(body), control=True):
            return False
        end = core.wal.stage(dest.shard, FrameType.ROUTER_PUT, 0, 0, dest.topic.id, 0, now, body)
        router.next_spec = spec
        if known is None:
            core.catalog.last_id = router.number
            self._roster.add(router)
            self._attach(router)
        put = RouterPut(name, source.name, dest.name, spec, known is None)
        core.commit.add(StagedRouter(dest, ticket, router, put), end, sync=True)
        return True

    def _drop(self, ticket: Ticket[bool], name: str) -> bool:
        core = self._core
        router = self._roster.by_name.get(name)
        if router is None:
            ticket.complete(False)
            return True
        dest = core.catalog.by_id[router.dest]
        core._check_writable(dest.shard)
        body = encode_router_body(RouterDropBody(number=router.number))
        if not core._room(dest.shard, len(body), control=True):
            return False
        end = core.wal.stage(dest.shard, FrameType.ROUTER_DROP, 0, 0, dest.topic.id, 0, core.now(), body)
        self._detach(router)
        core.commit.add(StagedRouterDrop(dest, ticket, router), end, sync=True)
        return True

    def _attach(self, router: Router) -> None:
        slot = self._core.catalog.by_id[router.source]
        if slot.outlets is None:
            slot.outlets = Outlets(slot, self._core.forwarding.line)
        slot.outlets.routers.append(router)
        slot.outlets.note()

    def _detach(self, router: Router) -> None:
        self._roster.leave(router)
        slot = self._core.catalog.by_id.get(router.source)
        if slot is not None and slot.outlets is not None and router in slot.outlets.routers:
            slot.outlets.routers.remove(router)
            if not slot.outlets.routers:
                slot.outlets = None

    # -- checks ----------------------------------------------------------------------------------------------------

    def _check_caps(self, missing: list[None]) -> None:
        core = self._core
        if core.limits.routers and len(self._roster) >= core.limits.routers:
            raise capped("max_routers", core.limits.routers)
        if missing:
            core._check_new_topic("")
            if core.limits.topics and len(core.catalog.tip) + len(missing) > core.limits.topics:
                raise capped("max_topics", core.limits.topics)

    def _taken(self, known: Router) -> Refused:
        """The 409 for a name that another router has: one that moved would silently leave its dest behind."""
        by_id = self._core.catalog.by_id
        source, dest = by_id[known.source].name, by_id[known.dest].name
        return Refused(
            Code.TOPIC_EXISTS_INCOMPATIBLE,
            f"router {known.name!r} goes from {source!r} to {dest!r}; delete it first, or take another name",
            {"reason": "router_exists", "router": known.name, "source": source, "dest": dest},
        )

    def _check_fan_in(self, dest: Slot | None, source: Slot | None) -> None:
        for router in () if dest is None else self._roster.of_dest(dest.topic.id):
            if source is None or router.source != source.topic.id:
                other = self._core.catalog.by_id[router.source].name
                raise Refused(
                    Code.TOPIC_EXISTS_INCOMPATIBLE,
                    f"a topic is the dest of one source only, and this one's is {other!r} (router {router.name!r})",
                    {"reason": "router_dest_fan_in", "router": router.name, "source": other},
                )

    def _check_cycle(self, source: Slot, dest: Slot, spec: RouterSpec) -> None:
        found = None if spec.allow_cycle else cycle(source.topic.id, dest.topic.id, self._roster.source_of)
        if found is not None:
            names = [self._core.catalog.by_id[topic].name for topic in found]
            raise Refused(
                Code.ROUTER_CYCLE,
                f"records would go round: {' > '.join(names)}; allow_cycle lets each go round once",
                {"cycle": names},
            )
