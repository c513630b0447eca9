"""Request bodies → what the engine takes: JSON, NDJSON and lines into a `Batch`, the other bodies into their structs.

`data` and `meta` stay the bytes that were received (msgspec `Raw`), so numbers, escapes, key order and inner white
space come back exactly. What msgspec does not judge is judged here: UTF-8 (`isascii()` first, which is nearly free),
depth, and lone surrogate escapes, which msgspec refuses even where it only skips but which belong to whoever wrote
them (see `read_hidden`).

Fields that we do not know are ignored, but said: bodies are decoded strictly, and only when that fails for an unknown
field they are decoded again leniently and their names collected. The hot path pays nothing for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Raw

from engine import scan
from engine.commands import Batch, too_many_records
from engine.errors import Refused, invalid
from engine.limits import Limits
from engine.types import ConfigChanges, configured
from topics_daemon.unknown import members_of, names_of, note_unknown
from topics_daemon.write_in import (
    FewIn,
    FewStrictIn,
    PublishIn,
    RecordIn,
    StrictWriteIn,
    WriteIn,
    counted,
)

T = TypeVar("T")
W = TypeVar("W", bound="WriteIn")
F = TypeVar("F", bound="WriteIn")

OP_WITHIN_BYTES: Final = 256
"""How far into a message its `op` is looked for before it is decoded as a publish."""
MEMO_BODIES_MAX: Final = 512
"""Bodies of one kind that are remembered with what they ask for: readers and workers repeat themselves."""
MEMO_BODY_BYTES_MAX: Final = 256
"""Longer ones are not."""
RECORD_BYTES_MIN: Final = 10
"""What a record takes in a body, with its comma, at least."""
OWN_DEPTH: Final = 3
"""Levels of a write body above a record's data: body, records, record. They do not count toward the bound."""


_NO_META: Final = RecordIn(Raw(b"null")).meta
_NO_CONFIG: Final = WriteIn([]).config
"""The one `Raw` that stands for an absent value of each."""


def _given(raw: Raw) -> bytes | None:
    """The bytes of a value that may be absent or null."""
    text = bytes(raw)
    return None if not text or text == b"null" else text


class Write(msgspec.Struct):
    """A decoded write, whatever it came as."""

    batch: Batch
    key: bytes | None = None
    create: bool | None = None
    config: ConfigChanges | None = None
    ack_fsync: bool = False
    return_seqs: bool = True
    warnings: list[str] | None = None
    insists: bool = False
    """Whether it is not to be refused for pressure (`disable_backpressure`)."""


_STRICT_WRITE: Final = msgspec.json.Decoder(StrictWriteIn)
_WRITE: Final = msgspec.json.Decoder(WriteIn)
_FEW_STRICT: Final = msgspec.json.Decoder(FewStrictIn)
_FEW: Final = msgspec.json.Decoder(FewIn)
_PUBLISH: Final = msgspec.json.Decoder(PublishIn)
_OBJECT: Final = msgspec.json.Decoder(dict[str, Raw])
_RECORD_OBJECTS: Final = msgspec.json.Decoder(list[dict[str, Raw]])
_PARTS: Final = msgspec.json.Decoder(dict[str, dict[str, Raw] | None])
_LINES: Final = msgspec.json.Decoder(Raw)

_NOT_BLANK: Final = re.compile(rb"[^\n\t\r ][^\n]*")
_STRINGS: Final = re.compile(rb'"[^"]*"')
"""Where no quote is escaped."""
_ONE_BRACKET: Final = bytes.maketrans(b"{}", b"[]")
_NEITHER: Final = bytes(byte for byte in range(256) if byte not in b'[]{}"')
"""All but brackets and quotes."""
_LONE_SURROGATES: Final = re.compile(
    rb"\\u(?=[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2}))"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u(?=[dD][c-fC-F][0-9a-fA-F]{2})"
)
"""Where no backslash is escaped."""
_HIDDEN: Final = b"\xff\xfe"
"""Stands for `\\u` of a surrogate while msgspec parses; no valid UTF-8 holds it."""
_BACKSLASH: Final = b"\xff\xfd"
"""Stands for an escaped backslash meanwhile."""
RUN_LINES: Final = 256
"""Lines that are decoded in one call; where one of them is at fault each is by itself."""
ESCAPES_APART_MAX: Final = 32 * 1024
"""Escapes that are told apart one by one (0.5 µs each), which is rarely necessary."""


