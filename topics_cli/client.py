"""Requests to the daemon, with patience.

A lost connection, 429 and 503 are tried again with jittered backoff, for up to `--retry-for` since the last good
answer. Every request that is sent here may safely be sent twice: reads are, deletes and drops are, and writes carry an
idempotency key. Where nobody takes a connection there is nothing to wait for, unless one had answered before or
`--retry-for` was given.

`Call` is one request on its way, to be stepped beside other work; `Client.call` waits for one.

Whoever answers may be anything, and our answers are taken apart without a look at each member first. So an answer that
cannot be JSON of ours is refused as it comes (`Call`), and whatever goes wrong while one is taken apart is the fault of
who gave it (`Understood`): `BadAnswer`, either way.
"""

from __future__ import annotations

import errno
import os
import time

from topics_cli import exits
from topics_cli.exits import ApiError, BadAnswer, Failure, NoDaemon
from topics_cli.where import is_socket
from topics_cli.wire import Answer, Channel, Lost

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from topics_cli.signals import Stop
    from topics_cli.talk import Talk
    from topics_cli.where import Where

RETRY_FOR_MS = 30_000
"""How long a failing daemon is waited for, unless `--retry-for` says otherwise."""
ANSWER_S_MAX = 60.0
"""An answer that takes longer than this (beyond what was asked to wait) counts as a lost connection."""
BACKOFF_S_MIN = 0.05
BACKOFF_S_MAX = 2.0
"""Longest pause before a busy daemon (429, 503) is asked again, unless it names one."""
RECONNECT_S_MAX = 0.25
"""Longest pause before a lost connection is tried again: trying costs nothing, and the daemon may be back."""
PATIENCE_S = 1.0
"""Waiting longer than this is shown on a terminal."""
TICK_S = 0.25
CONNECT_S_MAX = 10.0
LAST_WORD_S = 2.0
"""How long after a signal the answer to the last thing that is to be saved is waited for."""

NDJSON = "application/x-ndjson"
JSON = "application/json"


class Request:
    """A request, ready to be sent as often as needed."""

    __slots__ = ("body", "head", "lingers_s")

    def __init__(self, head: bytes, body: bytes, lingers_s: float) -> None:
        self.head = head
        self.body = body
        self.lingers_s = lingers_s
        """How long the daemon was asked to wait (a long poll): not a reason for worry."""


class Call:
    """One request on its way, through as many connections as it takes."""

    __slots__ = (
        "_tries",
        "_until",
        "begun",
        "channel",
        "client",
        "failed_at",
        "failing_since",
        "held_by",
        "request",
        "resume_at",
    )

    def __init__(self, client: Client, channel: Channel, request: Request) -> None:
        self.client = client
        self.channel = channel
        self.request = request
        self.begun = time.monotonic()
        self.failing_since = 0.0
        """When the present row of failures began; 0 while all is well."""
        self.failed_at = 0.0
        """When the last one was."""
        self.held_by = ""
        """What we wait for, for people."""
        self.resume_at = 0.0
        """When to try again; 0 while a request is in flight."""
        self._tries = 0
        self._until = 0.0
        self._send()

    @property
    def in_flight(self) -> bool:
        """Whether the request is on a connection now (not waiting to be tried again)."""
        return not self.resume_at

    @property
    def watch(self) -> list[tuple[int, int]]:
        """What to wait for before the next step."""
        return [] if self.resume_at else self.channel.watch

    @property
    def timeout_s(self) -> float:
        """How long to wait at most before the next step."""
        return max(0.0, (self.resume_at or self._until) - time.monotonic())

    def step(self) -> Answer | None:
        """Move on; the answer once it is there. Raises `Failure` when it cannot or may not be tried again."""
        if self.resume_at:
            if time.monotonic() < self.resume_at:
                return None
            self.resume_at = 0.0
            self._send()
            if self.resume_at:
                return None
        try:
            answer = self.channel.step()
        except Lost as lost:
            if self.channel.reused:
                # The daemon had closed the kept connection, for instance because it was idle: that is no failure yet.
                self.channel.reused = False
                self._send()
            else:
                self._lost(lost, met=self.channel.met)
            return None
        if answer is None:
            if time.monotonic() > self._until:
                self.channel.close()
                self._lost(Lost("the daemon does not answer"))
            return None
        if answer.status in (429, 503):
            self._refused(answer)
            return None
        self.client.answered()
        if answer.status >= 400:
            raise api_error(answer)
        self._check(answer.body)
        return answer

    def _check(self, body: bytes) -> None:
        """Refuse what is no answer of a daemon, as far as that costs nothing: all are objects, and hold no raw ESC."""
        if not body.startswith(b"{") or b"\x1b" in body:
            raise BadAnswer("not JSON" if body else "an empty body", self.client.where.label)

    def _send(self) -> None:
        linger = ANSWER_S_MAX + self.request.lingers_s if self.client.was_answered else CONNECT_S_MAX + ANSWER_S_MAX
        self._until = time.monotonic() + linger
        try:
            self.channel.start(self.request.head, self.request.body)
        except Lost as lost:
            self._lost(lost)

    def _lost(self, lost: Lost, *, met: bool = False) -> None:
        """Plan the next try. `met`: somebody had taken the connection, and perhaps the request."""
        client = self.client
        if lost.errno in (errno.EACCES, errno.EPERM):
            raise Failure(
                f"not allowed to use {client.where.label}",
                "not_allowed",
                "the mode of the socket and of its directory decide who may connect",
                exits.NOT_ALLOWED,
            ) from lost
        failure = client.no_daemon(lost)
        self.held_by = f"no daemon at {client.where.label} ({lost.why})"
        if not (met or client.was_answered) and client.retry_for_ms is None:
            raise failure from lost
        self._try_again(failure, 0.0, RECONNECT_S_MAX)

    def _refused(self, answer: Answer) -> None:
        failure = api_error(answer)
        failure.exit_code = exits.TRY_AGAIN
        self.held_by = f"{failure.code}: {failure.what}"
        self.client.was_answered = True
        wait = answer.headers.get(b"retry-after", b"")
        self._try_again(failure, float(wait) if wait.isdigit() else 0.0, BACKOFF_S_MAX)

    def _try_again(self, failure: Failure, at_least_s: float, at_most_s: float) -> None:
        """Plan the next try, or raise `failure` when patience is over."""
        now = time.monotonic()
        self.failing_since, self.failed_at = self.failing_since or now, now
        retry_for_ms = self.client.retry_for_ms
        over = self.failing_since + (RETRY_FOR_MS if retry_for_ms is None else retry_for_ms) / 1000
        if now >= over:
            raise failure
        pause = min(BACKOFF_S_MIN * 2**self._tries, at_most_s) * (0.5 + os.urandom(1)[0] / 255)
        self._tries = min(self._tries + 1, 10)
        self.resume_at = min(now + max(pause, at_least_s), over)


