"""Every setting of the daemon, in one table.

`SETTINGS` says name, type, default, bounds and help once; the command line parser, `--help`, `--print-config`, the
file reader and the environment reader are all made from it, and so is the documentation. A value is taken from the
built-in default < the file < the environment (`TOPICS_…`) < the flag, and remembers where it came from.

Mistakes are collected, not raised one by one: the start stops with one line for each (exit 78). An unknown key in a
file is a mistake; an unknown `TOPICS_…` variable is a warning, because other programs share the environment.
Nothing here opens a store or a socket.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from engine.limits import KIB, MAX_SHARDS, MIB, EngineSettings, Limits, OnCorruption
from engine.queue.commands import CLAIM_MAX
from topics_daemon.keys import CREDENTIAL, Key, merged, parse_list, read_key_file
from topics_objects.place import NO_LIBRARY, PRICES, has_library, parse_bucket, parse_prices

U64_MAX: Final = 2**64 - 1
MINUTE_MS: Final = 60_000
BATCH_RECORDS_MAX: Final = 65_536
"""A batch must fit well into what may run ahead of the disk (`SYNC_WINDOW`), or it could never be staged."""
CONNECTIONS_MAX: Final = 1_000_000
SEGMENT_HANDLES: Final = 256
"""Files of segments that stay open, two a segment: enough for a million records that were sealed as they came."""
HOUR_MS: Final = 60 * MINUTE_MS


class Kind(StrEnum):
    """What a value looks like."""

    TEXT = "text"
    COUNT = "number"
    SIZE = "size"
    TIME = "time"
    FLAG = "0 or 1"
    CHOICE = "choice"
    PORT = "port"
    LIST = "list"
    KEYS = "keys"


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table."""

    name: str
    """Lower case: the key in a file. The variable is `TOPICS_` + upper case, the flag `--` + with dashes."""
    kind: Kind
    default: Any
    help: str
    low: int = 0
    high: int = U64_MAX
    choices: tuple[str, ...] = ()
    secret: bool = False

    @property
    def variable(self) -> str:
        return "TOPICS_" + self.name.upper()

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


def _count(name: str, default: int, text: str, low: int = 0, high: int = U64_MAX) -> Setting:
    return Setting(name=name, kind=Kind.COUNT, default=default, help=text, low=low, high=high)


def _size(name: str, default: int, text: str, low: int = 1, high: int = U64_MAX) -> Setting:
    return Setting(name=name, kind=Kind.SIZE, default=default, help=text, low=low, high=high)


def _time(name: str, default: int, text: str, low: int = 1, high: int = 24 * HOUR_MS) -> Setting:
    return Setting(name=name, kind=Kind.TIME, default=default, help=text, low=low, high=high)


def _text(name: str, default: str, text: str) -> Setting:
    return Setting(name=name, kind=Kind.TEXT, default=default, help=text)


def _choice(name: str, default: str, text: str, choices: tuple[str, ...]) -> Setting:
    return Setting(name=name, kind=Kind.CHOICE, default=default, help=text, choices=choices)


_BASE: Final = Limits()
_STORE: Final = EngineSettings()

