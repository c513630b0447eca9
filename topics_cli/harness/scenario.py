"""What a scenario says: topics, who writes and reads, for how long, what goes wrong meanwhile; read from TOML, checked.

    name = "orders"                 seed = 1          duration = "10s"      drain = "30s"      sample = "1s"
    [daemon]                        start = true      options = ["--wal-shards", "1"]          port = 4000
    [topics.orders]                 durability = "fsync"
    [[producers]]                   topic = "orders"  rate = 2000           batch = 10         size = 200
    [[readers]]                     topic = "orders"  kind = "sse"          connections = 2
    [[faults]]                      kind = "kill"     at = "3s"             down = "500ms"

Every mistake is said with the line and the key that it is in, and what would be right. Nothing is guessed: an unknown
key is a mistake, and so is what could not be reconciled afterwards (an ephemeral topic whose daemon is killed).
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from topics_cli.exits import CONFIGURATION, Failure
from topics_cli.options import CHOICE, TEXT, read, read_duration, read_size
from topics_cli.session import check_name
from topics_cli.table import CONFIG_FIELDS

FILE_BYTES_MAX: Final = 1 << 20
DURATION_S_MAX: Final = 24 * 3600.0
CONNECTIONS_MAX: Final = 1000
GROUPS_MAX: Final = 32
"""Producers and readers: each is a process."""
BATCH_MAX: Final = 10_000
SIZE_MIN: Final = 12
"""A record's data names who wrote it and which it is."""
SIZE_MAX: Final = 1 << 20
BATCH_BYTES_MAX: Final = 8 << 20
LINES_MAX: Final = 1_000_000
TAGS_MAX: Final = 10_000
RECORDS_MAX: Final = 50_000_000
"""Of a run: reconciling holds 17 bytes of memory for each, and 12 for each time that it was read."""

DIFF, SSE, WORK = KINDS = ("diff", "sse", "work")
KILL, STOP = FAULTS = ("kill", "stop")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_CUTS: Final = b'},{"$seq":'
"""What lies between the records of an event; data that holds it could not be told apart."""


class BadScenario(Failure):
    """A scenario that cannot be run; says where."""

    def __init__(self, path: str, line: int, key: str, why: str) -> None:
        where = f"{path}:{line}" if line else path
        super().__init__(f"{where}: {key}: {why}" if key else f"{where}: {why}", "bad_scenario", "", CONFIGURATION)


@dataclass(frozen=True, slots=True)
class Producer:
    """Connections that write to topics."""

    name: str
    topics: tuple[str, ...]
    connections: int = 1
    rate: float | None = None
    """Records a second over all connections; None for as many as are answered."""
    batch: int = 100
    """Records of a request."""
    records: int | None = None
    """Most records, None for no bound but the time."""
    size: int = 200
    """Bytes of a record's data."""
    file: str | None = None
    """Data are the lines of this file, over and over, instead of what is made."""
    json: bool = False
    """The lines are JSON, kept as they stand; otherwise text."""
    ack: str | None = None
    """`fsync`: acks wait for the disk, whatever the topic's class."""
    tags: tuple[str, ...] = ()
    """Tags that records get, drawn by the seed."""
    node: str | None = None


@dataclass(frozen=True, slots=True)
class Reader:
    """Connections that read topics: each for itself, or, as workers, together."""

    name: str
    topics: tuple[str, ...]
    kind: str = DIFF
    connections: int = 1
    limit: int = 1000
    """Records of a page or an event, jobs of a claim."""
    pause_s: float = 0.0
    """How long a reader does something else after each page, event or claim."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is done to the daemon."""

    kind: str
    at_s: float
    down_s: float = 0.5