class Client:
    """The way to one daemon."""

    __slots__ = (
        "_authority",
        "_back_at",
        "_channel",
        "_key",
        "_was_told",
        "retry_for_ms",
        "stop",
        "talk",
        "was_answered",
        "where",
    )

    def __init__(self, where: Where, key: str, retry_for_ms: int | None, stop: Stop, talk: Talk) -> None:
        self.where = where
        self.retry_for_ms = retry_for_ms
        """Patience as given, None when it was not."""
        self.stop = stop
        self.talk = talk
        self.was_answered = False
        self._was_told = False
        """Whether it was said that we try again, and not yet that we need not any more."""
        self._back_at = 0.0
        """When that was said last: calls that were failing then have their patience anew."""
        self._key = key
        self._authority = "localhost" if where.path else where.label.removeprefix("http://")
        self._channel = Channel(where)

    def twin(self, stop: Stop) -> Client:
        """The same way for another process, with connections and an ear for signals of its own."""
        return Client(self.where, self._key, self.retry_for_ms, stop, self.talk)

    def elsewhere(self, where: Where, retry_for_ms: int, *, with_key: bool) -> Client:
        """The way to another daemon, for what has moved there."""
        return Client(where, self._key if with_key else "", retry_for_ms, self.stop, self.talk)

    def request(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
        headers: str = "",
        lingers_s: float = 0.0,
    ) -> Request:
        """Make a request; `target` is already percent-encoded, `headers` are whole lines."""
        head = f"{method} {target} HTTP/1.1\r\nHost: {self._authority}\r\nAccept: {accept}\r\n{headers}"
        if self._key:
            head += f"Authorization: Bearer {self._key}\r\n"
        if body is not None:
            head += f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        return Request((head + "\r\n").encode("latin-1"), body or b"", lingers_s)

    def open(self, request: Request, channel: Channel | None = None) -> Call:
        """Send a request on its way, on a connection of its own or on the client's."""
        return Call(self, channel or self._channel, request)

    def channel(self) -> Channel:
        """A further connection."""
        return Channel(self.where)

    def call(self, request: Request, through_signals: bool = False) -> Answer:
        """Send a request and wait for its answer; a signal ends the wait, unless it is for what is to be saved then."""
        call = self.open(request, self.channel() if through_signals else None)
        over = time.monotonic() + LAST_WORD_S
        try:
            while True:
                answer = call.step()
                if answer is not None:
                    return answer
                if not through_signals or time.monotonic() > over:
                    self.stop.check()
                self.stop.wait(call.watch, min(call.timeout_s, TICK_S) if self.talk.is_live else call.timeout_s)
                self.show_wait(call)
        finally:
            self.talk.clear()

    def get(self, target: str) -> Answer:
        """GET `target`."""
        return self.call(self.request("GET", target))

    def answered(self) -> None:
        """Take note that the daemon does what it is asked to, and say so where it was said that it did not."""
        self.was_answered = True
        if self._was_told:
            self._was_told = False
            self._back_at = time.monotonic()
            self.talk.note(f"topics: {self.where.label} answers again")

    def show_wait(self, call: Call) -> None:
        """Say what is waited for once it has taken a second: redrawn on a terminal, once elsewhere."""
        now = time.monotonic()
        if not self.talk.is_live:
            teller = call.client
            # A try that failed before the daemon was back says nothing of it now.
            is_news = not teller._was_told and call.failed_at > teller._back_at
            if is_news and call.failing_since and now - max(call.failing_since, teller._back_at) > PATIENCE_S:
                teller._was_told = True
                self.talk.note(f"topics: {call.held_by}; trying again")
            return
        since = call.failing_since or call.begun + call.request.lingers_s
        if now - since > PATIENCE_S:
            self.talk.progress(
                f"waiting {now - since:.0f} s: {call.held_by or f'no answer yet from {self.where.label}'}"
            )

    def no_daemon(self, lost: Lost) -> NoDaemon:
        """The failure that says who is not there, and what may be done."""
        label = self.where.label
        if self.was_answered:
            return NoDaemon(f"the daemon at {label} is gone: {lost.why}", "wait longer with --retry-for 5m")
        start = "start it: topics serve; or say where it is: --socket PATH, --url URL"
        if self.where.path and lost.errno == errno.ECONNREFUSED:
            left = "the socket file was left by one that is dead"
            return NoDaemon(f"no daemon at {label}: {left if is_socket(self.where.path) else 'it is no socket'}", start)
        if self.where.path and lost.errno == errno.ENOENT:
            return NoDaemon(f"no daemon at {label}: there is no socket", start)
        return NoDaemon(f"no daemon at {label} ({self.where.why}): {lost.why}", start)


