#!/usr/bin/env python3
"""A tube of beanstalkd into a queue: the jobs that are ready, in the order in which they would have been reserved.

    beanstalkd-tube.py [--all] HOST:PORT TUBE QUEUE

A job becomes a record: `data` is its body, byte for byte, `meta` has its id, priority and how often it was reserved.
It is deleted in beanstalkd only after the write was acked. What was under way when this was cut off is found again by
its id in the queue and not written twice, as long as no worker has acked it there: so start the workers afterwards.

--all takes the jobs that are delayed or buried, too: they are ready at once. Otherwise they stay, and are counted.

It needs Python 3.11, beanstalkd 1.12 (for --all) and `topics` on the PATH, no package.
"""

import argparse
import base64
import itertools
import json
import re
import socket
import subprocess
import sys

BATCH = 200
"""Jobs of one write; also how far back in the queue is looked for jobs that are there already."""

RETRY_FOR = "10m"
"""How long a daemon that is away is waited for."""


class Beanstalkd:
    """One connection: a command, and the words and body of its answer."""

    def __init__(self, host, port):
        self.stream = socket.create_connection((host, port)).makefile("rwb")

    def __call__(self, command):
        self.stream.write(command.encode() + b"\r\n")
        self.stream.flush()
        line = self.stream.readline()
        if not line.endswith(b"\r\n"):
            sys.exit("beanstalkd: the connection ended")
        words = line.decode().split()
        if words[0] in ("RESERVED", "FOUND", "OK"):
            return words, self.stream.read(int(words[-1]) + 2)[:-2]
        return words, b""

    def facts(self, command):
        """The answer of a command of statistics."""
        words, body = self(command)
        return dict(re.findall(r"^([\w-]+): (.*)$", body.decode(), re.MULTILINE)) if words[0] == "OK" else {}


def record(ident, body, facts):
    """The line that `topics write --records` takes for a job."""
    meta = {"beanstalkd_id": ident, "priority": facts.get("pri", ""), "reserves": facts.get("reserves", "")}
    try:
        data = body.decode()
    except UnicodeDecodeError:
        data = {"$base64": base64.b64encode(body).decode()}
        meta["encoding"] = "base64"
    return json.dumps({"data": data, "meta": meta}, ensure_ascii=False)


def topics(*words, lines=None):
    """What a command of `topics` prints; what it complains about is shown, and ends this."""
    done = subprocess.run(["topics", *words, "--retry-for", RETRY_FOR], input=lines, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


def ready(server):
    """Jobs as they are reserved, until none is ready."""
    while True:
        words, body = server("reserve-with-timeout 0")
        if words[0] != "RESERVED":
            return
        yield words[1], body


def waiting(server, state):
    """Jobs that are delayed or buried, reserved by their id."""
    while (found := server(f"peek-{state}"))[0][0] == "FOUND":
        words, body = server(f"reserve-job {found[0][1]}")
        if words[0] != "RESERVED":
            sys.exit(f"beanstalkd: {' '.join(words)}")
        yield words[1], body


def move(server, queue, jobs, known):
    """Write jobs in batches, and delete each when it is in the queue; how many were written."""
    count = 0
    while batch := list(itertools.islice(jobs, BATCH)):
        new = [(ident, body) for ident, body in batch if ident not in known]
        if new:
            lines = "".join(record(ident, body, server.facts(f"stats-job {ident}")) + "\n" for ident, body in new)
            topics("write", queue, "--records", "--no-create", lines=lines)
        for ident, _ in batch:
            server(f"delete {ident}")
        count += len(new)
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("server", metavar="HOST:PORT")
    parser.add_argument("tube", metavar="TUBE")
    parser.add_argument("queue", metavar="QUEUE")
    options = parser.parse_args()
    host, _, port = options.server.rpartition(":")
    server = Beanstalkd(host or "127.0.0.1", int(port))
    for command in (f"watch {options.tube}", f"use {options.tube}"):
        server(command)
    if options.tube != "default":
        server("ignore default")
    topics("create", options.queue, "--type", "queue")
    last = topics("tail", options.queue, "-n", str(BATCH), "-o", "ndjson").splitlines()
    known = {json.loads(line).get("meta", {}).get("beanstalkd_id") for line in last}
    count = move(server, options.queue, ready(server), known)
    if options.all:
        for state in ("delayed", "buried"):
            count += move(server, options.queue, waiting(server, state), known)
    facts = server.facts(f"stats-tube {options.tube}")
    left = ", ".join(f"{facts.get('current-jobs-' + state, 0)} {state}" for state in ("reserved", "delayed", "buried"))
    print(f"{options.queue}: {count} jobs; left in {options.tube}: {left}", file=sys.stderr)


if __name__ == "__main__":
    main()
