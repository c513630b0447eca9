"""A thousand jobs through `topics work` while everything breaks: commands fail, hang and kill their worker, and the
daemon is killed twice. Nothing is acked that has not run, nothing is lost, and the counters add up to the last job."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.support import TERM, Daemon, finish

pytestmark = pytest.mark.slow

JOBS = 1000
MAX_DELIVERIES = 6
POISON = {number for number in range(JOBS) if number % 10 == 7}
LIMIT_S = 240.0

FLAKY = """#!/bin/sh
# What becomes of a job is said by its number and by how often it was tried, so that each run of this test is the same.
read -r n
try=$(( TOPICS_DELIVERIES ))
case $n in
    *00) [ "$try" -eq 1 ] && kill -9 "$PPID" && sleep 60 ;;   # 1 %: its worker dies
    *50) [ "$try" -eq 1 ] && sleep 60 ;;                      # 1 %: it hangs
    *7)  exit 1 ;;                                            # 10 %: it never succeeds
    *3)  [ "$try" -le 2 ] && exit 1 ;;                        # 10 %: it succeeds in the end
esac
echo "$n" >> "$EFFECTS"
"""


def test_a_thousand_jobs_with_everything_that_can_go_wrong(mortal_queues: Daemon, place: Path) -> None:
    daemon, effects, script = mortal_queues, place / "effects", place / "flaky.sh"
    effects.touch()
    script.write_text(FLAKY)
    script.chmod(0o755)
    daemon.ok(
        *("create", "jobs", "--type", "queue", "--lease", "60s", "--durability", "fsync"),
        *("--max-deliveries", str(MAX_DELIVERIES), "--dead-letter", "jobs-dead"),
    )
    daemon.ok("write", "jobs", stdin="".join(f"{number}\n" for number in range(JOBS)).encode())

    def start() -> subprocess.Popen[bytes]:
        words = ("--timeout", "3s", "--grace", "100ms", "--retry-code", "75", "--retry-for", "60s")
        with (place / "said").open("ab") as said:
            return daemon.start_command(
                "work", "jobs", "-j", "4", *words, "--", str(script), stderr=said, EFFECTS=str(effects)
            )

    worker, died, killed = start(), 0, 0
    over = time.monotonic() + LIMIT_S
    while True:
        if worker.poll() is not None:
            died += 1
            worker = start()
        done = effects.read_text().count("\n")
        if killed < 2 and done >= (250, 600)[killed]:
            killed += 1
            daemon.kill()
            daemon.start()
        if killed == 2 and done >= JOBS - len(POISON):
            shown = daemon.run("info", "jobs", "--json")
            counts = json.loads(shown.stdout)["queue"] if shown.returncode == 0 else {}
            if counts.get("acked", 0) + counts.get("dead_lettered", 0) == JOBS:
                break
        assert time.monotonic() < over, (done, died, (place / "said").read_bytes()[-2000:])
        time.sleep(0.1)
    code = finish(worker, TERM)[0]
    assert code in (143, 6), code
    counts = json.loads(daemon.ok("info", "jobs", "--json"))["queue"]
    live = counts["ready"] + counts["in_flight"] + counts["delayed"]
    gone = counts["acked"] + counts["dead_lettered"] + counts["deleted"] + counts["evicted"] + counts["lost"]
    assert (counts["written"], live, counts["deleted"], counts["evicted"], counts["lost"]) == (JOBS, 0, 0, 0, 0)
    assert gone == JOBS
    assert died >= 5, "workers were killed by their own jobs"
    letters = [json.loads(line) for line in daemon.ok("tail", "jobs-dead", "--from", "0", "-o", "ndjson").splitlines()]
    dead = {int(letter["data"]) for letter in letters}
    assert len(letters) == len(dead) == counts["dead_lettered"]
    assert dead >= POISON
    ran = {int(line) for line in effects.read_text().split()}
    assert ran == set(range(JOBS)) - POISON, "every effect at least once, and none of what never succeeds"
    for letter in letters:
        if int(letter["data"]) in POISON:
            trail = letter["meta"]["$dead_letter_trail"]
            assert letter["meta"]["$dead_letter_from"] == "jobs"
            assert any(one.get("reason") == "exit 1" for one in trail), letter