SETTINGS: Final[tuple[Setting, ...]] = (
    _text("data_dir", "./topics-data", "where everything is kept; made with mode 0700"),
    _text("host", "127.0.0.1", "address of the TCP listener"),
    Setting(name="port", kind=Kind.PORT, default="4000", help="port of the TCP listener; 0 picks one, none = no TCP"),
    _text("port_file", "", "file that gets the real port once it is bound"),
    _text(
        "socket",
        "",
        "path of the Unix socket; none = no socket; default $XDG_RUNTIME_DIR/topics/topics.sock, else "
        "/run/topics/topics.sock as root, else in the data directory",
    ),
    Setting(
        name="api_keys",
        kind=Kind.KEYS,
        default=(),
        help="API keys, separated by commas: secret[:scopes[:prefixes]]; none at all = no authentication. No flag: "
        "what a process is started with is there for all to see",
        secret=True,
    ),
    _text(
        "api_keys_file",
        "",
        "file of further API keys, one a line; read again on SIGHUP. The systemd credential api-keys is another",
    ),
    Setting(name="probe_auth", kind=Kind.FLAG, default=False, help="1 = probes need a key too"),
    _choice(
        "socket_auth",
        "keys",
        "who may do everything over the Unix socket without a key: nobody, or (peer) the daemon's own user",
        ("keys", "peer"),
    ),
    Setting(
        name="allow_insecure_no_auth",
        kind=Kind.FLAG,
        default=False,
        help="1 = serve an address that is not loopback although no keys are configured",
    ),
    Setting(
        name="allowed_hosts",
        kind=Kind.LIST,
        default=("localhost", "127.0.0.0/8", "[::1]"),
        help="Host headers accepted over TCP (name, name:port, address, IPv4 network, [IPv6]), separated by commas",
    ),
    _count("wal_shards", _STORE.wal_shards, "shards of the write-ahead log", 1, MAX_SHARDS),
    _size("wal_file_bytes", _STORE.wal_file_bytes, "size of one log file", MIB, 16 * KIB * MIB),
    _time("sync_interval_ms", _STORE.sync_interval_ms, "longest time between background syncs", 1, MINUTE_MS),
    _size("checkpoint_bytes", _STORE.checkpoint_bytes, "log after which a checkpoint is made", MIB),
    _time("checkpoint_ms", _STORE.checkpoint_ms, "longest time between checkpoints under writes", 100, 24 * HOUR_MS),
    _count("segment_max_events", _STORE.segment_max_events, "records after which history is sealed", 1, 1_000_000),
    _size("segment_max_bytes", _STORE.segment_max_bytes, "bytes after which history is sealed", 64 * KIB, 1024 * MIB),
    _time(
        "segment_age_ms",
        _STORE.segment_age_ms,
        "age at which history of 64 KiB is sealed; 0: never",
        0,
        365 * 24 * HOUR_MS,
    ),
    _text("cold_dir", "", "directory that the data of old segments is moved to, on a slower disk, say; empty: none"),
    _text(
        "cold_url",
        "",
        "the same in a bucket: s3://bucket/prefix, with ?endpoint=https://host:9000 for one that is not Amazon's; "
        "needs pip install 'topics[s3]', in a clone make setup-s3",
    ),
    _time("cold_deadline_ms", 10_000, "how long a read waits for the cold directory or bucket, then 503", 10, HOUR_MS),
    _text(
        "cold_prices",
        PRICES,
        "dollars for a million requests of the bucket, from which metrics estimate what it costs",
    ),
    _count("hot_retain_segments", _STORE.hot_retain_segments, "segments of a topic that are not moved"),
    _size("hot_retain_bytes", _STORE.hot_retain_bytes, "how many bytes of them; 0: no bound; the stricter wins", 0),
    _count(
        "cold_merge_min",
        _STORE.cold_merge_min,
        "so many small neighbours in the cold directory or bucket are joined into one; 0: none ever",
        0,
    ),
    _size("cache_bytes", _STORE.cache_bytes, "bound of the records kept in memory", MIB),
    _choice(
        "on_corruption",
        _STORE.on_corruption.value,
        "what a start does about proven damage",
        tuple(choice.value for choice in OnCorruption),
    ),
    Setting(
        name="any_file_system",
        kind=Kind.FLAG,
        default=False,
        help="1 = start although the data directory is on the network, or on a file system of unknown type",
    ),
    _count("max_topics", _BASE.topics, "topics that may exist; 0 = no bound"),
    _count("max_routers", _BASE.routers, "routers that may exist; 0 = no bound"),
    _size("max_total_bytes", _BASE.total_bytes, "live bytes over all topics; 0 = no bound", 0),
    _count("max_batch_records", _BASE.batch_records, "records in one write", 1, BATCH_RECORDS_MAX),
    _size("max_record_bytes", _BASE.record_bytes, "data and meta of one record", 1, 64 * MIB),
    _size("max_body_bytes", _BASE.body_bytes, "a request body, after inflation", 1, KIB * MIB),
    _size("max_meta_bytes", _BASE.meta_bytes, "meta of one record", 2, MIB),
    _size("max_tag_bytes", _BASE.tag_bytes, "tag of one record", 1, 4096),
    _size("max_node_bytes", _BASE.node_bytes, "node of one record", 1, 4096),
    _count("max_limit", _BASE.page_records, "records in one page", 1, 100_000),
    _count("max_claim", _BASE.claim, "jobs that one claim gives, or a work stream holds", 1, CLAIM_MAX),
    _count("max_nesting", _BASE.nesting, "depth of JSON", 8, 500),
    _count("max_connections", 4096, "connections open at once; 0 = as many as there may be files", 0, CONNECTIONS_MAX),
    _count("max_connections_per_peer", 3072, "connections open at once from one address; 0 = no bound"),
    _count("max_inflight_per_key", 1000, "requests being worked on for one key; 0 = no bound"),
    _count("max_watch_sessions", 10_000, "watch sessions; 0 = no bound"),
    _count("max_watch_topics", 256, "topics in one watch session", 1, 4096),
    _count("max_watch_sessions_per_key", 5000, "watch sessions of one key; 0 = no bound"),
    _count("max_subscriptions", 131_072, "topics that all WebSockets together follow; 0 = no bound"),
    _count("max_sse_connections", 10_000, "open streams; 0 = no bound"),
    _count("max_sse_connections_per_key", 1000, "open streams of one key; 0 = no bound"),
    _size("max_header_bytes", 32 * KIB, "head of a request", KIB, MIB),
    _count("max_headers", 100, "header lines of a request", 8, 10_000),
    _size("max_url_bytes", 8 * KIB, "request line, and any line of a head but `Last-Event-ID`", 256, MIB),
    _size("max_request_buffer_bytes", 256 * MIB, "all request bodies in flight together", MIB),
    _time("header_timeout_ms", 10_000, "a head must be complete after this time"),
    _time("body_timeout_ms", 60_000, "a body must be complete after this time (and bring 1 KiB/s)"),
    _time("idle_timeout_ms", 75_000, "a connection without a request is closed after this time"),
    _time("drain_ms", 10_000, "time for what is in flight at a stop", 0),
    _time("stall_timeout_ms", 30_000, "a reader that takes nothing for this time is cut"),
    _time("watch_session_ttl_ms", 300_000, "a watch session without a stream is forgotten after this time"),
    Setting(
        name="pure",
        kind=Kind.FLAG,
        default=False,
        help="1 = do without the compiled part, which answers the same as the Python beside it, sooner",
    ),
    _choice("log_format", "auto", "text on a terminal and JSON otherwise, or always one", ("auto", "text", "json")),
    _choice("log_level", "info", "least level that is logged", ("debug", "info", "warning", "error")),
)

