"""Where the daemon is, and why we think so.

    --socket / --url  >  TOPICS_SOCKET / TOPICS_URL  >  .topics.toml of this directory or one above it
    >  the context in use (`topics context`)  >  $XDG_RUNTIME_DIR/topics/topics.sock  >  /run/topics/topics.sock
    >  the data directory's socket  >  http://127.0.0.1:4000

The first that is given or exists is taken, and no other is tried when nobody answers there: a command must never end
up with another daemon than the one that it would have met a minute ago. A `.topics.toml` counts only when it belongs
to us or to root, since the directory above may be anybody's.
"""

from __future__ import annotations

import os
import stat

from topics_cli.exits import CONFIGURATION, Failure, usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 4000
CONTEXT_FILE = ".topics.toml"
PLACE_KEYS = ("socket", "url", "key_file")
"""What a context may say."""
_KEY_HINT = "it was named by --key-file, TOPICS_KEY_FILE or the context; TOPICS_KEY can hold the key itself"
KEY_LINE_CHARS_MAX = 4096
"""Of a key file that is none, no more than this is read."""


class Where:
    """One place: a Unix socket (`path`) or a TCP address (`host`, `port`), and `why` it was chosen."""

    __slots__ = ("host", "key_file", "path", "port", "why")

    def __init__(self, why: str, *, path: str = "", host: str = "", port: int = 0, key_file: str = "") -> None:
        self.why = why
        self.path = path
        self.host = host
        self.port = port
        self.key_file = key_file
        """A key file that the context names."""

    @property
    def label(self) -> str:
        """The place as people write it."""
        if self.path:
            return self.path
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


def find(socket: str | None, url: str | None, environ: dict[str, str] | None = None) -> Where:
    """The place where the daemon should be; raises `Failure` for what cannot be understood."""
    env = os.environ if environ is None else environ
    if socket and url:
        raise usage("--socket and --url name two places", "give one of them")
    if socket:
        return Where("--socket", path=socket)
    if url:
        return where_of(url, "--url")
    given = env.get("TOPICS_SOCKET", "")
    if given and given != "none":
        return Where("TOPICS_SOCKET", path=given)
    if env.get("TOPICS_URL"):
        return where_of(env["TOPICS_URL"], "TOPICS_URL")
    return _from_directory() or _from_context(env) or _by_default(env)


def _by_default(env: dict[str, str] | os._Environ[str]) -> Where:
    candidates = []
    if env.get("XDG_RUNTIME_DIR"):
        candidates.append((os.path.join(env["XDG_RUNTIME_DIR"], "topics/topics.sock"), "found in XDG_RUNTIME_DIR"))
    candidates.append(("/run/topics/topics.sock", "the system's place"))
    data_dir = env.get("TOPICS_DATA_DIR")
    if data_dir:
        candidates.append((os.path.join(data_dir, "topics.sock"), "found in TOPICS_DATA_DIR"))
    else:
        candidates.append((os.path.join("topics-data", "topics.sock"), "found in ./topics-data"))
    for path, why in candidates:
        if is_socket(path):
            return Where(why, path=path)
    return Where("the default: no socket was found", host=DEFAULT_HOST, port=DEFAULT_PORT)


def is_socket(path: str) -> bool:
    """Whether a socket file is there, dead or alive."""
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def where_of(url: str, why: str) -> Where:
    """The place that an address names; raises `Failure` for what is none."""
    if url.startswith("unix:"):
        return Where(why, path=url.removeprefix("unix://").removeprefix("unix:"))
    if not url.startswith("http://"):
        raise _bad(f"{why} is {url!r}, which is not an http:// address", "write http://HOST:PORT, or use a socket")
    rest = url.removeprefix("http://").rstrip("/")
    host, colon, port = rest.rpartition(":")
    if not colon or rest.endswith("]"):
        host, port = rest, "80"
    if "/" in rest or "@" in rest or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise _bad(f"{why} is {url!r}, which is not HOST:PORT", "write http://HOST:PORT, such as http://127.0.0.1:4000")
    return Where(why, host=host.strip("[]"), port=int(port))


