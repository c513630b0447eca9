"""A bucket over the real protocol: a server of its own process, and a proxy before it that makes its answers worse."""

from __future__ import annotations

import threading
import time
from base64 import b64decode
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from engine.segment.objects import PART_BYTES, ObjectSegmentStore, Requests
from engine.segment.tiers import ColdError, ColdMissingError, SegmentStore, copy_to
from tests.extras import extra
from tests.objects.proxy import Proxy, changed, late, refused, refusing, shortened, times, truncated
from tests.objects.server import BUCKET, ENVIRON, Server
from tests.segment.kit import STORE, disk_of, small
from tests.segment.test_tiers import NAME, SegmentStoreContract
from topics_objects.place import parse_bucket, tier_at

extra("obstore", "s3-test")
extra("moto", "s3-test")

from topics_objects import s3  # noqa: E402  # only with the extra
from topics_objects.s3 import S3Objects  # noqa: E402  # the same

pytestmark = pytest.mark.slow

CONTENT = bytes(range(256)) * 40
_served: list[Server] = []


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    one = Server()
    _served.append(one)
    yield one
    _served.clear()
    one.stop()


@pytest.fixture(autouse=True)
def _usual_place(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server.port) as one:
        yield one


_prefixes = iter(range(1_000_000))


def opened(
    server: Server, *, proxy: Proxy | None = None, prefix: str | None = None, requests: Requests | None = None
) -> ObjectSegmentStore:
    prefix = prefix if prefix is not None else f"p{next(_prefixes)}"
    objects = S3Objects(parse_bucket(server.place(prefix, None if proxy is None else proxy.port)))
    return ObjectSegmentStore(objects, STORE, may_begin=True, requests=requests)


class TestS3(SegmentStoreContract):
    def store(self) -> SegmentStore:
        return opened(_served[0])


def test_a_large_object_goes_in_parts_and_every_request_is_one_of_the_servers_log(server: Server) -> None:
    requests = Requests(threading.Lock())
    store = opened(server, prefix="counted", requests=requests)
    large = [b"a" * PART_BYTES, b"b" * PART_BYTES, b"c" * 100]
    store.put(NAME, large)
    store.put("topics/0000000000000003/seg-2.data", [CONTENT])
    assert store.get_range(NAME, PART_BYTES - 1, 2) == b"ab"
    assert store.size(NAME) == 2 * PART_BYTES + 100
    assert store.list("topics/0000000000000003") == ["seg-1.data", "seg-2.data"]
    assert store.list("topics") == ["0000000000000003"]
    store.delete(NAME)
    assert not store.exists(NAME)
    logged = server.requests("counted")
    assert requests.made == {op: logged[op] for op in requests.made}
    assert requests.made["put"] == 2 + 5
    assert requests.bytes["put"] == 2 * PART_BYTES + 100 + len(CONTENT)


def test_of_two_stores_that_begin_in_one_place_the_second_is_refused(server: Server) -> None:
    opened(server, prefix="taken")
    objects = S3Objects(parse_bucket(server.place("taken")))
    with pytest.raises(ColdError, match="another store"):
        ObjectSegmentStore(objects, bytes(16), may_begin=True)
    with pytest.raises(FileExistsError):
        objects.put("STORE", b"x", new=True)


@pytest.mark.parametrize("fault", [refused, truncated, shortened], ids=["refused", "truncated", "shortened"])
def test_an_answer_that_is_refused_or_cut_short_is_asked_for_again(server: Server, proxy: Proxy, fault: object) -> None:
    requests = Requests()
    store = opened(server, proxy=proxy, requests=requests)
    store.put(NAME, [CONTENT])
    proxy.fault = times(2, fault)  # type: ignore[arg-type]  # one of the proxy's
    before = requests.made["get"]
    assert store.get_range(NAME, 100, 5000) == CONTENT[100:5100]
    assert requests.made["get"] - before == 3
    assert (requests.failed["get"], requests.retries) == (0, 2)
    proxy.fault = times(99, fault)  # type: ignore[arg-type]  # one of the proxy's
    with pytest.raises(OSError, match=r"503|SlowDown|shorter|error|body"):
        store.get_range(NAME, 100, 5000)


def test_a_copy_that_arrives_otherwise_or_reads_back_otherwise_does_not_count(server: Server, proxy: Proxy) -> None:
    disk, segment = disk_of(small())
    tier = tier_at(server.place("copied", proxy.port), STORE)
    proxy.fault = times(1, changed)
    with pytest.raises(ColdError, match="read back"):
        copy_to(tier, disk, segment.data_path, may_begin=True)
    copy_to(tier, disk, segment.data_path, may_begin=False)
    assert tier.size(segment.data_path) == segment.data_size


