"""The other commands: topics as a whole, single records, pages, deletion, and what the daemon says of itself."""

from __future__ import annotations

import ast
import json
import subprocess
import time
from pathlib import Path

import pytest

from engine.errors import Code
from engine.formats.header import FORMAT_VERSION
from engine.types import ConfigChanges
from engine.version import VERSION
from tests.cli.support import ROOT, Daemon, clean_environment, command, run
from tests.waiting import until
from topics_cli import exits
from topics_cli.own_codes import OWN
from topics_cli.table import CONFIG_FIELDS


@pytest.mark.slow
def test_create_sets_every_field_that_is_given_and_leaves_an_existing_topic_alone(shared: Daemon, topic: str) -> None:
    words = ["--ttl", "7d", "--cap-bytes", "1MiB", "--durable", "true", "--priority", "-5", "--type", "queue"]
    assert shared.ok("create", topic, *words) == f"{topic}\tcreated\n".encode()
    config = json.loads(shared.ok("info", topic, "-o", "json"))["config"]
    assert (config["ttl_ms"], config["cap_bytes"], config["type"]) == (604_800_000, 1 << 20, "queue")
    assert (config["durability"], config["priority"]) == ("fsync", -5)
    done = shared.run("create", topic, "--ttl", "1h")
    assert (done.returncode, done.stdout) == (0, f"{topic}\texists\n".encode())
    assert f"topics set {topic} ttl_ms=3600000".encode() in done.stderr
    assert json.loads(shared.ok("info", topic, "-o", "json"))["config"] == config
    assert shared.run("create", topic, "--must-be-new").returncode == 1


@pytest.mark.slow
def test_set_changes_fields_and_refuses_what_it_does_not_know(shared: Daemon, topic: str) -> None:
    shared.ok("create", topic)
    shared.ok("set", topic, "ttl_ms=1500", "cap-records=7", "priority=null", "auto_create=false")
    config = json.loads(shared.ok("info", topic, "-o", "json"))["config"]
    assert (config["ttl_ms"], config["cap_records"], config["auto_create"]) == (1500, 7, False)
    done = shared.run("set", topic, "cap_record=7")
    assert done.returncode == 2
    assert b"did you mean cap_records" in done.stderr
    assert shared.run("set", topic, "ttl_ms=soon").returncode == 2
    assert shared.run("set", topic, "type=queue").returncode == 1
    assert shared.run("set", topic + "-nowhere", "ttl_ms=1").returncode == 1


def test_the_fields_that_create_and_set_take_are_the_engines() -> None:
    assert tuple(name for name, *_ in CONFIG_FIELDS) == ConfigChanges.__struct_fields__


def test_ls_lists_names_with_a_prefix_one_a_line(shared: Daemon, topic: str) -> None:
    for name in ("a", "b"):
        shared.ok("write", f"{topic}.{name}", "x")
    lines = shared.ok("ls", topic + ".").decode().splitlines()
    assert [line.split("\t")[0] for line in lines] == [f"{topic}.a", f"{topic}.b"]
    assert shared.ok("ls", topic + ".", "--fields", "count,topic").decode() == f"1\t{topic}.a\n1\t{topic}.b\n"
    assert [entry["topic"] for entry in json.loads(shared.ok("ls", topic + ".", "--json"))["topics"]] == [
        f"{topic}.a",
        f"{topic}.b",
    ]
    done = shared.run("ls", topic + "-nothing")
    assert (done.returncode, done.stdout) == (0, b"")


def test_info_shows_the_state_and_a_missing_topic_is_1_with_a_suggestion(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic + "-orders", "x")
    text = shared.ok("info", topic + "-orders").decode()
    assert "head_seq\t1\n" in text
    assert "config.type\tlog\n" in text
    done = shared.run("info", topic + "-ordres")
    assert done.returncode == 1
    assert b"(topic_not_found)" in done.stderr
    assert f"did you mean {topic}-orders".encode() in done.stderr


