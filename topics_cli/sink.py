"""Records given to a command, for `tail --exec` and `--exec-batch`: what `Render` is for people and pipes.

The command is a line for the shell. It gets the data of its record (of its batch, framed) on standard input, the stored
JSON of it with `-o raw`, the whole record with `-o ndjson`, and what else there is to know in its environment. It runs
in a process group of its own: a signal for us lets it finish what it has begun, for a while. Where it fails, tail ends
there: what came before is done, and nothing behind it was touched.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import Any, Final

from topics_cli import exits
from topics_cli.cut import end_of, seq_of, texts
from topics_cli.exits import Failure
from topics_cli.framing import frame
from topics_cli.launch import die_with_us, in_memory, said_of
from topics_cli.output import NDJSON, RAW, Out
from topics_cli.rawjson import members, plain
from topics_cli.signals import POLLIN, Stop

GRACE_S: Final = 5.0
"""How long a command may go on after a signal for us."""
_NAMES: Final = {"TOPICS_TS": "$ts", "TOPICS_TAG": "$tag", "TOPICS_NODE": "$node", "TOPICS_META": "meta"}


class Sink:
    """A command that gets records one by one, or batch by batch."""

    needs_tags = True
    needs_meta = True
    needs_exact = True

    def __init__(self, out: Out, stop: Stop, line: str, framing: str, is_batch: bool) -> None:
        self._out = out
        self._stop = stop
        self._line = line
        self._framing = framing
        self.is_batch = is_batch

    def records(self, topic: str, lines: list[bytes]) -> None:
        """Run the command for these; raises `Failure` when it fails, with the command's own code for 126 and 127."""
        if not lines:
            return
        self._out.flush()
        data = lines
        if self._out.form != NDJSON:
            data = [_stored(line) for line in lines] if self._out.form == RAW else texts(lines)
        first, last = seq_of(lines[0]), seq_of(lines[-1])
        known = {"TOPICS_TOPIC": topic, "TOPICS_SEQ": str(first)}
        if self.is_batch:
            known |= {"TOPICS_FIRST_SEQ": str(first), "TOPICS_LAST_SEQ": str(last), "TOPICS_COUNT": str(len(lines))}
        else:
            values = members(lines[0].decode("utf-8", "surrogatepass"))
            known |= {name: plain(values[key]) if key in values else "" for name, key in _NAMES.items()}
        code = self._run(frame(data, self._framing) if self.is_batch else data[0], known)
        if code:
            where = f"{topic} {first}" + (f"-{last}" if last != first else "")
            exit_code = code if code in (exits.CANNOT_EXECUTE, exits.COMMAND_NOT_FOUND) else exits.FAILED
            what = f"the command failed at {where}: {said_of(code, False, 0)}"
            raise Failure(what, "exec_failed", f"what came before is done; go on with --from {first - 1}", exit_code)

    def _run(self, data: bytes, known: dict[str, str]) -> int:
        environment = {name: value.replace("\0", "") for name, value in known.items()}
        handle = in_memory(data)
        try:
            process = subprocess.Popen(
                ["/bin/sh", "-c", self._line],
                stdin=handle,
                env={**os.environ, **environment},
                process_group=0,
                preexec_fn=die_with_us,  # noqa: PLW1509  # one system call, and we have no threads
            )
        finally:
            os.close(handle)
        ended = os.pidfd_open(process.pid)
        try:
            give_up_at = 0.0
            while not self._stop.wait([(ended, POLLIN)], self._patience(give_up_at)):
                if self._stop.signum:
                    give_up_at = give_up_at or time.monotonic() + GRACE_S
                    if time.monotonic() >= give_up_at:
                        os.killpg(process.pid, signal.SIGKILL)
        finally:
            os.close(ended)
        return process.wait()

    @staticmethod
    def _patience(give_up_at: float) -> float | None:
        return max(0.0, give_up_at - time.monotonic()) if give_up_at else None

    def gap(self, topic: str, line: bytes) -> None:
        """A gap is said on stderr; no command runs for it."""

    def end(self) -> None:
        """Nothing was opened."""


def _stored(line: bytes) -> bytes:
    at = line.index(b'"data":') + 7
    return line[at : end_of(line, at)]


def sink_of(out: Out, stop: Stop, values: dict[str, Any], framing: str) -> Sink:
    """The sink that `--exec` or `--exec-batch` asks for."""
    is_batch = values["exec_batch"] is not None
    return Sink(out, stop, values["exec_batch"] if is_batch else values["exec"], framing, is_batch)