def _bad(what: str, hint: str) -> Failure:
    return Failure(what, "bad_context", hint, CONFIGURATION)


def _from_directory() -> Where | None:
    """The nearest `.topics.toml` that names a place."""
    try:
        directory = os.getcwd()
    except OSError:
        return None
    while True:
        path = os.path.join(directory, CONTEXT_FILE)
        if _is_ours(path):
            found = _place(read_toml(path), directory, path)
            if found is not None:
                return found
        above = os.path.dirname(directory)
        if above == directory:
            return None
        directory = above


def contexts_path(env: dict[str, str] | os._Environ[str]) -> str:
    """The file of a user's contexts; "" without a home."""
    home = env.get("XDG_CONFIG_HOME") or (os.path.join(env["HOME"], ".config") if env.get("HOME") else "")
    return os.path.join(home, "topics", "contexts.toml") if home else ""


def _from_context(env: dict[str, str] | os._Environ[str]) -> Where | None:
    """The place of the context that is in use."""
    path = contexts_path(env)
    if not path or not _is_ours(path):
        return None
    contexts, name = read_contexts(path)
    if not name:
        return None
    if name not in contexts:
        raise _bad(f"{path}: there is no context {name!r}", "topics context ls; topics context use NAME")
    return _place(contexts[name], os.path.dirname(path), f"context {name}")


def read_contexts(path: str) -> tuple[dict[str, dict[str, Any]], str]:
    """The contexts of a file by name, and which is in use ("" none)."""
    values = read_toml(path)
    contexts, name = values.get("contexts", {}), values.get("use", "")
    is_table = isinstance(contexts, dict) and all(isinstance(place, dict) for place in contexts.values())
    if not is_table or not isinstance(name, str):
        raise _bad(f"{path} holds no contexts", "mend or remove it")
    return contexts, name


def _is_ours(path: str) -> bool:
    """Whether a file is there, and belongs to us or to root."""
    try:
        return os.stat(path).st_uid in (os.geteuid(), 0)
    except OSError:
        return False


def read_toml(path: str) -> dict[str, Any]:
    """The values of a file; `Failure` when it cannot be read."""
    import tomllib

    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except (OSError, ValueError) as error:
        raise _bad(f"{path} cannot be read: {error}", "mend or remove it") from error


def _place(values: dict[str, Any], directory: str, why: str) -> Where | None:
    """The place that a context names; its paths are seen from `directory`."""
    texts = {name: values.get(name, "") for name in PLACE_KEYS}
    if not all(isinstance(value, str) for value in texts.values()):
        raise _bad(f"{why}: socket, url and key_file are strings", "mend or remove it")
    key_file = os.path.join(directory, texts["key_file"]) if texts["key_file"] else ""
    if texts["socket"]:
        return Where(why, path=os.path.join(directory, texts["socket"]), key_file=key_file)
    if texts["url"]:
        where = where_of(texts["url"], why)
        where.key_file = key_file
        return where
    return None


def find_key(key_file: str | None, where: Where) -> str:
    """The key to present, or "": --key-file > TOPICS_KEY > TOPICS_KEY_FILE > context. Never a flag with the secret."""
    given = os.environ.get("TOPICS_KEY", "").strip()
    if given and not key_file:
        if not _is_key(given):
            raise Failure("TOPICS_KEY holds no key", "bad_key", "a key is visible ASCII without spaces", CONFIGURATION)
        return given
    path = key_file or os.environ.get("TOPICS_KEY_FILE") or where.key_file
    if not path:
        return ""
    try:
        with open(path, encoding="utf-8") as file:
            key = file.readline(KEY_LINE_CHARS_MAX).strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise Failure(f"the key file {path} cannot be read: {why}", "bad_key_file", _KEY_HINT, CONFIGURATION) from error
    if not _is_key(key):
        raise Failure(f"the key file {path} holds no key", "bad_key_file", "its first line is the key", CONFIGURATION)
    return key


def _is_key(text: str) -> bool:
    """Whether a header can carry it: visible ASCII, so no line break either that would begin another header."""
    return bool(text) and text.isascii() and text.isprintable() and " " not in text
