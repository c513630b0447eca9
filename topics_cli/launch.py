"""Running a command for jobs: how it gets them, how it is ended, and what its end means.

A command gets its jobs on standard input, a record each in the framing asked for; or in its words, where `{}` stands;
or in files. It runs in a process group of its own, so that all it has started can be ended with it, and a signal for
us (Ctrl-C) is not one for it. When we die, it dies: its job will be given to somebody else.

Standard input is a file in memory, so a command may read it, ignore it or seek in it, and nobody waits for it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from typing import Final

from topics_cli import exits
from topics_cli.cut import end_of, number, seq_of, text_of
from topics_cli.exits import Failure, usage
from topics_cli.framing import frame
from topics_cli.printed import Printed
from topics_cli.rawjson import members, plain

RETRY_CODE: Final = 75
"""EX_TEMPFAIL: not now."""
DEAD_CODE: Final = 65
"""EX_DATAERR: this will never work."""
REASON_BYTES_MAX: Final = 256

_PLACEHOLDER: Final = re.compile(rb"\{(seq|tag|deliveries|queue)?\}")
_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None)


class Job:
    """A claimed job."""

    __slots__ = ("deliveries", "is_lost", "lease_id", "line", "seq")

    def __init__(self, line: bytes) -> None:
        self.line = line
        self.seq = seq_of(line)
        at = line.index(b'"lease_id":"') + 12
        self.lease_id = line[at : line.index(b'"', at)].decode()
        self.deliveries = number(line, "deliveries") or 1
        self.is_lost = False
        """Whether the daemon has said that the lease is not ours any more."""

    def data(self, raw: bool) -> bytes:
        """What the command gets: text, or the JSON that is stored."""
        at = self.line.index(b'"data":') + 7
        return self.line[at : end_of(self.line, at)] if raw else text_of(self.line, at)

    def member(self, name: str) -> str:
        """A member of the entry as text, "" where there is none."""
        value = members(self.line.decode("utf-8", "surrogatepass")).get(name)
        return "" if value is None else plain(value)


class Recipe:
    """How a command is made of jobs."""

    def __init__(
        self,
        queue: str,
        words: list[str],
        *,
        files: bool,
        raw: bool,
        framing: str,
        batch: int,
        captured: tuple[int, ...],
    ) -> None:
        self.queue = queue
        self.framing = framing
        self.raw = raw
        self.captured = captured
        """Which of the command's outputs (1, 2) come through us, because we draw on the terminal."""
        self._words = [os.fsencode(word) for word in words]
        self._in_words = any(b"{}" in word for word in self._words)
        self._directory = tempfile.mkdtemp(prefix="topics-work-") if files else None
        if files and not self._in_words:
            self._words.append(b"{}")
        self._is_batch = batch > 1
        if self._is_batch:
            for word in self._words:
                if _PLACEHOLDER.search(word) and not _PLACEHOLDER.fullmatch(word):
                    raise usage(f"{os.fsdecode(word)!r} cannot stand for many jobs", "with --batch, let {} be a word")

    def close(self) -> None:
        """Remove what was made."""
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def start(self, jobs: list[Job], slot: int = 1) -> Running:
        """Start the command, which is told its `slot` (1 to -j).

        Raises `Failure` with 126 or 127 when it cannot be; `BadJob` when it cannot for these jobs.
        """
        paths = [self._file(job) for job in jobs] if self._directory is not None else []
        try:
            words = self._filled(jobs, paths)
            stdin = (
                subprocess.DEVNULL
                if self._in_words or paths
                else in_memory(frame([job.data(self.raw) for job in jobs], self.framing))
            )
            try:
                process = subprocess.Popen(
                    words,
                    stdin=stdin,
                    stdout=subprocess.PIPE if 1 in self.captured else None,
                    stderr=subprocess.PIPE if 2 in self.captured else None,
                    env={**os.environ, **self._environment(jobs), "TOPICS_SLOT": str(slot)},
                    process_group=0,
                    preexec_fn=die_with_us,  # noqa: PLW1509  # one system call, and we have no threads
                )
            finally:
                if stdin != subprocess.DEVNULL:
                    os.close(stdin)
        except (OSError, ValueError) as error:
            for path in paths:
                os.unlink(path)
            raise _why_not(os.fsdecode(self._words[0]), error) from error
        return Running(jobs, process, paths, slot)

    def _file(self, job: Job) -> str:
        path = os.path.join(self._directory or "", str(job.seq))
        with open(path, "wb") as file:
            file.write(job.data(self.raw))
        return path

    def _filled(self, jobs: list[Job], paths: list[str]) -> list[bytes]:
        def values(place: int) -> Callable[[re.Match[bytes]], bytes]:
            job = jobs[place]

            def value(found: re.Match[bytes]) -> bytes:
                if found[1] is None:
                    return os.fsencode(paths[place]) if paths else job.data(self.raw)
                if found[1] == b"queue":
                    return self.queue.encode()
                name = {b"seq": "$seq", b"tag": "$tag", b"deliveries": "deliveries"}[found[1]]
                return job.member(name).encode()

            return value

        if not self._is_batch:
            return [_PLACEHOLDER.sub(values(0), word) for word in self._words]
        words = []
        for word in self._words:
            if _PLACEHOLDER.search(word):
                words += [_PLACEHOLDER.sub(values(place), word) for place in range(len(jobs))]
            else:
                words.append(word)
        return words

    def _environment(self, jobs: list[Job]) -> dict[str, str]:
        first = jobs[0]
        return {
            "TOPICS_QUEUE": self.queue,
            "TOPICS_SEQ": str(first.seq),
            "TOPICS_SEQS": " ".join(str(job.seq) for job in jobs),
            "TOPICS_COUNT": str(len(jobs)),
            "TOPICS_DELIVERIES": str(first.deliveries),
            "TOPICS_LEASE_ID": first.lease_id,
            "TOPICS_TS": first.member("$ts"),
            "TOPICS_TAG": first.member("$tag"),
            "TOPICS_META": first.member("meta"),
        }


