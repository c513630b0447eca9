"""A launcher for `topicsd` that may make the system calls only which its unit allows.

`filtered.py ARGS…`: as `topicsd ARGS…`, behind the filter that systemd would make of `SystemCallFilter=` in
packaging/topicsd.service. The sets of calls are those of the `systemd-analyze` that is installed.
"""

from __future__ import annotations

import ctypes
import errno
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from topics_daemon.main import main

UNIT = Path(__file__).resolve().parents[2] / "packaging" / "topicsd.service"
LIBRARY = "libseccomp.so.2"
ALLOW = 0x7FFF0000
ERRNO = 0x00050000


def members(name: str) -> set[str]:
    """The calls that a word of the setting stands for."""
    if not name.startswith("@"):
        return {name}
    shown = subprocess.run(["systemd-analyze", "syscall-filter", name], capture_output=True, text=True, check=True)
    words = [line.strip() for line in shown.stdout.splitlines()[1:]]
    return set().union(*(members(word) for word in words if word and not word.startswith("#")))


def allowed(unit: Path) -> set[str]:
    """What the lines of a unit leave, one after the other: the first allows, `~` takes away."""
    found = members("@default")
    for line in unit.read_text().splitlines():
        name, _, value = line.partition("=")
        if name == "SystemCallFilter":
            named = set().union(*map(members, value.removeprefix("~").split()))
            found = found - named if value.startswith("~") else found | named
    return found


def confine(names: Iterable[str]) -> None:
    """Let this process make no other calls any more: they fail with EPERM, as the unit has it."""
    library = ctypes.CDLL(LIBRARY)
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(ERRNO | errno.EPERM)))
    for name in sorted(names):
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:  # of this machine
            assert library.seccomp_rule_add(context, ctypes.c_uint32(ALLOW), number, 0) == 0, name
    assert library.seccomp_load(context) == 0


if __name__ == "__main__":
    confine(allowed(UNIT))
    sys.exit(main())