@dataclass(frozen=True, slots=True)
class Daemon:
    """Which daemon: one that is started for the run, or one that is there."""

    start: bool = False
    options: tuple[str, ...] = ()
    port: int | None = None
    """TCP port of a daemon of ours, None for its socket alone."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A whole scenario, every default filled in."""

    name: str
    about: str
    seed: int
    duration_s: float
    drain_s: float
    sample_s: float
    daemon: Daemon
    topics: dict[str, dict[str, Any]]
    producers: tuple[Producer, ...]
    readers: tuple[Reader, ...]
    faults: tuple[Fault, ...]
    lines: dict[str, tuple[bytes, ...]] = field(repr=False)
    """Data by the name of the file that they come from, as the JSON that is stored."""

    def as_object(self) -> dict[str, Any]:
        """For the run directory: everything but the lines of files, of which it is said how many there are."""
        found: dict[str, Any] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name == "lines":
                found["lines"] = {name: len(lines) for name, lines in value.items()}
            elif item.name == "daemon":
                found["daemon"] = _object(value)
            elif item.name in ("producers", "readers", "faults"):
                found[item.name] = [_object(member) for member in value]
            else:
                found[item.name] = value
        return found

    def groups(self) -> list[str]:
        """The names of all producers and readers."""
        return [*(producer.name for producer in self.producers), *(reader.name for reader in self.readers)]

    def is_queue(self, topic: str) -> bool:
        """Whether a topic is a queue."""
        return bool(self.topics[topic].get("type") == "queue")


def _object(value: Any) -> dict[str, Any]:
    return {item.name: getattr(value, item.name) for item in fields(value)}


def load(path: str) -> Scenario:
    """Read a scenario; raises `BadScenario`."""
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise BadScenario(path, 0, "", f"cannot be read: {error.strerror}") from error
    if len(raw) > FILE_BYTES_MAX:
        raise BadScenario(path, 0, "", f"is larger than {FILE_BYTES_MAX} bytes")
    try:
        text = raw.decode()
        values = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise BadScenario(path, raw.count(b"\n", 0, error.start) + 1, "", "is not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+)", str(error))
        line = int(found[1]) if found else text.count("\n") + 1
        raise BadScenario(path, line, "", re.sub(r" \(at .*\)$", "", str(error))) from error
    return _Read(path, text).scenario(values)


