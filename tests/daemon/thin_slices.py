"""A launcher for `topicsd` whose slices are as thin as can be: each topic of a write to several is one of its own, and
each step of a write that is not small; of what a delete finds by tag, a few records are one.

`thin_slices.py ARGS…`: as `topicsd ARGS…`. Whatever may come in between two steps does so.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from topics_daemon import body, readers, shares
from topics_daemon.main import main
from topics_daemon.routes import admin, delete, many, write

shares.SLICE_NS = shares.ALONE_SLICE_NS = 1  # type: ignore[misc]  # final, but for here
many.AT_ONCE_BYTES = 1  # type: ignore[misc]  # as above
readers.SLICE_S = -1.0  # type: ignore[misc]  # as above
admin.STEP_BLOCKS = 1  # type: ignore[misc]  # as above
delete.STEP_RECORDS = 3  # type: ignore[misc]  # as above
write.LARGE_BYTES = body.WHOLE_BYTES_MIN = 1024  # type: ignore[misc]  # as above

if __name__ == "__main__":
    sys.exit(main())
