"""JSON values that break careless code, as exact bytes.

Each is one valid JSON text. `BROKEN_LINES` hold raw line breaks between tokens: exact in JSON answers, spaces in line
formats, several `data:` lines in an event stream.
"""

from __future__ import annotations

VALUES: list[tuple[str, bytes]] = [
    ("u64 max + 1", b"18446744073709551616"),
    ("i64 min - 1", b"-9223372036854775809"),
    ("2^53 + 1", b"9007199254740993"),
    ("400 digits", b"9" * 400),
    ("trailing zero", b"1.10"),
    ("1e3", b"1e3"),
    ("1E+03", b"1E+03"),
    ("minus zero", b"-0"),
    ("minus zero float", b"-0.0"),
    ("overflows a double", b"1e999"),
    ("underflows a double", b"1e-999"),
    ("0.1 with tail", b"0.1000000000000000055511151231257827"),
    ("zero exponent", b"0e0"),
    ("true", b"true"),
    ("false", b"false"),
    ("null", b"null"),
    ("empty string", b'""'),
    ("empty object", b"{}"),
    ("empty array", b"[]"),
    ("empty containers with white space", b"[ { } , [ \t ] ]"),
    ("escaped slash", b'"a\\/b"'),
    ("needless \\u", b'"\\u0041\\u002f\\u00e9"'),
    ("upper and lower hex", b'"\\u00AB\\u00ab"'),
    ("escaped NUL", b'"a\\u0000b"'),
    ("all short escapes", b'"\\"\\\\\\/\\b\\f\\n\\r\\t"'),
    ("escaped surrogate pair", b'"\\ud83d\\ude80"'),
    ("lone high surrogate", b'"\\ud83d"'),
    ("lone low surrogate", b'"x\\udc00y"'),
    ("surrogates the wrong way round", b'"\\ude80\\ud83d"'),
    ("raw emoji", '"🚀 and 👩‍🚀"'.encode()),
    ("line separators", '"\u2028 \u2029 \u0085"'.encode()),
    ("byte order mark", '"\ufeff"'.encode()),
    ("non-characters", '"\uffff\ufffe"'.encode()),
    ("DEL and C1", '"\x7f\u009b31m"'.encode()),
    ("right to left", '"\u202eabc\u202c"'.encode()),
    ("terminal escape", b'"\\u001b]0;title\\u0007"'),
    ("key order", b'{"z":1,"a":2,"Z":3,"A":4,"10":5,"9":6}'),
    ("duplicate keys", b'{"a":1,"a":2,"a":{"a":3,"a":4}}'),
    ("same key escaped", b'{"a":1,"\\u0061":2}'),
    ("empty and blank keys", b'{"":1," ":2,"\\t":3}'),
    ("__proto__", b'{"__proto__":{"x":1},"constructor":null}'),
    ("inner white space", b'{ "a" :\t[ 1 ,  2 ],"b"  : { "c" : "  d  " } }'),
    ("looks like a tombstone", b'{"$tombstone":{"gap_from":1,"gap_to":9,"reason":"cap"}}'),
    ("looks like a page", b'{"$page":{"next_from_seq":99,"caught_up":true}}'),
    ("looks like a record", b'{"$seq":1,"$ts":2,"$node":"n","data":{"$seq":3},"meta":{},"$tag":"t"}'),
    ("looks like the joint of two records", b'"},{\\"$seq\\":2,\\"$ts\\":"'),
    ("looks like an error", b'{"error":{"code":"internal","message":"no"}}'),
    ("looks like an event", b'"\\n\\nevent: record\\ndata: {}\\n\\n: hb"'),
    ("nested 100 deep", b"[" * 100 + b"]" * 100),
    ("objects 60 deep", b'{"a":' * 60 + b"1" + b"}" * 60),
    ("backslashes before quotes", b'"\\\\\\\\\\"\\\\"'),
    ("70 KiB of a character of three bytes", b'"' + "→".encode() * 24_000 + b'"'),
    ("thousand small numbers", b"[" + b",".join(b"%d.0" % n for n in range(1000)) + b"]"),
]

BROKEN_LINES: list[tuple[str, bytes]] = [
    ("LF between tokens", b'{\n"a":\n1\n,"b":[\n]\n}'),
    ("CRLF between tokens", b'[1,\r\n2,\r\n"x"]'),
    ("CR between tokens", b'{"a"\r:\r1}'),
    ("indented", b'{\n  "a": [\n    1.10,\n    "\\n"\n  ]\n}'),
]

STRINGS: list[tuple[str, bytes]] = [
    ("empty", b""),
    ("blanks", b"  two  blanks  "),
    ("quotes and backslashes", b'say "x" \\ /'),
    ("tab", b"a\tb"),
    ("control characters", b"\x01\x1b[31m\x7f"),
    ("NUL", b"a\x00b"),
    ("a lone CR inside", b"a\rb"),
    ("emoji", "🚀 déjà vu".encode()),
    ("line separator", "a\u2028b\u0085c".encode()),
    ("looks like JSON", b'{"a":1}'),
    ("byte order mark", "\ufeffx".encode()),
    ("long", b"x" * 100_000),
]


def as_line(raw: bytes) -> bytes:
    """What a line format shows of a value: raw CR and LF are spaces."""
    return raw.replace(b"\r", b" ").replace(b"\n", b" ")


def as_event_data(raw: bytes) -> bytes:
    """What a reader of an event stream puts together: every kind of line break is LF."""
    return raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
