"""Completions in real shells: bash, zsh and fish are started, told the script, and asked what a line could become."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.support import ROOT, Daemon, die_with_us, run, topics_program

pytestmark = pytest.mark.slow

COMPLETIONS = ROOT / "completions"
CASES: list[tuple[str, list[str]]] = [
    ("topics ta", ["tail"]),
    ("topics tail ev", ["events", "events:old"]),
    ("topics tail events jo", ["jobs", "jobs-dead"]),
    ("topics claim jo", ["jobs"]),
    ("topics -o ", ["json", "ndjson", "raw", "table", "text"]),
    ("topics -o json tail --from 3 ev", ["events", "events:old"]),
    ("topics create x --disc", ["--discard"]),
    ("topics create x --discard ", ["old", "reject"]),
    ("topics set events cap", ["cap_bytes=", "cap_records="]),
    ("topics dlq re", ["requeue"]),
    ("topics dlq ls jo", ["jobs"]),
    ("topics errors topic_f", ["topic_full"]),
    ("topics work jobs -- fals", ["false"]),
    ("topics write -f pyproject.t", ["pyproject.toml"]),
    ("topics hel", ["help"]),
    ("topics help ta", ["tail"]),
    ("topics errors bad_key", ["bad_key", "bad_key_file"]),
    ("topics create x --dead-letter jo", ["jobs", "jobs-dead"]),
    ("topics cursor drop events ", ["mailer", "mirror"]),
    ("topics -o json cursor set --if-seq 3 events ma", ["mailer"]),
    ("topics tail -n 5 events --server-cursor mi", ["mirror"]),
    ("topics tail --server-cursor ", []),
    ("topics router info au", ["audit"]),
    ("topics context use ", ["away", "home"]),
    ("topics tail --from ", []),
    ("topics tail --socket /nowhere/at/all ", []),
    ("topics get events -- ", []),
]

Ask = Callable[[dict[str, str], list[str]], list[list[str]]]


@pytest.fixture
def environment(shared: Daemon, tmp_path: Path) -> dict[str, str]:
    """One in which `topics` is a command that talks to a daemon with some topics and a queue."""
    program = topics_program(tmp_path / "bin")
    for name in ("events", "events:old", "jobs-dead"):
        shared.ok("create", name)
    shared.ok("create", "jobs", "--type", "queue")
    for name in ("mailer", "mirror"):
        shared.ok("cursor", "create", "events", name)
    shared.ok("router", "create", "audit", "--source", "events", "--dest", "jobs-dead")
    environment = shared.environment(PATH=f"{program.parent}:{os.environ['PATH']}", HOME=str(tmp_path))
    environment.pop("XDG_CONFIG_HOME", None)
    for name in ("away", "home"):
        run("context", "set", name, "--url", "http://127.0.0.1:1", environment=environment)
    return environment


def _bash(environment: dict[str, str], lines: list[str]) -> list[list[str]]:
    script = (
        f"source {COMPLETIONS}/bash/topics; compopt() {{ :; }}; COMP_WORDBREAKS=' '; while IFS= read -r line; do "
        'COMP_LINE=$line; COMP_POINT=${#line}; COMPREPLY=(); _topics; printf "%s\\t" "${COMPREPLY[@]}"; echo; done'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        cwd=ROOT,
        env=environment,
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    return [sorted({word for word in line.split("\t") if word}) for line in done.stdout.splitlines()]


def _fish(environment: dict[str, str], lines: list[str]) -> list[list[str]]:
    script = f"source {COMPLETIONS}/fish/topics.fish; while read -l line; complete -C $line; echo ---; end"
    done = subprocess.run(
        ["fish", "--no-config", "-c", script],
        cwd=ROOT,
        env=environment,
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    answers = done.stdout.split("---\n")[:-1]
    return [sorted(line.split("\t")[0] for line in answer.splitlines()) for answer in answers]


def _zsh(environment: dict[str, str], lines: list[str]) -> list[list[str]]:
    """A zsh on a terminal, where Tab is pressed; what it offers is caught on its way to `compadd`."""
    caught = Path(environment["HOME"]) / "caught"
    caught.touch()
    pid, handle = pty.fork()
    if pid == 0:
        die_with_us()
        os.chdir(ROOT)
        os.execvpe("zsh", ["zsh", "-f", "-i"], {**environment, "TERM": "dumb", "PS1": "READY", "OUT": str(caught)})

    def wait(what: Callable[[bytes], bool], limit_s: float = 30.0) -> bytes:
        seen, over = b"", time.monotonic() + limit_s
        while not what(seen) and time.monotonic() < over:
            if select.select([handle], [], [], 0.1)[0]:
                seen += os.read(handle, 65536)
        return seen

    try:
        caught_by = (
            'compadd() { local -a found; case " $* " in *" -O "*|*" -A "*|*" -D "*) ;; '
            '*) builtin compadd -O found "$@"; print -rl -- $found >>$OUT;; esac; builtin compadd "$@" }'
        )
        for line in (
            f"fpath=({COMPLETIONS}/zsh $fpath); autoload -U compinit; compinit -u -D; bindkey '^I' complete-word",
            caught_by,
            "done-completing() { print -r -- --- >>$OUT }; zle -N done-completing; bindkey '^T' done-completing",
            "setopt no_auto_menu no_always_last_prompt no_beep; print RE''ADY-TO-GO",
        ):
            os.write(handle, line.encode() + b"\n")
        assert b"READY-TO-GO" in wait(lambda seen: b"READY-TO-GO" in seen)
        for count, line in enumerate(lines, 1):
            os.write(handle, line.encode() + b"\t\x14")
            wait(lambda _, count=count: caught.read_text().count("---\n") >= count)  # type: ignore[misc]  # a default binds
            os.write(handle, b"\x15")  # Ctrl-U: the next line begins anew
        answers = caught.read_text().split("---\n")[:-1]
    finally:
        os.close(handle)
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    return [sorted({word for word in answer.splitlines() if word}) for answer in answers]


@pytest.mark.parametrize(("shell", "ask"), [("bash", _bash), ("zsh", _zsh), ("fish", _fish)])
def test_a_shell_offers_what_may_come_next(shell: str, ask: Ask, environment: dict[str, str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} on this machine (.ci/run installs it)")
    lines = [line for line, _ in CASES]
    for _ in range(4):  # A completion gives the daemon one second, and a busy machine may take longer for that.
        answers = dict(zip(lines, ask(environment, lines), strict=True))
        if answers == dict(CASES):
            break
    assert answers == dict(CASES)


@pytest.mark.parametrize(("shell", "ask"), [("bash", _bash), ("zsh", _zsh), ("fish", _fish)])
def test_a_daemon_that_gives_commands_for_names_has_them_run_by_nobody(shell: str, ask: Ask, tmp_path: Path) -> None:
    """A file in a directory that was cloned from somewhere may say which daemon is asked."""
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} on this machine (.ci/run installs it)")
    program, ran = tmp_path / "bin" / "topics", tmp_path / "ran"
    program.parent.mkdir()
    names = [f"evil$(>{ran})", f"evil`>{ran}`", f"evil;>{ran}", "evil-and-whole"]
    program.write_text("#!/bin/sh\ncat <<'END'\n" + "".join(f"{name} queue\n" for name in names) + "END\n")
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    lines = ["topics tail evil", "topics claim evil", "topics router info evil", "topics context use evil"]
    for answer in ask(environment, lines):
        assert "evil-and-whole" in answer
    assert not ran.exists()


def test_bash_completes_the_rest_of_a_name_with_a_colon(environment: dict[str, str]) -> None:
    """bash gives `events:` `o` as two words, and puts the answer in the second one's place."""
    script = (
        f"source {COMPLETIONS}/bash/topics; COMP_LINE='topics tail events:o' COMP_POINT=20; _topics; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "--norc", "-c", script], env=environment, capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr) == ("old\n", "")


def test_a_daemon_that_hangs_costs_a_second_at_most(environment: dict[str, str], tmp_path: Path) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as listening:
        path = f"/tmp/hang-{os.getpid()}.sock"
        listening.bind(path)
        try:
            listening.listen(8)
            begun = time.monotonic()
            answers = _bash({**environment, "TOPICS_SOCKET": path}, ["topics tail ev"])
            took = time.monotonic() - begun
        finally:
            os.unlink(path)
    assert answers == [[]]
    assert took < 10, "a completion waits for a daemon that does not answer"
