"""Files into a topic: every form that an export writes comes back byte for byte, and nothing comes twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine import Engine
from engine.commands import Batch
from tests.cli.support import HARD, Daemon
from tests.extras import extra

extra("pyarrow")
extra("pyspark", "spark")

from tests.lake.making import export  # noqa: E402 # pyarrow may be missing
from topics_lake.errors import LakeError  # noqa: E402 # pyarrow may be missing
from topics_lake.imports import import_files  # noqa: E402 # pyarrow may be missing


@pytest.mark.parametrize("form", ["parquet", "json", "csv"])
def test_what_was_exported_comes_back_byte_for_byte_once(spark: Any, daemon: Daemon, tmp_path: Path, form: str) -> None:
    with Engine(str(tmp_path / "store")) as log:
        log._wait(log.core.append("hard", Batch(datas=HARD, tags=['a "tag", \n'] * len(HARD))))
        export(log, tmp_path / "store", tmp_path / "lake", ["hard"], format=form)
    for _ in range(2):
        done = import_files(
            spark, [str(tmp_path / "lake")], form, f"back-{form}", daemon.socket, "", data="data", tag="tag"
        )
        assert (done.rows, done.files) == (len(HARD), 1)
    assert daemon.ok("tail", f"back-{form}", "--from", "0", "-o", "raw").splitlines() == HARD


def test_rows_without_a_data_column_become_objects_and_what_does_not_fit_is_named(
    spark: Any, daemon: Daemon, tmp_path: Path
) -> None:
    path = tmp_path / "people.csv"
    path.write_text("name,age\nÅsa,41\nBo,7\n", encoding="utf-8")
    import_files(spark, [str(path)], "csv", "people", daemon.socket, "")
    assert daemon.ok("tail", "people", "--from", "0", "-o", "raw").splitlines() == [
        '{"name":"Åsa","age":41}'.encode(),
        b'{"name":"Bo","age":7}',
    ]
    with pytest.raises(LakeError, match="no column 'body'"):
        import_files(spark, [str(path)], "csv", "people", daemon.socket, "", data="body")
    with pytest.raises(LakeError, match="no parquet files"):
        import_files(spark, [str(tmp_path)], "parquet", "people", daemon.socket, "")
    (tmp_path / "bad.ndjson").write_bytes(b'{"a":1}\n{"a":\n')
    with pytest.raises(LakeError, match=r"no JSON"):
        import_files(spark, [str(tmp_path / "bad.ndjson")], "json", "people", daemon.socket, "")
