"""Settings: where values come from, what is a mistake, and that the table says all there is."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from topics_daemon.config import (
    SETTINGS,
    Config,
    Mistakes,
    help_text,
    load,
    parse_flags,
    print_config,
)
from topics_daemon.keys import digest_of
from topics_daemon.listen import check_exposure
from topics_daemon.main import main


def loaded(*flags: str, **environ: str) -> Config:
    return load(parse_flags(flags), environ)


def mistakes(*flags: str, **environ: str) -> list[str]:
    with pytest.raises(Mistakes) as caught:
        loaded(*flags, **environ)
    assert caught.value.exit_code == 78
    return caught.value.lines


def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default(tmp_path: Path) -> None:
    file = tmp_path / "topics.toml"
    file.write_text('port = 1\nwal_shards = 2\nsync_interval_ms = "1s"\n')
    config = loaded("--config", str(file), "--port", "3", TOPICS_PORT="2", TOPICS_WAL_SHARDS="3")
    assert (config["port"], config["wal_shards"], config["sync_interval_ms"]) == ("3", 3, 1000)
    assert config["max_topics"] == 100_000
    assert config.sources["port"] == "flag --port"
    assert config.sources["wal_shards"] == "environment TOPICS_WAL_SHARDS"
    assert config.sources["sync_interval_ms"] == f"file {file}"
    assert config.sources["max_topics"] == "default"


def test_the_file_of_the_user_beats_the_one_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "topics").mkdir()
    (tmp_path / "topics" / "topics.toml").write_text("port = 7\n")
    assert loaded(XDG_CONFIG_HOME=str(tmp_path))["port"] == "7"


@pytest.mark.parametrize(
    ("text", "value"),
    [("64MiB", 64 << 20), ("64 mib", 64 << 20), ("1GiB", 1 << 30), ("2097152", 2 << 20), ("2048K", 2 << 20)],
)
def test_sizes_take_units(text: str, value: int) -> None:
    assert loaded("--cache-bytes", text)["cache_bytes"] == value


@pytest.mark.parametrize(
    ("text", "value"), [("250ms", 250), ("5s", 5000), ("1h", 3_600_000), ("2m", 120_000), ("7", 7)]
)
def test_times_take_units(text: str, value: int) -> None:
    assert loaded("--idle-timeout-ms", text)["idle_timeout_ms"] == value


@pytest.mark.parametrize("text", ["", "x", "-1", "+5", "1_000", "5 parsecs", "٥", "1.5s", "99999999999999999999999"])
def test_what_is_no_quantity_is_a_mistake(text: str) -> None:
    assert mistakes("--idle-timeout-ms", text)


def test_there_is_a_line_for_each_mistake(tmp_path: Path) -> None:
    file = tmp_path / "topics.toml"
    file.write_text('port = 99999\ncolour = "red"\nwal_shards = true\n')
    lines = mistakes("--config", str(file), "--log-level", "loud", TOPICS_MAX_BODY_BYTES="much")
    assert len(lines) == 5
    assert any("colour" in line and "unknown key" in line for line in lines)
    assert any("log_level" in line and "debug, info, warning, error" in line for line in lines)


def test_a_file_that_was_asked_for_must_be_there_and_readable_as_toml(tmp_path: Path) -> None:
    assert mistakes("--config", str(tmp_path / "none"))
    (tmp_path / "bad").write_text("port = \n")
    assert mistakes("--config", str(tmp_path / "bad"))


def test_an_unknown_variable_is_a_warning_and_one_of_the_client_is_nothing() -> None:
    assert loaded(TOPICS_COLOUR="red").warnings == ("unknown variable TOPICS_COLOUR is ignored",)
    assert loaded(TOPICS_URL="http://localhost", TOPICS_KEY="x").warnings == ()


@pytest.mark.parametrize(
    "entry", ["s3cret:x", "s3cret:read:/", "ok,:read", "s3cret:read+", "ok:r:a|", "s3 cret", "ok,"]
)
def test_a_malformed_key_is_a_mistake_that_does_not_show_it(entry: str) -> None:
    lines = mistakes(TOPICS_API_KEYS=entry)
    assert len(lines) == 1
    assert lines[0].startswith("environment TOPICS_API_KEYS: api_keys entry ")
    assert "s3" not in lines[0]
    assert "ok" not in lines[0].removeprefix("environment TOPICS_API_KEYS")


def test_keys_come_from_the_variable_the_file_and_the_credential_together(tmp_path: Path) -> None:
    file, credential = tmp_path / "keys", tmp_path / "api-keys"
    file.write_text("two:r:tenant42:|a.\n\n  three:w \r\n")
    credential.write_text("four\n")
    file.chmod(0o600)
    config = loaded(
        TOPICS_API_KEYS="one:read+write", TOPICS_API_KEYS_FILE=str(file), CREDENTIALS_DIRECTORY=str(tmp_path)
    )
    assert config.wants_keys
    assert [key.digest for key in config.keys] == [digest_of(name) for name in (b"one", b"two", b"three", b"four")]
    assert config.keys[1].prefixes == ("a.", "tenant42:")
    assert config.warnings == ()


def test_no_source_of_keys_is_not_the_same_as_an_empty_one(tmp_path: Path) -> None:
    empty = tmp_path / "keys"
    empty.write_text("\n")
    empty.chmod(0o600)
    assert not loaded(TOPICS_API_KEYS="").wants_keys
    config = loaded(TOPICS_API_KEYS_FILE=str(empty))
    assert config.wants_keys
    assert config.keys == ()
    with pytest.raises(Mistakes):
        check_exposure(config, [])


def test_a_key_file_that_others_can_write_or_that_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("key\n")
    file.chmod(0o622)
    assert "can be written by others" in mistakes(TOPICS_API_KEYS_FILE=str(file))[0]
    file.chmod(0o644)
    assert "can be read by others" in loaded(TOPICS_API_KEYS_FILE=str(file)).warnings[0]
    assert "No such file" in mistakes(TOPICS_API_KEYS_FILE=str(tmp_path / "none"))[0]
    file.chmod(0o600)
    file.write_text("good\nlong-secret:nonsense\n")
    assert mistakes(TOPICS_API_KEYS_FILE=str(file))[0].startswith(
        f"environment TOPICS_API_KEYS_FILE: api_keys_file {file}: line 2 is malformed"
    )


def test_no_key_shows_in_a_repr_nor_in_what_print_config_prints() -> None:
    config = loaded(TOPICS_API_KEYS="s3cret:read:tenant42:")
    text = print_config(config)
    assert 'api_keys = "********"  # environment TOPICS_API_KEYS' in text
    for shown in (repr(config), str(config.keys[0]), f"{config.values}", text):
        assert "s3cret" not in shown
        assert digest_of(b"s3cret").hex() not in shown
        assert repr(digest_of(b"s3cret")) not in shown
    # What was masked must not become a key by being used as a file.
    assert mistakes(TOPICS_API_KEYS="********")


@pytest.mark.parametrize("argv", [["--api-keys", "s3cret"], ["--api-keys=s3cret"], ["--apikeys=s3cret"]])
def test_a_key_is_no_argument_and_is_not_repeated(argv: list[str]) -> None:
    with pytest.raises(Mistakes) as caught:
        parse_flags(argv)
    assert caught.value.exit_code == 64
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "more", "starts"),
    [
        ("127.0.0.1", {}, True),
        ("0.0.0.0", {}, False),
        ("::", {}, False),
        ("0.0.0.0", {"TOPICS_API_KEYS": "key"}, True),
        ("0.0.0.0", {"TOPICS_ALLOW_INSECURE_NO_AUTH": "1"}, True),
        ("0.0.0.0", {"TOPICS_PORT": "none"}, True),
        ("example.org", {}, False),
    ],
)
def test_an_open_address_needs_keys_or_somebody_who_insists(host: str, more: dict[str, str], starts: bool) -> None:
    config = loaded(TOPICS_HOST=host, **more)
    hosts = [] if config["port"] == "none" else [host]
    if starts:
        check_exposure(config, hosts)
        return
    with pytest.raises(Mistakes) as caught:
        check_exposure(config, hosts)
    assert caught.value.exit_code == 78


@pytest.mark.parametrize("argv", [["--colour", "red"], ["--port"], ["port"], ["--max_topics", "1"], ["-p", "1"]])
def test_an_argument_that_is_no_setting_is_a_matter_of_usage(argv: list[str]) -> None:
    with pytest.raises(Mistakes) as caught:
        parse_flags(argv)
    assert caught.value.exit_code == 64


def test_what_print_config_prints_can_be_used_as_a_file(tmp_path: Path) -> None:
    config = loaded("--port", "5", "--cache-bytes", "96MiB", "--allowed-hosts", "a.example, [::1]")
    text = print_config(config)
    assert 'port = "5"  # flag --port' in text
    file = tmp_path / "again.toml"
    file.write_text(text)
    again = loaded("--config", str(file))
    assert again.values == config.values
    assert set(tomllib.loads(text)) == {setting.name for setting in SETTINGS}


def test_help_names_every_flag_variable_and_default() -> None:
    text = help_text("topicsd")
    assert max(map(len, text.splitlines())) <= 80
    words = " ".join(text.split())
    for setting in SETTINGS:
        assert (f"{setting.flag} " in text) is not setting.secret
        assert setting.variable in text
        assert setting.help in words


def test_every_default_is_within_its_own_bounds() -> None:
    for setting in SETTINGS:
        if isinstance(setting.default, int) and not isinstance(setting.default, bool):
            assert setting.low <= setting.default <= setting.high, setting.name


def test_limits_and_engine_settings_carry_what_was_configured() -> None:
    config = loaded("--max-record-bytes", "5", "--max-topics", "6", "--wal-shards", "2", "--wal-file-bytes", "5000000")
    assert (config.limits().record_bytes, config.limits().topics) == (5, 6)
    assert config.engine_settings().wal_shards == 2
    assert config.engine_settings().wal_file_bytes % 4096 == 0


KIB, MIB = 1024, 1024 * 1024
PROMISED: dict[str, object] = {
    "DATA_DIR": "./topics-data",
    "HOST": "127.0.0.1",
    "PORT": "4000",
    "ALLOW_INSECURE_NO_AUTH": False,
    "PROBE_AUTH": False,
    "ALLOWED_HOSTS": ("localhost", "127.0.0.0/8", "[::1]"),
    "WAL_FILE_BYTES": 64 * MIB,
    "SYNC_INTERVAL_MS": 10,
    "CHECKPOINT_BYTES": 256 * MIB,
    "CHECKPOINT_MS": 300_000,
    "SEGMENT_MAX_EVENTS": 10_000,
    "SEGMENT_MAX_BYTES": 64 * MIB,
    "SEGMENT_AGE_MS": 3_600_000,
    "COLD_DIR": "",
    "HOT_RETAIN_SEGMENTS": 4,
    "HOT_RETAIN_BYTES": 0,
    "CACHE_BYTES": 64 * MIB,
    "ON_CORRUPTION": "isolate",
    "MAX_TOPICS": 100_000,
    "MAX_ROUTERS": 10_000,
    "MAX_WATCH_SESSIONS": 10_000,
    "MAX_WATCH_TOPICS": 256,
    "MAX_WATCH_SESSIONS_PER_KEY": 5000,
    "MAX_SUBSCRIPTIONS": 131_072,
    "MAX_SSE_CONNECTIONS": 10_000,
    "MAX_SSE_CONNECTIONS_PER_KEY": 1000,
    "MAX_INFLIGHT_PER_KEY": 1000,
    "MAX_TOTAL_BYTES": 0,
    "MAX_BATCH_RECORDS": 10_000,
    "MAX_RECORD_BYTES": MIB,
    "MAX_BODY_BYTES": 64 * MIB,
    "MAX_META_BYTES": 16 * KIB,
    "MAX_TAG_BYTES": 256,
    "MAX_NODE_BYTES": 128,
    "MAX_LIMIT": 1000,
    "MAX_CLAIM": 1000,
    "MAX_CONNECTIONS": 4096,
    "MAX_HEADER_BYTES": 32 * KIB,
    "MAX_HEADERS": 100,
    "MAX_URL_BYTES": 8 * KIB,
    "MAX_NESTING": 128,
    "MAX_REQUEST_BUFFER_BYTES": 256 * MIB,
    "HEADER_TIMEOUT_MS": 10_000,
    "BODY_TIMEOUT_MS": 60_000,
    "IDLE_TIMEOUT_MS": 75_000,
    "DRAIN_MS": 10_000,
    "LOG_FORMAT": "auto",
    "LOG_LEVEL": "info",
}
"""The table of operations.md, by hand. `COLD_URL` comes with the object store."""


def test_every_variable_of_the_specification_is_there_with_its_default() -> None:
    defaults = {setting.variable.removeprefix("TOPICS_"): setting.default for setting in SETTINGS}
    assert {name: defaults.get(name) for name in PROMISED} == PROMISED
    assert {"SOCKET", "API_KEYS", "API_KEYS_FILE", "PORT_FILE", "WAL_SHARDS", "SOCKET_AUTH"} <= set(defaults)


def test_mistakes_name_the_variable_and_say_bounds_as_one_writes_them() -> None:
    for name, value, said in (
        ("COLD_URL", "nonsense", "cold_url must be like s3://bucket/prefix"),
        ("COLD_PRICES", "nonsense", "cold_prices has an unknown operation 'nonsense'"),
        ("API_KEYS_FILE", "/nowhere", "api_keys_file /nowhere: No such file or directory"),
        ("WAL_FILE_BYTES", "1", "wal_file_bytes must be between 1MiB and 16GiB"),
        ("DRAIN_MS", "48h", "drain_ms must be between 0 and 86400000 ms"),
        ("DATA_DIR", "", "data_dir must not be empty"),
        ("HOST", "", "host must not be empty"),
        ("MAX_LIMIT", "0", "max_limit must be between 1 and 100000"),
    ):
        (line,) = mistakes(**{f"TOPICS_{name}": value})
        assert line.startswith(f"environment TOPICS_{name}: {said}")


def test_print_config_says_what_a_start_would_warn_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOPICS_PROT", "1")
    assert main(["--print-config"]) == 0
    shown = capsys.readouterr()
    assert 'port = "4000"' in shown.out
    assert "topicsd: warning: unknown variable TOPICS_PROT is ignored\n" in shown.err


def test_a_cold_directory_has_a_name_that_manifests_can_hold() -> None:
    with pytest.raises(Mistakes) as caught:
        load(parse_flags(["--cold-dir", "/mnt/\udcff"]), {"HOME": "/nonexistent"})
    assert caught.value.lines == ["flag --cold-dir: cold_dir must be a path in UTF-8, for manifests of exports name it"]
    assert load(parse_flags(["--cold-dir", "/mnt/über"]), {"HOME": "/nonexistent"}).cold_place == "/mnt/über"
