"""WebSocket handshakes and frames that break the rules, with the status or close code that each deserves."""

from __future__ import annotations

import struct

from tests.daemon.socket_kit import BINARY, CLOSE, CONT, PING, PONG, frame

PING_OP = '{"op":"ping"}'

PLAIN = "GET /v0/ws HTTP/1.1\r\nHost: localhost\r\n"
GOOD_KEY = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
UPGRADE = "Upgrade: websocket\r\nConnection: Upgrade\r\n"
V13 = "Sec-WebSocket-Version: 13\r\n"

HANDSHAKES = {
    "no upgrade": (PLAIN + "\r\n", 400),
    "another protocol": (PLAIN + "Upgrade: h2c\r\nConnection: Upgrade\r\n" + GOOD_KEY + V13 + "\r\n", 400),
    "no connection header": (PLAIN + "Upgrade: websocket\r\n" + GOOD_KEY + V13 + "\r\n", 400),
    "no key": (PLAIN + UPGRADE + V13 + "\r\n", 400),
    "a short key": (PLAIN + UPGRADE + V13 + "Sec-WebSocket-Key: AAAA\r\n\r\n", 400),
    "a key that is no base64": (PLAIN + UPGRADE + V13 + "Sec-WebSocket-Key: ************************\r\n\r\n", 400),
    "two keys": (PLAIN + UPGRADE + V13 + GOOD_KEY + GOOD_KEY + "\r\n", 400),
    "no version": (PLAIN + UPGRADE + GOOD_KEY + "\r\n", 400),
    "version 8": (PLAIN + UPGRADE + GOOD_KEY + "Sec-WebSocket-Version: 8\r\n\r\n", 400),
    "two versions": (PLAIN + UPGRADE + GOOD_KEY + V13 + V13 + "\r\n", 400),
    "HTTP/1.0": (PLAIN.replace("1.1", "1.0") + UPGRADE + GOOD_KEY + V13 + "\r\n", 400),
    "a POST": (PLAIN.replace("GET", "POST") + UPGRADE + GOOD_KEY + V13 + "Content-Length: 0\r\n\r\n", 405),
    "a HEAD": (PLAIN.replace("GET", "HEAD") + UPGRADE + GOOD_KEY + V13 + "\r\n", 405),
    "a foreign origin": (PLAIN + UPGRADE + GOOD_KEY + V13 + "Origin: http://evil.example\r\n\r\n", 403),
    "the null origin": (PLAIN + UPGRADE + GOOD_KEY + V13 + "Origin: null\r\n\r\n", 403),
    "another port's origin": (PLAIN + UPGRADE + GOOD_KEY + V13 + "Origin: http://localhost:1\r\n\r\n", 403),
    "cross-site": (PLAIN + UPGRADE + GOOD_KEY + V13 + "Sec-Fetch-Site: cross-site\r\n\r\n", 403),
    "a rebound name": (PLAIN.replace("localhost", "evil.example") + UPGRADE + GOOD_KEY + V13 + "\r\n", 421),
    "another path": (PLAIN.replace("/v0/ws", "/v0/wss") + UPGRADE + GOOD_KEY + V13 + "\r\n", 404),
}

FRAMES = {
    "an unmasked frame": (frame(PING_OP, mask=False), 1002),
    "reserved bit 1, as for compression": (frame(PING_OP, reserved=0x40), 1002),
    "reserved bit 2": (frame(PING_OP, reserved=0x20), 1002),
    "reserved bit 3": (frame(PING_OP, reserved=0x10), 1002),
    "opcode 3": (frame(PING_OP, 3), 1002),
    "opcode 7": (frame(PING_OP, 7), 1002),
    "opcode 11": (frame(PING_OP, 11), 1002),
    "opcode 15": (frame(PING_OP, 15), 1002),
    "a binary message": (frame(PING_OP, BINARY), 1003),
    "a binary message in fragments": (frame("{", BINARY, fin=False) + frame("}", CONT), 1003),
    "text that is not UTF-8": (frame(b'{"op":"\xff"}'), 1007),
    "text with a surrogate in UTF-8": (frame(b'{"op":"\xed\xa0\x80"}'), 1007),
    "fragments that are not UTF-8": (frame(b'{"op":"\xc3', fin=False) + frame(b'("}', CONT), 1007),
    "a continuation of nothing": (frame(PING_OP, CONT), 1002),
    "text inside of a fragmented message": (frame("{", fin=False) + frame(PING_OP), 1002),
    "a ping of 126 bytes": (frame("x" * 126, PING), 1002),
    "a ping in fragments": (frame("x", PING, fin=False), 1002),
    "a pong in fragments": (frame("x", PONG, fin=False), 1002),
    "a close in fragments": (frame(b"", CLOSE, fin=False), 1002),
    "a close of one byte": (frame(b"\x03", CLOSE), 1002),
    "a close with a code that is not for the wire": (frame(struct.pack("!H", 1006), CLOSE), 1002),
    "a close with code 0": (frame(struct.pack("!H", 0), CLOSE), 1002),
    "a close whose reason is not UTF-8": (frame(struct.pack("!H", 1000) + b"\xff", CLOSE), 1007),
    "a close in the middle of a message": (frame("{", fin=False) + frame(struct.pack("!H", 1000), CLOSE), 1002),
    "a proper close": (frame(struct.pack("!H", 1000), CLOSE), 1000),
    "a close without a code": (frame(b"", CLOSE), 1005),
    "a close with a code of one's own": (frame(struct.pack("!H", 4321) + b"bye", CLOSE), 4321),
    "a message over the bound": (b"\x81\xff" + struct.pack("!Q", 64 * 1024 * 1024) + b"\0" * 4, 1009),
    "a message of exabytes": (b"\x81\xff" + struct.pack("!Q", 1 << 62) + b"\0" * 4, 1009),
    "a length with the highest bit": (b"\x81\xff" + struct.pack("!Q", (1 << 63) + 1) + b"\0" * 4, 1009),
    "fragments over the bound": (
        frame("x" * 600_000, fin=False) + b"\x00\xff" + struct.pack("!Q", 3 * 1024 * 1024) + b"\0" * 4,
        1009,
    ),
    "HTTP instead of frames": (b"GET /v0/health HTTP/1.1\r\nHost: localhost\r\n\r\n", 1002),
    "zeros": (b"\0" * 64, 1002),
    "all ones": (b"\xff" * 64, 1002),
}