class BadJob(Exception):
    """The command cannot be given these jobs: too long for its words, or not text."""


class Running:
    """A command that runs."""

    __slots__ = (
        "_ended_at",
        "_paths",
        "_process",
        "begun",
        "handle",
        "is_ending",
        "is_late",
        "jobs",
        "kill_at",
        "outputs",
        "returncode",
        "slot",
    )

    def __init__(self, jobs: list[Job], process: subprocess.Popen[bytes], paths: list[str], slot: int) -> None:
        self.jobs = jobs
        self.slot = slot
        """Its place among those that run at a time, from 1: nobody else has it meanwhile."""
        self.begun = time.monotonic()
        self.is_late = False
        """Whether its time was over."""
        self.is_ending = False
        """Whether we have asked it to end."""
        self.kill_at = 0.0
        """When asking ends."""
        self.returncode: int | None = None
        self._process = process
        self._paths = paths
        self._ended_at = 0.0
        self.handle = os.pidfd_open(process.pid)
        self.outputs = {
            stream.fileno(): Printed(target)
            for target, stream in ((1, process.stdout), (2, process.stderr))
            if stream is not None
        }
        """Pipes that its output comes through, and where that goes."""
        for handle in self.outputs:
            os.set_blocking(handle, False)

    @property
    def seconds(self) -> float:
        """How long it has been running, or ran."""
        return (self._ended_at or time.monotonic()) - self.begun

    def has_ended(self) -> bool:
        """Whether it is over; then its files are removed, and if we have ended it, so is all that it has started."""
        if os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return False
        if self.is_ending:
            self.signal(signal.SIGKILL)  # What it has started goes with it, before its number can be another's.
        self.returncode = self._process.wait()
        self._ended_at = time.monotonic()
        os.close(self.handle)
        for path in self._paths:
            try:
                os.unlink(path)
            except OSError:
                pass
        return True

    def end(self, grace_s: float) -> None:
        """Ask it to end; after `grace_s` it will be killed."""
        if not self.is_ending:
            self.is_ending = True
            self.kill_at = time.monotonic() + grace_s
            self.signal(signal.SIGTERM)

    def signal(self, signum: int) -> None:
        """Signal the whole process group."""
        try:
            os.killpg(self._process.pid, signum)
        except (ProcessLookupError, PermissionError):
            pass

    def close_outputs(self) -> None:
        """Nobody writes to its pipes any more."""
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()


def in_memory(data: bytes) -> int:
    """A file in memory that holds `data`, to be a command's standard input; its descriptor."""
    handle = os.memfd_create("input")
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def find_command(word: str) -> None:
    """Raise the `Failure` with 127 or 126 when there is no such command, or it may not be executed."""
    path = shutil.which(word)
    if path is not None:
        return
    for directory in [""] if "/" in word else os.get_exec_path():
        candidate = os.path.join(directory, word) if directory else word
        if os.path.isfile(candidate) or (os.path.exists(candidate) and "/" in word):
            raise _cannot_execute(word)
    raise _not_found(word)


def said_of(returncode: int, is_late: bool, timeout_ms: int) -> str:
    """The end of a command in words, as the reason of a nack."""
    if is_late:
        return f"timeout after {timeout_ms / 1000:g} s"
    if returncode < 0:
        try:
            return f"killed by {signal.Signals(-returncode).name}"
        except ValueError:
            return f"killed by signal {-returncode}"
    return f"exit {returncode}"


def _why_not(word: str, error: OSError | ValueError) -> Exception:
    if isinstance(error, ValueError):
        return BadJob("the job does not fit into words: it holds a NUL")
    if error.errno == errno.E2BIG:
        return BadJob("the job does not fit into words: it is too long")
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return _not_found(word)
    if error.errno in (errno.EACCES, errno.ENOEXEC, errno.EISDIR, errno.EPERM):
        return _cannot_execute(word)
    return Failure(f"{word} cannot be started: {error.strerror}", "cannot_start", "", exits.FAILED)


def _not_found(word: str) -> Failure:
    hint = "no job was touched; is its path right?"
    return Failure(f"{word}: command not found", "command_not_found", hint, exits.COMMAND_NOT_FOUND)


def _cannot_execute(word: str) -> Failure:
    hint = "no job was touched; is it executable (chmod +x), with a #! line?"
    return Failure(f"{word}: not executable", "cannot_execute", hint, exits.CANNOT_EXECUTE)


def die_with_us() -> None:
    """Let a command be killed when we die: run in it before it becomes what it is to be."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
