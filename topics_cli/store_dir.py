"""A data directory from outside: where it is, and whether a process has it. Nothing here takes a lock.

Whoever holds the root's lock is in /proc/locks, with the device and inode of what is locked. Asking for the lock to
find out would, for a moment, keep a daemon from starting.
"""

from __future__ import annotations

import os

from topics_cli.exits import Failure


def data_dir(given: str | None) -> str:
    """The directory that is meant: what was given, TOPICS_DATA_DIR, ./topics-data, or this one."""
    path = given or os.environ.get("TOPICS_DATA_DIR") or ""
    if not path:
        path = "topics-data" if os.path.exists("topics-data/STORE") else "."
    if not os.path.isdir(path):
        what = "is no directory" if os.path.exists(path) else "is not there"
        raise Failure(f"{path} {what}", "not_found", "give the data directory of a store")
    return path


def holder(path: str) -> int | None:
    """The pid of the process that has a data directory, None when there is none; 0 when it is in another namespace."""
    there = os.stat(path)
    wanted = f"{os.major(there.st_dev):02x}:{os.minor(there.st_dev):02x}:{there.st_ino}"
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as file:
            for line in file:
                words = line.split()
                if "FLOCK" in words and wanted in words:
                    at = words.index(wanted)
                    pid = words[at - 1]
                    return max(int(pid), 0) if pid.lstrip("-").isdigit() else 0
    except OSError:
        return None
    return None


def unused(path: str) -> None:
    """Refuse a directory that a process has."""
    pid = holder(path)
    if pid is not None:
        who = f"process {pid}" if pid else "a process"
        raise Failure(f"{who} has {path}: a store in use changes while it is read", "store_locked", "stop it first")