@pytest.mark.slow
def test_drop_shows_what_would_go_and_never_asks_without_a_terminal(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, "abc")
    assert shared.ok("drop", topic, "--dry-run") == f"{topic}\twould be dropped: 1 record, 5 bytes\n".encode()
    assert shared.run("drop", topic, "--if-empty").returncode == 1
    assert shared.ok("drop", topic) == f"{topic}\tdropped: 1 record, 5 bytes\n".encode()
    assert shared.run("info", topic).returncode == 1


def test_what_is_not_there_cannot_be_dropped_and_names_that_come_near_are_said(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, "x")
    shared.ok("cursor", "create", topic, "mailer")
    shared.ok("router", "create", f"{topic}-audit", "--source", topic, "--dest", f"{topic}-to")
    for words, code, hint in (
        (["drop", f"{topic}-tx"], "topic_not_found", f"did you mean {topic}-to"),
        (["cursor", "drop", topic, "mialer"], "not_found", "did you mean mailer?"),
        (["cursor", "info", topic, "zzz"], "not_found", f"topics cursor ls {topic} shows the cursors that exist"),
        (["router", "drop", f"{topic}-audti"], "router_not_found", f"did you mean {topic}-audit"),
        (["router", "set", f"{topic}-audti", "--tag", "x"], "router_not_found", f"did you mean {topic}-audit"),
    ):
        for more in ([], ["--yes"]) if words[-2] == "drop" else ([],):
            done = shared.run(*words, *more)
            what, todo = done.stderr.decode().splitlines()
            assert (done.returncode, done.stdout) == (1, b"")
            assert what.endswith(f"({code})")
            assert hint in todo


def test_delete_counts_first_and_deletes_what_it_counted(shared: Daemon, topic: str) -> None:
    for tag in ("user-1", "user-2", "other"):
        shared.ok("write", topic, "--tag", tag, "a", "b")
    assert shared.ok("delete", topic, "--tag-prefix", "user-", "--dry-run").decode().startswith(f"{topic}\t4 ")
    assert (
        shared.ok("delete", topic, "--tag", "user-1", "--before", "2", "--dry-run").decode().startswith(f"{topic}\t1 ")
    )
    assert shared.ok("delete", topic, "--seq", "1,3-4", "--dry-run").decode().startswith(f"{topic}\t3 ")
    assert shared.ok("delete", topic, "--tag", "user-1").decode() == f"{topic}\t2 records deleted\n"
    assert shared.ok("delete", topic, "--seq", "3-4").decode() == f"{topic}\t2 records deleted\n"
    assert shared.ok("delete", topic, "--before", "6").decode() == f"{topic}\t1 record deleted\n"
    assert shared.ok("tail", topic) == b"b\n"
    assert shared.run("delete", topic).returncode == 2
    assert shared.run("delete", topic, "--seq", "9-1").returncode == 2


def test_get_shows_records_and_names_those_that_are_not_there_with_3(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, "--tag", "t", "a", "b")
    done = shared.run("get", topic, "1", "99", "2", "--raw")
    assert (done.returncode, done.stdout) == (3, b'"a"\n"b"\n')
    assert b"99" in done.stderr
    assert json.loads(shared.ok("get", topic, "2"))["$tag"] == "t"


def test_diff_is_one_page_exactly_as_the_api_gives_it(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, *"abcde")
    page = json.loads(shared.ok("diff", topic, "--from", "1", "--limit", "2"))
    assert [record["data"] for record in page["records"]] == ["b", "c"]
    assert (page["next_from_seq"], page["head_seq"], page["caught_up"]) == (3, 5, False)
    pages = shared.ok("diff", topic, "--limit", "2", "--all").splitlines()
    assert [json.loads(page)["next_from_seq"] for page in pages] == [2, 4, 5]
    assert shared.ok("diff", topic, "--all", "--limit", "2", "-o", "raw") == b'"a"\n"b"\n"c"\n"d"\n"e"\n'
    lines = shared.ok("diff", topic, "--from", "4", "-o", "ndjson").splitlines()
    assert json.loads(lines[-1])["$page"]["head_seq"] == 5


