"""API keys as entries: the grammar, exactly, and what is kept of a secret."""

from __future__ import annotations

import hmac
from typing import Any

import msgspec
import pytest

from engine.errors import Code, Refused
from engine.limits import Limits
from engine.types import TopicConfig
from topics_daemon.auth import Caller, Gate
from topics_daemon.head import Bounds, Head, parse
from topics_daemon.keys import (
    ALL_SCOPES,
    NO_CREDENTIAL,
    Key,
    Scope,
    digest_of,
    merged,
    parse_entry,
    parse_lines,
    parse_list,
    presented,
    scope_names,
)
from topics_daemon.routes.table import ROUTES, assign

R, W, D, A = Scope.READ, Scope.WRITE, Scope.DELETE, Scope.ADMIN


@pytest.mark.parametrize(
    ("text", "scopes", "prefixes"),
    [
        ("s", ALL_SCOPES, ()),
        ("s:", ALL_SCOPES, ()),
        ("s::", ALL_SCOPES, ()),
        ("s:read", R, ()),
        ("s:read:", R, ()),
        ("s:read+write+delete+admin", ALL_SCOPES, ()),
        ("s:r+a", R | A, ()),
        ("s:rw", R | W, ()),
        ("s:rw+delete", R | W | D, ()),
        ("s:read:tenant42:", R, ("tenant42:",)),
        ("s:d:a|b:c:d|x>y", D, ("a", "b:c:d", "x>y")),
        ("s::a", ALL_SCOPES, ("a",)),
        ("s:w:ab|a|abc|b", W, ("a", "b")),
        ("!#$%&'*+,-./;<=>?@[]^_`{|}~:r", R, ()),
    ],
)
def test_an_entry_is_a_secret_scopes_and_prefixes(text: str, scopes: Scope, prefixes: tuple[str, ...]) -> None:
    key = parse_entry(text)
    assert key == Key(digest_of(text.partition(":")[0].encode()), scopes, prefixes)


@pytest.mark.parametrize(
    "text",
    [
        *("", ":read", "::", "two words", "tab\there", "schlüssel", "nul\0", "x" * 513, "***", "\x7f"),
        *("s:write ", "s:Read", "s:all", "s:r+", "s:+r", "s:r++w", "s:rx", "s:*", "s:read,write", "s: read"),
        *("s:r:|", "s:r:a|", "s:r:|a", "s:r:a||b", "s:r: a", "s:r:-a", "s:r:a/b", "s:r:*", "s:r:ä", "s:r:" + "a" * 256),
    ],
)
def test_what_is_not_an_entry_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(ValueError, match="must be") as caught:
        parse_entry(text)
    assert len(text) < 4 or text not in str(caught.value)


def test_a_variable_has_commas_and_a_file_has_lines() -> None:
    assert [key.scopes for key in parse_list("a:r, b:w ,c")] == [R, W, ALL_SCOPES]
    assert parse_list("") == parse_list("  ") == ()
    assert [key.digest for key in parse_lines(b"a,b:r\r\n\n \nc")] == [digest_of(b"a,b"), digest_of(b"c")]
    for text in ("a,", ",a", "a,,b"):
        with pytest.raises(ValueError, match="is malformed"):
            parse_list(text)


def test_one_secret_may_not_have_two_meanings() -> None:
    same, other = parse_entry("a:r"), parse_entry("a:w")
    assert merged([same, parse_entry("a:read")]) == (same,)
    with pytest.raises(ValueError, match="twice"):
        merged([same, other])
    with pytest.raises(ValueError, match="1000 keys"):
        merged(parse_entry(f"k{number}") for number in range(1001))


@pytest.mark.parametrize("header", [b"Bearer k", b"bearer k", b"BEARER   k"])
def test_a_key_is_presented_as_a_bearer_token(header: bytes) -> None:
    assert presented(header) == digest_of(b"k")


@pytest.mark.parametrize(
    "header",
    [b"", b"k", b"Bearer", b"Bearer ", b"Basic azpr", b"Bearer k k", b"Bearer\tk", b"Bearer k\xff", b"XBearer k"],
)
def test_anything_else_presents_no_key(header: bytes) -> None:
    assert presented(header) == NO_CREDENTIAL


def test_scopes_have_names() -> None:
    assert scope_names(ALL_SCOPES) == "read+write+delete+admin"
    assert scope_names(Scope.NONE) == ""


def gate(*entries: str) -> Gate:
    return Gate([parse_entry(entry) for entry in entries], closed=bool(entries), probe_auth=False)


@pytest.mark.parametrize("secret", [b"a", b"b", b"c", b"nobody"])
def test_S16_a_presented_key_is_compared_with_every_digest(secret: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[Any, Any]] = []
    really = hmac.compare_digest

    def compare(one: Any, other: Any) -> bool:
        compared.append((one, other))
        return really(one, other)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    found = gate("a", "b", "c").find(digest_of(secret), trusted=False)
    assert (found is None) is (secret == b"nobody")
    assert [one for one, _ in compared] == [digest_of(name) for name in (b"a", b"b", b"c")]
    assert {len(one) for one, _ in compared} == {len(other) for _, other in compared} == {32}