BY_NAME: Final = {setting.name: setting for setting in SETTINGS}

_SIZES: Final = {"": 1, "b": 1, "kib": KIB, "mib": MIB, "gib": KIB * MIB, "k": KIB, "m": MIB, "g": KIB * MIB}
_TIMES: Final = {"": 1, "ms": 1, "s": 1000, "m": MINUTE_MS, "min": MINUTE_MS, "h": HOUR_MS}
_QUANTITY: Final = re.compile(r"([0-9]{1,20})\s*([A-Za-z]*)", re.ASCII)


def parse_value(setting: Setting, raw: object) -> Any:
    """Read one value; raises ValueError with what is expected instead."""
    kind = setting.kind
    if kind in (Kind.COUNT, Kind.SIZE, Kind.TIME):
        return _parse_quantity(setting, raw)
    if kind is Kind.FLAG:
        if isinstance(raw, bool):
            return raw
        if str(raw) in ("0", "1"):
            return raw in ("1", 1)
        raise ValueError("must be 0 or 1")
    if kind is Kind.KEYS:
        if not isinstance(raw, str):
            raise ValueError("must be a text")
        return parse_list(raw)
    if kind is Kind.LIST:
        parts = raw if isinstance(raw, list) else str(raw).split(",")
        if not all(isinstance(part, str) for part in parts):
            raise ValueError("must be a list of texts")
        return tuple(part.strip() for part in parts if part.strip())
    if kind is Kind.PORT:
        text = str(raw) if not isinstance(raw, bool) else ""
        if text == "none" or (re.fullmatch(r"[0-9]{1,5}", text, re.ASCII) and int(text) <= 65535):
            return text
        raise ValueError("must be none or a number from 0 to 65535")
    if not isinstance(raw, str):
        raise ValueError("must be a text")
    if not raw and setting.name in ("data_dir", "host"):
        raise ValueError("must not be empty")
    if kind is Kind.CHOICE and raw not in setting.choices:
        raise ValueError("must be one of " + ", ".join(setting.choices))
    if "\0" in raw:
        raise ValueError("must not hold a NUL")
    return raw


