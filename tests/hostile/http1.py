"""HTTP/1.1 that means harm, by what it attacks: bytes, and the answer that is documented for them.

A table is a name for each case, the bytes, and a status; `CLOSED` stands for a connection that ends without an answer.
"""

from __future__ import annotations

from tests.daemon.kit import request

MIB = 1024 * 1024
CLOSED = 0
"""Stands for: closed without an answer."""


def head(*lines: str, body: bytes = b"") -> bytes:
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


JSON = "Content-Type: application/json"
WRITE = ("POST /v0/topics/t HTTP/1.1", "Host: localhost", JSON)
GOOD = b'{"records":[{"data":1}]}'
LENGTH = f"Content-Length: {len(GOOD)}"

MALFORMED = {
    "length and chunked": (head(*WRITE, LENGTH, "Transfer-Encoding: chunked", body=GOOD), 400),
    "chunked and length": (head(*WRITE, "Transfer-Encoding: chunked", LENGTH, body=b"0\r\n\r\n"), 400),
    "two equal lengths": (head(*WRITE, LENGTH, LENGTH, body=GOOD), 400),
    "two different lengths": (head(*WRITE, LENGTH, "Content-Length: 0", body=GOOD), 400),
    "a list of lengths": (head(*WRITE, "Content-Length: 24, 24", body=GOOD), 400),
    "a length with a plus": (head(*WRITE, "Content-Length: +24", body=GOOD), 400),
    "a negative length": (head(*WRITE, "Content-Length: -1", body=GOOD), 400),
    "a length with an underscore": (head(*WRITE, "Content-Length: 2_4", body=GOOD), 400),
    "a hexadecimal length": (head(*WRITE, "Content-Length: 0x18", body=GOOD), 400),
    "a length of other digits": (head(*WRITE)[:-4] + "\r\nContent-Length: ٢٤\r\n\r\n".encode(), 400),
    "an empty length": (head(*WRITE, "Content-Length:", body=GOOD), 400),
    "a length of 400 digits": (head(*WRITE, "Content-Length: " + "9" * 400), 413),
    "gzip, chunked": (head(*WRITE, "Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"), 400),
    "chunked, chunked": (head(*WRITE, "Transfer-Encoding: chunked, chunked", body=b"0\r\n\r\n"), 400),
    "chunked twice": (
        head(*WRITE, "Transfer-Encoding: chunked", "Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
        400,
    ),
    "xchunked": (head(*WRITE, "Transfer-Encoding: xchunked", body=b"0\r\n\r\n"), 400),
    "identity": (head(*WRITE, "Transfer-Encoding: identity", body=GOOD), 400),
    "a coding with a vertical tab": (head(*WRITE, "Transfer-Encoding: \x0bchunked", body=b"0\r\n\r\n"), 400),
    "a space before the colon": (head(*WRITE, "Transfer-Encoding : chunked", body=b"0\r\n\r\n"), 400),
    "chunked in HTTP/1.0": (
        head("POST /v0/topics/t HTTP/1.0", "Host: localhost", JSON, "Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
        400,
    ),
    "bare line feeds": (b"GET /v0/health HTTP/1.1\nHost: localhost\n\n", 400),
    "one bare line feed": (b"GET /v0/health HTTP/1.1\r\nHost: localhost\nA: b\r\n\r\n", 400),
    "a bare carriage return": (b"GET /v0/health HTTP/1.1\r\nHost: localhost\r\nA: b\rC: d\r\n\r\n", 400),
    "a folded header": (head("GET /v0/health HTTP/1.1", "Host: localhost", "A: b", " c: d"), 400),
    "a header folded by a tab": (head("GET /v0/health HTTP/1.1", "Host: localhost", "A: b", "\tc"), 400),
    "a NUL in a header": (head("GET /v0/health HTTP/1.1", "Host: localhost", "A: b\0c"), 400),
    "a NUL in the path": (head("GET /v0/topics/a\0b HTTP/1.1", "Host: localhost"), 400),
    "a header without a colon": (head("GET /v0/health HTTP/1.1", "Host: localhost", "nonsense"), 400),
    "a header without a name": (head("GET /v0/health HTTP/1.1", "Host: localhost", ": x"), 400),
    "two hosts": (head("GET /v0/health HTTP/1.1", "Host: localhost", "Host: localhost"), 400),
    "no host": (head("GET /v0/health HTTP/1.1", "A: b"), 400),
    "HTTP/0.9": (b"GET /v0/health\r\n\r\n", 400),
    "HTTP/2.0 in words": (head("GET /v0/health HTTP/2.0", "Host: localhost"), 400),
    "two spaces in the request line": (head("GET  /v0/health HTTP/1.1", "Host: localhost"), 400),
    "a space in the path": (head("GET /v0/hea lth HTTP/1.1", "Host: localhost"), 400),
    "a fragment in the path": (head("GET /v0/health#x HTTP/1.1", "Host: localhost"), 400),
    "a request line of 10 KiB": (head(f"GET /v0/topics/{'a' * 10240} HTTP/1.1", "Host: localhost"), 414),
    "a request line without end": (b"GET /" + b"a" * 20000, 414),
    "a header line of 10 KiB": (head("GET /v0/health HTTP/1.1", "Host: localhost", "A: " + "b" * 10240), 431),
    "200 headers": (head("GET /v0/health HTTP/1.1", "Host: localhost", *(f"A{n}: b" for n in range(200))), 431),
    "64 KiB of headers": (
        head("GET /v0/health HTTP/1.1", "Host: localhost", *(f"A{n}: {'b' * 1000}" for n in range(64))),
        431,
    ),
    "headers without end": (b"GET /v0/health HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 20000, 431),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64, CLOSED),
    "RESP": (b"*1\r\n$4\r\nPING\r\n", CLOSED),
    "binary": (bytes(range(256)), CLOSED),
    "a NUL first": (b"\0GET / HTTP/1.1\r\n\r\n", CLOSED),
    "a bare line feed first": (b"\nGET /v0/health HTTP/1.1\r\nHost: localhost\r\n\r\n", CLOSED),
    "an invented method": (head("BREW /v0/health HTTP/1.1", "Host: localhost"), 400),
    "a parameter given twice": (request("GET", "/v0/topics/t?touch=true&touch=false"), 400),
    "a length beyond the bound": (head(*WRITE, "Content-Length: 2097153"), 413),
    "a length of exabytes": (head(*WRITE, "Content-Length: 999999999999999999"), 413),
    "a length that no 64 bits hold": (head(*WRITE, "Content-Length: 99999999999999999999999"), 413),
    "a length that no integer holds": (head(*WRITE, "Content-Length: " + 5000 * "9"), 413),
    "a long length in zeros": (head(*WRITE, "Content-Length: " + 30 * "0" + "7"), 400),
    "two lengths, one of them endless": (head(*WRITE, "Content-Length: 7", "Content-Length: " + 30 * "9"), 400),
}

REFUSED = {
    "a bad percent escape": (head("GET /v0/topics/a%zz HTTP/1.1", "Host: localhost"), 400),
    "a path that is not UTF-8": (head("GET /v0/topics/%ff HTTP/1.1", "Host: localhost"), 400),
    "CONNECT": (head("CONNECT localhost:80 HTTP/1.1", "Host: localhost"), 404),
    "TRACE": (head("TRACE /v0/health HTTP/1.1", "Host: localhost"), 405),
    "a rebound name": (head("GET /v0/health HTTP/1.1", "Host: evil.example"), 421),
    "a rebound name with our port": (head("GET /v0/health HTTP/1.1", "Host: evil.example:4000"), 421),
    "a name that begins like ours": (head("GET /v0/health HTTP/1.1", "Host: localhost.evil.example"), 421),
    "an address that begins like ours": (head("GET /v0/health HTTP/1.1", "Host: 127.0.0.1.evil.example"), 421),
    "credentials in the host": (head("GET /v0/health HTTP/1.1", "Host: localhost@evil.example"), 421),
    "an empty host": (head("GET /v0/health HTTP/1.1", "Host:"), 421),
    "the absolute form of another host": (head("GET http://evil.example/v0/health HTTP/1.1", "Host: localhost"), 421),
    "a rebound name on an unknown path": (head("GET /nothing HTTP/1.1", "Host: evil.example"), 421),
    "a foreign origin": (head(*WRITE, LENGTH, "Origin: http://evil.example", body=GOOD), 403),
    "a foreign origin on a read": (head("GET /v0/topics HTTP/1.1", "Host: localhost", "Origin: https://a.b"), 403),
    "the null origin": (head(*WRITE, LENGTH, "Origin: null", body=GOOD), 403),
    "an origin of another port": (head(*WRITE, LENGTH, "Origin: http://localhost:3000", body=GOOD), 403),
    "a cross-site fetch": (head("GET /v0/topics HTTP/1.1", "Host: localhost", "Sec-Fetch-Site: cross-site"), 403),
    "a form of a page": (
        head("POST /v0/topics/t HTTP/1.1", "Host: localhost", "Content-Type: text/plain", LENGTH, body=GOOD),
        415,
    ),
    "a form": (
        head(
            "POST /v0/topics/t HTTP/1.1",
            "Host: localhost",
            "Content-Type: application/x-www-form-urlencoded",
            LENGTH,
            body=GOOD,
        ),
        415,
    ),
    "a body without a type": (head("POST /v0/topics/t HTTP/1.1", "Host: localhost", LENGTH, body=GOOD), 415),
    "another charset": (
        head("POST /v0/topics/t HTTP/1.1", "Host: localhost", JSON + "; charset=utf-16", LENGTH, body=GOOD),
        415,
    ),
    "another coding": (head(*WRITE, LENGTH, "Content-Encoding: br", body=GOOD), 415),
    "a path upwards": (request("GET", "/v0/topics/..%2f..%2fetc%2fpasswd"), 400),
    "a path upwards, encoded twice": (request("GET", "/v0/topics/%252e%252e%252f"), 400),
    "a name with a line break": (request("GET", "/v0/topics/a%0d%0aSet-Cookie:x"), 400),
    "a name with a NUL": (request("GET", "/v0/topics/a%00"), 400),
    "a name of 256 bytes": (request("GET", "/v0/topics/" + "a" * 256), 400),
    "a seq of other digits": (request("GET", "/v0/topics/t/records/%D9%A1"), 400),
    "a seq beyond 64 bits": (request("GET", "/v0/topics/t/records/18446744073709551616"), 400),
}

CHUNKED = (*WRITE, "Transfer-Encoding: chunked")
CHUNKS = {
    "a chunk size with a sign": (b"+5\r\nhello\r\n0\r\n\r\n", 400),
    "a chunk size with 0x": (b"0x5\r\nhello\r\n0\r\n\r\n", 400),
    "a chunk size with an underscore": (b"1_0\r\n" + b"a" * 16 + b"\r\n0\r\n\r\n", 400),
    "an empty chunk size": (b"\r\nhello\r\n0\r\n\r\n", 400),
    "a chunk size of 20 digits": (b"f" * 20 + b"\r\n", 400),
    "a chunk of exabytes": (b"7fffffffffffffff\r\n", 413),
    "a chunk size ended by a bare line feed": (b"5\nhello\r\n0\r\n\r\n", 400),
    "a chunk that is longer than it says": (b"5\r\nhello!\r\n0\r\n\r\n", 400),
    "a chunk ended by a bare line feed": (b"5\r\nhello\n0\r\n\r\n", 400),
    "a chunk extension without end": (b"5;" + b"a" * 4096, 400),
    "chunk extensions that outweigh the data": ((b"1;" + b"a" * 200 + b"\r\n1\r\n") * 400, 400),
    "a chunk extension with a control character": (b"5;\x01\r\nhello\r\n0\r\n\r\n", 400),
    "trailers without end": (b"0\r\n" + b"A: b\r\n" * 4000, 400),
    "chunks beyond the bound": (b"100000\r\n" + b"a" * MIB + b"\r\n100000\r\n" + b"a" * MIB + b"\r\n1\r\n", 413),
}

BODIES = {
    "an array 100,000 deep": (b'{"records":[{"data":' + b"[" * 100_000 + b"]" * 100_000 + b"}]}", 400),
    "an array 100,000 deep without end": (b'{"records":[{"data":' + b"[" * 100_000, 400),
    "objects 10,000 deep": (b'{"records":[{"data":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"}]}", 400),
    "records 10,000 deep": (b'{"records":' + b"[" * 10_000 + b"]" * 10_000 + b"}", 400),
    "a deep unknown field": (b'{"x":' + b"[" * 5000 + b"]" * 5000 + b',"records":[{"data":1}]}', 400),
    "a deep config": (b'{"config":' + b"[" * 5000 + b"]" * 5000 + b',"records":[{"data":1}]}', 400),
    "NaN": (b'{"records":[{"data":NaN}]}', 400),
    "Infinity": (b'{"records":[{"data":-Infinity}]}', 400),
    "bad UTF-8 in data": (b'{"records":[{"data":"\xff"}]}', 400),
    "overlong UTF-8": (b'{"records":[{"data":"\xc0\x80"}]}', 400),
    "a raw surrogate": (b'{"records":[{"data":"\xed\xa0\x80"}]}', 400),
    "a NUL in a string": (b'{"records":[{"data":"\x00"}]}', 400),
    "a raw line break in a string": (b'{"records":[{"data":"a\nb"}]}', 400),
    "a lone surrogate in a tag": (b'{"records":[{"data":1,"tag":"\\ud800"}]}', 400),
    "a lone surrogate in a field's name": (b'{"records":[{"data":1,"\\ud800":2}]}', 400),
    "UTF-16": ('{"records":[{"data":1}]}'.encode("utf-16"), 400),
    "a byte order mark": (b"\xef\xbb\xbf" + GOOD, 400),
    "two values": (GOOD + GOOD, 400),
    "a number with a leading zero": (b'{"records":[{"data":01}]}', 400),
    "an empty body": (b"", 400),
    "null": (b"null", 400),
    "no records": (b'{"records":[]}', 400),
    "100,000 records": (b'{"records":[' + b",".join([b'{"data":1}'] * 100_000) + b"]}", 400),
    "a record of 1.5 MiB": (b'{"records":[{"data":"' + b"a" * (MIB + MIB // 2) + b'"}]}', 400),
    "meta with 10,000 keys": (
        b'{"records":[{"data":1,"meta":{' + b",".join(b'"%d":1' % n for n in range(10_000)) + b"}}]}",
        400,
    ),
    "meta that is a list": (b'{"records":[{"data":1,"meta":[]}]}', 400),
    "a key of 10 KiB": (b'{"idempotency_key":"' + b"k" * 10240 + b'","records":[{"data":1}]}', 400),
    "a negative config": (b'{"config":{"ttl_ms":-1},"records":[{"data":1}]}', 400),
    "a config beyond 64 bits": (b'{"config":{"ttl_ms":99999999999999999999},"records":[{"data":1}]}', 400),
}
