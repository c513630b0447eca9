"""Where a cold tier is, as one text; profiles, prices."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from topics_objects.place import PRICES, Bucket, is_bucket, parse_bucket, parse_prices
from topics_objects.profile import read_profile


def test_a_bucket_is_read_with_all_that_it_says() -> None:
    assert parse_bucket("s3://b") == Bucket("b", "")
    assert parse_bucket("s3://my-bucket/some/prefix/") == Bucket("my-bucket", "some/prefix")
    whole = parse_bucket("s3://b/p?endpoint=http://[::1]:9000&region=eu-west-3")
    assert whole == Bucket("b", "p", "http://[::1]:9000", "eu-west-3")
    assert is_bucket("s3://b")
    assert not is_bucket("/var/cold")


@pytest.mark.parametrize(
    "text",
    [
        "s3://",
        "s3:///prefix",
        "https://b/p",
        "s3://user:secret@b/p",
        "s3://b:80/p",
        "s3://b/p#x",
        "s3://b?endpoint=host:9000",
        "s3://b?endpoint=",
        "s3://b?key=secret",
        "s3://[b",
    ],
)
def test_what_is_no_bucket_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ValueError, match=r"must|unknown option|no address"):
        parse_bucket(text)


def test_prices_are_dollars_for_a_million_requests() -> None:
    assert parse_prices("put=5, get=0.4,") == {"put": 5.0, "get": 0.4}
    assert set(parse_prices(PRICES)) == {"put", "list", "get", "head", "delete"}
    for wrong in ("take=1", "put", "put=x", "put=-1", "put=nan"):
        with pytest.raises(ValueError, match=r"operation|price"):
            parse_prices(wrong)


def test_a_profile_is_read_from_both_files_and_the_keys_of_the_first_win(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = a\naws_secret_access_key = b%c\n[other]\naws_access_key_id=o\n"
    )
    (tmp_path / ".aws" / "config").write_text(
        "[default]\nregion = eu-north-1\naws_access_key_id = old\nendpoint_url = http://127.0.0.1:1\n"
        "[profile other]\naws_secret_access_key = p\naws_session_token = t\n"
    )
    profile = read_profile({"HOME": str(tmp_path)})
    assert (profile.access_key, profile.secret_key, profile.token) == ("a", "b%c", "")
    assert (profile.region, profile.endpoint, profile.has_keys) == ("eu-north-1", "http://127.0.0.1:1", True)
    other = read_profile({"HOME": str(tmp_path), "AWS_PROFILE": "other"})
    assert (other.access_key, other.secret_key, other.token, other.region) == ("o", "p", "t", None)
    assert not read_profile({"HOME": str(tmp_path), "AWS_PROFILE": "none"}).has_keys
    assert not read_profile({}).has_keys
    (tmp_path / ".aws" / "credentials").write_bytes(b"\xff[")
    assert read_profile({"HOME": str(tmp_path)}).access_key == "old"


@pytest.mark.slow
def test_nobody_loads_the_library_who_opens_no_bucket() -> None:
    code = (
        "import sys, topics_daemon.main, topics_daemon.daemon, topics_cli.cold, engine.tools.cold\n"
        "from topics_objects.place import open_bucket, parse_bucket, tier_at\n"
        "tier_at('s3://b/p', bytes(16))\n"
        "print('obstore' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"
