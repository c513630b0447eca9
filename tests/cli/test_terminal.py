"""What a person sees: dress on a terminal, the same content as in a pipe, and nothing that a terminal would obey."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tests.cli.support import Daemon, Terminal, run

pytestmark = pytest.mark.slow

EVIL = '"\\u001b[31mred\\u0007\\u009b31m\\u202eabc\\r\\nx"'


def on_terminal(daemon: Daemon, *words: str, **more: str) -> Terminal:
    """Start a command on a terminal."""
    return Terminal(daemon.environment(**more), *words)


def test_S19_control_bytes_of_data_names_and_errors_never_reach_a_terminal(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, "--json", "--tag", "\x1b[32mtag", EVIL)
    for words in (
        ["tail", topic],
        ["tail", topic, "-o", "table"],
        ["tail", topic, "-o", "ndjson"],
        ["tail", topic, "--fields", "tag,data"],
        ["get", topic, "1"],
        ["diff", topic],
        ["info", "\x1b[33mname"],
        ["tail", "\x1b[33mname"],
        ["\x1b[33mcommand"],
    ):
        code, seen = on_terminal(shared, *words, NO_COLOR="1").end()
        assert code in (0, 1, 2)
        assert not re.search(rb"[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80\xae", seen), (words, seen)
        assert b"\\x1b" in seen or b"u001b" in seen, (words, seen)
    assert shared.ok("tail", topic) == "\x1b[31mred\x07\x9b31m\u202eabc\r\nx\n".encode()


def test_a_list_is_a_table_on_a_terminal_and_plain_lines_in_a_pipe(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, "x")
    code, seen = on_terminal(shared, "ls", topic).end()
    assert code == 0
    assert b"\x1b[" in seen
    plain = re.sub(rb"\x1b\[[0-9;]*m", b"", seen).decode()
    head, _, row = [line for line in plain.splitlines() if line.strip()]
    assert head.split()[:3] == ["TOPIC", "TYPE", "COUNT"]
    assert row.split()[:7] == shared.ok("ls", topic).decode().split()[:7]
    assert all(len(line) <= 80 for line in plain.splitlines())


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_are_left_out_where_they_are_not_wanted(shared: Daemon, topic: str, name: str, value: str) -> None:
    shared.ok("write", topic, "x")
    code, seen = on_terminal(shared, "ls", topic, **{name: value}).end()
    assert (code, b"\x1b" in seen) == (0, False)
    assert b"\x1b[" in shared.ok("ls", topic, "-o", "table", "--color", "always")
    assert b"\x1b[" not in on_terminal(shared, "status", "--color", "never").end()[1]
    assert b"\x1b[" not in on_terminal(shared, "get", "--color", "never", "--help").end()[1]


def test_a_locale_without_utf8_gets_ascii_only(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, "ключ")
    for words in (["tail", topic], ["ls", topic], ["status"], ["doctor"], ["errors"], ["write", "--help"], ["--help"]):
        code, seen = on_terminal(shared, *words, LC_ALL="C").end()
        assert code == 0
        assert seen.isascii(), seen
    assert run("tail", topic, environment=shared.environment(LC_ALL="C")).stdout == "ключ\n".encode()


def test_drop_asks_at_a_terminal_and_believes_only_yes(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, "x")
    for answer, expected in ((b"n\n", 1), (b"\n", 1), (b"y\n", 0)):
        terminal = on_terminal(shared, "drop", topic)
        terminal.read_until(b"[y/N]")
        terminal.type(answer)
        code, seen = terminal.end()
        assert (code, b"1 record," in seen) == (expected, True)
    assert shared.run("info", topic).returncode == 1


def test_dropping_a_router_or_a_cursor_asks_at_a_terminal(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, "x")
    shared.ok("cursor", "create", topic, "me")
    shared.ok("router", "create", topic, "--source", topic, "--dest", f"{topic}-to")
    for words in (["cursor", "drop", topic, "me"], ["router", "drop", topic]):
        for answer, expected in ((b"\n", 1), (b"y\n", 0)):
            terminal = on_terminal(shared, *words)
            terminal.read_until(b"[y/N]")
            terminal.type(answer)
            assert terminal.end()[0] == expected
    assert shared.ok("router", "ls", topic) + shared.ok("cursor", "ls", topic) == b""


def test_a_claim_of_nothing_says_so_at_a_terminal_only(shared: Daemon, topic: str) -> None:
    shared.ok("create", topic, "--type", "queue")
    code, seen = on_terminal(shared, "claim", topic).end()
    assert (code, seen) == (3, f"topics: {topic} has no job that is ready; --wait 30s waits for one\r\n".encode())
    assert on_terminal(shared, "claim", topic, "-q").end() == (3, b"")
    done = shared.run("claim", topic)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"", b"")


def test_delete_counts_and_asks_at_a_terminal(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, "a", "b", "c")
    terminal = on_terminal(shared, "delete", topic, "--before", "3")
    terminal.read_until(b"delete 2 records")
    terminal.type(b"\x03")
    assert terminal.end()[0] == 130
    assert shared.ok("tail", topic) == b"a\nb\nc\n"


def test_a_narrow_terminal_is_not_overrun(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, "--tag", "a-tag", "long " * 50)
    for words in (["tail", topic, "-o", "table"], ["ls", topic], ["status"], ["info", topic], ["doctor"], ["errors"]):
        for width in (60, 40):
            _, seen = on_terminal(shared, *words, COLUMNS=str(width)).end()
            plain = re.sub(rb"\x1b\[[0-9;]*m", b"", seen).decode()
            assert max(map(len, plain.splitlines())) <= width, plain


def test_cells_are_divided_by_spaces_on_a_terminal(shared: Daemon, topic: str) -> None:
    assert f"{topic}  created".encode() in on_terminal(shared, "create", topic).end()[1]
    shared.ok("write", topic, "--tag", "t", "x")
    assert b"1  t  x\r\n" in on_terminal(shared, "tail", topic, "--fields", "seq,tag,data").end()[1]


def test_a_terminal_that_is_read_from_gets_a_hint(shared: Daemon, topic: str) -> None:
    terminal = on_terminal(shared, "write", topic)
    terminal.read_until(b"Ctrl-D ends")
    terminal.type(b"typed\n")
    time.sleep(0.3)
    terminal.type(b"\x04")
    code, seen = terminal.end()
    assert code == 0
    assert f"{topic} 1-1".encode() in seen
    assert shared.ok("tail", topic) == b"typed\n"


def test_waiting_longer_than_a_second_is_shown_and_ends_with_ctrl_c(place: Path, shared: Daemon) -> None:
    environment = {**shared.environment(), "TOPICS_SOCKET": str(place / "none.sock")}
    terminal = Terminal(environment, "tail", "t", "-f", "--retry-for", "20s")
    terminal.read_until(b"waiting 1 s: no daemon at ")
    begun = time.monotonic()
    terminal.type(b"\x03")
    code, seen = terminal.end()
    assert code == 130
    assert time.monotonic() - begun < 0.5
    assert b"\r\x1b[K" in seen


def test_writing_a_file_shows_rate_and_time_left(shared: Daemon, topic: str, place: Path) -> None:
    (place / "in").write_bytes(b"".join(b"%d\n" % number for number in range(300)))
    terminal = on_terminal(shared, "write", topic, "-f", str(place / "in"), "--rate", "200/s")
    terminal.read_until(b"/s  0:0")
    code, seen = terminal.end()
    assert code == 0
    assert f"{topic} 1-300".encode() in seen


def test_help_fits_80_columns(shared: Daemon) -> None:
    for words in ([], ["write"], ["create"]):
        code, seen = on_terminal(shared, *words, "--help", NO_COLOR="1").end()
        assert code == 0
        text = re.sub(rb"\x1b\[[0-9;]*m", b"", seen).decode()
        assert all(len(line) <= 80 for line in text.splitlines())
        assert "--retry-for" in text
        assert not words or f"\n  topics {words[0]} " in text.split("Examples:")[1].replace("\r", "")


def test_help_shows_arguments_by_their_names_and_choices(shared: Daemon) -> None:
    for words, usage, shown in (
        (["write"], "topics write [OPTIONS] TOPIC [DATA...]", ("TOPIC", "DATA")),
        (["dlq"], "topics dlq [OPTIONS] ACTION QUEUE [SEQ...]", ("ls|show|requeue|purge",)),
    ):
        plain = shared.ok(*words, "--help").decode()
        dressed = re.sub(rb"\x1b\[[0-9;]*m", b"", on_terminal(shared, *words, "--help").end()[1]).decode()
        for text in (plain, dressed):
            assert usage in text
            assert all(name in text for name in shown)
            assert not re.search(r"<\w+|list\[|\{", text.split("template")[0]), text
