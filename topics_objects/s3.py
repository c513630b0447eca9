"""A bucket over the S3 protocol, through obstore (docs/adr/0041): each call is one request, made once.

Credentials come from where tools of the S3 protocol have them: AWS_ACCESS_KEY_ID and its like, a web identity, the
container's, the instance's, all of which the library knows; and before these, unless AWS_ACCESS_KEY_ID is set, the
profile in ~/.aws/credentials or ~/.aws/config, which it does not (`topics_objects.profile`). So do the region and the
endpoint. What the library says of a failure is read for two things: whether another attempt may help, and what to tell.

The library releases the interpreter while it waits and while it copies: a thread of the daemon that reads a bucket
takes a tenth of a millisecond of it from the loop.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from engine.segment.objects import PART_BYTES, Got, Listed, ObjectError
from topics_objects.place import Bucket
from topics_objects.profile import Profile, read_profile

CONNECT_S: Final = 5
REQUEST_S: Final = 30
"""Longest time of one request, its answer included; a part of 8 MiB at 300 KB/s."""
LIST_PAGE: Final = 1000
"""Names in one page of a listing."""
PARTS_AT_ONCE: Final = 2

_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>(\w{1,64})</Code>")
_AGAIN: Final = frozenset({"408", "425", "429", "500", "502", "503", "504"})
_SAID: Final = {
    "ExpiredToken": "the credentials have expired",
    "InvalidAccessKeyId": "the access key is unknown",
    "SignatureDoesNotMatch": "the secret key is wrong",
    "AccessDenied": "access is denied",
    "NoSuchBucket": "the bucket does not exist",
    "BadDigest": "what arrived there is not what was sent",
    "XAmzContentChecksumMismatch": "what arrived there is not what was sent",
    "RequestTimeTooSkewed": "the clocks of both sides differ too much",
}
_TIMEOUT: Final = "kind: Timeout"
_HURT: Final = frozenset({"BadDigest", "XAmzContentChecksumMismatch", "RequestTimeout", "IncompleteBody", "SlowDown"})
"""Refusals that another attempt may not meet."""


class S3Objects:
    """The objects below one prefix of a bucket."""

    def __init__(self, bucket: Bucket) -> None:
        profile = read_profile(os.environ)
        config: dict[str, Any] = {
            "region": bucket.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
            or profile.region or "us-east-1",
            "checksum_algorithm": "SHA256",
            "disable_bulk_delete": True,
        }  # fmt: skip
        endpoint = bucket.endpoint or (None if _endpoint_is_set() else profile.endpoint)
        if endpoint is not None:
            # The library prefers what the environment says under this name to what it is given under others.
            config["aws_endpoint_url_s3"] = endpoint
        provider = None
        if profile.has_keys and "AWS_ACCESS_KEY_ID" not in os.environ:
            provider = _ProfileCredentials()
        self._store = S3Store(
            bucket.name,
            prefix=bucket.prefix or None,
            config=config,
            client_options={
                "allow_http": True,
                "connect_timeout": timedelta(seconds=CONNECT_S),
                "timeout": timedelta(seconds=REQUEST_S),
            },
            retry_config={"max_retries": 0},
            credential_provider=provider,
        )

    def put(self, key: str, data: bytes, *, new: bool) -> None:
        """Keep an object. Raises `FileExistsError` when it is to be `new` and is there."""
        try:
            obstore.put(self._store, key, data, mode="create" if new else "overwrite", use_multipart=False)
        except AlreadyExistsError as error:
            raise FileExistsError(key) from error
        except (BaseError, OSError) as error:
            # A put has nothing that could be missing but the bucket.
            raise _failure(error) from error

    def put_parts(self, key: str, parts: Iterator[bytes]) -> int:
        """Keep a large object; the requests are one for each part, one before and one after them."""
        count = 0

        def counted() -> Iterator[bytes]:
            nonlocal count
            for part in parts:
                count += 1
                yield part

        try:
            obstore.put(
                self._store,
                key,
                counted(),
                use_multipart=True,
                chunk_size=PART_BYTES,
                max_concurrency=PARTS_AT_ONCE,
            )
        except (BaseError, OSError) as error:
            raise _failure(error) from error
        return count + 2

    def get(self, key: str, offset: int, length: int) -> Got:
        """Bytes of an object. Raises `FileNotFoundError`."""
        if length < 1:
            return Got(b"", 0)
        try:
            answer = obstore.get(self._store, key, options={"range": (offset, offset + length)})
            return Got(bytes(answer.bytes()), answer.meta["size"])
        except FileNotFoundError as error:
            raise _missing(error, key) from error
        except (BaseError, OSError) as error:
            if _status(error) == "416":
                return Got(b"", 0)
            raise _failure(error) from error

    def head(self, key: str) -> int:
        """The size of an object. Raises `FileNotFoundError`."""
        try:
            return int(obstore.head(self._store, key)["size"])
        except FileNotFoundError as error:
            raise _missing(error, key) from error
        except (BaseError, OSError) as error:
            raise _failure(error) from error

    def list(self, prefix: str) -> Listed:
        """The names between a prefix and the next `/`."""
        try:
            found = obstore.list_with_delimiter(self._store, prefix.rstrip("/") or None)
        except (BaseError, OSError) as error:
            raise _failure(error) from error
        paths = [*found["common_prefixes"], *(one["path"] for one in found["objects"])]
        pages = max(1, -(-len(paths) // LIST_PAGE))
        return Listed(sorted(path.rstrip("/").rpartition("/")[2] for path in paths), pages)

    def delete(self, key: str) -> None:
        """Remove an object; one that is not there is fine."""
        try:
            obstore.delete(self._store, key)
        except FileNotFoundError:
            return
        except (BaseError, OSError) as error:
            raise _failure(error) from error


class _ProfileCredentials:
    """Keys of the profile, read again once a minute: who changes them there does not restart anything."""

    def __call__(self) -> Any:
        from datetime import UTC, datetime

        profile = read_profile(os.environ)
        keys: dict[str, Any] = {"access_key_id": profile.access_key, "secret_access_key": profile.secret_key}
        if profile.token:
            keys["token"] = profile.token
        keys["expires_at"] = datetime.now(UTC) + timedelta(seconds=Profile.TRUSTED_S)
        return keys


def _endpoint_is_set() -> bool:
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    return any(os.environ.get(name) for name in names)


def _status(error: BaseException) -> str | None:
    found = _STATUS.search(str(error))
    return None if found is None else found[1]


def _missing(error: BaseException, key: str) -> OSError:
    """An object that is not there, or the bucket."""
    if "<Code>NoSuchBucket</Code>" in str(error):
        return _failure(error)
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), key)


def _failure(error: BaseException) -> ObjectError:
    """What a failure of the library means."""
    text, status = str(error), _status(error)
    found = _CODE.search(text)
    code = found[1] if found is not None else None
    # Who has waited for one request until its end does not wait for another.
    again = status in _AGAIN or code in _HURT or (status is None and _TIMEOUT not in text)
    if code is not None:
        said = _SAID.get(code, f"it refuses: {code}")
    elif status is not None:
        said = f"it answers with status {status}"
    else:
        said = _why(text)
    return ObjectError(said, again=again)


def _why(text: str) -> str:
    """The part of a failure without an answer that tells something."""
    for sign, said in (("kind: Connect", "it cannot be reached"), (_TIMEOUT, "it does not answer in time")):
        if sign in text:
            return said
    return text.partition("\n")[0].rpartition(": ")[2][:200] or "the request failed"
