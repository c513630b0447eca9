"""From what was read to what is sent: records, and the bodies that carry them.

`Encoder` turns each framed piece of input into a record; `body_of` turns a batch of records into a request. Where all
records share tag, node and meta, and none holds a raw line break, the batch goes as NDJSON and every value stays as it
was read. Otherwise (and with `--ack`, which only a JSON body can say) it goes as a JSON body, whose values are checked
first: a value that is no value must not be able to end the record it stands in.
"""

from __future__ import annotations

from _json import encode_basestring

from topics_cli.client import JSON, NDJSON, quote
from topics_cli.cut import ENCODING, text_to_json

URL_BYTES_MAX = 4096
"""Longer queries (a large meta) travel in the body."""


class BadRecord(Exception):
    """A piece of input that cannot become a record."""


class Common:
    """What all records of one `write` share."""

    __slots__ = ("ack", "create", "meta", "node", "tag")

    def __init__(
        self, *, tag: str | None, node: str | None, meta: dict[str, str], ack: str | None, create: bool
    ) -> None:
        self.tag = tag
        self.node = node
        self.meta = meta
        self.ack = ack
        self.create = create

    def meta_json(self, *more: tuple[str, str]) -> str | None:
        """The meta object as JSON, None when there is none."""
        members = {**self.meta, **dict(more)}
        if not members:
            return None
        inside = ",".join(f"{encode_basestring(name)}:{encode_basestring(value)}" for name, value in members.items())
        return "{" + inside + "}"


class Record:
    """One record: its JSON, and what is its own beside it. `raw` is what was read, `number` where."""

    __slots__ = ("data", "key", "meta", "node", "number", "raw", "tag")

    def __init__(self, number: int, raw: bytes, data: bytes) -> None:
        self.number = number
        self.raw = raw
        self.data = data
        self.tag: str | None = None
        self.node: str | None = None
        self.meta: str | None = None
        self.key: str | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it fits a line of NDJSON, and has nothing of its own."""
        if self.tag is not None or self.node is not None or self.meta is not None:
            return False
        return b"\n" not in self.data and b"\r" not in self.data


class Encoder:
    """Makes records, in one of three ways: text, JSON values, or whole records."""

    __slots__ = ("_common", "_form", "_key_from", "_tag_from", "gaps")

    def __init__(self, form: str, common: Common, tag_from: list[str] | None, key_from: list[str] | None) -> None:
        self._form = form
        self._common = common
        self._tag_from = tag_from
        self._key_from = key_from
        self.gaps = 0
        """Tombstones that were passed over among whole records."""

    def maybe_record(self, number: int, raw: bytes) -> Record | None:
        """The record that `raw` stands for, None for what is passed over; raises `BadRecord`."""
        if self._form == "text":
            data, is_base64 = text_to_json(raw)
            record = Record(number, raw, data)
            if is_base64:
                record.meta = self._common.meta_json(("encoding", ENCODING))
            if self._tag_from is not None or self._key_from is not None:
                self._take_fields(record)
            return record
        if not raw.strip(b" \t\r\n"):
            return None
        if self._form == "records":
            whole = self._maybe_whole(number, raw)
            if whole is not None and (self._tag_from is not None or self._key_from is not None):
                self._take_fields(whole)
            return whole
        record = Record(number, raw, raw)
        if self._tag_from is not None or self._key_from is not None:
            self._take_fields(record)
        return record

    def _maybe_whole(self, number: int, raw: bytes) -> Record | None:
        from topics_cli.rawjson import NotJson, members

        try:
            fields = members(raw.decode())
        except (NotJson, UnicodeDecodeError) as error:
            raise BadRecord(f"not a record: {error}") from error
        if "data" not in fields:
            if "$tombstone" in fields:
                self.gaps += 1
                return None
            if "$page" in fields:
                return None
            raise BadRecord("not a record: it has no data")
        record = Record(number, raw, fields["data"].encode("utf-8", "surrogatepass"))
        record.tag = _text_member(fields, "$tag", "tag")
        record.node = _text_member(fields, "$node", "node")
        if fields.get("meta", "null") != "null":
            record.meta = fields["meta"]
        return record

    def _take_fields(self, record: Record) -> None:
        if self._tag_from is not None:
            record.tag = _picked(record.data, self._tag_from)
        if self._key_from is not None:
            record.key = _picked(record.data, self._key_from)


def _text_member(fields: dict[str, str], *names: str) -> str | None:
    from topics_cli.rawjson import plain

    for name in names:
        value = fields.get(name)
        if value is not None and value.startswith('"'):
            return plain(value)
    return None


def _picked(data: bytes, path: list[str]) -> str:
    from topics_cli.rawjson import NotJson, maybe_pick, plain

    where = "/" + "/".join(path)
    try:
        value = maybe_pick(data.decode(), path)
    except (NotJson, UnicodeDecodeError) as error:
        raise BadRecord(f"not JSON: {error}") from error
    if value is None or value == "null" or value[:1] in "{[":
        raise BadRecord(f"nothing to take at {where}")
    return plain(value)


def body_of(records: list[Record], common: Common) -> tuple[str, bytes, str]:
    """The query, the body and the media type of one write. Raises `BadRecord` for a single record that is not JSON."""
    if not common.ack and all(record.is_plain for record in records):
        query = _query(common)
        if len(query) <= URL_BYTES_MAX:
            return query, b"\n".join([record.data for record in records]) + b"\n", NDJSON
    parts = [_member(record, common) for record in records]
    fields = [b'"records":[' + b",".join(parts) + b"]"]
    if common.node is not None:
        fields.append(b'"node":' + encode_basestring(common.node).encode())
    if common.ack:
        fields.append(b'"ack":' + encode_basestring(common.ack).encode())
    if not common.create:
        fields.append(b'"create":false')
    return "?return_seqs=false", b"{" + b",".join(fields) + b"}", JSON


def _query(common: Common) -> str:
    query = "?return_seqs=false"
    meta = common.meta_json()
    for name, value in (("tag", common.tag), ("node", common.node), ("meta", meta)):
        if value is not None:
            query += f"&{name}={quote(value)}"
    return query if common.create else query + "&create=false"


def _member(record: Record, common: Common) -> bytes:
    from topics_cli.rawjson import NotJson, check

    try:
        check(record.data.decode("utf-8", "surrogatepass"))
    except (NotJson, UnicodeDecodeError) as error:
        raise BadRecord(f"not JSON: {error}") from error
    parts = [b'{"data":' + record.data]
    tag = record.tag if record.tag is not None else common.tag
    meta = record.meta if record.meta is not None else common.meta_json()
    if tag is not None:
        parts.append(b'"tag":' + encode_basestring(tag).encode())
    if record.node is not None:
        parts.append(b'"node":' + encode_basestring(record.node).encode())
    if meta is not None:
        parts.append(b'"meta":' + meta.encode())
    return b",".join(parts) + b"}"
