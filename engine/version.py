"""The one place that says which version of topics this is.

The package's metadata, `topics version`, `GET /v0/health` and the documents all take it from here.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"

DISK_FORMAT: Final = 1
"""The newest version of the files of a store that this version writes and reads (FORMATS.md)."""
