"""Bodies of writes, made and then spoilt, and what both ways of reading and rendering them say.

`Maker` makes what clients send: records of any JSON with odd white space, escapes and characters, in any order of
members, and lines. `spoil` changes a few bytes in the ways that parsers go wrong by. The differences between the two
ways are the findings; there must be none.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final

import msgspec

from engine import scan
from engine.commands import Batch
from engine.errors import Refused
from engine.fragment import render
from engine.limits import Limits
from topics_daemon.decode import decode_ndjson, decode_write
from topics_daemon.decode_many import BEGIN, take_apart

LIMITS: Final = Limits(nesting=6, batch_records=6)
"""Low, so that bodies reach the bounds."""

TEXTS: Final = (
    *(b"", b"a", b"GET /articles/2026 200 1.10 Mozilla/5.0 (X11; Linux x86_64)", b"12345678", b"1234567", b"\x7f"),
    *(
        b'\\"',
        b"\\\\",
        b"\\/",
        b"\\b\\f\\n\\r\\t",
        b"\\u0041",
        b"\\u00e9",
        b"\\ud83d\\ude00",
        b"\\uDBFF\\uDFFF",
        b"\\u0000",
    ),
    *("é".encode(), "漢字".encode(), "😀".encode(), "\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff".encode()),
)
NUMBERS: Final = (
    *(b"0", b"-0", b"1", b"-12", b"1.5", b"0.10", b"1e3", b"1E+5", b"2e-07", b"1e999", b"12345678901234567890123"),
)
SPACES: Final = (b"", b"", b"", b"", b"", b" ", b"\n", b"\t \r\n", b" " * 19)
TOKENS: Final = (
    *(b'"', b"\\", b",", b":", b"{", b"}", b"[", b"]", b"\n", b"\r", b" ", b"\0", b"\x1f", b"\x7f", b"\x80", b"\xff"),
    *(
        b"\\u",
        b"\\ud800",
        b"\\udc00",
        b"\\ud83d\\u0041",
        b"\\udc00\\udc00",
        b"\\ud800\\ud800",
        b"\\ud83d",
        b"\\x",
        b"\\u12g4",
        b"\\u12",
        b"\xc0\xaf",
        b"\xc1\xbf",
    ),
    *(b"\xe0\x80\xaf", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf0\x80\x80\xaf", b"\xf0\x8f\xbf\xbf"),
    *(
        b"\xf4\x90\x80\x80",
        b"\xf5\x80\x80\x80",
        b"\xc3",
        b"\xe6\xbc",
        b"\xf0\x9f\x98",
        b"\xe6\xbc\x22",
        b"\xed\x9f\xbf",
    ),
    *(
        b"01",
        b"-",
        b"1.",
        b".5",
        b"1e",
        b"+1",
        b"NaN",
        b"Infinity",
        b"null",
        b"true",
        b"tru",
        b"nul",
        b"falsey",
        b"\xef\xbb\xbf",
    ),
    *(
        b"[[[[[[",
        b"]]]]]]",
        b"[[[[[[[1]]]]]]]",
        b'{"a":',
        b'"data":1',
        b',"data":2',
        b'"tag":"t",',
        b'"meta":{},',
        b'"x":1,',
    ),
    *(
        b'{"data":1},',
        b'"records":[],',
        b'"records":[{"data":1}],',
        b'"node":"n",',
        b'"tag":null,',
        b'"tag":7,',
        b'"tag":"\\u0061",',
    ),
)


class Maker:
    """Bodies by chance."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance

    def body(self) -> bytes:
        """A write body that is nearly always good."""
        chance = self.chance
        records = [self._record() for _ in range(chance.choice((1, 1, 2, 3, 7)))]
        members = [b'"records"' + self._colon() + self._array(records)]
        for name, values in (
            (b"node", (b'"n"', b"null", b'"\\u00e9"')),
            (b"idempotency_key", (b'"k-1"', b'"\\ud83d\\ude00"', b'""')),
            (b"create", (b"true", b"false", b"null")),
            (b"ack", (b'"fsync"', b'"disk"')),
            (b"return_seqs", (b"false", b"true", b"1")),
            (b"disable_backpressure", (b"true",)),
            (b"config", (b"{}", b"null", b'{"max_age_ms":1000}', b'{"durability":"fsync","what":[1]}')),
            (b"colour", (b'"red"',)),
            (b"recor\\u0064s", (b"[]", b'[{"data":9}]')),
            (b"n\\u006fde", (b'"escaped"',)),
            (b"records", (b"[]", b'[{"data":8}]')),
        ):
            if chance.random() < 0.06:
                members.append(b'"%b"' % name + self._colon() + chance.choice(values))
        chance.shuffle(members)
        return self._space() + b"{" + self._space() + self._joined(members) + b"}" + self._space()

    def many(self) -> bytes:
        """A body of a write to several topics, whose parts may be anything."""
        chance = self.chance
        names = (b'"a"', b'"a"', b'"b-1"', b'"\xc3\xa9"', b'"\\u0061"', b'"\\ud800"', b'""')
        parts = [
            chance.choice(names) + self._colon() + (self.body() if chance.random() < 0.7 else self.value(2))
            for _ in range(chance.choice((0, 1, 2, 3)))
        ]
        members = [b'"topics"' + self._colon() + b"{" + self._space() + self._joined(parts) + b"}"]
        for member in (
            b'"node":"n"',
            b'"node":null',
            b'"node":"\\ud800"',
            b'"colour":[1]',
            b'"topics":{}',
            b'"t\\u006fpics":1',
        ):
            if chance.random() < 0.06:
                members.insert(chance.randrange(len(members) + 1), member)
        return self._space() + b"{" + self._space() + self._joined(members) + b"}" + self._space()

    def lines(self) -> bytes:
        """A body of lines."""
        ends = (b"\n", b"\n", b"\n", b"\r\n", b" \n", b"\n\n")
        values = [self.value(3).replace(b"\n", b" ") for _ in range(self.chance.randrange(9))]
        return b"".join(value + self.chance.choice(ends) for value in values)[
            : None if self.chance.random() < 0.7 else -1
        ]

    def value(self, depth: int) -> bytes:
        """Any JSON."""
        chance = self.chance
        kind = chance.randrange(8 if depth else 5)
        if kind < 2:
            return self._string()
        if kind == 2:
            return chance.choice(NUMBERS)
        if kind == 3:
            return chance.choice((b"true", b"false", b"null"))
        if kind == 4:
            nested = chance.randrange(LIMITS.nesting + 3)
            return b"[" * nested + b"1" + b"]" * nested
        items = [self.value(depth - 1) for _ in range(chance.randrange(4))]
        if kind < 7:
            return b"{" + self._joined([self._string() + self._colon() + item for item in items]) + b"}"
        return self._array(items)

    def spoil(self, body: bytes) -> bytes:
        """The same with a few bytes changed."""
        chance = self.chance
        for _ in range(chance.choice((1, 1, 2, 4))):
            at = chance.randrange(len(body) + 1)
            kind = chance.randrange(6)
            if kind == 0:
                body = body[:at] + chance.choice(TOKENS) + body[at:]
            elif kind == 1:
                body = body[:at] + bytes([chance.randrange(256)]) + body[at + 1 :]
            elif kind == 2:
                body = body[:at] + body[at + chance.randrange(1, 9) :]
            elif kind == 3:
                body = body[:at]
            elif kind == 4:
                other = chance.randrange(len(body) + 1)
                body = body[:at] + body[other : other + chance.randrange(20)] + body[at:]
            else:
                body = body[:at] + chance.choice(TOKENS) + body[at + chance.randrange(4) :]
        return body

    def batch(self) -> Batch:
        """A batch as the engine may get it: any text, any bytes."""
        chance = self.chance
        count = chance.choice((1, 2, 3, 9))
        texts: tuple[Any, ...] = (None, "", "t", "node-1", "é", "漢😀", "\x7f\u2028", "a" * 40)
        if chance.random() < 0.3:
            texts += ('quo"te', "back\\slash", "\n", "\x00", "\x1f")

        def column(values: tuple[Any, ...]) -> list[Any] | None:
            return [chance.choice(values) for _ in range(count)] if chance.random() < 0.5 else None

        datas = [self.value(2) for _ in range(count)]
        return Batch(datas, tags=column(texts), nodes=column(texts), metas=column((None, b"{}", b'{"k":"\xc3\xa9"}')))

    def _record(self) -> bytes:
        members = [b'"data"' + self._colon() + self.value(3)]
        for name, values in (
            (b"tag", (self._string(), b'"t"', b"null")),
            (b"node", (self._string(), b'"n"', b"null")),
            (b"meta", (b"{}", b'{"a":1}', b"null", b"7")),
        ):
            if self.chance.random() < 0.25:
                members.append(b'"%b"' % name + self._colon() + self.chance.choice(values))
        if self.chance.random() < 0.03:
            del members[0]
        self.chance.shuffle(members)
        return b"{" + self._space() + self._joined(members) + self._space() + b"}"

    def _string(self) -> bytes:
        return b'"' + b"".join(self.chance.choices(TEXTS, k=self.chance.choice((0, 1, 1, 2, 3)))) + b'"'

    def _array(self, items: list[bytes]) -> bytes:
        return b"[" + self._space() + self._joined(items) + b"]"

    def _joined(self, items: list[bytes]) -> bytes:
        return b",".join(self._space() + item + self._space() for item in items)

    def _colon(self) -> bytes:
        return self._space() + b":" + self._space()

    def _space(self) -> bytes:
        return self.chance.choice(SPACES)


