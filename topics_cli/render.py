"""Records as people or programs want them: lines of the daemon in, bytes for stdout out.

    text      the data: strings decoded, bytes restored, everything else as JSON
    raw       the data as the JSON that is stored
    ndjson    the whole record, as the daemon rendered it; `json` is the same as one array
    table     seq, time, tag and data in columns
    --fields, --template    what is picked from each record

On a terminal everything but `raw` is escaped; into a pipe the bytes are what they are.
"""

from __future__ import annotations

from topics_cli.cut import bare_data, seq_of, text_of, texts, ts_of
from topics_cli.exits import usage
from topics_cli.framing import LINE, frame
from topics_cli.output import JSON, NDJSON, RAW, TABLE, TEXT, Out
from topics_cli.talk import columns, escape, fitted, for_terminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BESIDE_MIN = 20
"""Data that has fewer columns than this beside what is said of it goes below."""
DIM, PLAIN = b"\x1b[2m", b"\x1b[0m"
_ALIASES = {"seq": "$seq", "ts": "$ts", "node": "$node", "tag": "$tag"}
_FIELDS = ("topic", "seq", "ts", "time", "node", "tag", "data", "meta", "lease_id", "deadline", "deliveries")


class Render:
    """How records are shown in one run."""

    __slots__ = (
        "_fields",
        "_first",
        "_framing",
        "_pieces",
        "form",
        "many",
        "needs_exact",
        "needs_meta",
        "needs_tags",
        "out",
    )

    def __init__(self, out: Out, values: dict[str, Any], framing: str, many: bool, default: str = TEXT) -> None:
        self.out = out
        self.form = out.form or default
        self.many = many
        """Whether several topics are shown."""
        self._framing = framing
        self._first = True
        self._fields = [name.strip() for name in values["fields"].split(",")] if values.get("fields") else None
        self._pieces = read_template(values["template"]) if values.get("template") else None
        if self._fields and self._pieces:
            raise usage("--fields and --template both say what to show", "give one of them")
        _check_fields(self._fields or [piece[0] for piece in self._pieces or () if isinstance(piece, tuple)])
        whole = self.form in (NDJSON, JSON, TABLE) or self._fields is not None or self._pieces is not None
        self.needs_tags = whole
        self.needs_meta = whole or self.form != RAW
        self.needs_exact = framing != LINE and not whole
        """Whether raw line breaks inside values matter."""

    def records(self, topic: str, lines: list[bytes]) -> None:
        """Show records of one topic."""
        if not lines:
            return
        if self._fields or self._pieces:
            self._emit([self._picked(topic, line) for line in lines])
        elif self.form == RAW:
            self.out.write(frame(bare_data(lines), self._framing))
        elif self.form in (NDJSON, JSON):
            if self.many:
                lines = [b'{"$topic":"' + topic.encode() + b'",' + line[1:] for line in lines]
            self._emit(lines)
        elif self.form == TABLE:
            self._emit([self._row(topic, line) for line in lines])
        elif self.out.is_terminal:
            prefix = self._dim(topic + "  ") if self.many else b""
            self.out.write(b"".join([prefix + _shown(text) + b"\n" for text in texts(lines)]))
        else:
            self.out.write(frame(texts(lines), self._framing))

    def gap(self, topic: str, line: bytes) -> None:
        """Show a tombstone where the form has room for one."""
        if self.form in (NDJSON, JSON) and not self._fields and not self._pieces:
            self._emit([b'{"$topic":"' + topic.encode() + b'",' + line[1:] if self.many else line])

    def end(self) -> None:
        """Close what was opened."""
        if self.form == JSON:
            self.out.write(b"[]\n" if self._first else b"\n]\n")

    def _emit(self, lines: list[bytes]) -> None:
        if self.form == JSON:
            self.out.write(b"[\n" if self._first else b",\n")
            self._first = False
            self.out.write(b",\n".join(self._dressed(lines)))
        else:
            self.out.write(frame(self._dressed(lines), self._framing))

    def _dressed(self, lines: list[bytes]) -> list[bytes]:
        return [_shown(line) for line in lines] if self.out.is_terminal and self.form != TABLE else lines

    def _dim(self, text: str) -> bytes:
        return DIM + for_terminal(text) + PLAIN if self.out.is_dressed else for_terminal(text)

    def _row(self, topic: str, line: bytes) -> bytes:
        from topics_cli.times import show_time

        fields = Picker(topic, line)
        head = f"{seq_of(line):>8}  {show_time(ts_of(line))}  "
        if self.many:
            head += f"{topic:<12}  "
        head += f"{fields.text('tag') or '-':<12}  "
        data = text_of(line, line.index(b'"data":') + 7)
        if not self.out.is_terminal:
            return head.encode("utf-8", "backslashreplace") + data.replace(b"\n", b" ")
        room, between = columns() - len(escape(head)), b""
        if room < BESIDE_MIN:
            head, room, between = head.rstrip(), max(BESIDE_MIN, columns() - 2), b"\n  "
        text = escape(data.decode("utf-8", "backslashreplace"))
        shown = fitted(text, room)
        return (
            self._dim(head) + between + (shown if len(shown) >= len(text) else fitted(text, room - 3) + "...").encode()
        )

    def _picked(self, topic: str, line: bytes) -> bytes:
        fields = Picker(topic, line)
        if self._pieces is not None:
            return b"".join(
                fields.shown(piece[0]) if isinstance(piece, tuple) else piece.encode("utf-8", "backslashreplace")
                for piece in self._pieces
            )
        names = self._fields or []
        if self.form in (NDJSON, JSON):
            from _json import encode_basestring

            pairs = [(name, fields.value(name)) for name in names]
            inside = ",".join(f"{encode_basestring(name)}:{value or 'null'}" for name, value in pairs)
            return ("{" + inside + "}").encode("utf-8", "surrogatepass")
        return (b"  " if self.out.is_terminal else b"\t").join([fields.shown(name) for name in names])


