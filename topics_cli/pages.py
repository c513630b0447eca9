"""Reading a topic page by page: one `Reader` a topic, one request ahead.

A page is asked for as NDJSON, so its records are lines as the daemon rendered them; with a framing other than lines it
is asked for as JSON, where a value keeps its raw line breaks. As soon as a page is there the next one is asked for, so
the daemon works while we print. When caught up, the same request becomes a long poll. Calls have their own patience
(`client`): a daemon that goes away and comes back is met again at the same seq, and `epoch` makes it say if the topic
is another one by then.
"""

from __future__ import annotations

from _json import encode_basestring

from topics_cli.client import JSON, NDJSON, Call, Client, Request, topic_path
from topics_cli.cut import number, seq_of, told
from topics_cli.exits import BadAnswer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Iterator
else:
    from _collections import deque  # the C half alone: `collections` is slow to import

PAGE_RECORDS = 1000
PAGE_BYTES = 8 << 20
AHEAD_MAX = 2
WAIT_MS = 30_000


class Wanted:
    """What is asked for, of every topic alike."""

    __slots__ = ("body", "exact")

    def __init__(
        self,
        *,
        tag: str | None = None,
        match: list[str] | None = None,
        nodes: list[str] | None = None,
        tags: bool = False,
        meta: bool = True,
        data: bool = True,
        exact: bool = False,
    ) -> None:
        self.exact = exact
        """Whether raw line breaks inside values matter."""
        parts = [f'"include_tags":{_bool(tags)}', f'"include_meta":{_bool(meta)}', f'"max_bytes":{PAGE_BYTES}']
        if not data:
            parts.append('"include_data":false')
        if match is not None:
            parts.append(f'"match":[{",".join(encode_basestring(word) for word in match)}]')
        elif tag is not None:
            parts.append(f'"match":{encode_basestring(tag)}')
        if nodes:
            parts.append(f'"node":[{",".join(encode_basestring(node) for node in nodes)}]')
        self.body = ",".join(parts)


def _bool(value: bool) -> str:
    return "true" if value else "false"


class Gap:
    """Records that were lost: a tombstone."""

    __slots__ = ("first", "last", "line", "reason")

    def __init__(self, line: bytes) -> None:
        self.line = line
        self.first = number(line, "gap_from") or 0
        self.last = number(line, "gap_to") or 0
        at = line.index(b'"reason":"') + 10
        self.reason = line[at : line.index(b'"', at)].decode()

    @property
    def resume_seq(self) -> int:
        """The seq behind which reading goes on: a topic that was made anew is read from its beginning."""
        return 0 if self.reason == "recreated" else self.last


class Page:
    """One page: its records as lines without line feed, and where it ends."""

    __slots__ = ("caught_up", "gap", "head_seq", "lines", "next_from_seq")

    def __init__(self, gap: Gap | None, lines: list[bytes], end: bytes) -> None:
        self.gap = gap
        self.lines = lines
        self.next_from_seq = told(end, "next_from_seq")
        self.head_seq = told(end, "head_seq")
        self.caught_up = self.next_from_seq >= self.head_seq