def said(ask: Callable[[], object]) -> object:
    """What a question gives: its answer in plain values, or what it is refused with."""
    try:
        return _plain(ask())
    except Refused as error:
        return (error.code, str(error), error.detail)


def _plain(answer: object) -> object:
    if isinstance(answer, Batch):
        return answer.datas, answer.tags, answer.nodes, answer.metas
    if isinstance(answer, msgspec.Struct):
        return [_plain(getattr(answer, name)) for name in answer.__struct_fields__]
    return answer


def both(ask: Callable[[], object]) -> tuple[object, object]:
    """What Python alone says, and what is said with the compiled part; whatever was in use is in use afterwards."""
    before = scan.is_compiled()
    try:
        scan.choose(compiled=False)
        alone = said(ask)
        scan.choose(compiled=True)
        return alone, said(ask)
    finally:
        scan.choose(compiled=before)


class Tally:
    """What was compared, and how much of it the compiled part took."""

    def __init__(self) -> None:
        self.cases = self.taken = 0

    def compare(self, what: bytes | Batch, ask: Callable[[], object], taken: bool) -> None:
        """One case; raises with it where the two ways differ."""
        alone, together = both(ask)
        assert alone == together, (what if isinstance(what, bytes) else _plain(what), alone, together)
        self.cases += 1
        self.taken += taken