_MISREADINGS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What Python raises where a value is not what it was taken for."""


class Understood:
    """Around what takes answers of a daemon apart: that one is not what was asked for is a failure like any other.

    Before anything was answered, such an error is our own. Afterwards it may be, too: so its place is said.
    """

    __slots__ = ("_maybe_client",)

    def __init__(self, maybe_client: Callable[[], Client | None]) -> None:
        self._maybe_client = maybe_client

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        client = self._maybe_client()
        if client is None or not client.was_answered:
            return
        if isinstance(error, BadAnswer) and not error.label:
            raise BadAnswer(error.why, client.where.label) from error
        if isinstance(error, _MISREADINGS) and not _is_of_an_argument(error):
            raise BadAnswer(_misread(error, trace), client.where.label) from error


def _is_of_an_argument(error: BaseException) -> bool:
    """Whether bytes of the command line that are no text were to be text."""
    return isinstance(error, UnicodeEncodeError) and "\udc80" <= error.object[error.start] <= "\udcff"


def _misread(error: BaseException, trace: TracebackType | None) -> str:
    """What was wrong with an answer, in words of ours."""
    name = type(error).__name__
    if name in ("JSONDecodeError", "NotJson", "UnicodeDecodeError"):
        return "not JSON"
    place = ""
    while trace is not None:
        frame = trace.tb_frame
        if str(frame.f_globals.get("__name__")).startswith("topics_cli"):
            place = f" in {frame.f_globals['__name__']}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"JSON of another shape ({name}{place})"


_EXITS = {401: exits.NOT_ALLOWED, 403: exits.NOT_ALLOWED, 429: exits.TRY_AGAIN, 503: exits.TRY_AGAIN}
_CODE_HINTS = {
    "topic_full": "raise its caps (topics set), delete records, or let it evict: topics set T discard=old",
    "disk_full": "free space on the daemon's disk; reading and deleting still work, writing resumes by itself",
    "topic_exists_incompatible": "take another name, or drop what has this one",
    "topic_moved": "say where it is now: --url or --socket of that daemon",
    "router_cycle": "with --allow-cycle each record goes round once",
    "not_a_queue": "a queue is made by: topics create NAME --type queue",
    "topic_not_empty": "delete its records first, or leave --if-empty out",
}
_HINTS = {
    401: "give a key: --key-file FILE, TOPICS_KEY or TOPICS_KEY_FILE",
    403: "use a key that has the scope and the prefix",
    429: "try again later, or wait longer with --retry-for 5m",
    503: "try again later, or wait longer with --retry-for 5m",
}


def api_error(answer: Answer) -> ApiError:
    """The failure that an answer from 400 up stands for."""
    import json

    code, message, seqs = f"http_{answer.status}", f"the daemon answered {answer.status}", ""
    try:
        error = json.loads(answer.body)["error"]
        code, message = str(error["code"]), str(error["message"])
        if code == "not_found":
            earliest, head = error["detail"]["earliest_seq"], error["detail"]["head_seq"]
            holds = f"the topic holds seqs {earliest} to {head}"
            seqs = holds if earliest <= head else f"the topic holds nothing; the next seq is {head + 1}"
    except (ValueError, LookupError, TypeError, RecursionError):
        pass
    exit_code = _EXITS.get(answer.status, exits.FAILED)
    hint = seqs or _CODE_HINTS.get(code) or _HINTS.get(answer.status, "")
    return ApiError(answer.status, code, message, answer.body, hint, exit_code)


def quote(text: str) -> str:
    """Percent-encode one part of a path or a query."""
    if text.isascii() and text.isalnum():
        return text
    return "".join(
        chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in text.encode("utf-8", "surrogateescape")
    )


_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~:")


def topic_path(topic: str) -> str:
    """The path of a topic."""
    return "/v0/topics/" + quote(topic)
