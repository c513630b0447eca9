"""Commands for jobs: how they get them, how they end, and that nothing of them is left behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.support import PYTHON, ROOT, clean_environment
from tests.cli.test_claimed import entry
from topics_cli import exits
from topics_cli.exits import Failure
from topics_cli.framing import LENGTH, LINE, NULL
from topics_cli.launch import BadJob, Job, Recipe, Running, find_command, said_of

PASTE = ["sh", "-c", 'printf "%s|" "$@"', "sh"]


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = set(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) <= len(before)


def jobs(*datas: bytes) -> list[Job]:
    return [Job(entry(seq, data)) for seq, data in enumerate(datas, 1)]


def recipe(words: list[str], *, files: bool = False, raw: bool = False, framing: str = LINE, batch: int = 1) -> Recipe:
    return Recipe("q", words, files=files, raw=raw, framing=framing, batch=batch, captured=(1, 2))


def finished(run: Running, limit_s: float = 10.0) -> tuple[int, bytes]:
    """Wait for a command; its exit code and what it has printed."""
    printed = b""
    over = time.monotonic() + limit_s
    while not run.has_ended():
        assert time.monotonic() < over
        select.select([run.handle], [], [], 0.05)
    for handle in run.outputs:
        while True:
            try:
                data = os.read(handle, 65536)
            except BlockingIOError:
                break
            if not data:
                break
            printed += data
    run.close_outputs()
    assert run.returncode is not None
    return run.returncode, printed


def printed(made: Recipe, given: list[Job]) -> bytes:
    try:
        code, out = finished(made.start(given))
    finally:
        made.close()
    assert code == 0, out
    return out


def test_a_job_is_on_standard_input_as_a_line_of_text() -> None:
    assert printed(recipe(["cat"]), jobs(b'"caf\\u00e9"')) == "café\n".encode()
    assert printed(recipe(["cat"], raw=True), jobs(b'"caf\\u00e9"')) == b'"caf\\u00e9"\n'
    assert printed(recipe(["cat"]), jobs(b'{"a": 1.10}')) == b'{"a": 1.10}\n'


def test_jobs_of_a_batch_follow_each_other_in_the_framing_asked_for() -> None:
    given = jobs(b'"a"', b'"b\\nc"')
    assert printed(recipe(["cat"], batch=9), given) == b"a\nb\nc\n"
    assert printed(recipe(["cat"], batch=9, framing=NULL), given) == b"a\0b\nc\0"
    assert printed(recipe(["cat"], batch=9, framing=LENGTH), given) == b"1\na3\nb\nc"


def test_a_job_larger_than_any_pipe_is_read_whole_or_not_at_all() -> None:
    given = jobs(b'"' + b"x" * 1_000_000 + b'"')
    assert printed(recipe(["wc", "-c"]), given).strip() == b"1000001"
    assert printed(recipe(["true"]), given) == b""


def test_braces_stand_for_the_job_in_the_words_and_standard_input_is_empty() -> None:
    given = jobs(b"\"sp ace 'q'\"")
    assert printed(recipe([*PASTE, "{}", "n={seq}", "{tag}-{deliveries}-{queue}"]), given) == b"sp ace 'q'|n=1|t-2-q|"
    assert printed(recipe(["sh", "-c", "wc -c; : {}"]), given).strip() == b"0"


def test_other_braces_are_left_alone() -> None:
    assert printed(recipe([*PASTE, "{x}", "{ }", "{.a}"]), jobs(b'"j"')) == b"{x}|{ }|{.a}|"


def test_with_a_batch_a_placeholder_is_a_word_for_each_job() -> None:
    assert printed(recipe([*PASTE, "{}", "-", "{seq}"], batch=5), jobs(b'"a"', b'"b"')) == b"a|b|-|1|2|"
    with pytest.raises(Failure) as refused:
        recipe(["echo", "x{}"], batch=5)
    assert refused.value.exit_code == exits.USAGE


def test_a_job_in_a_file_is_there_byte_for_byte_and_gone_afterwards() -> None:
    made = recipe(["sh", "-c", 'cat "$1"; printf " %s" "$1"', "sh"], files=True)
    code, out = finished(made.start(jobs(b'"a\\n"')))
    assert code == 0
    content, _, path = out.rpartition(b" ")
    assert content == b"a\n"
    assert not os.path.exists(path)
    directory = os.path.dirname(path)
    assert os.path.isdir(directory)
    made.close()
    assert not os.path.exists(directory)


def test_the_environment_says_which_job_it_is() -> None:
    out = printed(recipe(["sh", "-c", "env | grep ^TOPICS_ | sort"], batch=2), jobs(b"1", b"2"))
    names = dict(line.split("=", 1) for line in out.decode().splitlines())
    assert names["TOPICS_QUEUE"] == "q"
    assert names["TOPICS_SEQ"] == "1"
    assert names["TOPICS_SEQS"] == "1 2"
    assert names["TOPICS_COUNT"] == "2"
    assert names["TOPICS_DELIVERIES"] == "2"
    assert names["TOPICS_TAG"] == "t"
    assert names["TOPICS_TS"] == "1750000000000"
    assert names["TOPICS_LEASE_ID"] == "lease_0000000000000001"


@pytest.mark.parametrize("data", [b'"a\\u0000b"', b'"' + b"x" * 300_000 + b'"'])
def test_a_job_that_no_word_can_hold_is_said_to_be_bad(data: bytes) -> None:
    with pytest.raises(BadJob):
        recipe(["echo", "{}"]).start(jobs(data))


def test_a_command_that_is_not_there_or_not_executable_is_found_out_before(tmp_path: Path) -> None:
    find_command("sh")
    find_command("/bin/sh")
    text = tmp_path / "text"
    text.write_text("echo\n")
    for word, code in (("/nope", 127), ("no-such-command-anywhere", 127), (str(text), 126), (str(tmp_path), 126)):
        with pytest.raises(Failure) as failure:
            find_command(word)
        assert failure.value.exit_code == code, word


def test_a_command_that_goes_away_or_cannot_run_says_so_when_it_is_started(tmp_path: Path) -> None:
    script = tmp_path / "script"
    made = recipe([str(script)])
    with pytest.raises(Failure) as failure:
        made.start(jobs(b"1"))
    assert failure.value.exit_code == exits.COMMAND_NOT_FOUND
    script.write_text("no interpreter is named here\n")
    script.chmod(0o755)
    with pytest.raises(Failure) as failure:
        made.start(jobs(b"1"))
    assert failure.value.exit_code == exits.CANNOT_EXECUTE


def test_a_command_that_is_ended_takes_all_it_has_started_along() -> None:
    run = recipe(["sh", "-c", "trap '' TERM; sleep 300 & echo $!; wait; sleep 300"]).start(jobs(b"1"))
    select.select(list(run.outputs), [], [], 5)
    child = int(os.read(next(iter(run.outputs)), 100))
    run.end(0.1)
    assert run.kill_at > 0
    time.sleep(0.1)
    run.signal(signal.SIGKILL)
    code, _ = finished(run)
    assert code == -signal.SIGKILL
    assert is_gone(child)


def test_what_a_command_leaves_in_the_background_when_it_ends_by_itself_lives_on() -> None:
    code, out = finished(recipe(["sh", "-c", "sleep 300 >/dev/null 2>&1 & echo $!"]).start(jobs(b"1")))
    assert code == 0
    child = int(out)
    os.kill(child, 0)
    os.kill(child, signal.SIGKILL)


def test_a_signal_for_our_group_does_not_reach_the_command() -> None:
    run = recipe(["sh", "-c", "echo $$; sleep 300"]).start(jobs(b"1"))
    select.select(list(run.outputs), [], [], 5)
    pid = int(os.read(next(iter(run.outputs)), 100))
    assert os.getpgid(pid) == pid != os.getpgrp()
    run.end(0.0)
    assert finished(run)[0] == -signal.SIGTERM


def test_a_command_dies_with_the_worker_that_is_killed() -> None:
    script = (
        "import sys, time; from topics_cli.launch import *; from topics_cli.framing import LINE\n"
        'job = Job(b\'{"$seq":1,"lease_id":"l","deadline":1,"deliveries":1,"$ts":1,"data":1}\')\n'
        "made = Recipe('q', ['sleep', '300'], files=False, raw=False, framing=LINE, batch=1, captured=())\n"
        "print(made.start([job])._process.pid, flush=True); time.sleep(300)"
    )
    worker = subprocess.Popen([PYTHON, "-c", script], cwd=ROOT, env=clean_environment(), stdout=subprocess.PIPE)
    assert worker.stdout is not None
    child = int(worker.stdout.readline())
    worker.kill()
    worker.wait(10)
    worker.stdout.close()
    assert is_gone(child)


def test_the_end_of_a_command_in_words() -> None:
    assert said_of(3, False, 0) == "exit 3"
    assert said_of(-11, False, 0) == "killed by SIGSEGV"
    assert said_of(-15, True, 1500) == "timeout after 1.5 s"
    assert said_of(-200, False, 0) == "killed by signal 200"


def is_gone(pid: int) -> bool:
    """Whether a process ends within a moment; one that nobody has waited for yet counts as ended."""
    over = time.monotonic() + 5
    while time.monotonic() < over:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False
