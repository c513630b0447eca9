"""Ten thousand random flips and cuts of each kind of file through the tools: exit 0 or 4, never a traceback or a write.

    python -m tests.tools.flips [COUNT] [SEED]

Each kind of file of a small store with checkpoints is hurt COUNT times, at random: a bit, a cut, a zeroed stretch,
foreign bytes, some bytes taken out. `wal-inspect` or `segment-inspect` looks at the file, and for one in twenty `fsck`
at the whole store, on a file system that refuses every write. Prints a table; ends with 1 if anything was raised, or
went on for longer than a second. `test_segment_file` and `test_fsck` run a slice of the same in `make test`.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from engine.errors import StoreError
from engine.tools.segment_file import FileLook, Relocated, records_of
from tests.store.made import Made
from tests.tools.stores import check_with, hurt, put, scan

KINDS = (".log", ".data", ".idx", ".tags", ".del", "tails", ".snap", "STORE", "LOCK", "MANIFEST")
SLOW_S = 1.0


def main(count: int, seed: int) -> int:
    """Hurt every kind `count` times; returns the exit status."""
    rng = random.Random(seed)
    made = {False: Made(), True: Made(own_files=True)}
    failures = 0
    print(f"{'file':10} {'tried':>7} {'exit 0':>7} {'exit 4':>7} {'fsck':>6} {'raised':>7} {'slow':>5}")
    for kind in KINDS:
        own = kind not in ("tails", ".log")
        store = made[own]
        paths = sorted(path for path, content in store.tree.items() if content and _is(kind, path))
        if not paths:
            continue
        tally: Counter[str] = Counter()
        for _ in range(count):
            path = rng.choice(paths)
            content = hurt(store.tree[path] or b"", rng)
            began = time.monotonic()
            try:
                code = _look(path, content, store)
                if rng.randrange(20) == 0:
                    tally["fsck"] += 1
                    _fsck(store, path, content)
                tally[f"exit {code}"] += 1
            except Exception:  # that is what is looked for
                traceback.print_exc()
                tally["raised"] += 1
            tally["slow"] += time.monotonic() - began > SLOW_S
        failures += tally["raised"] + tally["slow"]
        cells = (tally[name] for name in ("exit 0", "exit 4", "fsck", "raised", "slow"))
        print(f"{kind:10} {count:7} " + " ".join(f"{c:{w}}" for c, w in zip(cells, (7, 7, 6, 7, 5), strict=True)))
    return 1 if failures else 0


def _is(kind: str, path: str) -> bool:
    if kind == "tails":
        return "tails-" in path
    if kind == ".data":
        return path.endswith(".data") and "tails-" not in path
    return path.endswith(kind)


def _look(path: str, content: bytes, store: Made) -> int:
    """What wal-inspect or segment-inspect would end with; 0 for files that neither is for."""
    if path.endswith(".log"):
        return 4 if scan(put(store.tree, path, content), path).report().damaged else 0
    if "/" not in path or path.endswith("MANIFEST"):
        return 0
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        root = Path(name)
        stem = path.rpartition("/")[2].partition(".")[0]
        for other, bytes_ in store.tree.items():
            if bytes_ is not None and stem in other:
                (root / other.rpartition("/")[2]).write_bytes(bytes_)
        one = root / path.rpartition("/")[2]
        one.write_bytes(content)
        fs = Relocated(str(root))
        try:
            look = FileLook(fs, one.name, one.name, lambda _: None)
            report = look.report()
            for segment in look.pieces:
                for _ in records_of(look, segment):
                    pass
        finally:
            fs.shut()
    return 4 if report.damaged else 0


def _fsck(store: Made, path: str, content: bytes) -> None:
    try:
        check_with(store, put(store.tree, path, content))
    except StoreError:
        if path != "STORE":
            raise


if __name__ == "__main__":
    sys.exit(main(*(int(word) for word in (sys.argv[1:] + ["10000", "1"][len(sys.argv) - 1 :]))))