def test_a_put_says_the_digest_of_what_it_sends_and_one_that_arrives_otherwise_is_sent_again(
    server: Server, proxy: Proxy
) -> None:
    store = opened(server, proxy=proxy, prefix="digest")
    store.put(NAME, [CONTENT])
    assert b64decode(proxy.sent["PUT"]["x-amz-checksum-sha256"]) == sha256(CONTENT).digest()
    refuse, left = refusing(400, "BadDigest"), [1, 1]
    proxy.before = lambda method, path: refuse(method, path) if method == "PUT" and left and left.pop() else None
    seen = proxy.seen["PUT"]
    store.put(NAME, [CONTENT])
    assert proxy.seen["PUT"] - seen == 3
    assert not left
    proxy.before = lambda method, path: refuse(method, path) if method == "PUT" else None
    with pytest.raises(OSError, match="not what was sent"):
        store.put(NAME, [CONTENT])


def test_an_object_that_vanishes_is_missing_and_a_bucket_that_does_is_not(server: Server) -> None:
    tier = tier_at(server.place("vanishing"), STORE)
    disk, segment = disk_of(small())
    copy_to(tier, disk, segment.data_path, may_begin=True)
    S3Objects(parse_bucket(server.place("vanishing"))).delete(segment.data_path)
    with pytest.raises(ColdMissingError):
        tier.get_range(segment.data_path, 0, 10)
    nowhere = tier_at(f"s3://no-such-bucket/x?endpoint={server.url}", STORE)
    with pytest.raises(ColdError, match="bucket does not exist") as raised:
        nowhere.get_range(NAME, 0, 10)
    assert not isinstance(raised.value, ColdMissingError)


def test_credentials_that_expire_are_said_at_once_and_new_ones_are_taken(server: Server, proxy: Proxy) -> None:
    store = opened(server, proxy=proxy)
    store.put(NAME, [CONTENT])
    proxy.before = refusing(400, "ExpiredToken")
    seen = proxy.seen["GET"]
    with pytest.raises(OSError, match="credentials have expired"):
        store.get_range(NAME, 0, 10)
    assert proxy.seen["GET"] - seen == 1
    proxy.before = refusing(403, "AccessDenied")
    with pytest.raises(OSError, match="access is denied"):
        store.get_range(NAME, 0, 10)
    proxy.before = lambda method, path: None
    assert store.get_range(NAME, 0, 10) == CONTENT[:10]


def test_keys_come_from_the_profile_where_the_environment_has_none(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ENVIRON:
        monkeypatch.delenv(name)
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        f"[default]\naws_access_key_id=from-profile\naws_secret_access_key=s\nendpoint_url={server.url}\n"
    )
    store = ObjectSegmentStore(S3Objects(parse_bucket(f"s3://{BUCKET}/profile")), STORE, may_begin=True)
    store.put(NAME, [CONTENT])
    assert store.get_range(NAME, 5, 5) == CONTENT[5:10]


def test_a_listing_that_lags_behind_takes_nothing_away(server: Server, proxy: Proxy) -> None:
    store = opened(server, proxy=proxy)
    store.put(NAME, [CONTENT])
    empty = b'<?xml version="1.0"?><ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated></ListBucketResult>'

    def lagging(method: str, path: str, answer: object) -> object:
        if "list-type" not in path:
            return answer
        return answer._replace(body=empty, length=len(empty), status=200)  # type: ignore[attr-defined]  # an Answer

    proxy.fault = lagging  # type: ignore[assignment]  # the same, loosely
    assert store.list("topics/0000000000000003") == []
    assert store.get_range(NAME, 0, 5) == CONTENT[:5]


def test_a_server_that_does_not_answer_costs_a_bounded_time(
    server: Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "REQUEST_S", 0.5)
    store = opened(server, proxy=proxy)
    store.put(NAME, [CONTENT])
    proxy.fault = late(3)
    began, seen = time.monotonic(), proxy.seen["GET"]
    with pytest.raises(OSError, match="in time"):
        store.get_range(NAME, 0, 5)
    assert time.monotonic() - began < 30
    assert proxy.seen["GET"] - seen == 1, "who has waited for one request waits for another"
    proxy.close()
    with pytest.raises(OSError, match="cannot be reached"):
        opened(server, proxy=proxy)  # a client without connections that are open still