def _parse_quantity(setting: Setting, raw: object) -> int:
    units = {Kind.SIZE: _SIZES, Kind.TIME: _TIMES}.get(setting.kind, {"": 1})
    example = {Kind.SIZE: " such as 64MiB", Kind.TIME: " such as 250ms, 5s, 1h"}.get(setting.kind, "")
    if isinstance(raw, bool) or not isinstance(raw, (int, str)):
        raise ValueError(f"must be a {setting.kind.value}{example}")
    found = _QUANTITY.fullmatch(str(raw).strip())
    if found is None or found[2].lower() not in units:
        raise ValueError(f"must be a {setting.kind.value}{example}")
    value = int(found[1]) * units[found[2].lower()]
    if not setting.low <= value <= setting.high:
        unit = " ms" if setting.kind is Kind.TIME else ""
        raise ValueError(f"must be between {show(setting, setting.low)} and {show(setting, setting.high)}{unit}")
    return value


class Timeouts(msgspec.Struct, frozen=True):
    """Deadlines of connections, in seconds."""

    header_s: float
    body_s: float
    idle_s: float
    stall_s: float


class Config(msgspec.Struct, frozen=True):
    """What the daemon runs with: a value for each row of the table, and where it came from."""

    values: dict[str, Any]
    sources: dict[str, str]
    warnings: tuple[str, ...] = ()
    keys: tuple[Key, ...] = ()
    """The API keys of all sources."""
    wants_keys: bool = False
    """Whether any source of keys was named, even if it holds none."""

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    @property
    def cold_place(self) -> str:
        """Where the cold tier is, a bucket or an absolute path; empty: nowhere."""
        directory: str = self["cold_dir"]
        bucket: str = self["cold_url"]
        return bucket or (os.path.abspath(directory) if directory else "")

    def limits(self) -> Limits:
        """The bounds of requests, as the engine takes them."""
        return Limits(
            topics=self["max_topics"],
            routers=self["max_routers"],
            total_bytes=self["max_total_bytes"],
            batch_records=self["max_batch_records"],
            record_bytes=self["max_record_bytes"],
            body_bytes=self["max_body_bytes"],
            meta_bytes=self["max_meta_bytes"],
            tag_bytes=self["max_tag_bytes"],
            node_bytes=self["max_node_bytes"],
            page_records=self["max_limit"],
            claim=self["max_claim"],
            nesting=self["max_nesting"],
        )

    def timeouts(self) -> Timeouts:
        """The deadlines of connections."""
        return Timeouts(*(self[f"{what}_timeout_ms"] / 1000 for what in ("header", "body", "idle", "stall")))

    def engine_settings(self) -> EngineSettings:
        """The sizes and intervals of the store."""
        return EngineSettings(
            segment_handles=SEGMENT_HANDLES,
            wal_shards=self["wal_shards"],
            wal_file_bytes=self["wal_file_bytes"] // 4096 * 4096,
            sync_interval_ms=self["sync_interval_ms"],
            checkpoint_bytes=self["checkpoint_bytes"],
            checkpoint_ms=self["checkpoint_ms"],
            segment_max_events=self["segment_max_events"],
            segment_max_bytes=self["segment_max_bytes"],
            segment_age_ms=self["segment_age_ms"],
            cold_tier=bool(self.cold_place),
            hot_retain_segments=self["hot_retain_segments"],
            hot_retain_bytes=self["hot_retain_bytes"],
            cold_merge_min=self["cold_merge_min"],
            cache_bytes=self["cache_bytes"],
            on_corruption=OnCorruption(self["on_corruption"]),
            any_file_system=self["any_file_system"],
        )


class Mistakes(Exception):
    """The configuration cannot be used; `lines` says why, a line a mistake. `exit_code` is 78, or 64 for usage."""

    def __init__(self, lines: Sequence[str], exit_code: int = 78) -> None:
        super().__init__("; ".join(lines))
        self.lines = list(lines)
        self.exit_code = exit_code


