"""What a command works with: its way in, its way out, its voice, and the client made when first needed."""

from __future__ import annotations

from topics_cli import exits
from topics_cli.client import Client, Understood
from topics_cli.exits import ApiError, Failure, usage
from topics_cli.output import Out
from topics_cli.signals import Stop
from topics_cli.talk import Talk
from topics_cli.where import Where, find, find_key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAME_HINT = "names match ^[A-Za-z0-9][A-Za-z0-9._:-]{0,254}$"
_NAME_MARKS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-")


class Session:
    """One run of the command line."""

    __slots__ = ("_client", "_values", "out", "stop", "talk")

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values
        self._client: Client | None = None
        self.stop = Stop()
        self.talk = Talk(bool(values.get("quiet")))
        form = values.get("output") or ("json" if values.get("as_json") and "records" not in values else None)
        self.out = Out(self.stop, form, values.get("color"))

    @property
    def client(self) -> Client:
        """The way to the daemon; finding it may fail, connecting is not tried yet."""
        if self._client is None:
            where = self.where()
            key = find_key(self._values.get("key_file"), where)
            self._client = Client(where, key, self._values.get("retry_for"), self.stop, self.talk)
        return self._client

    def understood(self) -> Understood:
        """What is taken apart in here are answers: see there."""
        return Understood(lambda: self._client)

    def where(self) -> Where:
        """Where the daemon should be."""
        return find(self._values.get("socket"), self._values.get("url"))

    def picked(self, rows: list[dict[str, str]]) -> list[str] | None:
        """Rows of our own as lines by `--fields` or `--template`; None when neither was given."""
        fields, template = self._values.get("fields"), self._values.get("template")
        if fields and template:
            raise usage("--fields and --template both say what to show", "give one of them")
        if not fields and not template:
            return None
        from topics_cli.render import read_template

        pieces: list[str | tuple[str]] = read_template(template) if template else []
        for place, name in enumerate(fields.split(",") if fields else ()):
            pieces += ["\t" if place else "", (name.strip(),)]
        unknown = [piece[0] for piece in pieces if isinstance(piece, tuple) and rows and piece[0] not in rows[0]]
        if unknown:
            raise usage(
                f"there is no field {unknown[0]!r}", f"fields: {', '.join(name for name in rows[0] if name[0] != ' ')}"
            )
        return ["".join(row[piece[0]] if isinstance(piece, tuple) else piece for piece in pieces) for row in rows]

    def warn(self, body: bytes) -> None:
        """Say the warnings that an answer carries."""
        if b'"warnings":[' not in body:
            return
        import json

        try:
            warnings = json.loads(body).get("warnings", [])
        except (ValueError, AttributeError):
            return
        for warning in warnings if isinstance(warnings, list) else ():
            self.talk.note(f"topics: warning: {warning}")

    def report(self, failure: Failure) -> int:
        """Say a failure: a line with what, a line with what to do; with `-o json` the API's error object."""
        self.talk.clear()
        if self.out.form in ("json", "ndjson"):
            self.talk.say(_error_object(failure))
        else:
            self.talk.say(f"topics: {' '.join(failure.what.split(chr(10)))} ({failure.code})")
            hint = failure.hint or self._suggestion(failure)
            if hint:
                self.talk.say(f"  {hint}")
        return failure.exit_code

    def _suggestion(self, failure: Failure) -> str:
        """What to do about an error of the daemon: for a name that is not there, those that come near."""
        if not isinstance(failure, ApiError) or failure.status != 404 or self._client is None:
            return ""
        import json

        from topics_cli.nearest import nearest_names

        try:
            detail = json.loads(failure.body)["error"]["detail"]
        except (ValueError, LookupError, TypeError):
            return ""
        return nearest_names(self._client, detail) if isinstance(detail, dict) else ""


def _error_object(failure: Failure) -> str:
    if isinstance(failure, ApiError) and failure.body.startswith(b"{"):
        return failure.body.decode("utf-8", "backslashreplace").rstrip("\n")
    import json

    error: dict[str, Any] = {"code": failure.code, "message": failure.what}
    if failure.hint:
        error["detail"] = {"hint": failure.hint}
    return json.dumps({"error": error}, separators=(",", ":"))


def check_name(name: str) -> str:
    """Return a topic's name, or refuse what no topic can be called (the daemon would; this saves the way)."""
    if 1 <= len(name) <= 255 and name[0].isalnum() and name.isascii() and _NAME_MARKS.issuperset(name):
        return name
    raise Failure(f"no topic can be called {name!r}", "invalid_request", NAME_HINT, exits.FAILED)
