"""What a producer's n-th record is: a function of the scenario alone, so that nobody has to keep what was sent.

Made data are a JSON string that begins with the producer's number and n, and is filled from a block of random letters
that the seed gives: no two records of a run are the same, and they compress like text of no meaning. Tags are drawn
likewise. Whoever knows the scenario can make a record again and compare, which is what reconciling does.
"""

from __future__ import annotations

import random
import string
import zlib
from collections.abc import Callable
from typing import Final

from topics_cli.harness.scenario import SIZE_MAX, SIZE_MIN, Producer, Scenario

_STRIDE: Final = 997
_LETTERS: Final = string.ascii_letters + string.digits


def payloads(scenario: Scenario, place: int) -> Callable[[int], bytes]:
    """The data of a producer's records, by n from 0."""
    producer = scenario.producers[place]
    if producer.file is not None:
        lines = scenario.lines[producer.file]
        return lambda n: lines[n % len(lines)]
    fill_bytes = producer.size - SIZE_MIN
    block = _block(scenario.seed, min(fill_bytes, SIZE_MAX) + _STRIDE)

    def made(n: int) -> bytes:
        at = n * 31 % _STRIDE
        return b'"%02x%08d%b"' % (place, n, block[at : at + fill_bytes])

    return made


def _block(seed: int, size: int) -> bytes:
    return "".join(random.Random(seed).choices(_LETTERS, k=size)).encode()


def tag_of(scenario: Scenario, producer: Producer, n: int) -> str:
    """The tag of a producer's n-th record."""
    return producer.tags[zlib.crc32(b"%d:%d" % (scenario.seed, n)) % len(producer.tags)]


def check_of(data: bytes) -> int:
    """The check of a record's data, by which two are compared."""
    return zlib.crc32(data)
