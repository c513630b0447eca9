"""The compiled part against Python, for as long as one likes: `python -m tests.scan.fuzz --seconds 300`.

With `--sanitize` the C file is compiled anew with the sanitizers of addresses and of undefined behaviour, in a process
that has them, together with `exact.c`, by which nothing may be read beyond the last byte of what is to be read.
`--source FILE` takes another C file (a planted mistake).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any, Final

from engine import scan
from tests.scan.bodies import LIMITS, Maker, Tally, round_of

HERE: Final = Path(__file__).resolve().parent
SOURCE: Final = HERE.parents[1] / "engine" / "_scan.c"
SANITIZERS: Final = (
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
    "-g",
    "-O1",
)
WARNINGS: Final = ("-Wall", "-Wextra", "-Wno-unused-parameter", "-Wconversion", "-Wshadow", "-Werror")


def compiler() -> str | None:
    """Why nothing can be compiled here; None where it can."""
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "no Python.h"
    command = [os.environ.get("CC", "cc"), "--version"]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return "no C compiler"
    return None


def build(source: Path, into: Path, *flags: str) -> Path:
    """Compile the C file, and beside it what reads exactly; the directory to import both from."""
    include = f"-I{sysconfig.get_path('include')}"
    common = [os.environ.get("CC", "cc"), "-std=c11", "-fPIC", "-shared", include, *flags]
    subprocess.run([*common, str(source), "-o", str(into / "_scan.abi3.so")], check=True)
    exact = ["-Wno-unused-function", f'-DSCANNED="{source}"', str(HERE / "exact.c"), "-o", str(into / "_exact.abi3.so")]
    subprocess.run([*common, *exact], check=True)
    return into


def load(directory: Path, name: str) -> Any:
    """An extension from a directory, under its own name and nobody else's."""
    from importlib.machinery import ExtensionFileLoader
    from importlib.util import module_from_spec, spec_from_file_location

    path = str(directory / f"{name}.abi3.so")
    spec = spec_from_file_location(name, path, loader=ExtensionFileLoader(name, path))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def go_on(seconds: float, seed: int, exact: Any = None) -> str:
    """Compare until the time is over; what was compared. Raises at the first difference, with its seed."""
    writes, lines, fragments, many = Tally(), Tally(), Tally(), Tally()
    ends, cut = time.monotonic() + seconds, 0
    while time.monotonic() < ends:
        maker = Maker(Random(seed))
        try:
            for _ in range(50):
                round_of(maker, writes, lines, fragments, many)
                if exact is not None:
                    body = maker.body()
                    for end in range(len(body) + 1):
                        exact.write(body[:end], LIMITS.nesting, 1000)
                        exact.lines(body[end:], LIMITS.nesting, 1000)
                        exact.member(b'"t":' + body[:end], LIMITS.nesting, 0)
                    cut += 3 * len(body)
        except BaseException:
            print(f"seed {seed}", file=sys.stderr, flush=True)
            raise
        seed += 1
    told = ", ".join(
        f"{tally.cases:,} {name} ({100 * tally.taken // max(1, tally.cases)} % taken by C)"
        for name, tally in (
            ("write bodies", writes),
            ("bodies of lines", lines),
            ("batches", fragments),
            ("bodies of several topics", many),
        )
    )
    return f"{told}, {cut:,} reads cut short: no difference"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.scan.fuzz", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000_000)
    parser.add_argument("--sanitize", action="store_true")
    parser.add_argument("--source", type=Path, default=SOURCE)
    parser.add_argument("--from-directory", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    again = [sys.executable, "-m", "tests.scan.fuzz", "--seconds", str(options.seconds), "--seed", str(options.seed)]
    if options.from_directory is not None:
        scan.use(load(options.from_directory, "_scan"))
        print(go_on(options.seconds, options.seed, load(options.from_directory, "_exact")))
        return 0
    if (missing := compiler()) is not None:
        print(f"nothing to compare: {missing}")
        return 0
    with tempfile.TemporaryDirectory(prefix="topics-scan-") as directory:
        build(options.source, Path(directory), *WARNINGS, *(SANITIZERS if options.sanitize else ("-O3",)))
        environ = dict(os.environ)
        if options.sanitize:
            library = subprocess.run(
                [environ.get("CC", "cc"), "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
            )
            environ |= {
                "LD_PRELOAD": library.stdout.strip(),
                "PYTHONMALLOC": "malloc",
                "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0",
            }
        return subprocess.run([*again, "--from-directory", directory], env=environ).returncode


if __name__ == "__main__":
    sys.exit(main())
