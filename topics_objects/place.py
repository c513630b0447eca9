"""Where a cold tier is, as one text: a directory, or `s3://BUCKET/PREFIX[?endpoint=URL][&region=NAME]`.

The text goes into configurations, manifests of pins and `--cold`; it never holds a secret, those come from where tools
of the S3 protocol have them (`topics_objects.s3`). The library that speaks to buckets is loaded by whoever opens one,
so nobody else needs it.
"""

from __future__ import annotations

import importlib.util
import os
import random
import threading
import time
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from engine.fs import OsFs
from engine.move.place import BucketPlace, DirectoryPlace, Place
from engine.segment.objects import ObjectSegmentStore, Requests
from engine.segment.tiers import Caller, ColdTier, LocalSegmentStore, SegmentStore, at_once

SCHEME: Final = "s3://"
LIBRARY: Final = "obstore"
NO_LIBRARY: Final = "needs a library that is not installed: pip install 'topics[s3]', in a clone make setup-s3"
PRICES: Final = "put=5,list=5,get=0.4,head=0.4,delete=0"
"""Dollars for a million requests, as Amazon asks for its S3 Standard in most of its regions (2026)."""


class Bucket(NamedTuple):
    """A prefix in a bucket, and how it is reached where that is not as usual."""

    name: str
    prefix: str
    endpoint: str | None = None
    region: str | None = None


def is_bucket(place: str) -> bool:
    """Whether a place is no directory."""
    return place.startswith(SCHEME)


def parse_bucket(place: str) -> Bucket:
    """Read the text of a bucket. Raises `ValueError` with what is wrong."""
    try:
        parts = urlsplit(place)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"is no address: {error}") from error
    if parts.scheme != "s3" or not parts.hostname or port is not None or parts.username or parts.fragment:
        raise ValueError("must be like s3://bucket/prefix")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted(options.keys() - {"endpoint", "region"}):
        raise ValueError(f"has an unknown option {unknown[0]!r}; known are endpoint and region")
    endpoint = options.get("endpoint")
    if endpoint is not None and urlsplit(endpoint).scheme not in ("http", "https"):
        raise ValueError("must have an endpoint like https://host:9000")
    return Bucket(parts.hostname, parts.path.strip("/"), endpoint, options.get("region"))


def parse_prices(text: str) -> dict[str, float]:
    """Dollars for a million requests by operation, from `put=5,get=0.4`. Raises `ValueError`."""
    prices: dict[str, float] = {}
    for part in filter(None, text.split(",")):
        op, _, price = part.partition("=")
        if op.strip() not in Requests().made:
            raise ValueError(f"has an unknown operation {op.strip()!r}; known are {', '.join(Requests().made)}")
        try:
            prices[op.strip()] = float(price)
        except ValueError:
            prices[op.strip()] = -1.0
        if not 0 <= prices[op.strip()] < 1e9:
            raise ValueError(f"must have a price in dollars for a million requests, not {price!r}")
    return prices


def has_library() -> bool:
    """Whether what speaks to buckets is installed (`pip install 'topics[s3]'`); it is not loaded."""
    return importlib.util.find_spec(LIBRARY) is not None


def open_bucket(
    place: str, store_id: bytes, *, may_begin: bool = False, requests: Requests | None = None
) -> SegmentStore:
    """The bucket as the store's. Raises `OSError`."""
    from topics_objects.s3 import S3Objects

    objects = S3Objects(parse_bucket(place))
    return ObjectSegmentStore(objects, store_id, may_begin=may_begin, requests=requests, pause=_pause)


def tier_at(place: str, store_id: bytes, call: Caller = at_once) -> ColdTier:
    """The way to a place, which is not looked at yet."""
    if is_bucket(place):
        requests = Requests(threading.Lock())

        def open_objects(may_begin: bool) -> SegmentStore:
            return open_bucket(place, store_id, may_begin=may_begin, requests=requests)

        return ColdTier(open_objects, call, requests)

    def open_directory(may_begin: bool) -> SegmentStore:
        fs = OsFs(place, create=may_begin)
        try:
            return LocalSegmentStore(fs, store_id, may_begin=may_begin)
        except BaseException:
            fs.shut()
            raise

    return ColdTier(open_directory, call)


def _pause(seconds: float) -> None:
    """Wait between two attempts, not all at the same time."""
    time.sleep(seconds * random.uniform(0.5, 1.5))


def check_place(place: str) -> str | None:
    """What is wrong with the text of a place that topics are moved through; None: nothing."""
    if is_bucket(place):
        try:
            parse_bucket(place)
        except ValueError as error:
            return str(error)
        return None if has_library() else NO_LIBRARY
    if "://" in place:
        return "must be a directory or s3://bucket/prefix that both daemons reach; a daemon's address goes into url"
    if not os.path.isabs(place):
        return "must be an absolute path, or s3://bucket/prefix"
    return None


def open_place(place: str) -> Place:
    """A place that topics are moved through; a directory that is not there is not made, perhaps it is to be mounted.
    Raises `OSError`."""
    if is_bucket(place):
        from topics_objects.s3 import S3Objects

        return BucketPlace(S3Objects(parse_bucket(place)), _pause)
    fs = OsFs(place)
    try:
        return DirectoryPlace(fs)
    except BaseException:
        fs.shut()
        raise
