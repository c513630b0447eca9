"""The head of an HTTP/1.1 request: bytes → `Head`, or the refusal that they deserve.

httptools (llhttp) is the parser. What stands around it is what a parser leaves to its user: bounds, and the shapes
that have been used to smuggle requests past a proxy (Content-Length beside Transfer-Encoding, two lengths, a length
that is not plain digits, a coding that is not exactly `chunked`, bare line feeds, folded lines). All of those are 400,
and the connection is closed, because where the next request begins is no longer known.

Pure: no sockets, no state. The connection (`http1`) keeps a bounded memo from complete heads to `Head`s, so that a
client which sends the same head again costs no parsing at all; a `Head` must therefore hold nothing that changes.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, cast

import httptools
import msgspec

from engine.errors import Code, Refused, TopicsError
from topics_daemon.keys import presented

if TYPE_CHECKING:
    from topics_daemon.auth import Caller
    from topics_daemon.metrics import Tally
    from topics_daemon.routes.table import Route

REQUEST_LINE: Final = re.compile(rb"([A-Z]{1,20}) ([!-~]+) HTTP/1\.([01])\r\n")
"""Strictly one space, printable ASCII: what anything else may mean is not our guess to make."""
PLAUSIBLE_START: Final = re.compile(rb"[A-Za-z]{1,20}( |\Z)")
"""How the first bytes of anything that speaks HTTP look."""
PLACE: Final = re.compile(rb"(?i)last-event-id:")
"""The one line that may be longer than others: where a stream of 64 topics stood takes up to 24 KB, and browsers send
it back by themselves."""
LINE_ENDS: Final = re.compile(rb"[\r\n]+")
DIGITS: Final = re.compile(rb"[0-9]{1,18}")


class Bounds(msgspec.Struct, frozen=True):
    """Bounds of a head, in bytes and lines (operations.md)."""

    head_bytes: int
    line_bytes: int
    lines: int


class Content(IntEnum):
    """What a body says it is."""

    NONE = 0
    JSON = 1
    NDJSON = 2
    LINES = 3
    OTHER = 4


_CONTENT: Final = {
    "application/json": Content.JSON,
    "application/x-ndjson": Content.NDJSON,
    "text/x-lines": Content.LINES,
}


class Head:
    """A request's head, read and routed; shared by all requests that begin with the same bytes, so never changed."""

    __slots__ = (
        "accept",
        "body_bytes_max",
        "caller",
        "chunked",
        "coding",
        "content",
        "credential",
        "expects_continue",
        "framed",
        "gzip",
        "host",
        "idempotency_key",
        "keep_alive",
        "last_event_id",
        "length",
        "method",
        "minor",
        "name",
        "name_bytes",
        "options",
        "origin",
        "param",
        "path",
        "plain",
        "query",
        "refusal",
        "route",
        "sec_fetch_site",
        "streams",
        "tally",
        "unique",
        "upgrade",
    )

    def __init__(self) -> None:
        self.method = "GET"
        self.path = "/"
        self.query: dict[str, str] = {}
        self.minor = 1
        self.keep_alive = True
        self.length = 0
        """Bytes of body that follow; −1 when chunked."""
        self.body_bytes_max = 0
        """How large the body may be; given together with the route."""
        self.framed = False
        """Whether the head says how long the body is."""
        self.chunked = False
        self.content = Content.NONE
        self.coding = "identity"
        self.accept = ""
        self.credential: bytes | None = None
        """The digest of the key that is presented, or None when there is no Authorization header."""
        self.caller: Caller = cast("Caller", None)
        """Who asks; given together with the route."""
        self.gzip = False
        """Whether the answer may be compressed."""
        self.expects_continue = False
        self.host: str | None = None
        self.origin: str | None = None
        self.sec_fetch_site: str | None = None
        self.idempotency_key: str | None = None
        self.last_event_id: str | None = None
        self.upgrade: bytes | None = None
        """The header lines of an offer to speak another protocol from here on, or None."""
        self.unique = False
        """Whether another request with the same head is unlikely, so that remembering it would be waste."""
        self.streams = False
        """Whether the handler is asked before the body is there, and is given it as it comes."""
        self.plain = True
        """An answer needs no header beyond the usual ones, and no compression."""
        self.route: Route | None = None
        self.tally: Tally = cast("Tally", None)
        """Where its requests are counted; given together with the route."""
        self.name = ""
        self.name_bytes = b""
        """The topic in the path, already checked, or ""."""
        self.param = ""
        """The other variable part of the path (seq, watch id), or ""."""
        self.options: Any = None
        """What the route has made of the query, kept by it."""
        self.refusal: TopicsError | None = None
        """Why every request with this head is refused, or None."""

    @property
    def has_body(self) -> bool:
        return self.chunked or self.length > 0