class Reader:
    """One topic, read in order."""

    __slots__ = (
        "_call",
        "_channel",
        "_client",
        "_limit",
        "_waits",
        "_wanted",
        "at_head",
        "end_seq",
        "epoch",
        "finished",
        "follow",
        "from_seq",
        "from_ts",
        "pages",
        "passed_seq",
        "topic",
    )

    def __init__(self, client: Client, topic: str, wanted: Wanted, from_seq: int, *, follow: bool) -> None:
        self._client = client
        self._wanted = wanted
        self._channel = client.channel()
        self._call: Call | None = None
        self._limit = PAGE_RECORDS
        self._waits = False
        self.topic = topic
        self.follow = follow
        self.from_seq = from_seq
        """Where the next request begins."""
        self.passed_seq = from_seq
        """Everything up to here was handed out and used: where to go on after an interruption."""
        self.from_ts: int | None = None
        self.epoch: int | None = None
        self.end_seq: int | None = None
        """The last seq that is wanted; without `follow` it is the head that was met first."""
        self.at_head = False
        """Whether nothing older than what will be written now can still come."""
        self.finished = False
        self.pages: deque[Page] = deque()

    @property
    def call(self) -> Call | None:
        """The request on its way."""
        return self._call

    def ask(self, limit: int) -> None:
        """Send the request for the next page, if one is wanted and none is on its way."""
        if self._call is not None or self.finished or len(self.pages) >= AHEAD_MAX or limit <= 0:
            return
        self._waits = self.follow and self.at_head
        self._limit = min(limit, PAGE_RECORDS)
        self._call = self._client.open(self._request(WAIT_MS if self._waits else 0), self._channel)

    def _request(self, wait_ms: int) -> Request:
        parts = [self._wanted.body, f'"from_seq":{self.from_seq},"limit":{self._limit}']
        if wait_ms:
            parts.append(f'"wait_ms":{wait_ms}')
        if self.from_ts is not None:
            parts.append(f'"from_ts":{self.from_ts}')
        if self.epoch is not None:
            parts.append(f'"epoch":{self.epoch}')
        if self.end_seq is not None:
            parts.append(f'"to_seq":{self.end_seq}')
        return self._client.request(
            "POST",
            topic_path(self.topic) + "/diff",
            ("{" + ",".join(parts) + "}").encode(),
            accept=JSON if self._wanted.exact else NDJSON,
            lingers_s=wait_ms / 1000,
        )

    def step(self) -> bool:
        """Move the request on; True when a page came."""
        if self._call is None:
            return False
        answer = self._call.step()
        if answer is None:
            if self._call.failing_since and self._waits:
                # The daemon went away. What was written meanwhile is asked for without waiting, so that it is known
                # soon whether there is any.
                self._waits = self.at_head = False
                self._call.request = self._request(0)
            return False
        self._call = None
        page, epoch = (read_json_page if self._wanted.exact else read_page)(answer.body)
        self.epoch = epoch
        self.from_ts = None
        self.from_seq = page.next_from_seq
        if not self.follow and self.end_seq is None:
            self.end_seq = page.head_seq
        if self.end_seq is not None and (page.next_from_seq >= self.end_seq or page.caught_up):
            self.finished = True
        self.at_head = page.caught_up or self.finished
        self.pages.append(page)
        return True

    def go_to(self, client: Client) -> None:
        """Ask another daemon from now on, for what comes behind what was read."""
        self.close()
        self._client, self._channel = client, client.channel()
        self._waits = self.at_head = False

    def close(self) -> None:
        """Let the connection go."""
        self._channel.close()
        self._call = None


def read_page(body: bytes) -> tuple[Page, int | None]:
    """An NDJSON answer as a page and its epoch."""
    start = body.rfind(b"\n", 0, len(body) - 1) + 1
    end = body[start:]
    if not end.startswith(b'{"$page":'):
        raise BadAnswer("a page without its $page line")
    lines = body[: start - 1].split(b"\n") if start else []
    gap = None
    if lines and lines[0].startswith(b'{"$tombstone":'):
        gap = Gap(lines.pop(0))
    return Page(gap, lines, end), number(end, "epoch")


def read_json_page(body: bytes) -> tuple[Page, int | None]:
    """A JSON answer as a page and its epoch."""
    from topics_cli.rawjson import elements, members

    fields = members(body.decode())
    gap = None
    if fields.get("tombstone", "null") != "null":
        gap = Gap(b'{"$tombstone":' + fields["tombstone"].encode() + b"}")
    lines = [record.encode() for record in elements(fields["records"])]
    end = f'{{"next_from_seq":{fields["next_from_seq"]},"head_seq":{fields["head_seq"]}}}'.encode()
    return Page(gap, lines, end), int(fields["epoch"])


def last_from_seq(client: Client, topic: str, wanted: Wanted, count: int, is_filtered: bool) -> tuple[int, int]:
    """After which seq the last `count` records begin, and the topic's epoch.

    Where seqs are dense that is arithmetic; else the topic is searched backwards, in growing windows.
    """
    state = client.get(topic_path(topic) + "?touch=false").body
    head, earliest = told(state, "head_seq"), told(state, "earliest_seq")
    epoch, live = told(state, "epoch"), told(state, "count")
    floor = earliest - 1
    if count == 0:
        return head, epoch
    if not is_filtered and live == head - floor:
        return max(head - count, floor), epoch
    found: list[int] = []
    high, window = head, count * 4
    while high > floor and len(found) < count:
        low = max(floor, high - window)
        found = (_seqs(client, topic, wanted, low, high) + found)[-count:]
        high, window = low, window * 8
    return (found[0] - 1 if found else head), epoch


def _seqs(client: Client, topic: str, wanted: Wanted, low: int, high: int) -> list[int]:
    """The seqs of the records in (low, high] that pass the filters."""
    return [seq_of(line) for line in lines_of(client, topic, wanted, low, high)]


def lines_of(client: Client, topic: str, wanted: Wanted, low: int, high: int | None) -> Iterator[bytes]:
    """The records in (low, high] that pass the filters, as lines; None: up to the head that is met first."""
    reader = Reader(client, topic, wanted, low, follow=False)
    reader.end_seq = high
    try:
        while not reader.finished:
            reader.ask(PAGE_RECORDS)
            call = reader.call
            if not reader.step() and call is not None:
                client.stop.check()
                client.stop.wait(call.watch, call.timeout_s)
            while reader.pages:
                yield from reader.pages.popleft().lines
    finally:
        reader.close()