@pytest.mark.slow
def test_diff_waits_and_ends_with_3_when_nothing_came(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, "--json", '{"records":[]}')
    begun = time.monotonic()
    assert shared.run("diff", topic, "--from", "1", "--wait", "300ms").returncode == 3
    assert time.monotonic() - begun >= 0.3
    assert shared.run("diff", topic, "--from", "0", "--wait", "300ms").returncode == 0
    assert shared.run("diff", topic, "--from", "1").returncode == 0


def test_status_says_where_and_why_there(shared: Daemon) -> None:
    text = shared.ok("status").decode()
    assert f"where\t{shared.socket}\n" in text
    assert "why there\tTOPICS_SOCKET\n" in text
    assert "state\tready\n" in text
    answer = json.loads(shared.ok("status", "--json"))
    assert (answer["where"], answer["ready"]["status"]) == (shared.socket, "ready")


def test_version_names_both_sides(shared: Daemon) -> None:
    answer = json.loads(shared.ok("version", "-o", "json"))
    assert answer["client"] == answer["daemon"]
    assert answer["api"] == "v0"
    assert shared.ok("--version") == shared.ok("version")


@pytest.mark.parametrize("code", ["75", "topic_not_found"])
def test_errors_explains_a_code_without_a_daemon(shared: Daemon, code: str) -> None:
    done = shared.run("errors", code, "--socket", "/nowhere")
    assert done.returncode == 0
    assert done.stdout.startswith(code.encode())
    assert shared.run("errors", "nonsense").returncode == 3
    assert b"did you mean topic_not_found" in shared.run("errors", "topic_not_fuond").stderr