def _bad(message: str) -> Refused:
    return Refused(Code.INVALID_REQUEST, message)


def too_long(line: bool) -> Refused:
    """The refusal of a head over its bounds: 414 for the request line, 431 for the rest."""
    if line:
        return Refused(Code.URI_TOO_LONG, "the request line is too long")
    return Refused(Code.HEADERS_TOO_LARGE, "the request headers are too large or too many")


_ENDLESS: Final = re.compile(rb"(?i)(?<=\ncontent-length:)([ \t]*)[1-9][0-9]{18,}(?=[ \t]*\r\n)")
"""A length that no parser holds: it is read as one that is too large for any bound (413, as for other large ones)."""


class _Sink:
    """Where httptools puts what it finds."""

    __slots__ = ("headers", "url")

    def __init__(self) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))


def check_shape(raw: bytes | bytearray, bounds: Bounds) -> None:
    """Raise for line ends, folding, bounds: what is judged on the bytes, before any parser reads them."""
    if len(raw) > bounds.head_bytes:
        raise too_long(raw.find(b"\n") < 0)
    count = raw.count(b"\n")
    if count != raw.count(b"\r\n") or raw.count(b"\r") != count:
        raise _bad("lines of a request head must end in CR LF")
    lines = raw.split(b"\r\n")
    if len(lines[0]) > bounds.line_bytes:
        raise too_long(True)
    if len(lines) - 3 > bounds.lines:
        raise too_long(False)
    longest = len(max(lines, key=len))
    if longest > bounds.line_bytes and any(len(one) > bounds.line_bytes and not PLACE.match(one) for one in lines):
        raise too_long(False)
    if raw.find(b"\n ") >= 0 or raw.find(b"\n\t") >= 0:
        raise _bad("header lines must not be folded")


