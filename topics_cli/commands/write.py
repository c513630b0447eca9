"""`topics write`: what the options mean, and what is printed; the work is the pump's."""

from __future__ import annotations

import os

from topics_cli.cut import told
from topics_cli.encode import Common, Encoder
from topics_cli.exits import Failure, usage
from topics_cli.framing import frame, framing_of
from topics_cli.intake import Intake, Source
from topics_cli.output import API_FORMS
from topics_cli.pump import BATCH_RECORDS, Plan, Pump, exit_code
from topics_cli.session import Session, check_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from topics_cli.wire import Answer

BATCH_RECORDS_MAX = 10_000


def write(session: Session, values: dict[str, Any]) -> int:
    """Write records from arguments, files or standard input."""
    topic = check_name(values["topic"])
    framing = framing_of(values)
    common = _common(values)
    form = "records" if values["records"] else "json" if values["as_json"] else "text"
    if values["records"] and values["as_json"]:
        raise usage("--json and --records are two ways to read the input", "give one of them")
    encoder = Encoder(form, common, _pointer(values["tag_from"]), _pointer(values["key_from"]))
    plan = _plan(topic, common, framing, values)
    shown = Ranges(session, topic)
    if values["data"] and values["file"]:
        raise usage("DATA and -f are two places to take records from", "give one of them")
    if values["data"]:
        pump = Pump(session.client, None, encoder, plan, shown.answered)
        pump.add(_Arguments(), [os.fsencode(word) for word in values["data"]])
    else:
        if not values["file"] and os.isatty(0):
            session.talk.note("topics: reading records from the terminal, a line each; Ctrl-D ends")
        pump = Pump(session.client, Intake(list(values["file"]) or [""], framing), encoder, plan, shown.answered)
    try:
        pump.run()
    finally:
        session.talk.clear()
        shown.end()
    if encoder.gaps:
        session.talk.note(f"topics: passed over in the input: {_counted(encoder.gaps, 'tombstone')}")
    if pump.refused:
        said = f"{_counted(pump.written, 'record')} written, {pump.refused} refused"
        session.talk.say(f"topics: {said} (some_refused)")
    return exit_code(pump)


def _counted(count: int, what: str) -> str:
    from topics_cli.amounts import counted

    return counted(count, what)


class _Arguments(Source):
    """The words of the command line as a source."""

    def __init__(self) -> None:
        self.name = ""
        self.handle = -1
        self.size = 0

    def place(self, number: int) -> str:
        return f"argument {number}"


class Ranges:
    """Prints where records went: `TOPIC FIRST-LAST`, a line for each unbroken range; or the answers themselves."""

    def __init__(self, session: Session, topic: str) -> None:
        self._session = session
        self._topic = topic
        self._first = 0
        self._last = 0

    def answered(self, answer: Answer) -> None:
        """Take one answer."""
        session, body = self._session, answer.body
        session.warn(body)
        first, last = told(body, "first_seq"), told(body, "last_seq")
        if b'"created":true' in body and session.talk.is_terminal:
            session.talk.note(f"topics: created topic {self._topic}")
        if session.out.form in API_FORMS:
            session.out.document(body)
        elif self._last and first == self._last + 1:
            self._last = last
        else:
            self._print()
            self._first, self._last = first, last

    def _print(self) -> None:
        if self._last:
            self._session.out.line(f"{self._topic} {self._first}-{self._last}")

    def end(self) -> None:
        """Print the last range."""
        self._print()
        self._last = 0
        self._session.out.flush()


def _common(values: dict[str, Any]) -> Common:
    meta = {}
    for word in values["meta"]:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise usage(f"--meta {word!r} is not K=V")
        meta[name] = value
    words = [values["tag"], values["node"], *meta, *meta.values()]
    if any(word is not None and not _is_text(word) for word in words):
        raise usage("tags, nodes and meta are text: this is not UTF-8")
    return Common(tag=values["tag"], node=values["node"], meta=meta, ack=values["ack"], create=not values["no_create"])


def _is_text(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _pointer(word: str | None) -> list[str] | None:
    if word is None:
        return None
    from topics_cli.rawjson import read_pointer

    try:
        return read_pointer(word)
    except ValueError as error:
        raise usage(str(error)) from error


def _plan(topic: str, common: Common, framing: str, values: dict[str, Any]) -> Plan:
    on_error = values["on_error"] or "stop"
    keep_bad = None
    if on_error.startswith("file:"):
        keep_bad = _keeper(on_error.removeprefix("file:"), framing)
    elif on_error not in ("stop", "skip"):
        raise usage(f"--on-error {on_error!r} is not stop, skip or file:BAD")
    batch = values["batch"] if values["batch"] is not None else BATCH_RECORDS
    if not 1 <= batch <= BATCH_RECORDS_MAX:
        raise usage(f"--batch is 1 to {BATCH_RECORDS_MAX}")
    if values["key_from"] and values["idempotency_key"]:
        raise usage("--key-from and --idempotency-key are two keys", "give one of them")
    return Plan(
        topic,
        common,
        batch_records=batch,
        key=values["idempotency_key"],
        each_alone=bool(values["key_from"]),
        rate=values["rate"],
        on_error=on_error,
        keep_bad=keep_bad,
    )


def _keeper(path: str, framing: str) -> Callable[[bytes], None]:
    """What puts refused records aside, as they came; the file is made at the first one."""
    handles: list[int] = []

    def keep(raw: bytes) -> None:
        try:
            if not handles:
                handles.append(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666))
            rest = memoryview(frame([raw], framing))
            while rest:
                rest = rest[os.write(handles[0], rest) :]
        except OSError as error:
            raise Failure(f"{path} cannot be written: {error.strerror}", "output_failed", "") from error

    return keep
