"""A record's bytes: rendered once, when it is written, and only ever cut and sliced afterwards (storage.md §1).

    {"$seq":7,"$ts":1748450000000,"$node":"n","data":…,"meta":{…},"$tag":"t"}

This order, no white space of ours, absent fields left out; `data` and `meta` are the bytes that came in. Fragments of
one batch are joined with `,`, so that a run of records is one slice. Where the parts of a fragment lie follows by
arithmetic from four lengths and the number of digits in its seq and ts:

    {"$seq":  digits  ,"$ts":  digits  ,   [node part]  "data":  …  [meta part]  [tag part]  }
                                           "$node":"n",             ,"meta":{…}  ,"$tag":"t"

Nothing here does I/O or knows about frames, blocks or topics.
"""

from __future__ import annotations

from array import array
from typing import Final

import msgspec

from engine import scan
from engine.commands import Batch

_json: Final = msgspec.json.encode

_SEQ: Final = b'{"$seq":'
_TS: Final = b',"$ts":'
_DATA: Final = b'"data":'
PREFIX_FIXED: Final = len(_SEQ) + len(_TS) + 1
"""Bytes of the prefix that are not digits, its closing comma included."""
NODE_FIXED: Final = len(b'"$node":,')
META_FIXED: Final = len(b',"meta":')
TAG_FIXED: Final = len(b',"$tag":')

_BREAKS: Final = bytes.maketrans(b"\r\n", b"  ")


class Rendered(msgspec.Struct, eq=False):
    """The fragments of one batch, and what it takes to find their parts again.

    `fragments` are joined with commas; `strides[i]` is the length of fragment i plus one (for its comma), so record i
    starts at the sum of the strides before it. `node_lens`, `meta_lens`, `tag_lens` are the lengths of those parts as
    drawn above (0 where a record lacks one), None where no record of the batch has one. `size` is what the records
    count for together (`engine.topic.block.counted_bytes`), where that is known without further ado, because none has
    more than data; else -1.
    """

    fragments: bytes
    strides: array[int]
    node_lens: array[int] | None = None
    meta_lens: array[int] | None = None
    tag_lens: array[int] | None = None
    size: int = -1

    def __len__(self) -> int:
        return len(self.strides)


def render(batch: Batch, first_seq: int, ts: int) -> Rendered:
    """Render a checked batch whose records get the seqs from `first_seq` on, and all the same `ts` (ms)."""
    datas = batch.datas
    has_columns = batch.nodes is not None or batch.metas is not None or batch.tags is not None
    if len(datas) == 1 and not has_columns:
        data = datas[0]
        fragment = b'{"$seq":%d,"$ts":%d,"data":%b}' % (first_seq, ts, data)
        return Rendered(fragment, array("I", (len(fragment) + 1,)), None, None, None, len(data))
    size = -1 if has_columns else sum(map(len, datas))
    found = scan.render(datas, batch.tags, batch.nodes, batch.metas, first_seq, ts)
    if found is not None:
        fragments, strides, *lens = found
        nodes, metas, tags = [None if part is None else array("I", part) for part in lens]
        return Rendered(fragments, array("I", strides), nodes, metas, tags, size)
    if has_columns:
        return _render_columns(batch, first_seq, ts)
    # One `map` instead of a step in Python for each record.
    form = b'{"$seq":%%d,"$ts":%d,"data":%%b}' % ts
    parts = list(map(form.__mod__, enumerate(datas, first_seq)))
    return Rendered(b",".join(parts), array("I", [len(part) + 1 for part in parts]), size=size)


def _render_columns(batch: Batch, first_seq: int, ts: int) -> Rendered:
    nodes = _texts(batch.nodes, b'"$node":%b,')
    tags = _texts(batch.tags, b',"$tag":%b')
    metas = None if batch.metas is None else [b"" if m is None else b',"meta":%b' % m for m in batch.metas]
    none = [b""] * len(batch.datas)
    middle = b',"$ts":%d,' % ts
    parts = [
        b'{"$seq":%d%b%b"data":%b%b%b}' % (seq, middle, node, data, meta, tag)
        for seq, (node, data, meta, tag) in enumerate(
            zip(nodes or none, batch.datas, metas or none, tags or none, strict=True), first_seq
        )
    ]
    return Rendered(
        b",".join(parts),
        array("I", [len(part) + 1 for part in parts]),
        None if nodes is None else array("I", map(len, nodes)),
        None if metas is None else array("I", map(len, metas)),
        None if tags is None else array("I", map(len, tags)),
    )


