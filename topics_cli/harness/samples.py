"""What is looked at each second of a run: the daemon by its metrics and by /proc, the clients, the machine.

A sample is an object of numbers, a line of `samples.ndjson`:

    t           seconds since the load began
    groups      for each producer and reader what was done since the sample before: requests, records, bytes, refused,
                lost, p50/p99/max in ms; of readers also at (seqs), and delay_ms
    server      every counter and gauge of /v0/metrics, summed over its labels; of histograms sum and count; null while
                the daemon does not answer
    process     cpu_s, resident_bytes, read_bytes, written_bytes, threads, files of a daemon of ours; null otherwise
    clients     cpu_s, resident_bytes of the processes that make the load
    machine     busy_s (all cores), available_bytes, load
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any, Final

from topics_cli.client import Call, Client
from topics_cli.exits import Failure
from topics_cli.vitals import METRICS_PATH

ANSWER_S_MAX: Final = 0.7
"""How long the daemon may take over its metrics before a sample goes without them."""
_BORN: Final = "process_start_time_seconds"
_TICK: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def process_of(pid: int) -> dict[str, float] | None:
    """What the kernel knows of a process; None when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
        files = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None
    words = text.rpartition(")")[2].split()
    found = {
        "cpu_s": (int(words[11]) + int(words[12])) / _TICK,
        "resident_bytes": float(int(words[21]) * _PAGE),
        "threads": float(words[17]),
        "files": float(files),
    }
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return found  # Another user's process.
    for line in lines:
        name, _, value = line.partition(": ")
        if name in ("read_bytes", "write_bytes"):
            found["read_bytes" if name == "read_bytes" else "written_bytes"] = float(value)
    return found


def machine() -> dict[str, float]:
    """How busy the machine is."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    numbers = [int(word) for word in words]
    memory = {
        line.split(":")[0]: int(line.split()[1]) * 1024
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.endswith(" kB")
    }
    return {
        "busy_s": (sum(numbers[:8]) - numbers[3] - numbers[4]) / _TICK,
        "available_bytes": float(memory.get("MemAvailable", 0)),
        "load": os.getloadavg()[0],
    }


def server(client: Client) -> dict[str, float] | None:
    """The daemon's metrics as sums; None while it does not answer."""
    channel = client.channel()
    call = Call(client, channel, client.request("GET", METRICS_PATH))
    over = time.monotonic() + ANSWER_S_MAX
    try:
        while time.monotonic() < over:
            answer = call.step()
            if answer is not None:
                return sums(json.loads(answer.body)["metrics"])
            client.stop.wait(call.watch, max(0.01, min(call.timeout_s, over - time.monotonic())))
            if client.stop.signum and not call.in_flight:
                return None
    except Failure:
        pass
    finally:
        channel.close()
    return None


def sums(families: dict[str, Any]) -> dict[str, float]:
    """Each metric summed over its labels; of histograms their sum and their count."""
    found: dict[str, float] = {}
    for name, family in families.items():
        for sample in family["series"]:
            part = sample.get("part")
            if part == "bucket":
                continue
            key = f"{name}_{part}" if part else name
            found[key] = found.get(key, 0.0) + float(sample["value"])
    return found


def rise(base: dict[str, float] | None, final: dict[str, float] | None, name: str) -> tuple[float | None, str]:
    """How far a counter rose between two looks; None and why where that cannot be said."""
    if base is None or final is None:
        return None, "the daemon gave no metrics"
    if base.get(_BORN) != final.get(_BORN):
        return None, "the daemon was started again, and counts from 0 since"
    if name not in base or name not in final:
        return None, "the key is limited to some names, and does not see this counter"
    return final[name] - base[name], ""


def environment(client: Client, own: bool) -> dict[str, Any]:
    """What a run ran on, as far as it says something about the figures: no names, paths, addresses or variables."""
    from engine.version import VERSION

    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory = os.sysconf("SC_PHYS_PAGES") * _PAGE
    daemon = json.loads(client.get("/v0/health").body)
    return {
        "client": VERSION,
        "daemon": daemon["version"],
        "daemon_is": "started for the run" if own else "attached",
        "way": "Unix socket" if client.where.path else "TCP",
        "cpu": model,
        "cpus": os.cpu_count(),
        "memory_gib": round(memory / (1 << 30), 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "begun": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    }