class Wants(msgspec.Struct, frozen=True):
    """What the command line asks for besides settings."""

    flags: dict[str, str]
    config_file: str | None = None
    help: bool = False
    version: bool = False
    print_config: bool = False


def parse_flags(argv: Sequence[str]) -> Wants:
    """Read the command line; `--name value` and `--name=value` are the same."""
    flags: dict[str, str] = {}
    wanted = {"help": False, "version": False, "print_config": False}
    config_file: str | None = None
    words = list(argv)
    while words:
        word = words.pop(0)
        if word in ("-h", "--help"):
            wanted["help"] = True
            continue
        if word in ("--version", "--print-config"):
            wanted[word[2:].replace("-", "_")] = True
            continue
        flag, equals, value = word.partition("=")
        name = flag[2:].replace("-", "_") if flag.startswith("--") else ""
        if name == "api_keys":
            raise Mistakes(["keys are no arguments: everybody could read them; use TOPICS_API_KEYS_FILE"], 64)
        if name != "config" and (name not in BY_NAME or "_" in flag):
            raise Mistakes([f"unknown argument {flag!r}; see --help"], 64)
        if not equals:
            if not words:
                raise Mistakes([f"{flag} needs a value"], 64)
            value = words.pop(0)
        if name == "config":
            config_file = value
        else:
            flags[name] = value
    return Wants(flags, config_file, **wanted)


def default_files(environ: Mapping[str, str]) -> list[str]:
    """Where a file is looked for without `--config`, the stronger last."""
    home = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", "/nonexistent"), ".config")
    return ["/etc/topics/topics.toml", os.path.join(home, "topics", "topics.toml")]


def load(wants: Wants, environ: Mapping[str, str]) -> Config:
    """Make the configuration from all of its sources; raises `Mistakes`."""
    values = {setting.name: setting.default for setting in SETTINGS}
    sources = {setting.name: "default" for setting in SETTINGS}
    mistakes: list[str] = []
    warnings: list[str] = []

    def take(setting: Setting, raw: object, source: str) -> None:
        try:
            values[setting.name] = parse_value(setting, raw)
            sources[setting.name] = source
        except ValueError as error:
            mistakes.append(f"{source}: {setting.name} {error}")

    paths = [wants.config_file] if wants.config_file is not None else default_files(environ)
    for path in paths:
        for key, raw in _read_file(path, wants.config_file is not None, mistakes).items():
            if key in BY_NAME:
                take(BY_NAME[key], raw, f"file {path}")
            else:
                mistakes.append(f"file {path}: unknown key {key!r}")
    by_variable = {setting.variable: setting for setting in SETTINGS}
    for variable, raw in sorted(environ.items()):
        if variable in by_variable:
            take(by_variable[variable], raw, f"environment {variable}")
        elif variable.startswith("TOPICS_") and variable not in _CLIENT_VARIABLES:
            warnings.append(f"unknown variable {variable} is ignored")
    for name, raw in wants.flags.items():
        take(BY_NAME[name], raw, f"flag {BY_NAME[name].flag}")
    keys = _read_keys(values, sources, environ, mistakes, warnings)
    _check_cold(values, sources, mistakes)
    if mistakes:
        raise Mistakes(mistakes)
    return Config(values, sources, tuple(warnings), keys or (), keys is not None)


def _check_cold(values: dict[str, Any], sources: dict[str, str], mistakes: list[str]) -> None:
    """What can be wrong with the place of the cold tier, as far as that can be told without going there."""
    for name, check in (("cold_url", parse_bucket), ("cold_prices", parse_prices)):
        try:
            if values[name]:
                check(values[name])
        except ValueError as error:
            mistakes.append(f"{sources[name]}: {name} {error}")
            return
    if values["cold_url"] and values["cold_dir"]:
        mistakes.append("cold_url and cold_dir are two places for the same: choose one")
    if values["cold_dir"] and not _is_utf8(os.path.abspath(values["cold_dir"])):
        mistakes.append(f"{sources['cold_dir']}: cold_dir must be a path in UTF-8, for manifests of exports name it")
    if values["cold_url"] and not has_library():
        mistakes.append(f"cold_url {NO_LIBRARY}")


