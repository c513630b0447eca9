# ruff: noqa: E501  # a table whose rows are shell scripts
"""What would bite a careful shell user: scripts for bash against a real daemon, with all that they print and their end.

Each script runs in an empty directory, with `T` as the name of a topic that nobody else uses. `$T` stands for it in
what is expected as well. What is expected on stderr is the whole of it, unless it begins with `…`: then it is a part.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.support import Daemon, topics_program

pytestmark = pytest.mark.slow

CLOSED = "topics: the output cannot be written: Bad file descriptor (output_failed)\n"
FULL = "topics: the output cannot be written: No space left on device (output_failed)\n"
NO_NAME = "  names match ^[A-Za-z0-9][A-Za-z0-9._:-]{0,254}$\n"


@dataclass(frozen=True)
class Bite:
    """A script, and what it must do."""

    what: str
    script: str
    out: str = ""
    err: str = ""
    code: int = 0


BITES = [
    # -- what goes in ----------------------------------------------------------------------------------------------
    Bite("empty input is no record, no topic, and no failure", 'topics write $T </dev/null; topics info "$T" -q', "",
         "…does not exist", 1),
    Bite("a missing final newline loses nothing", 'printf "a\\nb" | topics write $T; topics tail $T', "$T 1-2\na\nb\n"),
    Bite("empty lines are empty records", 'printf "a\\n\\n\\n" | topics write $T -q; topics tail $T | wc -l', "$T 1-3\n3\n"),
    Bite("CRLF is kept", 'printf "a\\r\\nb\\r\\n" | tee in | topics write $T >/dev/null; topics tail $T | cmp - in'),
    Bite("a BOM is kept", 'printf "\\xef\\xbb\\xbfx\\n" | tee in | topics write $T >/dev/null; topics tail $T | cmp - in'),
    Bite("NUL ends records with -0, and lines stay whole",
         'printf "a\\nb\\0c\\0" | topics write $T -0; topics tail $T -0 | tr "\\0" "|"', "$T 1-2\na\nb|c|"),
    Bite("find -print0 | xargs -0 | write: names with everything in them",
         "touch -- 'a b' $'c\\nd' '*' '-e'; find . -type f -print0 | sort -z | topics write $T -0 >/dev/null; "
         "topics tail $T -0 | sort -z | cmp - <(find . -type f -print0 | sort -z)"),
    Bite("--length carries anything", 'printf "3\\na\\nb0\\n2\\n\\0\\xff" | tee in | topics write $T --length; '
         "topics tail $T --length | cmp - in", "$T 1-3\n"),
    Bite("--length that is cut short is refused, and what was whole is in",
         'printf "1\\na9\\nbc" | topics write $T --length; echo $?; topics tail $T', "$T 1-1\n1\na\n", "…bad_framing"),
    Bite("bytes that are no UTF-8 come back", 'printf "\\xff\\xfe\\x80\\n" | tee in | topics write $T >/dev/null; '
         "topics tail $T | cmp - in; topics tail $T -o raw", '{"$base64":"//6A"}\n'),
    Bite("numbers stay as they are written",
         """echo '{"a":1.10,"b":1e400,"c":-0.0,"d":12345678901234567890}' | tee in | topics write $T --json >/dev/null; """
         "topics tail $T -o raw | cmp - in"),
    Bite("two JSON values on a line are refused by their line",
         "printf '1\\n2 3\\n4\\n' | topics write $T --json; echo $?; topics tail $T -o raw", "$T 1-1\n1\n1\n",
         "topics: line 2: not JSON: trailing characters (byte 3) (invalid_request)\n"
         "  everything before it is in; --on-error skip goes on\n"),
    Bite("--on-error file keeps what was refused, and the rest is in",
         "printf '1\\nx\\n2\\n' | topics write $T --json --on-error file:bad; echo $?; cat bad; topics tail $T -o raw",
         "$T 1-2\n1\nx\n1\n2\n", "…1 refused"),
    Bite("a record of a mebibyte less its quotes fits; more is refused by its line",
         "head -c 1048574 /dev/zero | tr '\\0' x | topics write $T; topics tail $T | wc -c; "
         "{ echo ok; head -c 1048577 /dev/zero | tr '\\0' x; } | topics write $T", "$T 1-1\n1048575\n$T 2-2\n",
         "…line 2: data and meta of one record may hold 1048576 bytes", 1),
    Bite("a line without an end does not fill the memory",
         "head -c 40000000 /dev/zero | tr '\\0' x | (ulimit -v 400000; topics write $T)", "", "…record_too_large", 1),
    Bite("arguments as long as the kernel takes them",
         'topics write $T "$(head -c 131000 /dev/zero | tr "\\0" x)"; topics tail $T | wc -c', "$T 1-1\n131001\n"),
    Bite("data that begins with a dash goes behind --", "topics write $T -- --json -x --; topics tail $T",
         "$T 1-3\n--json\n-x\n--\n"),
    Bite("data that begins with a dash, without --, is a mistake that writes nothing",
         "topics write $T -x; echo $?; topics info $T", "2\n", "…there is no option -x", 1),
    Bite("a data argument keeps stdin unread",
         'printf "1\\n2\\n" | while read -r n; do topics write $T "$n" >/dev/null; done; topics tail $T', "1\n2\n"),
    Bite("tail, get, ls and work leave the stdin of a loop alone",
         'topics create $T --type queue >/dev/null; topics write $T j >/dev/null; printf "1\\n2\\n" | while read -r n; do '
         'topics tail $T -n 1 >/dev/null; topics get $T 1 >/dev/null; topics ls $T >/dev/null; '
         'topics work $T --until-empty -q -- cat >/dev/null 2>&1; echo "$n"; done', "1\n2\n", "…", 0),
    Bite("here-documents and here-strings",
         'topics write $T <<EOF\nit\'s "so"\n  $((1+1))\nEOF\ntopics write $T <<<"one"; topics tail $T',
         '$T 1-2\n$T 3-3\nit\'s "so"\n  2\none\n'),
    Bite("process substitution", "topics write $T -f <(echo a) -f <(echo b); diff <(topics tail $T) <(printf 'a\\nb\\n')",
         "$T 1-2\n"),
    Bite("xargs, one record each and all at once",
         "printf 'a\\nb c\\n' | xargs -d '\\n' topics write $T; printf '1\\n2\\n' | xargs -n1 topics write $T; topics tail $T",
         "$T 1-2\n$T 3-3\n$T 4-4\na\nb c\n1\n2\n"),
    Bite("files by relative path, and one that is not there: named, and nothing of it written",
         "printf 'a\\n' >f; mkdir d; cd d; topics write $T -f ../f; topics write $T -f nosuch",
         "$T 1-1\n", "topics: nosuch cannot be read: no such file or directory (no_input)\n", 1),
    Bite("a directory as a file", "mkdir d; topics write $T -f d", "", "topics: d is a directory (no_input)\n", 1),
    Bite("a fifo as a file", "mkfifo f; printf 'a\\nb\\n' >f & topics write $T -f f; topics tail $T",
         "$T 1-2\na\nb\n"),
    Bite("a slow producer's lines are there before it ends",
         "mkfifo f; topics write $T -f f >/dev/null & exec 3>f; echo 1 >&3; for n in $(seq 100); do "
         'test "$(topics tail $T 2>/dev/null)" = 1 && break; sleep 0.1; done; topics tail $T; exec 3>&-; wait', "1\n"),
    # -- names and options -----------------------------------------------------------------------------------------
    Bite("names with spaces, globs, quotes, none and a dash",
         "for n in 'a b' 'a*' \"a'b\" '' ; do topics write \"$n\" x; done; topics write -- -t x; echo $?", "1\n",
         "".join(f"topics: no topic can be called {name} (invalid_request)\n{NO_NAME}"
                 for name in ("'a b'", "'a*'", '"a\'b"', "''", "'-t'"))),
    Bite("a glob that matches files is data like any other", "touch x1 x2; topics write $T x*; topics tail $T",
         "$T 1-2\nx1\nx2\n"),
    Bite("options given twice: the last one counts", "seq 3 | topics write $T -q; topics tail $T -n 1 -n 2",
         "$T 1-3\n2\n3\n"),
    Bite("--max 0 and -n 0 are nothing, and no failure",
         "topics write $T x -q; topics tail $T --max 0; topics tail $T -n 0; topics tail $T -n 0 --max 0", "$T 1-1\n"),
    Bite("negative numbers are mistakes", "topics tail $T -n -1; echo $?; topics tail $T --from=-5", "2\n",
         "…'-5' is not a whole number", 2),
    Bite("an abbreviation is no option, and says what is meant", "topics tail $T --foll; echo $?", "2\n",
         "…did you mean --follow?"),
    Bite("a mistyped command, and what other systems call it",
         "topics tial $T; topics publish $T x; topics READ $T; topics frobnicate; true", "",
         "topics: there is no command 'tial' (usage)\n  did you mean tail?\n"
         "topics: there is no command 'publish' (usage)\n  did you mean write?\n"
         "topics: there is no command 'READ' (usage)\n  did you mean tail?\n"
         "topics: there is no command 'frobnicate' (usage)\n  try: topics --help\n"),
    Bite("a mistyped topic", "topics write ${T}abc x >/dev/null; topics tail ${T}acb", "",
         "…did you mean ${T}abc", 1),
    Bite("times: ago, ISO with and without zone, seconds, nonsense",
         "topics write $T x -q; for t in 2h 1970-01-02 2020-01-01T00:00:00Z 2020-01-01T00:00+02:00 @0 0; do "
         "topics tail $T --since $t; done; topics tail $T --since 2099-01-01; topics tail $T --since 2026-13-01",
         "$T 1-1\n" + "x\n" * 6, "…'2026-13-01' is not a time such as 2h", 2),
    Bite("a local time is of the zone of whoever asks",
         "topics write $T x -q; now=$(date -u -d '-1 minute' +%Y-%m-%dT%H:%M:%S); TZ=UTC topics tail $T --since $now; "
         "TZ=Etc/GMT+11 topics tail $T --since $now", "$T 1-1\nx\n"),
    Bite("times are shown in the zone of whoever looks",
         "topics write $T x -q; a=$(TZ=UTC topics info $T | grep last_write); b=$(TZ=Etc/GMT-5 topics info $T | grep "
         'last_write); test "${a% (*}" = "${b% (*}" -a "$a" != "$b" && echo differ', "$T 1-1\ndiffer\n"),
    Bite("ls is sorted by name, always", "for n in b a C B; do topics write $T$n x -q >/dev/null; done; "
         "topics ls $T | cut -f1 | LC_ALL=C sort -c && topics ls $T | wc -l", "4\n"),
    # -- what comes out --------------------------------------------------------------------------------------------
    Bite("head closes the pipe: silent, and 141 for pipefail",
         'seq 50000 | topics write $T -q; topics tail $T --from 0 | head -2; echo "${PIPESTATUS[0]}"',
         "$T 1-50000\n1\n2\n141\n"),
    Bite("set -euo pipefail ends a script at a failure in the middle of a pipe",
         "set -euo pipefail; topics tail $T | cat; echo never", "", "…topic_not_found", 1),
    Bite("grep -q under pipefail wants a reader that reads to the end",
         "set -euo pipefail; seq 9 | topics write $T >/dev/null; topics tail $T | grep -q 5 && echo found", "found\n"),
    Bite("the exit status of a substitution", 'if x=$(topics get $T 1); then echo yes; else echo "no $?"; fi', "no 1\n",
         "…topic_not_found"),
    Bite("no such record is 3, and the others are shown",
         "seq 2 | topics write $T -q; topics get $T 1 9 2 --raw; echo $?", '$T 1-2\n"1"\n"2"\n3\n', "…never_written"),
    Bite("closed stdin", "topics write $T <&-; echo $?; topics write $T x <&-", "1\n$T 1-1\n",
         "topics: standard input cannot be read: bad file descriptor (no_input)\n"),
    Bite("closed stdout: the record is in, and it is said that nobody heard",
         "topics write $T x >&-; echo $?; topics tail $T >&-; echo $?; topics --help >&-; echo $?; topics tail $T",
         "1\n1\n1\nx\n", CLOSED * 3),
    Bite("closed stderr changes nothing but what is heard", "topics tail $T 2>&-; echo $?; topics write $T x 2>&-",
         "1\n$T 1-1\n"),
    Bite("all three closed", "topics write $T x <&- >&- 2>&-; echo $?; topics tail $T", "1\nx\n"),
    Bite("a full disk behind stdout is a failure",
         "topics write $T x >/dev/full; echo $?; topics tail $T >/dev/full; echo $?; topics ls >/dev/full; echo $?; "
         "topics --help >/dev/full; echo $?; topics -o json ls >/dev/full; echo $?", "1\n1\n1\n1\n1\n", "…" + FULL),
    Bite("a full disk behind stderr ends nothing", "topics tail $T 2>/dev/full; echo $?", "1\n"),
    # -- the environment -------------------------------------------------------------------------------------------
    Bite("empty variables are none", "TOPICS_URL= TOPICS_KEY= TOPICS_KEY_FILE= TOPICS_NODE= topics write $T x", "$T 1-1\n"),
    Bite("an empty TOPICS_SOCKET is none",
         "TOPICS_SOCKET= XDG_RUNTIME_DIR=$PWD TOPICS_DATA_DIR=$PWD TOPICS_URL=http://127.0.0.1:9 topics ls", "",
         "…http://127.0.0.1:9 (TOPICS_URL)", 69),
    Bite("no HOME, no XDG, no PATH to speak of",
         "p=$(command -v topics); env -i TOPICS_SOCKET=$TOPICS_SOCKET PATH=/usr/bin:/bin $p write $T x", "$T 1-1\n"),
    Bite("a locale without UTF-8 changes no byte",
         "export LC_ALL=C; topics write $T 'é日'; topics tail $T | od -An -tx1; topics tail $T -o ndjson | cut -d, -f3",
         '$T 1-1\n c3 a9 e6 97 a5 0a\n"data":"é日"}\n'),
    Bite("COLUMNS that is none, TERM=dumb, NO_COLOR",
         "topics write $T x -q >/dev/null; for c in 0 '' abc -5; do COLUMNS=$c TERM=dumb NO_COLOR=1 topics ls $T -o table "
         "| grep -c TOPIC; done | sort -u", "1\n"),
    Bite("a table on a narrow screen shows every cell",
         "topics write $T x -q >/dev/null; COLUMNS=20 topics ls $T -o table | sed 's/  */ /; /PRIORITY/d'",
         "TOPIC $T\nTYPE log\nCOUNT 1\nEARLIEST 1\nHEAD 1\nBYTES 3\nDURABILITY disk\n"),
    Bite("umask decides about what we make",
         "topics write $T x -q >/dev/null; umask 077; topics tail $T --cursor c >/dev/null; stat -c %a c; umask 027; "
         "echo x | topics write $T --json --on-error file:bad 2>/dev/null; stat -c %a bad", "600\n640\n"),
    Bite("an unreadable key file, a directory, an empty one",
         "topics ls --key-file /nosuch; echo $?; topics ls --key-file /; echo $?; topics ls --key-file /dev/null",
         "78\n78\n", "…holds no key", 78),
    # -- places that are kept --------------------------------------------------------------------------------------
    Bite("a cursor file that is garbage is refused, and left alone",
         "topics write $T x -q; echo garbage >c; topics tail $T --cursor c; echo $?; cat c", "$T 1-1\n78\ngarbage\n",
         "…c is not a cursor file") ,
    Bite("an empty cursor file is a new one",
         "topics write $T x -q; : >c; topics tail $T --cursor c; topics tail $T --cursor c", "$T 1-1\nx\n"),
    Bite("a cursor that cannot be written is said before anything is shown",
         "topics write $T x -q; topics tail $T --cursor /proc/nosuch/c; echo $?", "$T 1-1\n78\n", "…bad_cursor"),
    Bite("two tails with one cursor file: the second is refused while the first runs",
         "topics write $T x -q; topics tail $T -f --cursor c >o & p=$!; until test -s c; do sleep 0.05; done; "
         "topics tail $T --cursor c; echo $?; kill $p; wait $p 2>/dev/null; cat o", "$T 1-1\n75\nx\n", "…c is in use by another command"),
    Bite("several topics, one that is not there: said at once, nothing shown",
         "topics write $T x -q; topics tail $T ${T}none", "$T 1-1\n", "…topic_not_found", 1),
    Bite("a topic named twice is shown once", "topics write $T x -q; topics tail $T $T", "$T 1-1\nx\n"),
    Bite("a topic that is dropped while it is followed ends the following, and says so",
         "topics write $T x -q; topics tail $T -f --from 0 >o 2>e & p=$!; until test -s o; do sleep 0.05; done; "
         "topics drop $T --yes >/dev/null; wait $p; echo $?; cat o; cat e", "$T 1-1\n0\nx\ntopics: topic $T was dropped\n"),
    # -- signals and restarts --------------------------------------------------------------------------------------
    Bite("Ctrl-C in the middle of a pipe leaves no half line",
         "seq 200000 | sed 's/$/ end/' | topics write $T -q >/dev/null; "
         "timeout -s INT 4 topics tail $T --from 0 2>e | (sleep 6; cat) >o; echo ${PIPESTATUS[0]}; grep -vc ' end$' o; "
         "test $(wc -l <o) -lt 200000 && echo cut; n=$(sed 's/.*--from //' e); test $n -le $(wc -l <o) && echo true",
         "124\n0\ncut\ntrue\n"),
    Bite("a signal while the reader is stuck moves no cursor beyond what was written",
         "seq 200000 | topics write $T -q >/dev/null; for n in 1 2 3 4; do timeout -s TERM 1.5 topics tail $T --from 0 --cursor c "
         "2>/dev/null | (sleep 3; cat) >>o; done; topics tail $T --cursor c >>o; sort -un o | cmp - <(seq 200000) && echo all",
         "all\n"),
    Bite("SIGTERM of tail -f says where to go on",
         "topics write $T x -q; topics tail $T -f >o 2>e & p=$!; until test -s o; do sleep 0.05; done; kill $p; wait $p; "
         "echo $?; cat e", "$T 1-1\n143\ntopics: stopped; go on with: topics tail $T -f --from 1\n"),
    Bite("SIGTERM of write: what was read is in, and it says how far",
         "mkfifo f; topics write $T -f f >o 2>e & p=$!; exec 3>f; seq 5 >&3; "
         "for n in $(seq 100); do test \"$(topics tail $T 2>/dev/null | wc -l)\" = 5 && break; sleep 0.1; done; kill $p; "
         "wait $p; echo $?; cat o; grep -c 'in up to f:5' e", "143\n$T 1-5\n1\n"),
    Bite("a stopped process goes on as if nothing was",
         "seq 3 | topics write $T -q; topics tail $T -f --from 0 --max 4 >o & p=$!; until test -s o; do sleep 0.05; done; "
         "kill -STOP $p; topics write $T 4; sleep 0.5; kill -CONT $p; wait $p; echo $?; cat o", "$T 1-3\n$T 4-4\n0\n1\n2\n3\n4\n"),
    Bite("--idle-exit ends a following that has nothing more to say",
         "seq 2 | topics write $T -q; topics tail $T -f --from 0 --idle-exit 300ms; echo $?", "$T 1-2\n1\n2\n0\n"),
    Bite("a command of work that reads all its input takes nothing from the next job, nor from the script",
         "topics create $T --type queue >/dev/null; seq 3 | topics write $T -q; printf 'mine\\n' | { topics work $T "
         "--until-empty -q -- sh -c 'cat; cat'; cat; }", "$T 1-3\n1\n2\n3\nmine\n", "…"),
    Bite("claim in a loop ends by its exit status",
         "topics create $T --type queue >/dev/null; seq 2 | topics write $T -q; while job=$(topics claim $T); do "
         "echo \"$job\" | jq -r .data; echo \"$job\" | topics ack $T - >/dev/null; done; echo $?", "$T 1-2\n1\n2\n0\n"),
    Bite("never a question without a terminal", "topics write $T x -q; topics drop $T </dev/null; echo $?; topics tail $T",
         "$T 1-1\n$T\tdropped: 1 record, 3 bytes\n0\n", "…does not exist", 1),
    Bite("write goes on over a restart of the daemon, each line once",
         "serve() { topics serve --data-dir d --socket $PWD/s --port none >/dev/null 2>&1 & d=$!; }; export "
         "TOPICS_SOCKET=$PWD/s; serve; (for n in $(seq 20); do echo $n; sleep 0.1; done) | topics write $T --retry-for 30s "
         ">/dev/null & w=$!; sleep 1; kill -9 $d; wait $d 2>/dev/null; sleep 0.5; serve; wait $w; echo $?; topics tail $T -n 99 "
         "| cmp - <(seq 20); kill $d; wait $d", "0\n", "…", 0),
    Bite("tail -f goes on over a restart of the daemon, each line once",
         "serve() { topics serve --data-dir d --socket $PWD/s --port none >/dev/null 2>&1 & d=$!; }; export "
         "TOPICS_SOCKET=$PWD/s; serve; topics write $T 1 --retry-for 30s; topics tail $T -f --from 0 --max 2 >o & w=$!; "
         "until test -s o; do sleep 0.05; done; kill $d; wait $d; serve; topics write $T 2 --retry-for 30s; wait $w; echo $?; cat o; "
         "kill $d; wait $d", "$T 1-1\n$T 2-2\n0\n1\n2\n", "…", 0),
    Bite("serve --embedded: a daemon for a command's life, its exit status, and nothing left",
         "unset TOPICS_SOCKET; export TMPDIR=$PWD; topics serve --embedded sh -c 'topics write t x; topics tail t; exit 5'; "
         "echo $?; ls; topics serve --embedded nosuch; echo $?; topics serve --nonsense 1 --embedded true; echo $?",
         "t 1-1\nx\n5\n127\n1\n", "…the daemon did not start"),
    Bite("serve --embedded with a data directory keeps it",
         "topics serve --data-dir d --embedded topics write t x; topics serve --data-dir=d --embedded -- topics tail t; ls",
         "t 1-1\nx\nd\n"),
]  # fmt: skip


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the environment of a script has more."""
    program = topics_program(tmp_path_factory.mktemp("program") / "bin")
    return {"PATH": f"{program.parent}:{os.environ['PATH']}"}


@pytest.mark.parametrize("bite", BITES, ids=lambda bite: bite.what)
def test_it_does_not_bite(shared: Daemon, bash: dict[str, str], place: Path, topic: str, bite: Bite) -> None:
    done = subprocess.run(
        ["bash", "-c", bite.script],
        cwd=place,
        env=shared.environment(T=topic, **bash),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=90,
    )
    said = done.stderr.decode().replace(topic, "$T")
    wanted = bite.err.replace("${T}", "$T")
    assert (done.stdout.decode().replace(topic, "$T"), done.returncode) == (bite.out, bite.code), said
    if wanted.startswith("…"):
        assert wanted[1:] in said
    else:
        assert said == wanted
    assert "Traceback" not in said


def test_there_are_fifty_of_them_and_each_says_what_it_is() -> None:
    assert len({bite.what for bite in BITES}) == len(BITES) >= 50