def check_utf8(body: bytes) -> None:
    """Raise the 400 for a body that is not UTF-8."""
    if body.isascii():
        return
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise invalid(f"the body is not valid UTF-8 at byte {error.start}") from error


def is_deeper(value: bytes, depth_max: int) -> bool:
    """Whether valid JSON nests deeper than `depth_max`; cheap unless it has more brackets than that."""
    if value.count(b"[") + value.count(b"{") <= depth_max:
        return False
    if b"\\" in value:
        value = value.replace(rb"\\", b"").replace(rb"\"", b"")
    # Two quotes with nothing in between change nothing for what follows; what is left are strings that hold brackets.
    brackets = value.translate(_ONE_BRACKET, _NEITHER).replace(b'""', b"")
    if b'"' in brackets:
        brackets = _STRINGS.sub(b"", brackets).replace(b'"', b"")
    for _ in range(depth_max):
        if not brackets:
            return False
        left = brackets.replace(b"[]", b"")
        if len(left) == len(brackets):
            break  # they do not match
        brackets = left
    return bool(brackets)


def read_hidden(read: Callable[[bytes], T], body: bytes) -> T:
    r"""Read what holds lone surrogate escapes, their `\u` replaced by bytes that msgspec lets pass.

    Escapes of all surrogates are hidden, which is cheap: values keep their bytes anyway. Only where names and tags hold
    some (msgspec makes text of those, and says that it cannot) they are told apart.
    """
    if b"\\u" not in body:
        return read(body)
    plain = body.replace(rb"\\", _BACKSLASH)
    try:
        return read(plain.replace(rb"\ud", _HIDDEN + b"d").replace(rb"\uD", _HIDDEN + b"D").replace(_BACKSLASH, rb"\\"))
    except UnicodeDecodeError:
        if body.count(rb"\u") > ESCAPES_APART_MAX:
            raise
        return read(_LONE_SURROGATES.sub(_HIDDEN, plain).replace(_BACKSLASH, rb"\\"))


def show_hidden(body: bytes) -> bytes:
    return body.replace(_HIDDEN, b"\\u")


def _refusal(error: msgspec.MsgspecError | RecursionError) -> Refused:
    """The 400 for a body that msgspec cannot read; names the field where there is one."""
    if isinstance(error, RecursionError):
        return invalid("the JSON nests too deep")
    text = str(error)
    _, marker, path = text.partition(" - at `$.")
    if marker:
        return invalid(f"the body is not as documented: {text}", re.split(r"[^A-Za-z0-9_]", path)[0] or None)
    found = re.search(r"required field `(\w+)`", text)
    return invalid(f"the body is not valid: {text}", found[1] if found else None)


def decode(
    strict: msgspec.json.Decoder[T],
    body: bytes,
    limits: Limits,
    warnings: list[str],
    *,
    depth: int | None = None,
    checked: bool = False,
    lenient: msgspec.json.Decoder[Any] | None = None,
    part_fields: tuple[str, ...] = (),
) -> T:
    """Read a body that is an object, with a decoder that forbids unknown fields; those become `warnings`.

    `depth` overrides the bound on nesting; `checked` says that UTF-8 was looked at before. For bodies with a part for
    each of several topics, `lenient` is a decoder that lets unknown fields of parts pass, and `part_fields` are known.
    """
    if not checked:
        check_utf8(body)
    body = body or b"{}"
    try:
        if is_deeper(body, depth if depth is not None else limits.nesting):
            raise RecursionError
        try:
            return strict.decode(body)
        except msgspec.ValidationError as error:
            if "unknown field" not in str(error):
                raise
        fields: tuple[str, ...] = strict.type.__struct_fields__  # type: ignore[attr-defined]  # T is always a Struct
        note_unknown(names_of(body), fields, "", warnings)
        members = members_of(fields).decode(body)
        if lenient is not None and members.topics is not UNSET:
            names: set[str] = set()
            for part in _PARTS.decode(members.topics).values():
                names.update(part or ())
            note_unknown(names, part_fields, "topics[].", warnings)
        read: T = (lenient or strict).decode(msgspec.json.encode(members))
        return read
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _refusal(error) from error


def decode_flat(strict: msgspec.json.Decoder[T], body: bytes, limits: Limits, warnings: list[str]) -> T:
    """The same for an object whose members have no room for nesting, which is nearly always well-formed ASCII."""
    if body.isascii():
        try:
            return strict.decode(body)
        except (msgspec.MsgspecError, RecursionError):
            pass
    return decode(strict, body, limits, warnings)


