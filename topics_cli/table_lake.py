"""The rows of the table (`table`) about exports and imports."""

from __future__ import annotations

from topics_cli.options import CHOICE, FLAG, NUMBER, SIZE, TEXT, Argument, Command, Option

_TOPIC = Argument("TOPIC", "Name of the topic.")
_DRY_RUN = Option("--dry-run", FLAG, "Show what would be done; do nothing.")
_JSON = Option("--json", FLAG, "Short for -o json.", name="as_json")
_TOPICS = Argument("TOPIC", "Topics; 'x*' for those whose names begin so, '*' for all.", many=True)
_EXPORT = (
    Option("--to", TEXT, "Directory that gets topic=T/batch=.../ with the files.", metavar="DIR"),
    Option("--dir", TEXT, "A stopped store, a pin or a backup, instead of the daemon.", metavar="DIR"),
    Option("--format", TEXT, "Form of the files: parquet (default), json or csv.", metavar="FORM"),
    Option("--compression", CHOICE, "Of Parquet files (zstd).", choices=("zstd", "snappy", "gzip", "none")),
    Option("--partition-by", CHOICE, "Directories by time, in UTC (none).", choices=("none", "date", "hour")),
    Option("--since-last", FLAG, "Go on where the last export ended (the default)."),
    Option("--full", FLAG, "Everything, into a directory that has nothing of the topic."),
    Option("--from", NUMBER, "Where a topic begins that was never exported (1).", metavar="SEQ", name="from_seq"),
    Option("--until", NUMBER, "End at this seq.", metavar="SEQ", name="until_seq"),
    Option("--max-rows", NUMBER, "At most so many records of each topic.", metavar="N"),
    Option("--max-file-bytes", SIZE, "A file begins when one has so much, uncompressed (128MiB).", metavar="SIZE"),
    Option("--on-corrupt", CHOICE, "Damaged records: fail (default), or a gap.", choices=("fail", "gap")),
    Option("--verify", FLAG, "Check the whole directory instead: every file, every count."),
    _DRY_RUN,
    _JSON,
)
_EXPORT_COMMAND = Command(
    "export",
    "Export topics to files, incrementally and exactly once, with gaps visible.",
    "topics_cli.commands.export:export",
    arguments=(_TOPICS,),
    options=_EXPORT,
    examples=(
        "topics export events --to /lake",
        "topics export 'shop.*' --to /lake --format csv --partition-by date",
        "topics export '*' --to /lake --verify",
    ),
)

_SPARK = (
    Option("--master", TEXT, "Where Spark runs (local[*]).", metavar="URL"),
    Option("--memory", TEXT, "Memory of the driver (450m).", metavar="SIZE"),
)
_SHAPE = (
    Option("--schema", TEXT, "Typed columns out of data: a file with DDL or JSON of Spark, or infer.", metavar="FILE"),
    Option("--select", TEXT, "Export what this query over the table records gives.", metavar="SQL"),
)
_SPARK_EXPORT = Command(
    "spark-export",
    "Export topics with Spark: as export, with its tasks on executors.",
    "topics_cli.commands.spark:spark_export",
    arguments=(_TOPICS,),
    options=(*_EXPORT, *_SHAPE, *_SPARK),
    examples=(
        "topics spark-export events --to /lake",
        "topics spark-export '*' --to /lake --master spark://host:7077",
        "topics spark-export clicks --to /lake --schema infer --select 'select seq, page from records where ms > 9'",
    ),
)
_SPARK_IMPORT = Command(
    "spark-import",
    "Write files (Parquet, JSON, CSV) into a topic with Spark, each row once.",
    "topics_cli.commands.spark:spark_import",
    arguments=(_TOPIC, Argument("FILE", "Files, or directories of them.", many=True)),
    options=(
        Option("--format", CHOICE, "Form of the files (parquet).", choices=("parquet", "json", "csv")),
        Option("--data-column", TEXT, "Column with JSON text; without it a row is an object.", metavar="NAME"),
        Option("--tag-column", TEXT, "Column with the tag.", metavar="NAME"),
        Option("--name", TEXT, "Name of the import; the same name again writes nothing twice.", metavar="NAME"),
        *_SPARK,
        _JSON,
    ),
    examples=("topics spark-import events /lake/topic=events --data-column data",),
)

_LAKE = Command(
    "lake",
    "Keep a directory of exports in shape: compact joins small batches into few.",
    "topics_cli.commands.lake:lake",
    arguments=(Argument("ACTION", "What to do.", kind=CHOICE, choices=("compact",)), _TOPICS),
    options=(
        Option("--to", TEXT, "The directory that exports go to.", metavar="DIR"),
        Option("--batch-bytes", SIZE, "Join batches up to so many bytes of files (512MiB).", metavar="SIZE"),
        Option("--max-file-bytes", SIZE, "Join files up to so many bytes (128MiB).", metavar="SIZE"),
        Option("--compression", CHOICE, "Of Parquet files (zstd).", choices=("zstd", "snappy", "gzip", "none")),
        Option("--keep", NUMBER, "Leave so many of the newest batches alone (0).", metavar="N"),
        _DRY_RUN,
        _JSON,
    ),
    examples=("topics lake compact '*' --to /lake", "topics lake compact events --to /lake --keep 24 --dry-run"),
)

LAKE_COMMANDS = (_LAKE, _EXPORT_COMMAND, _SPARK_EXPORT, _SPARK_IMPORT)
