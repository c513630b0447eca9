"""`topics spark-export` and `topics spark-import`: the same as `export`, and the way back, on Spark."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from topics_cli import exits
from topics_cli.amounts import counted
from topics_cli.commands.export import failures
from topics_cli.commands.export import run as run_export
from topics_cli.findings import Sheet
from topics_cli.session import Session, check_name
from topics_cli.where import find_key

if TYPE_CHECKING:
    from topics_lake.export import Runner

_PACKAGES = ("pyspark", "pyarrow", "numpy", "pandas")


def spark_export(session: Session, values: dict[str, Any]) -> int:
    """Export with Spark; a dry run and a check need none."""
    with failures("spark", *_PACKAGES):
        if values["verify"] or values["dry_run"]:
            from topics_cli.commands.export import export

            return export(session, values)
        with ExitStack() as stack:

            def start() -> Runner:
                spark = _spark(session, values)
                stack.callback(spark.stop)
                return _runner(session, values, spark)

            return run_export(session, values, start)


def _runner(session: Session, values: dict[str, Any], spark: Any) -> Runner:
    from topics_lake.frames import OnFrames
    from topics_lake.lake import Lake
    from topics_lake.spark import OnSpark

    if values["select"] is None and values["schema"] is None:
        return OnSpark(spark)
    lake = Lake(values["to"])
    return OnFrames(spark, lake, select=values["select"], schema=values["schema"], say=session.talk.note)


def _spark(session: Session, values: dict[str, Any]) -> Any:
    from topics_lake.spark import MEMORY
    from topics_lake.spark import session as start

    master, memory = values["master"] or "local[*]", values["memory"] or MEMORY
    session.talk.note(f"topics: Spark on {master}, {memory} of memory for the driver")
    return start(master, memory)


def spark_import(session: Session, values: dict[str, Any]) -> int:
    """Files into a topic, each row once however often it is tried."""
    with failures("spark", *_PACKAGES):
        topic = check_name(values["topic"])
        from topics_lake.imports import import_files

        where = session.where()
        address = where.path or f"http://{where.host}:{where.port}"
        spark = _spark(session, values)
        try:
            done = import_files(
                spark,
                values["file"],
                values["format"] or "parquet",
                topic,
                address,
                find_key(values.get("key_file"), where),
                data=values["data_column"],
                tag=values["tag_column"],
                name=values["name"],
            )
        finally:
            spark.stop()
    sheet = Sheet(session)
    if sheet.is_data:
        sheet.put("import", {"topic": topic, "rows": done.rows, "files": done.files, "name": done.name})
        sheet.end(0, 0)
    else:
        files = counted(done.files, "file")
        session.out.line(f"{topic}\t{counted(done.rows, 'row')} of {files}\timport {done.name}")
    return exits.DONE