def _is_utf8(path: str) -> bool:
    """Whether a path is text: its bytes that are not were decoded to surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in path)


def _read_keys(
    values: dict[str, Any],
    sources: dict[str, str],
    environ: Mapping[str, str],
    mistakes: list[str],
    warnings: list[str],
) -> tuple[Key, ...] | None:
    """The keys of all sources together, or None when there is none."""
    keys: list[Key] = list(values["api_keys"])
    paths: list[str] = [values["api_keys_file"]] if values["api_keys_file"] else []
    credential = os.path.join(environ.get("CREDENTIALS_DIRECTORY", ""), CREDENTIAL)
    if environ.get("CREDENTIALS_DIRECTORY") and os.path.exists(credential):
        paths.append(credential)
    for path in paths:
        source = f"{CREDENTIAL} of CREDENTIALS_DIRECTORY" if path == credential else sources["api_keys_file"]
        try:
            found, warning = read_key_file(path)
        except OSError as error:
            mistakes.append(f"{source}: api_keys_file {path}: {error.strerror}")
        except ValueError as error:
            mistakes.append(f"{source}: api_keys_file {path}: {error}")
        else:
            keys += found
            if warning is not None and path != credential:
                warnings.append(warning)
    try:
        return merged(keys) if keys or paths else None
    except ValueError as error:
        mistakes.append(f"api_keys: {error}")
        return None


_CLIENT_VARIABLES: Final = frozenset({"TOPICS_URL", "TOPICS_KEY", "TOPICS_KEY_FILE"})
"""Variables of the command line tool, which is often started from the same environment."""


def _read_file(path: str, required: bool, mistakes: list[str]) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        if required:
            mistakes.append(f"file {path}: does not exist")
    except OSError as error:
        mistakes.append(f"file {path}: {error.strerror}")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        mistakes.append(f"file {path}: {error}")
    return {}


def show(setting: Setting, value: Any) -> str:
    """A value as it could be written in a file or a variable."""
    if setting.secret:
        return "********" if value else ""
    if setting.kind is Kind.FLAG:
        return "1" if value else "0"
    if setting.kind is Kind.LIST:
        return ",".join(value)
    if setting.kind is Kind.SIZE and value:
        for unit, size in (("GiB", KIB * MIB), ("MiB", MIB), ("KiB", KIB)):
            if value % size == 0:
                return f"{value // size}{unit}"
    return str(value)


def print_config(config: Config) -> str:
    """Each setting, its value, and where that came from: a file that could be used as it is."""
    lines = []
    for setting in SETTINGS:
        text = show(setting, config[setting.name])
        shown = text if setting.kind is Kind.COUNT else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
        lines.append(f"{setting.name} = {shown}  # {config.sources[setting.name]}")
    return "\n".join(lines) + "\n"


def help_text(program: str) -> str:
    """The text of `--help`."""
    lines = [
        f"usage: {program} [--config FILE] [--SETTING VALUE]…",
        "",
        "Serves the topics in a data directory over TCP and a Unix socket.",
        "",
        "  --config FILE    read settings from this file instead of the default ones",
        "  --print-config   show every setting and where its value came from",
        "  --version        show the version",
        "  --help           show this text",
        "",
        "Settings (flag > variable TOPICS_… > file > default):",
        "",
    ]
    for setting in SETTINGS:
        choices = f" ({', '.join(setting.choices)})" if setting.choices else f" ({setting.kind.value})"
        default = show(setting, setting.default)
        flag = "" if setting.secret else f"{setting.flag}{choices}, "
        lines += _folded(f"{flag}{setting.variable}, default {default or 'none set'}", "  ", "    ")
        lines += _folded(setting.help, "      ", "      ")
    return "\n".join(lines) + "\n"


def _folded(text: str, first: str, rest: str) -> list[str]:
    """A text as lines of a terminal, broken between words."""
    return textwrap.wrap(
        text, 80, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def program_name() -> str:
    """What the program was called as, for `--help`."""
    name = os.path.basename(sys.argv[0])
    return "topicsd" if name in ("", "main.py") else name
