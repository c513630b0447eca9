"""The Python blocks of docs/how-to/spark.md, run in order in the session of these tests."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.cli.support import ROOT, Daemon
from tests.extras import extra

extra("pyarrow")
extra("pyspark", "spark")


def test_the_blocks_of_the_page_on_spark_work(spark: Any, daemon: Daemon, tmp_path: Path) -> None:
    clicks = ['{"page":"/a","ms":120}', '{"page":"/b","ms":80}', '{"page":"/a","ms":300}', '{"page":"/c","ms":1}']
    daemon.run("write", "clicks", "--json", *clicks)
    page = (ROOT / "docs/how-to/spark.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```py\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    names = {"spark": spark, "SOCKET": daemon.socket, "DIRECTORY": str(tmp_path)}
    for block in blocks:
        exec(compile(block, "docs/how-to/spark.md", "exec"), names)
    lines = daemon.ok("tail", "titles", "--from", "0", "-o", "raw").splitlines()
    titles = sorted(json.loads(line)["title"] for line in lines)
    assert titles == ["About", "Start", "Start"]
