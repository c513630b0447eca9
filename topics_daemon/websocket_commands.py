"""The commands of a WebSocket: what a message asks for, run and answered (http-api.md §8).

`publish`, `claim`, `ack`, `nack` and `extend` are the requests of the same names over HTTP: each is given to the very
handler of its route, as a request whose body is the message without `op`, `topic` and `request_id`, and the JSON that
this answers becomes the reply. So nothing is read, checked, bounded or answered in two ways. A publish in which nothing
is unknown is decoded in one go, by the structs of a write with these three members beside them.

Commands are taken in the order in which they come. Those that write are handed to the engine at once, one behind the
other; any other waits until those before it are answered, so that it sees what they did. Replies leave as they are
there, and `request_id` says what they are for.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw

from engine.core.catching import PATIENCE_MS, Behind, CatchUp
from engine.errors import Code, Refused, TopicsError, invalid
from engine.names import check_topic_name
from engine.routers.graph import ancestors
from topics_daemon.answers import error_shown, warnings_tail
from topics_daemon.body import payload_too_large
from topics_daemon.decode import check_names, decode, read_members, read_publish, write_of
from topics_daemon.exchange import Exchange, Outlet, Streaming, run
from topics_daemon.head import Content, Head
from topics_daemon.keys import Scope
from topics_daemon.routes.asked import NODES_MAX
from topics_daemon.routes.watch import PlaceIn, read_places, read_shape
from topics_daemon.routes.write import submit
from topics_daemon.sessions import Session
from topics_daemon.websocket_frames import reply, said
from topics_daemon.websocket_reading import (
    LENIENT_SUBSCRIBE,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Subscription,
    named_places,
)
from topics_daemon.websocket_work import SocketWork, read_work
from topics_daemon.work import WORKER
from topics_daemon.write_in import PublishIn

if TYPE_CHECKING:
    from engine.types import PageRequest
    from topics_daemon.daemon import Daemon
    from topics_daemon.exchange import Requester
    from topics_daemon.routes.table import Handler, Route
    from topics_daemon.websocket import Socket

REQUEST_ID_BYTES_MAX: Final = 256
"""A `request_id` is any JSON value of at most this size; it comes back as it came."""
LIMIT_DEFAULT: Final = 1000
"""Records of one message."""
_NULL: Final = b"null"
HEADS_MAX: Final = 256
"""Pairs of command and topic whose head is remembered."""


class Op(msgspec.Struct, frozen=True):
    """A command that is a request of HTTP as well."""

    name: str
    reply: bytes
    """The `op` of its answer."""
    path: tuple[str, ...]
    writes: bool = True


OPS: Final[dict[str, Op]] = {
    op.name: op
    for op in (
        Op("publish", b"ack", ("v0", "topics", ":topic")),
        Op("claim", b"claimed", ("v0", "topics", ":topic", "claim"), writes=False),
        Op("ack", b"acked", ("v0", "topics", ":topic", "ack")),
        Op("nack", b"nacked", ("v0", "topics", ":topic", "nack")),
        Op("extend", b"extended", ("v0", "topics", ":topic", "extend")),
    )
}
PUBLISH: Final = OPS["publish"]
OWN_OPS: Final = ("subscribe", "unsubscribe", "ping")


class Command:
    """One command on its way: the requester of its exchanges."""

    __slots__ = ("_socket", "daemon", "fast", "held", "only_pipelined", "op", "pending", "request_id")

    def __init__(self, socket: Socket, op: Op, request_id: bytes) -> None:
        self._socket = socket
        self.daemon: Daemon = socket.daemon
        self.op = op
        self.request_id = request_id
        """The member of the reply that says what it is for, comma last; empty when none was given."""
        self.held = ""
        """The topic whose records must not be delivered to this socket before the answer, or ""."""
        self.pending: deque[Exchange] = deque()
        self.fast = self.only_pipelined = False

    def waited_s(self) -> float:
        """How long its message has waited in what the socket had sent."""
        return self._socket.waited_s()

    def settle(self) -> None:
        """Send the answer."""
        # The one before it may be a wait for a read, which has left the answer to this one.
        exchange = next(exchange for exchange in self.pending if exchange.answer)
        self.pending.remove(exchange)
        answer = exchange.answer
        assert answer is not None
        self._socket.replied(self, reply(self.op.reply, self.request_id, answer))

    @property
    def in_line(self) -> bool:
        """Whether it is still being read while others come first: no other one is taken before that is over."""
        return bool(self.pending) and self.pending[-1].in_line

    def over(self) -> None:
        """It is answered."""
        self._socket.commands.over(self)

    def descriptor(self) -> int:
        return -1 if self._socket.ended else self._socket.connection.descriptor()

    def become_stream(self, stream: Streaming) -> None:
        raise AssertionError("no command of a socket is answered by a stream")

    def write(self, data: bytes) -> None:
        raise AssertionError("no command of a socket is answered by a stream")

    @property
    def transport(self) -> Outlet:
        raise AssertionError("no command of a socket is answered by a stream")

    def unsent(self) -> int:
        return self._socket.connection.unsent()

    def end(self) -> None:
        raise AssertionError("no command of a socket is answered by a stream")

    def cut(self) -> None:
        self._socket.connection.cut()


class Commands:
    """The commands and subscriptions of one socket."""

    __slots__ = (
        *("_catching", "_heads", "_held_back", "_paused", "_routes", "_running", "_socket", "_subscriptions", "_works"),
        *("held", "writing"),
    )

    def __init__(self, socket: Socket) -> None:
        from topics_daemon.routes.table import ROUTES  # which itself knows the route that makes sockets

        self._socket = socket
        self._routes: dict[str, Route] = {name: ROUTES[op.path]["POST"] for name, op in OPS.items()}
        self._heads: dict[tuple[str, str], Head] = {}
        self._running: dict[Command, None] = {}
        self.writing = 0
        """How many of them write."""
        self._subscriptions: dict[str, Subscription] = {}
        """By topic; several topics may share one."""
        self._works: dict[str, SocketWork] = {}
        """By queue: whose jobs are leased to this socket."""
        self._paused = False
        self._catching: CatchUp | None = None
        """The copies that a `subscribe`, the next message to be taken, waits for."""
        self.held: dict[str, int] = {}
        """Topics whose records wait for an answer, and for how many."""
        self._held_back: dict[str, None] = {}
        """Topics that are followed here and wait for that: these ones, and those that they are copied into."""

    def __len__(self) -> int:
        return len(self._running)

    def refusal(self) -> TopicsError | None:
        """Why its caller may not follow its topics, or work, any longer."""
        caller = self._socket.caller
        return (caller.lacks(WORKER) if self._works else None) or caller.refusal([*self._subscriptions, *self._works])

    @property
    def lag(self) -> bool:
        """Whether a subscription has something that it could not send yet."""
        return any(one.lags for one in self._followed())

    def take(self, message: bytes) -> bool:
        """Run the command of a message; False when it has to wait for those before it."""
        if self.writing and next(reversed(self._running)).in_line:
            return False
        socket = self._socket
        request_id = b""
        try:
            publish = read_publish(message, socket.daemon.limits.batch_records)
            if publish is not None:
                request_id = _request_id(publish.request_id or None)
                self._publish(request_id, publish)
                return True
            is_large = len(message) > socket.daemon.limits.command_bytes
            if is_large and b'"publish"' not in message:
                raise payload_too_large(socket.daemon.limits.command_bytes)
            members = read_members(message)
            name = _text(members.pop("op", None), "op")
            op = OPS.get(name)
            if is_large and op is not PUBLISH:
                raise payload_too_large(socket.daemon.limits.command_bytes)
            if self.writing and (op is None or not op.writes):
                return False
            request_id = _request_id(members.pop("request_id", None))
            if op is not None:
                self._run(op, request_id, members)
            elif name == "ping":
                unknown: list[str] = []
                check_names(members, frozenset(), unknown)
                pong = (request_id, socket.daemon.engine.now(), warnings_tail(unknown))
                socket.send(b'{"op":"pong",%b"ts":%d%b}' % pong)
            elif name == "subscribe" and bytes(members.get("work", _NULL)) != _NULL:
                self._work(request_id, members)
            elif name == "subscribe":
                members.pop("work", None)
                return self._subscribe(request_id, members)
            elif name == "unsubscribe":
                self._unsubscribe(request_id, members)
            else:
                raise invalid(f"op must be one of: {', '.join((*OPS, *OWN_OPS))}", "op")
        except TopicsError as error:
            socket.daemon.metrics.refused(error)
            socket.send(said(b"error", request_id, error_shown(error)))
        except Exception as error:  # noqa: BLE001  # a bug costs one command; logged under an id, which the client gets
            shown = error_shown(socket.daemon.internal_error(error))
            socket.send(said(b"error", request_id, shown))
        return True

    # -- requests of HTTP ------------------------------------------------------------------------------------------

    def _run(self, op: Op, request_id: bytes, members: dict[str, Raw]) -> None:
        """Give a command to the handler of its route."""
        self._socket.caller.require(self._routes[op.name].scope)
        topic = _text(members.pop("topic", None), "topic")
        held = op is PUBLISH and "ack" in members
        self._start(op, request_id, topic, msgspec.json.encode(members), None, held)

    def _publish(self, request_id: bytes, read: PublishIn) -> None:
        """The same for a publish that was read in one go."""
        self._socket.caller.require(self._routes[PUBLISH.name].scope)

        def handler(daemon: Daemon, asking: Requester, head: Head, _body: bytes, started_ns: int) -> bytes | None:
            pressed = daemon.pressure.refusal(asking.waited_s()) if daemon.governor.refusing else None
            return submit(daemon, asking, head, write_of(read, daemon.limits), started_ns, pressed)

        self._start(PUBLISH, request_id, read.topic, b"", handler, read.ack is not None)

    def _start(
        self, op: Op, request_id: bytes, topic: str, body: bytes, handler: Handler | None, is_held: bool
    ) -> None:
        """Run a command of a topic. `is_held`: its records are there before its answer, which waits for a sync."""
        socket = self._socket
        started_ns = time.perf_counter_ns()
        head = self._heads.get((op.name, topic)) or self._head(op, check_topic_name(topic))
        socket.caller.check(topic)
        command = Command(socket, op, request_id)
        self._running[command] = None
        self.writing += op.writes
        if is_held:
            command.held = topic
            self.held[topic] = self.held.get(topic, 0) + 1
            for name, subscription in self._subscriptions.items():
                if self.holds_back(name):
                    subscription.steady = None
        answer = run(socket.daemon, command, head, body, started_ns, handler)
        if answer is not None:
            socket.replied(command, reply(op.reply, request_id, answer))

    def _head(self, op: Op, topic: str) -> Head:
        """The head of such a request, remembered for the next one."""
        if len(self._heads) >= HEADS_MAX:
            del self._heads[next(iter(self._heads))]
        head = self._heads[(op.name, topic)] = Head()
        head.method, head.content = "POST", Content.JSON
        head.name, head.name_bytes = topic, topic.encode("ascii")
        head.route, head.caller = self._routes[op.name], self._socket.caller
        head.tally = self._socket.daemon.metrics.tally(head.route)
        return head

    def over(self, command: Command) -> None:
        """A command is answered: what waited for that may go on."""
        if self._running.pop(command, self) is self:
            return
        self.writing -= command.op.writes
        if command.held:
            self.held[command.held] -= 1
            if not self.held[command.held]:
                del self.held[command.held]
                names, self._held_back = self._held_back, {}
                for name in names:
                    if name in self._subscriptions:
                        self._subscriptions[name].note(name)

    def holds_back(self, name: str) -> bool:
        """Whether records of a topic wait for the answer to the command that caused them, as copies of them do."""
        if not self.held or not (name in self.held or any(source in self.held for source in self._sources(name))):
            return False
        self._held_back[name] = None
        return True

    def _sources(self, name: str) -> list[str]:
        """The topics that are copied into one."""
        catalog = self._socket.daemon.engine.catalog
        slot = catalog.visible.get(name) if catalog.routers.by_name else None
        chain = [] if slot is None else ancestors(slot.topic.id, catalog.routers.source_of)
        return [catalog.by_id[source].topic.name for source in chain if source in catalog.by_id]

    # -- subscriptions ---------------------------------------------------------------------------------------------

    def _subscribe(self, request_id: bytes, members: dict[str, Raw]) -> bool:
        """Follow topics; one that is followed already is followed anew, from where and as this says. False when it has
        to wait for copies, as the request that makes a watch does."""
        socket = self._socket
        daemon = socket.daemon
        socket.caller.require(Scope.READ)
        warnings: list[str] = []
        alone = named_places(members)
        read = decode(
            SUBSCRIBE,
            msgspec.json.encode(members),
            daemon.limits,
            warnings,
            lenient=LENIENT_SUBSCRIBE,
            part_fields=PlaceIn.__struct_fields__,
        )
        read.limit = read.limit or LIMIT_DEFAULT
        shape = read_shape(read, daemon.limits)
        self._check_room(read.topics)
        self._check_nodes(shape)
        if self._lacks_copies(filter(socket.caller.allows, read.topics)):
            return False
        places, shown = read_places(daemon, socket.caller, read.topics, read.lenient, warnings)
        answer: dict[str, object] = {"topics": shown}
        if alone:
            answer = {"topic": alone, **shown.get(alone, {}), **answer}
        if warnings:
            answer["warnings"] = warnings
        self._leave(places)
        socket.send(said(b"subscribed", request_id, answer))
        if not places:
            return True
        self._admit()
        session = Session("", socket.caller, places, shape, daemon.sessions.shape_id(shape), socket.heartbeat_s, 0.0)
        subscription = Subscription(daemon.pump, session, socket)
        subscription.paused = self._paused
        self._subscriptions.update(dict.fromkeys(places, subscription))
        daemon.sessions.subscribed += len(places)
        daemon.pump.follow(subscription)
        return True

    def _lacks_copies(self, names: Iterable[str]) -> bool:
        """Whether the sources of topics have acked what is not in these yet; waited for it is once, and for a while."""
        socket, job = self._socket, self._catching
        if job is None:
            try:
                socket.daemon.drain(*names)
            except Behind as lack:
                job = self._catching = lack.job
                job.ticket.on_done = lambda _: socket.look_again()
                socket.daemon.loop.call_later(PATIENCE_MS / 1000, job.ticket.complete, True)
                socket.daemon.wake()
            return job is not None
        if job.ticket.done:
            self._catching = None
        return not job.ticket.done

    def _work(self, request_id: bytes, members: dict[str, Raw]) -> None:
        """Have jobs of a queue leased to this socket; a topic that is followed already is followed anew."""
        socket = self._socket
        socket.caller.require(WORKER)
        warnings: list[str] = []
        name, claim = read_work(members, socket.daemon.limits, warnings)
        places = {name: PlaceIn(tail=True)}
        socket.caller.check(name)
        socket.daemon.engine.queues.find(name)
        self._check_room(places)
        _, shown = read_places(socket.daemon, socket.caller, places, False, warnings)
        answer: dict[str, object] = {"topic": name, **shown[name], "topics": shown}
        if warnings:
            answer["warnings"] = warnings
        self._leave(places)
        work = SocketWork(socket, name, claim)  # which asks for jobs from the next turn on
        socket.send(said(b"subscribed", request_id, answer))
        self._admit()
        self._works[name] = work
        socket.daemon.sessions.subscribed += 1
        if self._paused:
            work.pause()
        socket.daemon.wake()

    def _admit(self) -> None:
        """Count the socket as a stream from the first topic on that it follows."""
        if not self._subscriptions and not self._works:
            self._socket.daemon.pump.admit(self._socket)

    def _dismiss(self) -> None:
        self._socket.daemon.sessions.subscribed -= 1
        if not self._subscriptions and not self._works:
            self._socket.daemon.pump.dismiss(self._socket)

    def _check_room(self, names: Mapping[str, object]) -> None:
        """Raise the 429 of the caps: topics of one socket, and connections that are given what is new."""
        daemon = self._socket.daemon
        maximum: int = daemon.config["max_watch_topics"]
        followed = self._subscriptions.keys() | self._works.keys()
        wanted = len(followed | names.keys())
        if len(names) > maximum or wanted > maximum:
            raise Refused(
                Code.THROTTLED,
                "too many topics on one socket; open another",
                {"limit": "max_watch_topics", "max": maximum},
            )
        maximum = daemon.config["max_subscriptions"]
        left = maximum - daemon.sessions.subscribed - (wanted - len(followed))
        if maximum and len(followed) < wanted and wanted > max(left, 1):
            # As many as are left for others, so that nobody has them all; and one in any case.
            raise Refused(
                Code.THROTTLED,
                "too many topics are followed by all sockets together; follow fewer, or a watch session",
                {"limit": "max_subscriptions", "max": maximum},
            )
        if not followed:
            daemon.pump.check_room(self._socket.caller)

    def _check_nodes(self, shape: PageRequest) -> None:
        """Raise the 429 of the names that the subscriptions of one socket leave out, each other list counted once."""
        lists = {shape.nodes, *(one.session.shape.nodes for one in self._subscriptions.values())}
        if sum(map(len, lists)) > NODES_MAX:
            detail = {"limit": "watch_nodes", "max": NODES_MAX}
            raise Refused(Code.THROTTLED, "too many nodes are left out on one socket; open another", detail)

    def _unsubscribe(self, request_id: bytes, members: dict[str, Raw]) -> None:
        """Follow topics no longer; nothing of them follows the answer. What is not followed changes nothing."""
        warnings: list[str] = []
        read = decode(UNSUBSCRIBE, msgspec.json.encode(members), self._socket.daemon.limits, warnings)
        if (read.topic is None) == (read.topics is None):
            raise invalid("an unsubscribe needs one of topic, topics", "topic")
        names = [read.topic] if read.topic is not None else read.topics or []
        self._leave(names)
        answer: dict[str, object] = {"topics": names}
        if read.topic is not None:
            answer = {"topic": read.topic, **answer}
        if warnings:
            answer["warnings"] = warnings
        self._socket.send(said(b"unsubscribed", request_id, answer))

    def _leave(self, names: Iterable[str]) -> None:
        for name in names:
            subscription = self._subscriptions.get(name)
            if subscription is not None:
                subscription.leave(subscription.session.places[name])
            work = self._works.get(name)
            if work is not None:
                work.stop()

    def left(self, name: str, subscription: Subscription) -> None:
        """A subscription follows a topic no longer."""
        if self._subscriptions.get(name) is subscription:
            del self._subscriptions[name]
            self._dismiss()

    def worked(self, name: str, work: SocketWork) -> None:
        """No jobs of a queue are leased to this socket any more."""
        if self._works.get(name) is work:
            del self._works[name]
            self._dismiss()

    def _followed(self) -> list[Subscription | SocketWork]:
        return [*set(self._subscriptions.values()), *self._works.values()]

    def pause(self) -> None:
        """Deliver nothing more."""
        if not self._paused:
            self._paused = True
            for one in self._followed():
                one.pause()

    def resume(self) -> None:
        """Go on."""
        if self._paused:
            self._paused = False
            for one in self._followed():
                one.resume()

    def end(self) -> None:
        """The socket has ended: nobody waits for anything any more."""
        for one in self._followed():
            one.stop()
        for command in list(self._running):
            for exchange in list(command.pending):
                exchange.gone()


def _text(raw: Raw | None, name: str) -> str:
    try:
        return msgspec.json.decode(raw if raw is not None else b"", type=str)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise invalid(f"a command needs {name}, a string", name) from error


def _request_id(raw: Raw | None) -> bytes:
    if raw is None:
        return b""
    text = bytes(raw)
    if len(text) > REQUEST_ID_BYTES_MAX:
        raise invalid(f"request_id may hold {REQUEST_ID_BYTES_MAX} bytes", "request_id")
    return b'"request_id":%b,' % text
