"""Rows of Spark into a topic, each once in the log. Import this where pyspark is known to be there.

Rows are written in the order of their partition, in chunks, each with the idempotency key

    <query>:<epoch of the stream, or batch>:<partition>:<chunk>

so a task that is tried again, or a query that is restarted from its checkpoint, writes what is there already, and the
daemon says so. That holds as long as the topic remembers keys (`idempotency_window_ms`): a window below `WINDOW_MS_MIN`
is refused, and topics made here remember for `WINDOW_MS`.

Columns: `data` (JSON text or binary), and if they are there `tag`, `node`, `meta`; others are refused, not dropped.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from topics_lake.client import Daemon, Refusal
from topics_lake.errors import LakeError
from topics_lake.options import Options
from topics_lake.surrogates import hidden

WINDOW_MS: Final = 7 * 86_400_000
WINDOW_MS_MIN: Final = 3_600_000
CHUNK_BYTES: Final = 8 * 1024 * 1024
_COLUMNS: Final = frozenset({"data", "tag", "node", "meta"})
_encode: Final = msgspec.json.encode
_decode: Final = msgspec.json.Decoder(msgspec.Raw).decode


class Written(WriterCommitMessage):
    """What a task has written."""

    def __init__(self, rows: int) -> None:
        self.rows = rows


class _Sink:
    """What both writers do."""

    def __init__(self, asked: Options, schema: Any, overwrite: bool) -> None:
        if overwrite:
            raise LakeError("a topic is appended to, never overwritten", "usage", 'mode("append")')
        if len(asked.topics) != 1 or asked.topics[0].endswith("*"):
            raise LakeError("the option topics names the one topic that is written to", "usage")
        names = set(schema.names)
        if "data" not in names or names - _COLUMNS:
            what = f"the columns are {', '.join(schema.names)}; what can be written is data, tag, node, meta"
            raise LakeError(what, "usage", "select these: to_json(struct(…)) as data, for example")
        self._asked = asked
        self._topic = asked.topics[0]
        with asked.daemon() as daemon:
            prepare(daemon, self._topic)

    def _send(self, batches: Iterator[Any], query: str, epoch: str) -> Written:
        from pyspark import TaskContext

        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        rows = chunk = 0
        with self._asked.daemon() as daemon:
            for records in chunks_of(batches, self._asked.chunk_rows):
                key = f"{query}:{epoch}:{partition}:{chunk}"
                body = b'{"idempotency_key":%b,"records":[%b]}' % (_encode(key), b",".join(records))
                daemon.fetch("POST", f"/v0/topics/{self._topic}?return_seqs=false", body)
                rows, chunk = rows + len(records), chunk + 1
        return Written(rows)


def prepare(daemon: Daemon, topic: str) -> None:
    """Make the topic, or see that it remembers keys for long enough. Raises `LakeError`."""
    try:
        found = daemon.call("GET", f"/v0/topics/{topic}")
    except Refusal as refusal:
        if refusal.status != 404:
            raise
        daemon.call("PUT", f"/v0/topics/{topic}", {"idempotency_window_ms": WINDOW_MS})
        return
    window = found["config"]["idempotency_window_ms"]
    if window < WINDOW_MS_MIN:
        what = f"topic {topic!r} remembers idempotency keys for {window} ms, which is too short to write each row once"
        raise LakeError(what, "invalid_request", f"topics set {topic} idempotency_window_ms=7d")


def chunks_of(batches: Iterator[Any], rows: int) -> Iterator[list[bytes]]:
    """Records as JSON, in writes that the daemon takes; where they are cut follows from the rows alone."""
    held: list[bytes] = []
    size = 0
    for batch in batches:
        columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        for index, data in enumerate(columns["data"]):
            record = _record(data, {name: values[index] for name, values in columns.items()})
            if held and (len(held) == rows or size + len(record) > CHUNK_BYTES):
                yield held
                held, size = [], 0
            held.append(record)
            size += len(record)
    if held:
        yield held


def _record(data: Any, row: dict[str, Any]) -> bytes:
    if data is None:
        raise LakeError("a row has no data", "invalid_request", "JSON's null is the text null")
    parts = [b'"data":' + _value("data", data)]
    texts = [(name, row[name]) for name in ("tag", "node") if row.get(name) is not None]
    parts += [b'"%b":%b' % (name.encode(), _encode(text)) for name, text in texts]
    meta = row.get("meta")
    if meta is not None:
        parts.append(b'"meta":' + _value("meta", meta))
    return b"{" + b",".join(parts) + b"}"


def _value(name: str, text: Any) -> bytes:
    """One JSON value as it came: what is none, or more than one, would break out of its record."""
    if not isinstance(text, str | bytes):
        raise LakeError(f"a row's {name} is no text: {text!r}", "invalid_request", "to_json, or a cast to string")
    raw = text.encode() if isinstance(text, str) else text
    try:
        _decode(hidden(raw) if b"\\u" in raw else raw)
    except msgspec.DecodeError as error:
        raise LakeError(f"a row's {name} is no JSON value: {raw[:80]!r}", "invalid_request") from error
    except RecursionError as error:
        raise LakeError(f"a row's {name} nests too deep: {raw[:80]!r}", "invalid_request") from error
    return raw


class TopicsWriter(_Sink, DataSourceArrowWriter):
    """A batch write."""

    def __init__(self, asked: Options, schema: Any, overwrite: bool) -> None:
        super().__init__(asked, schema, overwrite)
        self._query = asked.query_id or secrets.token_hex(8)

    def write(self, iterator: Iterator[Any]) -> Written:
        """One partition."""
        return self._send(iterator, self._query, "batch")


class TopicsStreamWriter(_Sink, DataSourceStreamArrowWriter):
    """A streaming sink."""

    def write(self, iterator: Iterator[Any]) -> Written:
        """One partition of one epoch; both are known by what Spark tells the task."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "a task has a context"
        query = self._asked.query_id or context.getLocalProperty("sql.streaming.queryId")
        epoch = context.getLocalProperty("streaming.sql.batchId")
        if not query or epoch is None:
            raise LakeError("Spark has not told the task which query and epoch it writes", "internal")
        return self._send(iterator, query, epoch)