def opens(inbuf: bytearray) -> bool:
    """Whether there is something of a head. Empty lines in front of one are dropped (RFC 9112 §2.2): there are clients
    that send one behind a body."""
    if inbuf.startswith(b"\r\n") and (ends := LINE_ENDS.match(inbuf)) is not None:
        # At once: one by one a buffer full of them held the loop for 75 ms.
        empty = b"\r\n" * (ends.end() // 2)
        if inbuf.startswith(empty):
            del inbuf[: len(empty)]
    return bool(inbuf)


def says_http(begun: bytearray) -> bool:
    """Whether a head that is not complete may be one of HTTP."""
    line = begun.find(b"\r\n")
    if begun == b"\r":
        return True
    return PLAUSIBLE_START.match(begun) is not None and (line < 0 or begun.find(b" HTTP/", 0, line) >= 0)


def check_begun(begun: bytearray, scanned: int, bounds: Bounds) -> None:
    """Raise for a head that is not complete and never will be a good one; `scanned` bytes of it were looked at before.

    A bare line feed is refused as soon as it is there: the end of such a head would never be found.
    """
    if len(begun) > min(bounds.line_bytes, bounds.head_bytes) and b"\n" not in begun:
        raise too_long(True)
    if len(begun) > bounds.head_bytes or begun.count(b"\n") > bounds.lines + 1:
        raise too_long(False)
    newline = begun.find(b"\n", scanned)
    while newline >= 0:
        if newline == 0 or begun[newline - 1] != 0x0D:
            check_shape(begun, bounds)
        newline = begun.find(b"\n", newline + 1)


def parse(raw: bytes, bounds: Bounds) -> Head:
    """Read a complete head, its final empty line included; raises the refusal after which the connection is closed."""
    check_shape(raw, bounds)
    line = REQUEST_LINE.match(raw)
    if line is None:
        raise _bad("this is not a request line that HTTP knows")
    sink = _Sink()
    parser = httptools.HttpRequestParser(sink)
    try:
        parser.feed_data(_ENDLESS.sub(rb"\g<1>999999999999999999", raw))
    except httptools.HttpParserUpgrade:
        # An offer to speak another protocol may be ignored, and is.
        pass
    except httptools.HttpParserError as error:
        raise _bad(f"malformed request head: {error}") from error
    head = Head()
    head.method = line[1].decode("ascii")
    head.minor = int(line[3])
    head.keep_alive = head.minor == 1
    _read_headers(head, sink.headers)
    _read_target(head, line[2])
    head.plain = head.keep_alive and head.minor == 1 and not head.gzip and head.method != "HEAD"
    return head


def _read_headers(head: Head, headers: list[tuple[bytes, bytes]]) -> None:
    seen: dict[bytes, bytes] = {}
    for name, value in headers:
        value = value.strip(b" \t")
        if name in seen:
            if name in _ONCE:
                raise _bad(f"more than one {name.decode('ascii')} header")
            value = seen[name] + b", " + value
        seen[name] = value
    _read_framing(head, seen)
    content_type = seen.get(b"content-type")
    if content_type is not None:
        head.content = _content(content_type.decode("latin-1"))
    head.coding = seen.get(b"content-encoding", b"identity").decode("latin-1").lower()
    head.accept = seen.get(b"accept", b"").decode("latin-1").lower()
    encodings = seen.get(b"accept-encoding")
    head.gzip = encodings is not None and wants_gzip(encodings.decode("latin-1").lower())
    head.expects_continue = head.minor == 1 and seen.get(b"expect", b"").lower() == b"100-continue"
    head.host = _text(seen, b"host")
    if head.host is None and head.minor == 1:
        raise _bad("a request needs a Host header")
    authorization = seen.get(b"authorization")
    head.credential = None if authorization is None else presented(authorization)
    head.origin = _text(seen, b"origin")
    head.sec_fetch_site = _text(seen, b"sec-fetch-site")
    key = seen.get(b"idempotency-key")
    if key is not None:
        try:
            head.idempotency_key = key.decode()
        except UnicodeDecodeError as error:
            raise _bad("Idempotency-Key must be valid UTF-8") from error
    head.last_event_id = _text(seen, b"last-event-id")
    head.unique = key is not None or head.last_event_id is not None
    if b"upgrade" in seen and head.minor == 1:
        head.upgrade = b"".join(b"%b: %b\r\n" % (name, seen[name]) for name in _UPGRADE if name in seen)
        head.unique = True


_UPGRADE: Final = (b"upgrade", b"connection", b"sec-websocket-key", b"sec-websocket-version")
"""The headers by which a WebSocket is opened; extensions and subprotocols are not offered."""


_ONCE: Final = frozenset(
    {
        b"host",
        b"content-length",
        b"transfer-encoding",
        b"content-type",
        b"content-encoding",
        b"origin",
        b"sec-fetch-site",
        b"authorization",
        b"idempotency-key",
        b"last-event-id",
        b"expect",
    }
)
"""Headers that must not be given twice: what two of them mean is for nobody to guess."""


def _text(seen: dict[bytes, bytes], name: bytes) -> str | None:
    value = seen.get(name)
    return value.decode("latin-1") if value is not None else None


def _read_framing(head: Head, seen: dict[bytes, bytes]) -> None:
    """How long the body is: the part that smuggling is about."""
    length, coding = seen.get(b"content-length"), seen.get(b"transfer-encoding")
    if length is not None and coding is not None:
        raise _bad("Content-Length and Transfer-Encoding must not come together")
    head.framed = length is not None or coding is not None
    if length is not None:
        if DIGITS.fullmatch(length) is None:
            raise _bad("Content-Length must be plain digits")
        head.length = int(length)
    if coding is not None:
        if coding.lower() != b"chunked" or head.minor == 0:
            raise _bad("Transfer-Encoding must be exactly chunked")
        head.chunked, head.length = True, -1
    connection = seen.get(b"connection", b"").lower()
    options = [option.strip() for option in connection.split(b",")]
    if b"close" in options:
        head.keep_alive = False
    elif head.minor == 0:
        head.keep_alive = b"keep-alive" in options


def _read_target(head: Head, target: bytes) -> None:
    """Path and query; the absolute form's authority takes the place of the Host header (RFC 9112, 3.2.2)."""
    if b"#" in target:
        raise _bad("a request target has no fragment")
    lower = target[:8].lower()
    if lower.startswith((b"http://", b"https://")):
        rest = target.partition(b"://")[2]
        authority, slash, path = rest.partition(b"/")
        head.host = authority.decode("ascii")
        target = slash + path if slash else b"/"
    path, _, query = target.partition(b"?")
    head.path = path.decode("ascii")
    if query:
        head.query = parse_query(query.decode("ascii"))


_ESCAPE: Final = re.compile(r"%([0-9A-Fa-f]{2})?")


def unescape(text: str) -> str:
    """Percent-decode once; raises the 400 for a broken escape or for bytes that are not UTF-8."""
    if "%" not in text:
        return text
    out = bytearray()
    last = 0
    for found in _ESCAPE.finditer(text):
        if found[1] is None:
            raise _bad("a percent sign in a request target must be followed by two hexadecimal digits")
        out += text[last : found.start()].encode("ascii")
        out.append(int(found[1], 16))
        last = found.end()
    out += text[last:].encode("ascii")
    try:
        return out.decode()
    except UnicodeDecodeError as error:
        raise _bad("a request target must be UTF-8 once it is percent-decoded") from error


def parse_query(text: str) -> dict[str, str]:
    """The parameters of a query; one that is given twice is refused."""
    query: dict[str, str] = {}
    for part in text.split("&"):
        if not part:
            continue
        name, _, value = part.partition("=")
        name = unescape(name.replace("+", " "))
        if name in query:
            raise _bad("a query parameter must not be given twice")
        query[name] = unescape(value.replace("+", " "))
    return query


def _content(value: str) -> Content:
    """The kind of body that a Content-Type names; OTHER is what will be refused with 415."""
    media, *parameters = value.split(";")
    kind = _CONTENT.get(media.strip().lower(), Content.OTHER)
    for parameter in parameters:
        name, _, text = parameter.strip().partition("=")
        if name.strip().lower() == "charset" and text.strip().strip('"').lower() not in ("utf-8", "utf8"):
            return Content.OTHER
    return kind


def quality(accept: str, names: tuple[str, ...]) -> float:
    """The weight that a lower-case Accept-like header gives to the best matching of `names`, most specific first.

    0.0 when none of them is acceptable; an exact name wins over a wildcard whatever the weights are.
    """
    weights: dict[str, float] = {}
    for part in accept.split(","):
        name, *parameters = part.split(";")
        weight = 1.0
        for parameter in parameters:
            key, _, text = parameter.strip().partition("=")
            if key.strip() == "q":
                try:
                    weight = float(text)
                except ValueError:
                    weight = 0.0
        weights[name.strip()] = weight
    for name in names:
        if name in weights:
            return weights[name]
    return 0.0


def wants_gzip(encodings: str) -> bool:
    """Whether a lower-case Accept-Encoding asks for gzip, by its name, and not for the plain answer more."""
    weight = quality(encodings, ("gzip",))
    return weight > 0 and weight >= quality(encodings, ("identity",))


def wants_lines(head: Head) -> bool:
    """Whether the answer is to be NDJSON: named in Accept, and not less than JSON."""
    if "x-ndjson" not in head.accept:
        return False
    lines = quality(head.accept, ("application/x-ndjson",))
    return lines > 0 and lines >= quality(head.accept, ("application/json",))


def takes_events(head: Head) -> bool:
    """Whether Accept allows `text/event-stream`."""
    return not head.accept or quality(head.accept, ("text/event-stream", "text/*", "*/*")) > 0
