"""A reader's place, kept where the next run finds it, and moved only after what it covers was written out.

CursorFile      a file: `{"TOPIC":{"seq":N,"epoch":E},…}`, replaced whole
ServerCursor    the daemon's own cursors, one of this name on each topic (http-api.md §11)
"""

from __future__ import annotations

import os

from topics_cli.client import topic_path
from topics_cli.exits import CONFIGURATION, TRY_AGAIN, ApiError, Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from topics_cli.client import Client


class CursorFile:
    """The places of one command's topics; locked, because two commands that share a file would skip records."""

    __slots__ = ("_lock", "_path", "_saved", "places")

    pause_s = 0.0
    """Least time between two saves: a file is replaced whenever there is nothing else to do."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.places: dict[str, tuple[int, int | None]] = {}
        """For each topic, the seq up to which all was written out, and the epoch it belongs to."""
        self._lock = self._held()
        self._load()
        self._saved = dict(self.places)

    def _held(self) -> int:
        """The file, made where it is missing, and locked until we end or replace it."""
        while True:
            try:
                handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
                lock(handle)
                if os.path.samestat(os.fstat(handle), os.stat(self._path)):
                    return handle
                os.close(handle)  # It was replaced before we had it.
            except BlockingIOError as error:
                hint = "a cursor file is for one command at a time: wait for it, or give each its own"
                raise Failure(f"{self._path} is in use by another command", "cursor_in_use", hint, TRY_AGAIN) from error
            except FileNotFoundError as error:
                directory = os.path.dirname(self._path) or "."
                if not os.path.isdir(directory):
                    what = f"{self._path} cannot be written: {error.strerror}"
                    raise Failure(
                        what, "bad_cursor", f"make its directory first: {directory}", CONFIGURATION
                    ) from error
            except OSError as error:
                raise self._bad(f"cannot be written: {error.strerror}") from error

    def _load(self) -> None:
        import json

        try:
            with open(self._path, "rb") as file:
                content = file.read()
        except OSError as error:
            raise self._bad(f"cannot be read: {error.strerror}") from error
        if not content.strip():
            return
        try:
            for topic, place in json.loads(content).items():
                seq, epoch = place["seq"], place.get("epoch")
                if not isinstance(seq, int) or seq < 0 or not (epoch is None or isinstance(epoch, int)):
                    raise ValueError
                self.places[topic] = (seq, epoch)
        except (ValueError, AttributeError, LookupError, TypeError) as error:
            raise self._bad("is not a cursor file") from error

    def _bad(self, what: str) -> Failure:
        hint = "name another file, or remove it and say --from"
        return Failure(f"{self._path} {what}", "bad_cursor", hint, CONFIGURATION)

    def save(self, sync: bool = False) -> None:
        """Replace the file, if a place has moved; `sync` also makes it durable."""
        import json

        if self.places == self._saved and not sync:
            return
        whole = {topic: {"seq": seq, "epoch": epoch} for topic, (seq, epoch) in self.places.items()}
        temporary = f"{self._path}.{os.getpid()}.tmp"
        try:
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
            try:
                os.write(handle, json.dumps(whole, separators=(",", ":")).encode() + b"\n")
                if sync:
                    os.fsync(handle)
                lock(handle)
                os.replace(temporary, self._path)
            except OSError:
                os.close(handle)
                raise
            os.close(self._lock)
            self._lock = handle
        except OSError as error:
            raise self._bad(f"cannot be written: {error.strerror}") from error
        self._saved = dict(self.places)


def lock(handle: int) -> None:
    """Lock a file for us alone; BlockingIOError when somebody has it. Where a file system has no locks, nothing."""
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        pass


class ServerCursor:
    """The places of one command's topics, under one name."""

    __slots__ = ("_client", "_elsewhere", "_name", "_saved", "places")

    pause_s = 1.0
    """Least time between two saves: each is a request for each topic that has moved."""

    def __init__(self, client: Client, name: str, topics: list[str]) -> None:
        import json

        self._client = client
        self._elsewhere: dict[str, Client] = {}
        """For topics that have moved, the daemons that have them now."""
        self._name = name
        self.places: dict[str, tuple[int, int | None]] = {}
        """As of a `CursorFile`."""
        for topic in topics:
            try:
                place = json.loads(client.get(self._path(topic)).body)
            except ApiError as error:
                if error.code != "not_found":
                    raise
                continue
            self.places[topic] = (place["seq"], place["epoch"])
        self._saved = dict(self.places)

    def _path(self, topic: str) -> str:
        return f"{topic_path(topic)}/cursors/{self._name}"

    def go_to(self, topic: str, client: Client) -> None:
        """A topic has moved, and its cursors with it."""
        self._elsewhere[topic] = client

    def save(self, sync: bool = False) -> None:
        """Tell the daemon the places that have moved. After a signal it is waited for as for any answer, though."""
        for topic, place in self.places.items():
            if self._saved.get(topic) == place:
                continue
            seq, epoch = place
            body = f'{{"seq":{seq},"epoch":{epoch}}}'.encode()
            try:
                client = self._elsewhere.get(topic, self._client)
                client.call(client.request("PUT", self._path(topic), body), through_signals=sync)
            except ApiError as error:
                if error.code == "topic_moved" and not sync:
                    continue  # it is kept where the topic is going, once that is known
                if error.code != "topic_not_found":
                    raise
            self._saved[topic] = place
