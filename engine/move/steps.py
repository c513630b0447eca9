"""Detach, cancel, attach: what comes after what, for whoever drives the engine.

Each is a generator that yields what has to be waited for, a `Ticket` of the loop or a `Work` for a thread, and is sent
what came of it (or thrown the error). The order of these steps is all that keeps a topic from having two owners:

    detach   seal, settle, checkpoint, pin, export  →  Move frame on the disk  →  OFFER
    cancel   TAKEN is ours                          →  Move frame on the disk  →  writable
    attach   segments on the disk, TAKEN is ours    →  Attach frame on the disk → writable

Everything before the first arrow may be cut off and forgotten; everything behind it is done again by the same command.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final, NamedTuple

from engine.checkpoint.pin import PinJob, UnpinJob
from engine.clock import Clock
from engine.core.core import Core
from engine.core.refusals import elsewhere
from engine.core.ticket import Ticket
from engine.errors import Code, Refused, StoreError, TopicsError
from engine.formats.moving import MoveBody, MoveState, Offer, Taken
from engine.fs import Fs
from engine.limits import EngineSettings
from engine.move.arrive import Arrival, Offered, find_offers
from engine.move.export import export_topic, put_offer, read_offer, read_taken, take
from engine.move.place import Place
from engine.types import TopicPut


class Work(NamedTuple):
    """Something to be done where it may block; its result or error goes back into the steps."""

    what: str
    """In a word, for logs."""
    run: Callable[[], Any]


Steps = Generator[Ticket[Any] | Work, Any, Any]
FAILURES: Final = (TopicsError, StoreError, OSError)
"""What steps are thrown, and raise."""


class Detach(NamedTuple):
    """What is asked of a detach."""

    topic: str
    to: str
    """The place, as it is told to others."""
    url: str | None
    """The daemon that is to have it, if that is known."""
    export_id: str
    """Of a pin: 16 hex digits that no other one has."""
    now_ms: int
    """Wall clock."""


def detach(core: Core, place: Callable[[], Place], pinned: Callable[[str], Fs], asked: Detach) -> Steps:
    """Offer a topic in a place; returns its `MoveBody`. `place` opens the place (it may block), `pinned` gives the
    files of a pin, those of the cold tier included."""
    name, handover = asked.topic, core.handover
    move = handover.seal(name, asked.to, asked.url)
    if move.state is MoveState.LEAVING:
        try:
            yield from _export(core, place, pinned, asked, move)
            move = yield handover.offer(name, move.token)
        except FAILURES:
            handover.unseal(name, move.token)
            raise
        except GeneratorExit:
            handover.unseal(name, move.token)
            raise
    yield Work("offer", lambda: put_offer(place(), name, move, core.store.store_id))
    found: MoveBody = yield from look(core, place, name)
    return found


def _export(
    core: Core, place: Callable[[], Place], pinned: Callable[[str], Fs], asked: Detach, move: MoveBody
) -> Steps:
    there = yield Work("look", lambda: read_offer(place(), asked.topic, move.token))
    if there is not None:
        raise Refused(
            Code.TOPIC_MOVED,
            f"{asked.to} holds an offer of topic {asked.topic!r} that this store has forgotten: was it restored from "
            "an older copy? Attach the topic from there, or drop it here",
            {"topic": asked.topic, "to": asked.to, "place": asked.to, "state": "forgotten"},
        )
    yield core.handover.settle(asked.topic)
    yield core.checkpoint()
    yield core.keeper.aside(PinJob(asked.export_id, core.store.store_id, asked.now_ms, frozenset({asked.topic}), None))
    try:
        yield Work("export", lambda: export_topic(pinned(asked.export_id), place(), asked.topic, move.token))
    finally:
        core.keeper.aside(UnpinJob([asked.export_id]))


def look(core: Core, place: Callable[[], Place], name: str) -> Steps:
    """See whether somebody has taken what was offered, and note it; returns the `MoveBody`, None for a topic that is
    here."""
    move = core.handover.move_of(name)
    if move is None or move.state is not MoveState.OFFERED:
        return move
    taken: Taken | None = yield Work("look", lambda: read_taken(place(), name, move.token))
    if taken is None:
        return move
    if taken.by == core.store.store_id.hex():
        yield core.handover.keep(name, move.token)
        return None
    found: MoveBody = yield core.handover.taken(name, move.token, taken.url)
    return found


def cancel(core: Core, place: Callable[[], Place], name: str, now_ms: int) -> Steps:
    """Take an offer back. Raises the 409 when another store has the topic."""
    move = core.handover.move_of(name)
    if move is None:
        return None
    if move.state is not MoveState.OFFERED:
        raise elsewhere(name, move)
    taken: Taken = yield Work("take back", lambda: take(place(), name, move.token, core.store.store_id, now_ms))
    if taken.by == core.store.store_id.hex():
        yield core.handover.keep(name, move.token)
        return None
    raise elsewhere(name, (yield core.handover.taken(name, move.token, taken.url)))


class Attach(NamedTuple):
    """What is asked of an attach."""

    topic: str
    token: str | None
    """Which offer of it; None: the one that nobody has taken."""
    url: str | None
    """Where this daemon is, for those who still ask the other one."""


def attach(core: Core, place: Callable[[], Place], fs: Fs, clock: Clock, asked: Attach) -> Steps:
    """Take a topic over; returns its `TopicPut`. One that was taken over already is answered as it is."""
    name, mine = asked.topic, core.store.store_id.hex()
    found: list[Offered] = yield Work("look", lambda: find_offers(place(), name, asked.token))
    offer = _choose(core, found, asked)
    there = core.catalog.visible.get(name)
    if offer.token in core.catalog.attached and there is not None and not there.dropped:
        return TopicPut(topic=name, created=False, config=there.topic.config, epoch=there.topic.epoch)
    topic_id = core.handover.expect(name, offer.token)
    arrival: Arrival | None = None
    try:
        source = yield Work("look", place)
        arrival = Arrival(source, offer, topic_id, core.store.store_id, clock, EngineSettings())
        yield Work("copy", partial(arrival.run, fs))
        yield Work("look", lambda: _check_free(place(), offer, mine))
        taken: Taken = yield Work(
            "take", lambda: take(place(), name, offer.token, core.store.store_id, clock.wall_ms(), asked.url)
        )
        if taken.by != mine:
            raise _gone(offer, taken)
    except (*FAILURES, GeneratorExit):
        core.handover.give_up(name)
        if arrival is not None and arrival.body is not None:
            arrival.undo(fs)
        raise
    assert arrival.body is not None, "what was copied has a body"
    try:
        answer: TopicPut = yield core.handover.attach(arrival.body)
    except (*FAILURES, GeneratorExit):
        core.handover.give_up(name)  # its files may be named by the log: a start knows
        raise
    return answer


def _choose(core: Core, found: list[Offered], asked: Attach) -> Offer:
    """The offer that is meant. Raises what speaks against each."""
    mine = core.store.store_id.hex()
    ours = [one.offer for one in found if one.taken is not None and one.taken.by == mine != one.offer.from_store]
    free = [one.offer for one in found if one.taken is None]
    if len(free) > 1 or (not free and len(ours) > 1):
        tokens = [offer.token for offer in (free or ours)]
        raise Refused(
            Code.TOPIC_EXISTS_INCOMPATIBLE,
            f"topic {asked.topic!r} is offered more than once; say which: {', '.join(tokens)}",
            {"topic": asked.topic, "reason": "ambiguous", "tokens": tokens},
        )
    if free or ours:
        return (free or ours)[0]
    if not found:
        raise Refused(
            Code.NOT_FOUND, f"topic {asked.topic!r} is not offered there; detach it first", {"topic": asked.topic}
        )
    last = found[-1]
    assert last.taken is not None, "what nobody has taken is free"
    raise _gone(last.offer, last.taken)


def _check_free(place: Place, offer: Offer, mine: str) -> None:
    """Do not even try to take what is gone."""
    taken = read_taken(place, offer.topic, offer.token)
    if taken is not None and taken.by != mine:
        raise _gone(offer, taken)


def _gone(offer: Offer, taken: Taken) -> Refused:
    back = taken.by == offer.from_store
    who = "the daemon that offered it has taken it back" if back else f"another one has it: {taken.url or taken.by}"
    detail: dict[str, Any] = {"topic": offer.topic, "to": taken.url or taken.by, "token": offer.token}
    return Refused(Code.TOPIC_MOVED, f"topic {offer.topic!r} cannot be attached: {who}", detail)
