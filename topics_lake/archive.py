"""topics-spark.zip: what `spark-submit --py-files` gives to executors. The packages, and nothing that is compiled.

Executors also need xxhash, msgspec, numpy and pyarrow, which are compiled and come by `--archives` or lie there.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import Final

PACKAGES: Final = ("engine", "topics_lake", "topics_objects")
_EPOCH: Final = (2020, 1, 1, 0, 0, 0)


def write_archive(path: str) -> None:
    """Write the archive; the same packages give the same bytes."""
    root = Path(__file__).resolve().parent.parent
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            for file in sorted((root / package).rglob("*.py")):
                entry = zipfile.ZipInfo(str(file.relative_to(root)), _EPOCH)
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, file.read_bytes())


if __name__ == "__main__":
    write_archive(sys.argv[1])
