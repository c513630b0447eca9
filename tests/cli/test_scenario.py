"""Scenarios of `topics bench run`: every mistake is said with its line and key, and what is right becomes all of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from topics_cli.commands.bench_run import shipped
from topics_cli.exits import CONFIGURATION
from topics_cli.harness.payloads import check_of, payloads, tag_of
from topics_cli.harness.scenario import BadScenario, Scenario, line_of, load

GOOD = """\
duration = "2s"

[daemon]
start = true

[topics.orders]
durability = "fsync"
ttl_ms = "1h"

[topics.jobs]
type = "queue"

[[producers]]
topic = "orders"
rate = 100

[[producers]]
name = "second"
topics = ["orders", "jobs"]
size = "1KiB"

[[readers]]
topic = "orders"
kind = "sse"

[[readers]]
topic = "jobs"
kind = "work"

[[faults]]
at = "1s"
"""


def read(place: Path, text: str) -> Scenario:
    """Write a scenario, and read it."""
    path = place / "x.toml"
    path.write_text(text)
    return load(str(path))


def test_what_is_left_out_has_its_default(tmp_path: Path) -> None:
    scenario = read(tmp_path, GOOD)
    assert scenario.name == "x"
    assert [producer.name for producer in scenario.producers] == ["producer-1", "second"]
    assert scenario.producers[1].size == 1024
    assert scenario.producers[0].rate == 100.0
    assert scenario.topics["orders"] == {"durability": "fsync", "ttl_ms": 3_600_000}
    assert scenario.is_queue("jobs")
    assert not scenario.is_queue("orders")
    assert scenario.faults[0].kind == "kill"
    assert json.loads(json.dumps(scenario.as_object()))["readers"][1]["kind"] == "work"


@pytest.mark.parametrize(
    ("was", "becomes", "said"),
    [
        ('duration = "2s"', 'duration = "2 parsecs"', "x.toml:1: duration: '2 parsecs' is not a duration"),
        ('duration = "2s"', "duration = 2", "x.toml:1: duration: is a duration such as"),
        ('duration = "2s"', 'duration = "2d"', "x.toml:1: duration: is at most 86400 s"),
        ('duration = "2s"', 'durations = "2s"', "x.toml:1: durations: is not known here"),
        ('duration = "2s"', 'duration = "2s', "x.toml:1:"),
        ("start = true", "start = 1", "x.toml:4: daemon.start: is true or false, not 1"),
        ("start = true", "start = false", "x.toml:30: faults.kind: only a daemon of the run is killed"),
        ("start = true", 'start = true\noptions = ["--data-dir=/x"]', "x.toml:5: daemon.options: --data-dir=/x is the"),
        ('durability = "fsync"', 'durability = "fsink"', "x.toml:7: topics.orders.durability: 'fsink' is not one of"),
        ('durability = "fsync"', "colour = 1", "x.toml:7: topics.orders.colour: is no field of a topic"),
        ('durability = "fsync"', 'durability = "memory"', "[topics.orders] is memory: it may lose"),
        ("rate = 100", "rate = 0", "x.toml:15: producers.rate: is more than 0"),
        ("rate = 100", "rate = true", "x.toml:15: producers.rate: is records a second, not True"),
        ("rate = 100", "batch = 10001", "x.toml:15: producers.batch: is 1 to 10000, not 10001"),
        ("rate = 100", 'ack = "always"', 'x.toml:15: producers.ack: is "fsync" or left out'),
        ("rate = 100", "json = true", "x.toml:15: producers.json: is for the lines of a file"),
        ("rate = 100", 'file = "none.txt"', "x.toml:15: producers.file:"),
        ("rate = 100", 'name = "second"', "x.toml:18: producers.name: 'second' is the name of another one"),
        ('size = "1KiB"', "size = 11", "x.toml:20: producers.size: is 12 to 1048576 bytes, not 11"),
        ('size = "1KiB"', 'size = "1MiB"', "producers.batch: times size is 104857600 bytes"),
        (
            'topics = ["orders", "jobs"]',
            'topics = ["orders", "job"]',
            "x.toml:19: producers.topics: there is no [topics.job]",
        ),
        ('topics = ["orders", "jobs"]', "", "x.toml:17: producers: give either topic or topics"),
        ('kind = "sse"', 'kind = "work"', "x.toml:24: readers.kind: workers need a queue"),
        ('kind = "work"', 'kind = "diff"', "x.toml:28: readers.kind: jobs is a queue"),
        ('kind = "sse"', 'kind = "see"', "x.toml:24: readers.kind: is one of diff, sse, work, not 'see'"),
        ('kind = "sse"', 'kind = "sse"\npause = "1s"', "x.toml:25: readers.pause: is for pages and jobs"),
        ('at = "1s"', 'at = "2s"', "x.toml:31: faults.at: is before the end (2 s)"),
        ('at = "1s"', 'kind = "hug"', "x.toml:31: faults.kind: is one of kill, stop, not 'hug'"),
    ],
)
def test_a_mistake_is_said_with_its_line_and_key(tmp_path: Path, was: str, becomes: str, said: str) -> None:
    assert was in GOOD
    with pytest.raises(BadScenario) as caught:
        read(tmp_path, GOOD.replace(was, becomes, 1))
    assert said in caught.value.what
    assert caught.value.exit_code == CONFIGURATION


def test_a_scenario_in_which_nobody_writes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadScenario, match="nobody writes"):
        read(tmp_path, "[topics.a]\n")
    with pytest.raises(BadScenario, match="cannot be read"):
        load(str(tmp_path / "none.toml"))
    (tmp_path / "bytes.toml").write_bytes(b'name = "a"\nabout = "\xff"\n')
    with pytest.raises(BadScenario, match=r"bytes\.toml:2: is not UTF-8"):
        load(str(tmp_path / "bytes.toml"))


def test_lines_of_a_key_are_found_below_their_own_header() -> None:
    text = "a = 1\n[[x]]\na = 2\n[[x]] # second\n'a' = 3\n[x.y]\na = 4\n"
    assert line_of(text, "", 0, "a") == 1
    assert line_of(text, "x", 0, "a") == 3
    assert line_of(text, "x", 1, "a") == 5
    assert line_of(text, "x.y", 0, "a") == 7
    assert line_of(text, "x", 1, "b") == 4
    assert line_of(text, "z", 0, "a") == 0


def test_records_are_a_function_of_the_scenario_alone(tmp_path: Path) -> None:
    scenario = read(tmp_path, GOOD.replace("rate = 100", 'tags = ["a", "b", "c"]'))
    first, second = payloads(scenario, 0), payloads(scenario, 1)
    assert first(7) == payloads(scenario, 0)(7)
    assert len(first(7)) == 200
    assert len(second(7)) == 1024
    made = {make(n) for make in (first, second) for n in range(5000)}
    assert len(made) == 10_000
    assert all(isinstance(json.loads(data), str) for data in list(made)[:50])
    assert len({check_of(data) for data in made}) > 9_990
    tags = [tag_of(scenario, scenario.producers[0], n) for n in range(300)]
    assert set(tags) == {"a", "b", "c"}
    assert tags == [tag_of(scenario, scenario.producers[0], n) for n in range(300)]
    other = read(tmp_path, "seed = 2\n" + GOOD)
    assert payloads(other, 0)(7) != first(7)


def test_the_lines_of_a_file_are_kept_as_json_or_become_texts(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b'{"n":1.10}\n\n"two"\n')
    text = GOOD.replace("rate = 100", 'file = "lines"\njson = true')
    scenario = read(tmp_path, text)
    assert [payloads(scenario, 0)(n) for n in range(3)] == [b'{"n":1.10}', b'"two"', b'{"n":1.10}']
    assert payloads(read(tmp_path, text.replace("json = true", "")), 0)(0) == b'"{\\"n\\":1.10}"'
    (tmp_path / "lines").write_bytes(b'1\n{"n":\n')
    with pytest.raises(BadScenario, match=r"x\.toml:15: producers\.file: .*lines:2 is not JSON"):
        read(tmp_path, text)
    (tmp_path / "lines").write_bytes(b'["},{\\"$seq\\":"]\n[{},{"$seq":1}]\n')
    with pytest.raises(BadScenario, match="lines:2 cannot be used"):
        read(tmp_path, text)


def test_what_comes_with_the_package_can_be_run() -> None:
    found = {name: load(str(path)) for name, path in shipped().items()}
    assert len(found) >= 4
    assert all(scenario.about and scenario.daemon.start and scenario.duration_s <= 15 for scenario in found.values())
    assert {reader.kind for scenario in found.values() for reader in scenario.readers} == {"diff", "sse", "work"}
    assert any(scenario.faults for scenario in found.values())