def test_a_key_that_stays_keeps_its_caller_and_one_that_goes_loses_everything() -> None:
    doors = gate("a:rw", "b")
    a, b = (doors.find(digest_of(name), trusted=False) for name in (b"a", b"b"))
    assert a is not None
    assert b is not None
    assert doors.change([parse_entry("a:r:x"), parse_entry("c")]) == 1
    assert doors.find(digest_of(b"a"), trusted=False) is a
    assert (a.scopes, a.prefixes) == (R, ("x",))
    assert doors.find(digest_of(b"b"), trusted=False) is None
    refusal = b.refusal([])
    assert refusal is not None
    assert refusal.code is Code.UNAUTHORIZED
    assert doors.change([]) == 2
    assert doors.closed
    assert doors.find(None, trusted=False) is None


def test_no_keys_let_everybody_in_until_there_are_some() -> None:
    doors = gate()
    anybody = doors.find(None, trusted=False)
    assert anybody is doors.find(digest_of(b"x"), trusted=False)
    assert anybody is not None
    assert anybody.refusal(["t"]) is None
    doors.change([parse_entry("a")])
    assert doors.find(None, trusted=False) is None
    assert anybody.refusal(["t"]) is not None


def test_the_own_user_needs_no_key_but_a_wrong_one_is_wrong() -> None:
    doors = gate("a:r")
    assert doors.find(None, trusted=True) is doors.peer
    assert doors.find(digest_of(b"x"), trusted=True) is None


def test_a_caller_may_use_the_names_of_its_prefixes_only() -> None:
    caller = Caller(R, ("a", "tenant42:"), keyed=True)
    assert [name for name in ("a", "ab", "b", "tenant42", "tenant42:", "tenant42:x") if caller.allows(name)] == [
        *("a", "ab", "tenant42:", "tenant42:x")
    ]
    for name in ("b", "tenant43:x"):
        with pytest.raises(Refused) as caught:
            caller.check(name)
        assert caught.value.code is Code.FORBIDDEN
        assert name not in caught.value.message
        assert caught.value.detail is None


@pytest.mark.parametrize(
    ("prefix", "ranges"),
    [("", ["a", "tenant42:"]), ("ab", ["ab"]), ("t", ["tenant42:"]), ("tenant42:x", ["tenant42:x"]), ("b", [])],
)
def test_a_list_covers_what_was_asked_for_and_may_be_seen(prefix: str, ranges: list[str]) -> None:
    assert list(Caller(R, ("a", "tenant42:"), keyed=True).ranges(prefix)) == ranges
    assert list(Caller(R, (), keyed=True).ranges(prefix)) == [prefix]


def test_a_dead_letter_topic_shows_to_those_who_may_use_it() -> None:
    config = TopicConfig(dead_letter="ops:dead")
    assert Caller(R, (), keyed=True).shown(config) is config
    assert Caller(R, ("ops:",), keyed=True).shown(config) is config
    assert Caller(R, ("a",), keyed=True).shown(config).dead_letter is None


@pytest.mark.parametrize("probe_auth", [False, True])
@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/v0/health", "/v0/ready"])
def test_probes_want_a_key_where_it_was_said_so(path: str, probe_auth: bool) -> None:
    closed = Gate([parse_entry("a:w:x")], closed=True, probe_auth=probe_auth)

    def asked(*lines: str) -> Head:
        raw = "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode()
        head = parse(raw, Bounds(4096, 1024, 20))
        assign(head, closed, False, Limits(body_bytes=1000))
        return head

    assert asked("Authorization: Bearer a").caller.scopes == W
    for lines in ((), ("Authorization: Bearer b",)):
        if probe_auth:
            with pytest.raises(Refused):
                asked(*lines)
        else:
            assert asked(*lines).caller is closed.nobody


def test_what_is_about_the_whole_store_needs_a_key_for_all_names(monkeypatch: pytest.MonkeyPatch) -> None:
    route = msgspec.structs.replace(ROUTES["v0", "topics"]["GET"], scope=A, whole=True)
    monkeypatch.setitem(ROUTES, ("v0", "admin", "store"), {"GET": route})
    closed = gate("all:a", "some:a:tenant42:", "reader:r")
    raw = b"GET /v0/admin/store HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %b\r\n\r\n"
    assign(parse(raw % b"all", Bounds(4096, 1024, 20)), closed, False, Limits(body_bytes=1000))
    for name in (b"some", b"reader"):
        with pytest.raises(Refused) as caught:
            assign(parse(raw % name, Bounds(4096, 1024, 20)), closed, False, Limits(body_bytes=1000))
        assert caught.value.code is Code.FORBIDDEN