def _texts(column: list[str | None] | None, form: bytes) -> list[bytes] | None:
    """The rendered parts of a column of texts; equal texts, which are the rule, are encoded once."""
    if column is None:
        return None
    known: dict[str | None, bytes] = {None: b""}
    out = []
    for text in column:
        part = known.get(text)
        if part is None:
            part = known[text] = form % _json(text)
        out.append(part)
    return out


def digits(number: int) -> int:
    """How many decimal digits a number takes."""
    return len(str(number))


def ts_of(fragments: bytes, start: int) -> int:
    """The `$ts` of the fragment that starts at `start`."""
    begin = fragments.index(b",", start) + len(_TS)
    return int(fragments[begin : fragments.index(b",", begin)])


def node_of(fragments: bytes, start: int, node_len: int) -> str | None:
    """The `$node` of the fragment at `start`, whose node part is `node_len` long."""
    if node_len == 0:
        return None
    begin = fragments.index(b",", fragments.index(b",", start) + 1) + 1 + len(b'"$node":')
    node: str = msgspec.json.decode(fragments[begin : begin + node_len - NODE_FIXED], type=str)
    return node


def tag_of(fragments: bytes, end: int, tag_len: int) -> str | None:
    """The `$tag` of the fragment that ends before `end`, whose tag part is `tag_len` long."""
    if tag_len == 0:
        return None
    tag: str = msgspec.json.decode(fragments[end - 1 - tag_len + TAG_FIXED : end - 1], type=str)
    return tag


def cut(
    fragment: bytes,
    node_len: int,
    meta_len: int,
    tag_len: int,
    *,
    include_tag: bool,
    include_meta: bool,
    include_data: bool,
) -> bytes:
    """A fragment without the parts that a reader did not ask for."""
    end = len(fragment) - 1
    tag = fragment[end - tag_len : end] if include_tag else b""
    meta_end = end - tag_len
    meta = fragment[meta_end - meta_len : meta_end] if include_meta else b""
    data_end = meta_end - meta_len
    if include_data:
        return fragment[:data_end] + meta + tag + b"}"
    prefix_end = fragment.index(b",", fragment.index(b",") + 1) + node_len
    head = fragment[:prefix_end]
    return head + meta + tag + b"}"


def without_breaks(fragments: bytes) -> bytes:
    """The same bytes fit for a line: raw line breaks, which JSON allows only between tokens, become spaces."""
    if b"\n" in fragments or b"\r" in fragments:
        return fragments.translate(_BREAKS)
    return fragments


def payload_bytes(rendered: Rendered, first_seq: int, ts: int) -> list[int]:
    """Bytes of `data`, `meta`, `node` and `tag` of each record, as `bytes` of a topic counts them.

    `node` and `tag` count as the JSON strings they are rendered as, without their quotes.
    """
    fixed = PREFIX_FIXED + digits(ts) + len(_DATA) + 2
    width, limit = digits(first_seq), 10 ** digits(first_seq)
    sizes = []
    for seq, stride in enumerate(rendered.strides, first_seq):
        if seq == limit:
            width, limit = width + 1, limit * 10
        sizes.append(stride - fixed - width)
    for lens, extra in ((rendered.node_lens, NODE_FIXED + 2), (rendered.meta_lens, META_FIXED)):
        if lens is not None:
            sizes = [size - (extra if part else 0) for size, part in zip(sizes, lens, strict=True)]
    if rendered.tag_lens is not None:
        sizes = [size - (TAG_FIXED + 2 if part else 0) for size, part in zip(sizes, rendered.tag_lens, strict=True)]
    return sizes