def taken_apart(body: bytes) -> tuple[list[tuple[str, bytes]], str | None, list[str]]:
    """A write to several topics: the parts in their order, the default node, and warnings."""
    warnings: list[str] = []
    parts: dict[str, bytes] = {}
    steps = take_apart(body, LIMITS, warnings, parts)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return list(parts.items()), end.value, warnings


def is_begun(body: bytes) -> bool:
    """Whether the first member of the topics is taken by what is compiled."""
    begin = BEGIN.match(body)
    return begin is not None and scan.member(body, LIMITS.nesting, begin.end()) is not None


def round_of(maker: Maker, writes: Tally, lines: Tally, fragments: Tally, many: Tally) -> None:
    """A few cases of each kind."""
    write, line, draw = scan.write, scan.lines, scan.render
    depth, most, default = LIMITS.nesting, LIMITS.batch_records, maker.chance.choice((None, None, "default"))
    body, run, several = maker.body(), maker.lines(), maker.many()
    for spoilt in range(4):
        parts = maker.spoil(several) if spoilt else several
        many.compare(parts, partial(taken_apart, parts), is_begun(parts))
        one, other = (maker.spoil(body), maker.spoil(run)) if spoilt else (body, run)
        writes.compare(one, partial(decode_write, one, LIMITS, default), write(one, depth, most) is not None)
        lines.compare(other, partial(decode_ndjson, other, LIMITS), line(other, depth, most) is not None)
    batch = maker.batch()
    first = maker.chance.choice((1, 8, 99, 999_995, 10**17, 10**18 - 3, 2**64 - 20))
    ts = maker.chance.choice((0, *[1_748_450_000_000] * 8, 10**18))
    taken = draw(batch.datas, batch.tags, batch.nodes, batch.metas, first, ts) is not None
    fragments.compare(batch, lambda: render(batch, first, ts), taken)
