r"""JSON with lone surrogate escapes (`"\ud83d"`), which the daemon keeps as they came and msgspec refuses to read.

The `\u` of each that has no partner is replaced by two bytes that no valid UTF-8 holds, and put back afterwards.
"""

from __future__ import annotations

import re
from typing import Final

_LONE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u)(?=[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
_HIDDEN: Final = b"\xff\xfe"


def hidden(text: bytes) -> bytes:
    """The same JSON for msgspec to read."""
    return _LONE.sub(lambda found: _HIDDEN if found[1] else found[0], text)


def shown(text: bytes) -> bytes:
    """What `hidden` has changed, as it was."""
    return text.replace(_HIDDEN, b"\\u")
