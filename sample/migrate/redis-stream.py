#!/usr/bin/env python3
"""A stream of Redis into a topic: every entry in its order, once, also if this is cut off and run again.

    redis-stream.py [--follow] [--groups] HOST:PORT STREAM TOPIC

An entry becomes a record: `data` is an object of its fields (a list of pairs where a field is there twice; values that
are no UTF-8 as {"$base64":"…"}), and `meta.redis_id` its id. The last record of the topic says where to go on, so
nothing else may write to the topic until this is done, and it has to keep that record.

--follow goes on with new entries until it is stopped: move the readers, then the writers, then stop it.
--groups gives each consumer group a cursor of its name, before the first entry that the group has not acknowledged.

It needs Python 3.11 and `topics` on the PATH, no package.
"""

import argparse
import base64
import json
import socket
import subprocess
import sys

PAGE = 1000
"""Entries of a page: as many as `topics write` puts into one write, which is in the topic whole or not at all."""

RETRY_FOR = "10m"
"""How long a daemon that is away is waited for."""


class Redis:
    """One connection: a command, and its answer as bytes, ints, lists and None."""

    def __init__(self, host, port):
        self.stream = socket.create_connection((host, port)).makefile("rwb")

    def __call__(self, *words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self.stream.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
        self.stream.flush()
        return self._answer()

    def _answer(self):
        line = self.stream.readline()
        if not line.endswith(b"\r\n"):
            sys.exit("redis: the connection ended")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            sys.exit(f"redis: {rest.decode()}")
        if kind == b":":
            return int(rest)
        if kind == b"+" or rest == b"-1":
            return rest if kind == b"+" else None
        if kind == b"*":
            return [self._answer() for _ in range(int(rest))]
        return self.stream.read(int(rest) + 2)[:-2]


def value(content):
    """What a value of Redis is in JSON."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"$base64": base64.b64encode(content).decode()}


def record(entry):
    """The line that `topics write --records` takes for an entry."""
    name, flat = entry
    pairs = [
        [content.decode("utf-8", "backslashreplace"), value(flat[at + 1])]
        for at, content in enumerate(flat)
        if at % 2 == 0
    ]
    fields = dict(pairs)
    data = fields if len(fields) == len(pairs) else pairs
    return json.dumps({"data": data, "meta": {"redis_id": name.decode()}}, ensure_ascii=False)


def topics(*words, lines=None):
    """What a command of `topics` prints; what it complains about is shown, and ends this."""
    done = subprocess.run(["topics", *words, "--retry-for", RETRY_FOR], input=lines, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


def last_id(topic):
    """The id of the topic's last record: where to go on."""
    if not [line for line in topics("ls", topic, "--fields", "topic").splitlines() if line == topic]:
        return "0-0"
    lines = topics("tail", topic, "-n", "1", "-o", "ndjson").splitlines()
    if not lines:
        return "0-0"
    found = json.loads(lines[-1]).get("meta", {}).get("redis_id")
    return found or sys.exit(f"{topic}: its last record did not come from Redis; take a topic of its own")


def entries(redis, stream, after, follow):
    """Pages of entries behind an id, until there are none, or for ever."""
    while True:
        if follow:
            answer = redis("XREAD", "COUNT", PAGE, "BLOCK", 1000, "STREAMS", stream, after)
            page = answer[0][1] if answer else []
        else:
            page = redis("XRANGE", stream, "(" + after, "+", "COUNT", PAGE)
        if page:
            yield page
            after = page[-1][0].decode()
        elif not follow:
            return


def move_groups(redis, stream, topic):
    """A cursor for each group: the seq before its first entry that is not acknowledged."""
    places = {}
    for flat in redis("XINFO", "GROUPS", stream):
        facts = dict(zip(flat[::2], flat[1::2], strict=True))
        name = facts[b"name"].decode()
        pending = redis("XPENDING", stream, name)[1]
        places[name] = (ident(pending), False) if pending else (ident(facts[b"last-delivered-id"]), True)
    seqs = dict.fromkeys(places, 0)
    for line in topics("tail", topic, "--from", "0", "-t", "{seq} {meta.redis_id}").splitlines():
        seq, _, name = line.partition(" ")
        for group, (place, inclusive) in places.items():
            if ident(name.encode()) < place or (inclusive and ident(name.encode()) == place):
                seqs[group] = int(seq)
    for group, seq in seqs.items():
        topics("cursor", "set", topic, group, str(seq))
        print(f"cursor {group}: after seq {seq}")


def ident(name):
    """An id as two numbers, which compare as Redis does."""
    return tuple(int(part) for part in name.split(b"-"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--follow", action="store_true")
    parser.add_argument("--groups", action="store_true")
    parser.add_argument("server", metavar="HOST:PORT")
    parser.add_argument("stream", metavar="STREAM")
    parser.add_argument("topic", metavar="TOPIC")
    options = parser.parse_args()
    host, _, port = options.server.rpartition(":")
    redis = Redis(host or "127.0.0.1", int(port))
    count = 0
    try:
        for page in entries(redis, options.stream, last_id(options.topic), options.follow):
            lines = "".join(record(entry) + "\n" for entry in page)
            topics("write", options.topic, "--records", lines=lines)
            count += len(page)
    except KeyboardInterrupt:
        pass
    print(f"{options.topic}: {count} entries", file=sys.stderr)
    if options.groups:
        move_groups(redis, options.stream, options.topic)


if __name__ == "__main__":
    main()