def _given() -> dict[str, set[int | None]]:
    """The codes of failures in the sources of the command line and of exports, with the exit codes beside them."""
    found: dict[str, set[int | None]] = {"usage": {2}, "no_daemon": {69}, "bad_answer": {69}}
    for path in (*ROOT.glob("topics_cli/**/*.py"), *ROOT.glob("topics_lake/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            place = {"Failure": 1, "LakeError": 1, "Bad": 2, "self._refuse": 1}.get(called)
            if place is None or not isinstance(node, ast.Call) or len(node.args) <= place:
                continue
            code = node.args[place]
            if isinstance(code, ast.Constant):
                said = ast.unparse(node.args[3]).removeprefix("exits.") if len(node.args) > 3 else ""
                found.setdefault(str(code.value), set()).add(getattr(exits, said, None))
    return found


def test_errors_knows_each_code_of_our_own_and_with_what_commands_end_by_it(shared: Daemon) -> None:
    daemons = {code.value for code in Code}
    given = _given()
    assert set(OWN) == set(given) - daemons
    for code, (numbers, _) in OWN.items():
        assert given[code] - {None} <= set(numbers), code
    assert shared.ok("errors", "no_daemon", "--socket", "/nowhere").startswith(
        b"no_daemon\tcommand line\texit code 69: "
    )
    assert json.loads(shared.ok("errors", "usage", "-o", "json"))[0]["exit_code"] == 2


def test_rows_of_our_own_can_be_picked_from(shared: Daemon) -> None:
    assert shared.ok("errors", "75", "--fields", "code,what") == b"75\texit code\n"
    assert shared.ok("errors", "usage", "-t", "{code}!") == b"usage!\n"
    assert shared.run("errors", "usage", "--fields", "cdoe").returncode == 2


def test_errors_says_what_a_code_means_and_with_what_commands_end_by_it(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, "x")
    assert (
        shared.ok("errors", "not_found")
        .split(b"\t")[2]
        .startswith(b"exit code 3 or 1: no such path, watch session or record")
    )
    assert shared.run("get", topic, "2").returncode == 3
    [told] = json.loads(shared.ok("errors", "not_a_queue", "-o", "json"))
    assert (told["exit_code"], told["meaning"]) == (1, "a queue's operation on a log")
    assert shared.run("claim", topic).returncode == 1


@pytest.mark.slow
def test_three_checkpoints_give_back_the_space_of_what_was_dropped(place: Path) -> None:
    daemon = Daemon(place)
    daemon.start()
    try:
        daemon.ok("write", "t", *(f"{number:01000}" for number in range(100)))
        told = [daemon.ok("checkpoint").decode().split("\t")]
        files = set((place / "data").rglob("*.data"))
        assert files
        daemon.ok("drop", "t", "--yes")
        told += [daemon.ok("checkpoint").decode().split("\t") for _ in range(3)]
        assert [row[0] for row in told] == ["1", "2", "3", "4"]
        assert [row[1] for row in told] == ["1 topic", *["0 topics"] * 3]
        until(lambda: not files & set((place / "data").rglob("*.data")))
    finally:
        daemon.stop()


@pytest.mark.slow
def test_info_names_what_damage_has_taken(place: Path) -> None:
    daemon = Daemon(place)
    daemon.start()
    try:
        daemon.ok("write", "t", "one", "the needle", "three")
        daemon.kill()
        [log] = (place / "data" / "wal" / "shard-00").iterdir()
        log.write_bytes(log.read_bytes().replace(b"the needle", b"the noodle"))
        daemon.start()
        assert "damage\t1-3" in daemon.ok("info", "t").decode().splitlines()
    finally:
        daemon.stop()


@pytest.mark.slow
def test_everything_works_over_tcp_too(place: Path) -> None:
    daemon = Daemon(place, TOPICS_PORT="0", TOPICS_PORT_FILE=str(place / "port"))
    daemon.start()
    try:
        url = f"http://127.0.0.1:{(place / 'port').read_text().strip()}"
        values = b"".join(b"%d\n" % number for number in range(3000))
        done = run("write", "t", "--json", "--url", url, stdin=values, environment=clean_environment())
        assert (done.returncode, done.stdout) == (0, b"t 1-3000\n"), done.stderr
        done = run("tail", "t", "--from", "0", environment={**clean_environment(), "TOPICS_URL": url})
        assert done.stdout == values
        text = run("status", "--url", url, environment=clean_environment()).stdout.decode()
        assert f"where\t{url}\nwhy there\t--url\n" in text
    finally:
        daemon.stop()


@pytest.mark.slow
def test_serve_becomes_the_daemon_with_its_options(place: Path) -> None:
    words = ["serve", "--data-dir", str(place / "data"), "--socket", str(place / "s.sock"), "--port", "none"]
    with subprocess.Popen(command(*words), env=clean_environment(), stderr=subprocess.DEVNULL, stdout=-3) as serving:
        try:
            done = run(
                "write",
                "t",
                "x",
                "--socket",
                str(place / "s.sock"),
                "--retry-for",
                "15s",
                environment=clean_environment(),
            )
            assert done.stdout == b"t 1-1\n", done.stderr
        finally:
            serving.terminate()
        assert serving.wait(15) == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_prints_what_the_package_installs(shared: Daemon, shell: str) -> None:
    (file,) = (ROOT / "completions" / shell).iterdir()
    assert shared.ok("completions", shell) == file.read_bytes()
    assert shared.run("completions", SHELL=f"/usr/bin/{shell}").stdout == file.read_bytes()
    assert shared.run("completions", SHELL="/bin/tcsh").returncode == 2


def test_version_says_all_versions_there_are(shared: Daemon) -> None:
    said = json.loads(shared.ok("version", "-o", "json"))
    assert said == {"client": VERSION, "daemon": VERSION, "api": "v0", "formats": {"disk": FORMAT_VERSION}}
    assert shared.ok("version").decode().splitlines()[-1] == f"disk format {FORMAT_VERSION}"


@pytest.mark.slow
def test_a_dry_run_of_cursors_and_routers_changes_nothing(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, "x")
    router, other = f"{topic}-router", f"{topic}-copy"
    ends = ["--source", topic, "--dest", other]
    assert b"would be created" in shared.ok("router", "create", router, *ends, "--dry-run")
    assert shared.run("router", "info", router).returncode != 0
    shared.ok("router", "create", router, *ends)
    assert (
        shared.ok("router", "drop", router, "--dry-run").decode() == f"{router}\twould be dropped: {topic} to {other}\n"
    )
    shared.ok("router", "info", router)
    assert shared.ok("cursor", "set", topic, "me", "1", "--dry-run") == b"me\twould be set to 1\n"
    assert shared.ok("cursor", "ls", topic) == b""
    shared.ok("cursor", "set", topic, "me", "1")
    assert shared.ok("cursor", "drop", topic, "me", "--dry-run") == b"me\twould be dropped: it is at 1\n"
    assert b"me\t1\t" in shared.ok("cursor", "ls", topic)


@pytest.mark.slow
def test_a_cursor_is_created_once_and_left_where_it_is(shared: Daemon, topic: str) -> None:
    assert shared.run("cursor", "create", topic, "me").returncode == 1, "there is no such topic"
    shared.ok("write", topic, "a", "b")
    assert shared.ok("cursor", "create", topic, "me", "--dry-run") == b"me\twould be created\n"
    assert shared.ok("cursor", "ls", topic) == b""
    assert shared.ok("cursor", "create", topic, "me") == b"me\tcreated\n"
    assert b"me\t0\t2\t" in shared.ok("cursor", "ls", topic)
    assert shared.ok("cursor", "create", topic, "other", "1") == b"other\tcreated\n"
    assert shared.ok("cursor", "create", topic, "other", "2") == b"other\texists\n"
    assert b"other\t1\t1\t" in shared.ok("cursor", "ls", topic)
    assert shared.ok("cursor", "drop", topic, "other", "--yes") == b"other\tdropped\n"


def test_a_dry_run_of_set_shows_what_would_change(shared: Daemon, topic: str) -> None:
    shared.ok("create", topic, "--cap-records", "7")
    said = shared.ok("set", topic, "cap_records=3", "ttl_ms=2s", "--dry-run").decode()
    assert said == f"{topic}\tcap_records would be 3, is 7\n{topic}\tttl_ms would be 2000, is 0\n"
    assert "config.cap_records\t7\n" in shared.ok("info", topic).decode()


@pytest.mark.slow
def test_help_is_a_word_too_and_lists_whole_summaries(shared: Daemon) -> None:
    assert shared.ok("help") == shared.ok("--help")
    assert shared.ok("help", "write") == shared.ok("write", "--help")
    assert b"..." not in shared.ok("help").split(b"Commands:")[1]
    assert shared.ok("help", "serve").startswith(b"Usage: topics serve ")
    assert shared.run("help", "wriet").stderr.endswith(b"did you mean write?\n")
    assert b"""--exec './mail.sh "$TOPICS_TAG"'\n""" in shared.ok("help", "tail"), "an example is not folded"


@pytest.mark.parametrize(
    "words",
    [["errors"], ["checkpoint"], ["doctor"], ["context", "ls"], ["version"], ["ls"], ["router", "ls"], ["status"]],
    ids=" ".join,
)
def test_json_is_one_value_and_ndjson_a_value_a_line(shared: Daemon, words: list[str]) -> None:
    json.loads(shared.ok(*words, "-o", "json"))
    for line in shared.ok(*words, "-o", "ndjson").splitlines():
        assert isinstance(json.loads(line), dict)


def test_a_queue_that_would_retry_for_ever_is_warned_of(shared: Daemon, topic: str) -> None:
    done = shared.run("create", topic, "--type", "queue", "--max-deliveries", "2")
    assert (done.returncode, b"warning: without --dead-letter" in done.stderr) == (0, True)
    words = ["create", f"{topic}-b", "--type", "queue", "--max-deliveries", "2", "--dead-letter", f"{topic}-dead"]
    assert shared.run(*words).stderr == b""


def test_seqs_to_delete_may_follow_each_other(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, stdin=b"".join(b"%d\n" % number for number in range(1, 11)))
    assert shared.run("delete", topic, "5", "--yes").returncode == 2, "a seq alone could be anything"
    assert shared.ok("delete", topic, "--seq", "1", "3-4", "9,10", "--yes") == f"{topic}\t5 records deleted\n".encode()
    assert shared.ok("tail", topic) == b"2\n5\n6\n7\n8\n"


@pytest.mark.slow
def test_explain_says_why_an_evicted_record_is_gone(shared: Daemon, topic: str) -> None:
    shared.ok("create", topic, "--cap-records", "1")
    shared.ok("write", topic, "a", "b")
    done = shared.run("explain", topic, "1", "-o", "json")
    assert (done.returncode, json.loads(done.stdout)["state"], json.loads(done.stdout)["reason"]) == (
        3,
        "evicted",
        "cap",
    )


def test_create_refuses_another_type_and_hints_at_nothing_that_cannot_be(shared: Daemon, topic: str) -> None:
    shared.ok("create", topic, "--type", "queue")
    done = shared.run("create", topic, "--type", "log")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"is a queue; the type of a topic never changes" in done.stderr
    assert b"topics set" not in done.stderr


def test_a_field_that_no_record_has_is_a_mistake(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, "--json", '{"a":1}')
    for words in (["--fields", "seq,tga"], ["-t", "{seq} {a}"]):
        done = shared.run("tail", topic, *words)
        assert (done.returncode, done.stdout) == (2, b"")
        assert b"data.user.name" in done.stderr
    assert shared.ok("tail", topic, "--fields", "seq,$ts,data.a,data.b,meta.k").endswith(b"\t1\t\t\n")


def test_what_is_missing_is_said_behind_what_is_there(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, "x")
    together = shared.start_command("get", topic, "1", "2", stderr=subprocess.STDOUT).communicate(timeout=30)[0]
    assert together.startswith(b'{"$seq":1,'), together
    assert b"record 2" in together
    shared.ok("delete", topic, "--seq", "1")
    assert b"the topic holds nothing; the next seq is 2" in shared.run("get", topic, "1").stderr


def test_explain_says_when_a_record_of_a_running_daemon_was_deleted_and_by_what(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, "a", "b")
    shared.ok("delete", topic, "--seq", "1")
    story = ("explain", topic, "1", "-o", "json")
    found = json.loads(shared.run(*story, TOPICS_DATA_DIR=str(shared.directory / "data")).stdout)
    *_, event = found["events"]
    assert (found["state"], event["what"]) == ("deleted", "deleted by a delete")
    assert event["ts"] > 0
    assert event["file"].startswith("wal/")
    elsewhere = json.loads(shared.run(*story, TOPICS_DATA_DIR="/").stdout)
    assert (elsewhere["state"], elsewhere["events"]) == ("deleted", [])


def test_get_takes_ranges_as_other_commands_print_them(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, *"abcdef")
    assert shared.ok("get", topic, "2-4", "6", "--raw") == b'"b"\n"c"\n"d"\n"f"\n'
    assert shared.run("get", topic, "4-2").returncode == 2
    assert shared.run("get", topic, "1-10001").returncode == 2


def test_a_star_ends_a_prefix_of_names_as_one_of_tags(shared: Daemon, topic: str) -> None:
    shared.ok("create", f"{topic}-starred")
    assert shared.ok("ls", f"{topic}-st*", "--fields", "topic") == f"{topic}-starred\n".encode()


def test_tail_from_behind_the_end_says_why_it_begins_anew(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, "x")
    done = shared.run("tail", topic, "--from", "9")
    assert done.stdout == b"x\n"
    said = f"topics: {topic} ends at seq 1, before 9: it is read from its beginning\n"
    assert done.stderr.decode() == f"gap {topic} 1-1 recreated\n{said}"


def test_a_file_that_is_no_socket_is_not_taken_for_one_left_by_a_daemon(shared: Daemon) -> None:
    done = shared.run("ls", "--socket", __file__)
    assert done.returncode == 69
    assert b"it is no socket (no_daemon)" in done.stderr


def test_options_of_other_commands_lead_to_the_form_that_is_meant(shared: Daemon, topic: str) -> None:
    for flag in ("json", "raw"):
        assert shared.run("tail", topic, f"--{flag}").stderr.endswith(f"did you mean -o {flag}?\n".encode())
    assert shared.run("queues").stderr.endswith(b"did you mean ls?\n")


def test_no_context_is_said(shared: Daemon, tmp_path: Path) -> None:
    done = shared.run("context", "ls", XDG_CONFIG_HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.startswith(b"topics: there is no context; topics context set")