class _Table:
    """A table of the file, from which keys are taken one by one; what is left at the end is not known."""

    def __init__(self, whole: _Read, values: Any, header: str, place: int = 0) -> None:
        self.whole = whole
        self.header = header
        self.place = place
        if not isinstance(values, dict):
            raise self.wrong("", f"is a table: [{header}]" if header else "is a table")
        self.values = dict(values)

    def wrong(self, key: str, why: str) -> BadScenario:
        """The mistake, with its place."""
        name = f"{self.header}.{key}" if self.header and key else self.header or key
        return BadScenario(self.whole.path, line_of(self.whole.text, self.header, self.place, key), name, why)

    def take(self, key: str, kind: type, default: Any, what: str) -> Any:
        """A value of a kind, checked; `default` where it is left out."""
        if key not in self.values:
            return default
        value = self.values.pop(key)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.wrong(key, f"{what}, not {value!r}")
        return value

    def number(self, key: str, default: Any, low: int, high: int) -> Any:
        """A whole number within bounds."""
        value = self.take(key, int, default, "is a whole number")
        if value is not None and key not in self.values and not low <= value <= high:
            raise self.wrong(key, f"is {low} to {high}, not {value}")
        return value

    def seconds(self, key: str, default: float, high: float = DURATION_S_MAX) -> float:
        """A duration such as `500ms` or `10s`."""
        text = self.take(key, str, None, 'is a duration such as "500ms" or "10s"')
        if text is None:
            return default
        try:
            value = read_duration(text) / 1000
        except ValueError as error:
            raise self.wrong(key, str(error)) from error
        if value > high:
            raise self.wrong(key, f"is at most {high:g} s, not {text}")
        return value

    def size(self, key: str, default: int, low: int, high: int) -> int:
        """Bytes, as a number or as text such as `1KiB`."""
        value = self.take(key, object, default, "")
        try:
            found = read_size(value) if isinstance(value, str) else value
        except ValueError as error:
            raise self.wrong(key, str(error)) from error
        if not isinstance(found, int) or isinstance(found, bool) or not low <= found <= high:
            raise self.wrong(key, f"is {low} to {high} bytes, not {value!r}")
        return found

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts."""
        value = self.take(key, list, [], "is a list of strings")
        if not all(isinstance(text, str) for text in value):
            raise self.wrong(key, "is a list of strings")
        return tuple(value)

    def end(self) -> None:
        """Nothing may be left."""
        for key in self.values:
            raise self.wrong(key, "is not known here")


class _Read:
    """One file on its way to a scenario."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self._names: set[str] = set()
        self._lines: dict[str, tuple[bytes, ...]] = {}

    def scenario(self, values: dict[str, Any]) -> Scenario:
        """Everything, checked one by one and together."""
        top = _Table(self, values, "")
        name = top.take("name", str, Path(self.path).stem, "is a string")
        if not _NAME.fullmatch(name):
            raise top.wrong("name", f"is letters, digits, - and _, at most 40, not {name!r}")
        daemon = self._daemon(_Table(self, top.take("daemon", object, {}, ""), "daemon"))
        topics = self._topics(top.take("topics", dict, {}, "is tables: [topics.NAME]"))
        duration_s = top.seconds("duration", 10.0)
        if not duration_s >= 0.1:
            raise top.wrong("duration", "is at least 100ms")
        sample_s = top.seconds("sample", 1.0, 3600.0)
        if sample_s < 0.1:
            raise top.wrong("sample", "is at least 100ms")
        scenario = Scenario(
            name=name,
            about=top.take("about", str, "", "is a string"),
            seed=top.number("seed", 1, 0, 2**63 - 1),
            duration_s=duration_s,
            drain_s=top.seconds("drain", 30.0),
            sample_s=sample_s,
            daemon=daemon,
            topics=topics,
            producers=tuple(self._producer(table, topics) for table in self._tables(top, "producers")),
            readers=tuple(self._reader(table, topics) for table in self._tables(top, "readers")),
            faults=tuple(self._fault(table, daemon, topics, duration_s) for table in self._tables(top, "faults")),
            lines=self._lines,
        )
        top.end()
        if not scenario.producers:
            raise top.wrong("producers", "nobody writes: there is no [[producers]]")
        if len(scenario.producers) + len(scenario.readers) > GROUPS_MAX:
            raise top.wrong("producers", f"and readers are at most {GROUPS_MAX} tables together")
        return scenario

    def _tables(self, top: _Table, key: str) -> list[_Table]:
        tables = top.take(key, list, [], f"is tables: [[{key}]]")
        return [_Table(self, table, key, place) for place, table in enumerate(tables)]

    def _daemon(self, table: _Table) -> Daemon:
        daemon = Daemon(
            table.take("start", bool, False, "is true or false"),
            table.texts("options"),
            table.number("port", None, 1, 65535),
        )
        if not daemon.start and (daemon.options or daemon.port):
            raise table.wrong("options" if daemon.options else "port", "is for a daemon of the run: start = true")
        for option in daemon.options:
            if option.partition("=")[0] in ("--data-dir", "--socket", "--port", "--config"):
                raise table.wrong("options", f"{option} is the harness's to say")
        table.end()
        return daemon

    def _topics(self, tables: dict[str, Any]) -> dict[str, dict[str, Any]]:
        known = {name: (kind, choices) for name, kind, _, choices in CONFIG_FIELDS}
        found = {}
        for name, values in tables.items():
            table = _Table(self, values, f"topics.{name}")
            try:
                check_name(name)
            except Failure as failure:
                raise table.wrong("", failure.what) from failure
            if len(name) > 100:
                raise table.wrong("", "a topic's name is at most 100 long here: it gets a beginning of its own")
            for key, value in values.items():
                if key not in known:
                    raise table.wrong(key, f"is no field of a topic; fields: {', '.join(known)}")
                kind, choices = known[key]
                if choices == ("true", "false"):
                    if not isinstance(value, bool):
                        raise table.wrong(key, "is true or false")
                elif kind is CHOICE or (isinstance(value, str) and kind is not TEXT):
                    try:
                        table.values[key] = read(kind, value if isinstance(value, str) else repr(value), choices)
                    except ValueError as error:
                        raise table.wrong(key, str(error)) from error
            found[name] = table.values
        return found

    def _name(self, table: _Table, default: str) -> str:
        name: str = table.take("name", str, default, "is a string")
        if not _NAME.fullmatch(name):
            raise table.wrong("name", f"is letters, digits, - and _, at most 40, not {name!r}")
        if name in self._names:
            raise table.wrong("name", f"{name!r} is the name of another one")
        self._names.add(name)
        return name

    def _targets(self, table: _Table, topics: dict[str, dict[str, Any]]) -> tuple[str, ...]:
        one = table.take("topic", str, None, "is the name of a topic")
        many = table.texts("topics")
        if (one is None) == (not many):
            raise table.wrong("topic" if one is not None else "", "give either topic or topics")
        for name in many or (one,):
            if name not in topics:
                known = ", ".join(topics) or "none"
                raise table.wrong("topics" if many else "topic", f"there is no [topics.{name}]; there are: {known}")
        if len(set(many)) != len(many):
            raise table.wrong("topics", "names a topic twice")
        return many or (one,)

    def _producer(self, table: _Table, topics: dict[str, dict[str, Any]]) -> Producer:
        rate = table.take("rate", int | float, None, "is records a second")  # type: ignore[arg-type]  # isinstance takes unions
        if rate is not None and not 0 < rate <= 10_000_000:
            raise table.wrong("rate", f"is more than 0 and at most 10000000 records a second, not {rate}")
        producer = Producer(
            name=self._name(table, f"producer-{table.place + 1}"),
            topics=self._targets(table, topics),
            connections=table.number("connections", 1, 1, CONNECTIONS_MAX),
            rate=float(rate) if rate is not None else None,
            batch=table.number("batch", 100, 1, BATCH_MAX),
            records=table.number("records", None, 1, RECORDS_MAX),
            size=table.size("size", 200, SIZE_MIN, SIZE_MAX),
            file=table.take("file", str, None, "is the path of a file, seen from the scenario"),
            json=table.take("json", bool, False, "is true or false"),
            ack=table.take("ack", str, None, 'is "fsync"'),
            tags=table.texts("tags"),
            node=table.take("node", str, None, "is a string"),
        )
        table.end()
        if producer.ack not in (None, "fsync"):
            raise table.wrong("ack", f'is "fsync" or left out (as the topic\'s class), not {producer.ack!r}')
        if len(producer.tags) > TAGS_MAX or not all(0 < len(tag.encode()) <= 256 for tag in producer.tags):
            raise table.wrong("tags", f"are at most {TAGS_MAX}, each of 1 to 256 bytes")
        if producer.file is not None:
            self._read_lines(table, producer.file, producer.json)
        elif producer.json:
            raise table.wrong("json", "is for the lines of a file")
        elif producer.batch * producer.size > BATCH_BYTES_MAX:
            raise table.wrong("batch", f"times size is {producer.batch * producer.size} bytes, over {BATCH_BYTES_MAX}")
        return producer

    def _read_lines(self, table: _Table, file: str, is_json: bool) -> None:
        import json

        from topics_cli.cut import text_to_json

        path = Path(self.path).parent / file
        try:
            lines = [line for line in path.read_bytes().splitlines() if line.strip()]
        except OSError as error:
            raise table.wrong("file", f"{path} cannot be read: {error.strerror}") from error
        if not 1 <= len(lines) <= LINES_MAX:
            raise table.wrong("file", f"{path} has {len(lines)} lines; 1 to {LINES_MAX} are right")
        for place, line in enumerate(lines, 1):
            if is_json:
                try:
                    json.loads(line)
                except ValueError as error:
                    raise table.wrong("file", f"{path}:{place} is not JSON: {error}") from error
                lines[place - 1] = line.strip()
            else:
                lines[place - 1], is_bytes = text_to_json(line)
                if is_bytes:
                    raise table.wrong("file", f"{path}:{place} is not UTF-8")
            if _CUTS in line or len(line) > SIZE_MAX:
                raise table.wrong("file", f"{path}:{place} cannot be used: it is too long, or looks like two records")
        self._lines[file] = tuple(lines)

    def _reader(self, table: _Table, topics: dict[str, dict[str, Any]]) -> Reader:
        reader = Reader(
            name=self._name(table, f"reader-{table.place + 1}"),
            topics=self._targets(table, topics),
            kind=table.take("kind", str, DIFF, f"is one of {', '.join(KINDS)}"),
            connections=table.number("connections", 1, 1, CONNECTIONS_MAX),
            limit=table.number("limit", 1000, 1, 1000),
            pause_s=table.seconds("pause", 0.0, 60.0),
        )
        table.end()
        if reader.kind not in KINDS:
            raise table.wrong("kind", f"is one of {', '.join(KINDS)}, not {reader.kind!r}")
        if reader.kind == SSE and reader.pause_s:
            raise table.wrong("pause", "is for pages and jobs: a stream comes as it comes")
        for topic in reader.topics if reader.kind == WORK else ():
            if topics[topic].get("type") != "queue":
                raise table.wrong("kind", f'workers need a queue: type = "queue" in [topics.{topic}]')
        if reader.kind == WORK and len(reader.topics) > 1:
            raise table.wrong("topics", "a worker has one queue")
        for topic in reader.topics if reader.kind != WORK else ():
            if topics[topic].get("type") == "queue":
                raise table.wrong("kind", f"{topic} is a queue, whose jobs go away: its readers are workers")
        if len(reader.topics) > 256:
            raise table.wrong("topics", "are at most 256")
        return reader

    def _fault(self, table: _Table, daemon: Daemon, topics: dict[str, dict[str, Any]], duration_s: float) -> Fault:
        kind = table.take("kind", str, KILL, f"is one of {', '.join(FAULTS)}")
        fault = Fault(kind, table.seconds("at", 0.0), table.seconds("down", 0.5, 60.0))
        table.end()
        if fault.kind not in FAULTS:
            raise table.wrong("kind", f"is one of {', '.join(FAULTS)}, not {fault.kind!r}")
        if not daemon.start:
            raise table.wrong("kind", "only a daemon of the run is killed: [daemon] start = true")
        if not fault.at_s < duration_s:
            raise table.wrong("at", f"is before the end ({duration_s:g} s)")
        for name, config in topics.items():
            durability = config.get("durability")
            if durability == "ephemeral" or (durability == "memory" and fault.kind == KILL):
                raise table.wrong("kind", f"[topics.{name}] is {durability}: it may lose what was acked, by promise")
        return fault


def line_of(text: str, header: str, place: int, key: str) -> int:
    """The line of a key below the `place`-th header of its name, or of the header; 0 where it is not found."""
    wanted = re.compile(rf"\s*\[\[?\s*{re.escape(header)}\s*\]\]?\s*(#.*)?") if header else None
    found = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]") if key else None
    seen, inside, header_line = -1, not header, 0
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*\[", line):
            if inside and header:
                break
            inside = wanted is not None and bool(wanted.fullmatch(line))
            if inside:
                seen += 1
                inside = seen == place
                header_line = number if inside else header_line
        elif inside and found is not None and found.match(line):
            return number
    if not header and key:
        headers = re.compile(rf"\s*\[\[?\s*{re.escape(key)}\b")
        return next((number for number, line in enumerate(text.splitlines(), 1) if headers.match(line)), 0)
    return header_line