def remember(memo: dict[bytes, T], body: bytes, read: T) -> None:
    """Keep what a body says for the next one like it; the oldest is forgotten first."""
    if len(body) <= MEMO_BODY_BYTES_MAX:
        if len(memo) >= MEMO_BODIES_MAX:
            del memo[next(iter(memo))]
        memo[body] = read


def check_holder(node: str, limits: Limits) -> str:
    """The name of who holds leases: no longer than that of who writes records."""
    if len(node.encode()) > limits.node_bytes:
        raise invalid(f"node may hold {limits.node_bytes} bytes", "node")
    return node


def decode_changes(body: bytes, limits: Limits, warnings: list[str], where: str = "") -> ConfigChanges:
    """Read a topic's configuration."""
    if where and not body.startswith(b"{"):
        raise invalid("config must be an object", "config")
    found: list[str] = []
    changes = decode(_CHANGES, body, limits, found)
    # What is out of range is refused even where it will not count, because the topic is there already.
    configured("", None, changes)
    warnings.extend(text.replace("unknown field ", f"unknown field {where}", 1) for text in found)
    return changes


class StrictChanges(ConfigChanges, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A configuration that fails at what is unknown."""


_CHANGES: Final = msgspec.json.Decoder(StrictChanges)


def decode_write(body: bytes, limits: Limits, node: str | None = None) -> Write:
    """Read the JSON body of a write; the batch is not checked against the bounds of records yet.

    `node` is the default for records and bodies that name none.
    """
    found = scan.write(body, limits.nesting, limits.batch_records)
    if found and (write := _scanned(found, limits, node)) is not None:
        return write
    if not body.isascii():
        check_utf8(body)
    if found is False:
        raise too_many_records(limits.batch_records)
    warnings: list[str] | None = None
    hidden = False
    try:
        read: WriteIn = _bounded(_STRICT_WRITE, _FEW_STRICT, body, limits.batch_records)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        read, warnings, hidden = _decode_write_again(body, error, limits.batch_records)
    if read.node is None:
        read.node = node
    return write_of(read, limits, warnings, hidden=hidden)


def _may_hold_more(body: bytes, records_max: int) -> bool:
    """Whether a body has room and brackets for more records than there may be."""
    return len(body) > records_max * RECORD_BYTES_MIN and body.count(b"{") > records_max + 1


def _bounded(decoder: msgspec.json.Decoder[W], few: msgspec.json.Decoder[F], body: bytes, most: int) -> W | F:
    """Decode a write; records are counted on the way where the body has brackets enough for more than there may be:
    millions of them would be refused, but only when all are there."""
    if not _may_hold_more(body, most):
        return decoder.decode(body)
    counted.left = counted.most = most
    return few.decode(body)


def _scanned(found: scan.Columns, limits: Limits, node: str | None) -> Write | None:
    """The same from a body that was taken apart already; None where its other members want a second look."""
    datas, tags, nodes, metas, rest = found
    batch = Batch(datas, tags, nodes, metas)
    if rest is None:
        if node is not None:
            _name_nodes(batch, node)
        return Write(batch)
    try:
        read: WriteIn = _STRICT_WRITE.decode(rest)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    assert not read.records, "they were taken out of it"
    if read.node is None:
        read.node = node
    if read.node is not None:
        _name_nodes(batch, read.node)
    return _write_with(read, batch, limits, None)


def read_publish(message: bytes, records_max: int) -> PublishIn | None:
    """A `publish`, from bytes that are valid UTF-8; None for whatever else it is, and for all that needs a second look
    (too many records might be in it): who takes it apart (`read_members`) says what is wrong with it."""
    if message.find(b'"publish"', 0, OP_WITHIN_BYTES) < 0 or _may_hold_more(message, records_max):
        return None
    try:
        return _PUBLISH.decode(message)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


def write_of(read: WriteIn, limits: Limits, warnings: list[str] | None = None, *, hidden: bool = False) -> Write:
    """What a decoded body asks for; `hidden` says that lone surrogates are hidden in it."""
    return _write_with(read, _batch_of(read, limits, hidden), limits, warnings)


def _write_with(read: WriteIn, batch: Batch, limits: Limits, warnings: list[str] | None) -> Write:
    """A write of these records, and what else the body says."""
    write = Write(batch)
    if read.idempotency_key is not None:
        write.key = check_key(read.idempotency_key, limits)
    if read.ack is not None:
        if read.ack != "fsync":
            raise invalid('ack must be "fsync"', "ack")
        write.ack_fsync = True
    write.create = read.create
    write.return_seqs = read.return_seqs
    if read.config is not _NO_CONFIG and (config := _given(read.config)) is not None:
        warnings = warnings or []
        write.config = decode_changes(config, limits, warnings, "config.")
    if warnings:
        write.warnings = warnings
    write.insists = read.disable_backpressure
    return write


def _decode_write_again(body: bytes, error: Exception, most: int) -> tuple[WriteIn, list[str], bool]:
    """Read a write that the strict decoder refused: for an unknown field, or for a lone surrogate escape.

    Returns what was read, warnings, and whether surrogates are hidden in it. Raises the 400 for everything else.
    """
    try:
        if isinstance(error, UnicodeDecodeError):
            raise invalid("tag, node and keys must not hold lone surrogates", "records") from error
        if isinstance(error, msgspec.DecodeError) and not isinstance(error, msgspec.ValidationError):
            # Perhaps only for a lone surrogate escape, which is the writer's business. Once more without them.
            if b"\\u" not in body:
                raise error
            return (*read_hidden(partial(_decode_write_hidden, most=most), body), True)
        if not isinstance(error, msgspec.ValidationError) or "unknown field" not in str(error):
            raise error
        return (*_decode_write_leniently(body, most), False)
    except (msgspec.MsgspecError, RecursionError) as final:
        raise _refusal(final) from final
    except UnicodeDecodeError as final:
        raise invalid("tag, node and keys must not hold lone surrogates", "records") from final
    finally:
        del error  # raised here, it knows this frame: together they would keep the body until garbage is looked for


def _decode_write_hidden(body: bytes, most: int) -> tuple[WriteIn, list[str]]:
    try:
        return _bounded(_STRICT_WRITE, _FEW_STRICT, body, most), []
    except msgspec.ValidationError as error:
        if "unknown field" not in str(error):
            raise
        return _decode_write_leniently(body, most)


def _decode_write_leniently(body: bytes, most: int) -> tuple[WriteIn, list[str]]:
    read = _bounded(_WRITE, _FEW, body, most)
    warnings: list[str] = []
    note_unknown(names_of(body), WriteIn.__struct_fields__, "", warnings)
    names: set[str] = set()
    for record in _RECORD_OBJECTS.decode(members_of(("records",)).decode(body).records):
        names.update(record)
    note_unknown(names, RecordIn.__struct_fields__, "records[].", warnings)
    return read, warnings


def _batch_of(read: WriteIn, limits: Limits, hidden: bool) -> Batch:
    """Columns out of records."""
    records = read.records
    record = records[0] if len(records) == 1 and not hidden and read.node is None else None
    if record is not None and record.tag is None and record.node is None and record.meta is _NO_META:
        # One record of data alone: by far the most frequent write of all, and worth a path of its own (1 µs of 3).
        data = bytes(record.data)
        if len(data) > 2 * limits.nesting:
            check_depth([data], limits)
        return Batch([data])
    datas = [bytes(record.data) for record in records]
    tags: list[str | None] | None = None
    nodes: list[str | None] | None = None
    metas: list[bytes | None] | None = None
    for record in records:
        if record.tag is not None or record.node is not None or record.meta is not _NO_META:
            tags, nodes, metas = _columns(records)
            break
    if hidden:
        datas = [show_hidden(data) for data in datas]
        metas = [None if meta is None else show_hidden(meta) for meta in metas] if metas is not None else None
    check_depth(datas, limits)
    if metas is not None:
        check_depth([meta for meta in metas if meta is not None], limits)
    batch = Batch(datas, tags=tags, nodes=nodes, metas=metas)
    if read.node is not None:
        _name_nodes(batch, read.node)
    return batch


def _name_nodes(batch: Batch, default: str) -> None:
    """Give the records that name no node this one."""
    nodes = batch.nodes
    batch.nodes = [default if node is None else node for node in nodes] if nodes else [default] * len(batch.datas)


def _columns(
    records: list[RecordIn],
) -> tuple[list[str | None] | None, list[str | None] | None, list[bytes | None] | None]:
    """Tags, nodes and metas of records; None for a column that is empty."""
    tags = [record.tag for record in records]
    nodes = [record.node for record in records]
    metas = [None if record.meta is _NO_META else _given(record.meta) for record in records]
    count = len(records)
    return (
        tags if tags.count(None) < count else None,
        nodes if nodes.count(None) < count else None,
        metas if metas.count(None) < count else None,
    )


def check_depth(values: list[bytes], limits: Limits) -> None:
    """Raise the 400 for a value that nests too deep; values too short to do so cost one comparison of lengths."""
    if not values or len(max(values, key=len)) <= 2 * limits.nesting:
        return
    for value in values:
        if len(value) > 2 * limits.nesting and is_deeper(value, limits.nesting):
            raise invalid(f"JSON may nest {limits.nesting} deep", "records")


def check_key(key: str, limits: Limits) -> bytes:
    """An idempotency key as the engine keeps it, or the 400 for its size."""
    encoded = key.encode()
    if not 0 < len(encoded) <= limits.idempotency_key_bytes:
        raise invalid(f"idempotency_key must hold 1 to {limits.idempotency_key_bytes} bytes", "idempotency_key")
    return encoded


def read_members(body: bytes) -> dict[str, Raw]:
    """The members of an object whose bytes are valid UTF-8, as they came."""
    try:
        members = read_hidden(_OBJECT.decode, body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _refusal(error) from error
    except UnicodeDecodeError as error:
        raise invalid("names of members must not hold lone surrogates") from error
    if b"\\u" not in body:
        return members
    return {name: Raw(show_hidden(bytes(value))) for name, value in members.items()}


def split_lines(body: bytes) -> list[bytes]:
    r"""The lines of a body: `\n` or `\r\n` ends one, the last may be unended."""
    lines = body.replace(b"\r\n", b"\n").split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def decode_ndjson(body: bytes, limits: Limits, first: int = 1) -> list[bytes]:
    """The values of an NDJSON body, verbatim but for white space around them; blank lines are skipped.

    `first` is the number of its first line, for who reads a body in parts.
    """
    found = scan.lines(body, limits.nesting, limits.batch_records)
    if found is not None:
        return found
    check_utf8(body)
    few, most = body, limits.batch_records
    if body.count(b"\n") > most:
        # Millions of lines would be refused, or are blank: no more of them are made than there may be.
        few = b"\n".join([line for _, line in islice(_numbered(body, first), most + 1)])
        if few.count(b"\n") >= most:
            raise too_many_records(most)
    lines = [stripped for line in few.split(b"\n") if (stripped := line.strip(b" \t\r"))]
    values: list[bytes] = []
    for at in range(0, len(lines), RUN_LINES):
        run = lines[at : at + RUN_LINES]
        # Malformed, or not a value a line: find the line that is at fault, or prove that there is none.
        values += _run_values(run) or [
            _line_value(line, partial(_number_of, body, first, number)) for number, line in enumerate(run, at)
        ]
    check_depth(values, limits)
    return values


def _numbered(body: bytes, number: int) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, and which ones they are."""
    at = 0
    for found in _NOT_BLANK.finditer(body):
        number += body.count(b"\n", at, found.start())
        at = found.start()
        yield number, found[0]


def _number_of(body: bytes, first: int, index: int) -> int:
    """Which line it is that so many others come before which are not blank."""
    return next(islice(_numbered(body, first), index, None))[0]


def _run_values(run: list[bytes]) -> list[bytes]:
    """The values of lines, if each is one and all are well-formed; else none."""
    try:
        values = [bytes(value) for value in _LINES.decode_lines(b"\n".join(run))]
    except (msgspec.MsgspecError, RecursionError):
        return []
    return values if values == run else []


def _line_value(line: bytes, number: Callable[[], int]) -> bytes:
    try:
        return show_hidden(bytes(read_hidden(_LINES.decode, line)))
    except RecursionError as error:
        raise invalid(f"line {number()} nests too deep", "records") from error
    except msgspec.MsgspecError as error:
        text = str(error).removeprefix("JSON is malformed: ")
        raise invalid(f"line {number()} is not JSON: {text}", "records") from error


def decode_text_lines(body: bytes, limits: Limits) -> list[bytes]:
    """The lines of a `text/x-lines` body, each encoded as a JSON string."""
    check_utf8(body)
    if body.count(b"\n") > limits.batch_records:
        raise too_many_records(limits.batch_records)
    encode = msgspec.json.encode
    return [encode(line.decode()) for line in split_lines(body)]


def check_names(query: dict[str, Any], known: frozenset[str], warnings: list[str]) -> None:
    """Say which query parameters are unknown."""
    if query.keys() - known:
        note_unknown(set(query), tuple(known), "", warnings)