class Picker:
    """Fields of one record by name: `seq`, `ts`, `time`, `topic`, `node`, `tag`, `data`, `meta.k`, `data.a.0.b`."""

    __slots__ = ("_line", "_members", "_topic")

    def __init__(self, topic: str, line: bytes) -> None:
        from topics_cli.rawjson import members

        self._topic = topic
        self._line = line
        self._members = members(line.decode("utf-8", "surrogatepass"))

    def value(self, name: str) -> str | None:
        """The field as JSON."""
        from topics_cli.rawjson import maybe_pick

        if name == "topic":
            return f'"{self._topic}"'
        if name == "time":
            from topics_cli.times import show_time

            return f'"{show_time(int(self._members["$ts"]))}"'
        first, _, rest = name.removeprefix("$").partition(".")
        value = self._members.get(_ALIASES.get(first, first))
        return maybe_pick(value, rest.split(".")) if value is not None and rest else value

    def text(self, name: str) -> str:
        """The field as text, "" when there is none."""
        from topics_cli.rawjson import plain

        value = self.value(name)
        return "" if value is None else plain(value)

    def shown(self, name: str) -> bytes:
        """The field as it is shown: data is the text or the bytes that were written."""
        if name == "data":
            return text_of(self._line, self._line.index(b'"data":') + 7)
        return self.text(name).encode("utf-8", "backslashreplace")


def _check_fields(names: list[str]) -> None:
    """Refuse a field that no record has: a name that was mistyped would show nothing, in each line."""
    for name in names:
        if name.removeprefix("$").partition(".")[0] not in _FIELDS:
            fields = ", ".join(_FIELDS[:-3])
            raise usage(f"records have no field {name!r}", f"fields: {fields}, and what is in them: data.user.name")


def read_template(text: str) -> list[str | tuple[str]]:
    """A template as literals and (field,): `{name}` is a field, `{{` a brace, backslash-t a tab, backslash-n a line."""
    pieces: list[str | tuple[str]] = []
    at, literal = 0, ""
    while at < len(text):
        pair = text[at : at + 2]
        if pair in ("{{", "}}", "\\t", "\\n", "\\\\"):
            literal += {"{{": "{", "}}": "}", "\\t": "\t", "\\n": "\n", "\\\\": "\\"}[pair]
            at += 2
        elif text[at] == "{":
            end = text.find("}", at)
            if end < 0 or end == at + 1:
                raise usage(f"the template {text!r} has a brace that is not closed", "write {{ for a brace")
            pieces += [literal, (text[at + 1 : end],)]
            literal, at = "", end + 1
        else:
            literal += text[at]
            at += 1
    return [*pieces, literal]


def _shown(text: bytes) -> bytes:
    return for_terminal(text.decode("utf-8", "backslashreplace"))
