"""A reader's place in a file: `{"TOPIC":{"seq":N,"epoch":E},…}`, replaced whole, and only after what it covers was
written out."""

from __future__ import annotations

import os

from topics_cli.exits import CONFIGURATION, Failure


class CursorFile:
    """The places of one command's topics."""

    __slots__ = ("_path", "_saved", "places")

    def __init__(self, path: str) -> None:
        self._path = path
        self.places: dict[str, tuple[int, int | None]] = {}
        """For each topic, the seq up to which all was written out, and the epoch it belongs to."""
        self._load()
        self._saved = dict(self.places)

    def _load(self) -> None:
        import json

        try:
            with open(self._path, "rb") as file:
                content = file.read()
        except FileNotFoundError:
            return
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
            finally:
                os.close(handle)
            os.replace(temporary, self._path)
        except OSError as error:
            raise self._bad(f"cannot be written: {error.strerror}") from error
        self._saved = dict(self.places)
