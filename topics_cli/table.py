"""Every command of the command line, as data.

Typer's commands (`full`) are made from here, and the small parser (`parse`) reads by it. A new command is a row, and a
function in the file of its noun under `commands/`.
"""

from __future__ import annotations

from topics_cli.options import CHOICE, DURATION, FLAG, MILLIS, NUMBER, RATE, SIZE, TEXT, Argument, Command, Option
from topics_cli.table_lake import LAKE_COMMANDS
from topics_cli.table_quick import HOLDER, JOB_TAG, LEASE, LENGTH, NULL, QUEUE, QUICK, TOPIC

_YES = Option("-y --yes", FLAG, "Do not ask.")
_DRY_RUN = Option("--dry-run", FLAG, "Show what would be done; do nothing.")
_COLD = Option(
    "--cold",
    TEXT,
    "The store's cold tier: a directory, or s3://… (TOPICS_COLD_DIR or _URL, or what the pin says).",
    metavar="DIR",
)
_JSON = Option("--json", FLAG, "Short for -o json.", name="as_json")


# The configuration of a topic: (field, kind, help). `set` takes the same as FIELD=VALUE; a test holds this against
# the engine's own list.
CONFIG_FIELDS = (
    ("type", CHOICE, "log or queue; never changes.", ("log", "queue")),
    ("ttl_ms", MILLIS, "Age at which records expire; 0 never.", ()),
    ("cap_records", NUMBER, "Most records kept; 0 no cap.", ()),
    ("cap_bytes", SIZE, "Most bytes kept; 0 no cap.", ()),
    ("discard", CHOICE, "What a full topic does: evict the old, or reject the new.", ("old", "reject")),
    ("durable", CHOICE, "true: acks wait for the disk (durability fsync).", ("true", "false")),
    ("durability", CHOICE, "When a write is acked.", ("ephemeral", "memory", "disk", "fsync")),
    ("priority", TEXT, "-1000 ... 1000, or null for automatic.", ()),
    ("auto_priority", CHOICE, "Recency counts when the priority is null.", ("true", "false")),
    ("auto_create", CHOICE, "Whether writes may create this name.", ("true", "false")),
    ("idempotency_window_ms", MILLIS, "How long idempotency keys are remembered.", ()),
    ("dedupe_node", CHOICE, "Whether readers may leave out their own records.", ("true", "false")),
    ("lease_ms", MILLIS, "Queue: how long a claimed job is leased.", ()),
    ("claim_jitter_ms", MILLIS, "Queue: spread of claims.", ()),
    ("max_deliveries", NUMBER, "Queue: deliveries before a job is dead; 0 no limit.", ()),
    ("dead_letter", TEXT, "Queue: topic for dead jobs, or null.", ()),
    ("leases_durable", CHOICE, "Queue: leases survive a crash.", ("true", "false")),
)

_METAVARS = {MILLIS: "TIME", NUMBER: "N", SIZE: "SIZE", TEXT: "TEXT", CHOICE: ""}


def _config_option(name: str, kind: str, help: str, choices: tuple[str, ...]) -> Option:
    flag = "--" + name.replace("_", "-")
    flags = f"{flag.removesuffix('-ms')} {flag}" if flag.endswith("-ms") else flag
    return Option(flags, kind, help, metavar=_METAVARS[kind], choices=choices, name=name)


_CONFIG = tuple(_config_option(*field) for field in CONFIG_FIELDS)

_DELETE = Command(
    "delete",
    "Delete records for good.",
    "topics_cli.commands.delete:delete",
    arguments=(TOPIC, Argument("MORE", "With --seq: further seqs.", required=False, many=True)),
    options=(
        Option("--before", NUMBER, "Records below this seq.", metavar="SEQ"),
        Option("--tag", TEXT, "Records with this tag.", metavar="TAG"),
        Option("--tag-prefix", TEXT, "Records whose tag begins so.", metavar="TAG"),
        Option("--seq", TEXT, "These seqs: 5, 7-9 or 5,7,9.", metavar="SEQ", many=True),
        _DRY_RUN,
        _YES,
    ),
    examples=(
        "topics delete events --tag user-42 --dry-run",
        "topics delete events --before 1000 --yes",
        "topics delete events --seq 5 7-9",
    ),
)

_FILES = Argument("FILE", "Files of a store; no daemon is needed.", many=True)
_PAYLOAD = Option("--payload", FLAG, "Show what records hold; it is hidden otherwise.")
_INSPECT = (
    Option("--records", FLAG, "List what is in the file, record by record."),
    Option("--at", NUMBER, "Only the record with this seq.", metavar="SEQ"),
    Option("--from", NUMBER, "With --records: from this seq on.", metavar="SEQ", name="from_seq"),
    Option("--to", NUMBER, "With --records: up to this seq.", metavar="SEQ", name="to_seq"),
    Option("--hex", FLAG, "Show damaged places byte by byte."),
    _PAYLOAD,
)

_WAL_INSPECT = Command(
    "wal-inspect",
    "Look into log files: frames, checks, damaged places.",
    "topics_cli.commands.inspect:wal_inspect",
    arguments=(_FILES,),
    options=_INSPECT,
    examples=(
        "topics wal-inspect topics-data/wal/shard-00/*.log",
        "topics wal-inspect FILE --records --at 7 --payload",
    ),
)

_DLQ = Command(
    "dlq",
    "Dead letters of a queue: ls, show, requeue, purge.",
    "topics_cli.commands.dlq:dlq",
    arguments=(
        Argument("ACTION", "What to do.", kind=CHOICE, choices=("ls", "show", "requeue", "purge")),
        Argument("QUEUE", "A queue with dead letters, or the dead-letter topic itself."),
        Argument("SEQ", "Seqs of dead letters.", kind=NUMBER, required=False, many=True),
    ),
    options=(
        Option("--all", FLAG, "requeue, purge: every dead letter."),
        Option("--tag", TEXT, "Only with this tag; 'x*' for a prefix.", metavar="TAG"),
        Option("--to", TEXT, "requeue: into this queue, instead of where they came from.", metavar="QUEUE"),
        Option("--itself", FLAG, "QUEUE is the dead-letter topic, though it has dead letters of its own."),
        _DRY_RUN,
        _YES,
    ),
    examples=("topics dlq ls jobs", "topics dlq show jobs 3", "topics dlq requeue jobs --all"),
)

_WORK = Command(
    "work",
    "Run a command for each job of a queue; its exit status decides what becomes of the job.",
    "topics_cli.commands.work:work",
    arguments=(QUEUE, Argument("COMMAND", "The command, after '--'; {} stands for the job.", many=True)),
    options=(
        Option("-j --jobs", NUMBER, "So many commands at a time (1).", metavar="N"),
        Option("--batch", NUMBER, "Up to so many jobs for one command (1).", metavar="N"),
        Option("--file", FLAG, "The job is in a file: {} is its path, or the last word."),
        Option("--raw", FLAG, "The job as the JSON that is stored."),
        NULL,
        LENGTH,
        Option("--timeout", DURATION, "End a command that takes longer: SIGTERM, then SIGKILL.", metavar="TIME"),
        Option("--grace", DURATION, "Time between SIGTERM and SIGKILL (5s).", metavar="TIME"),
        Option("--retry-code", NUMBER, "Exit status that means: later, with backoff (75).", metavar="N", many=True),
        Option("--dead-code", NUMBER, "Exit status that means: to the dead letters (65).", metavar="N", many=True),
        Option("--delay", DURATION, "How long a job waits after any other failure (0).", metavar="TIME"),
        Option("--halt", NUMBER, "Stop when so many commands in a row have failed: no job is at fault.", metavar="N"),
        LEASE,
        JOB_TAG,
        HOLDER,
        Option("--once", FLAG, "One command, then end."),
        Option("--until-empty", FLAG, "End when no job is ready and none runs; says how many were not done."),
    ),
    examples=(
        "topics work jobs -j 4 -- ./handle.sh",
        "topics work mails -- sendmail -t",
        "topics work urls --batch 20 --timeout 5m -- wget -q {}",
    ),
)

_SEGMENT_INSPECT = Command(
    "segment-inspect",
    "Look into segments, tails files and snapshots: records, checks, damage.",
    "topics_cli.commands.inspect:segment_inspect",
    arguments=(_FILES,),
    options=_INSPECT,
    examples=("topics segment-inspect topics-data/topics/*/*.data topics-data/meta/*",),
)

_NOUNS = "topics_cli.commands.topic:"

COMMANDS: dict[str, Command] = {
    command.name: command
    for command in (
        Command(
            "serve",
            "Run the daemon in the foreground, with the options of topicsd; --embedded CMD: for a command's life.",
            "topics_cli.commands.serve:serve",
            examples=("topics serve --port 4000", "topics serve --embedded ./test.sh"),
            passes_through=True,
        ),
        Command(
            "status",
            "Is the daemon well, and which one is it?",
            "topics_cli.commands.status:status",
            options=(
                Option("-w --watch", FLAG, "Again and again, with what happens a second; in a pipe a line each time."),
                Option("--interval", DURATION, "With --watch: time between two looks (1s).", metavar="TIME"),
                _JSON,
            ),
            examples=("topics status", "topics status --watch"),
        ),
        Command(
            "ls",
            "List topics.",
            "topics_cli.commands.ls:list_topics",
            arguments=(Argument("PREFIX", "Only names that begin so.", required=False),),
            options=(_JSON,),
        ),
        Command("info", "Show a topic.", _NOUNS + "info", arguments=(TOPIC,), options=(_JSON,)),
        Command(
            "create",
            "Create a topic; one that exists is left as it is.",
            _NOUNS + "create",
            arguments=(TOPIC,),
            options=(
                Option("--if-missing", FLAG, "An existing topic is fine (the default)."),
                Option("--must-be-new", FLAG, "Refuse when the topic exists."),
                *_CONFIG,
            ),
            examples=("topics create events --cap-records 1000000 --ttl 7d", "topics create jobs --type queue"),
        ),
        Command(
            "set",
            "Change a topic's configuration.",
            _NOUNS + "set_config",
            arguments=(TOPIC, Argument("FIELD=VALUE", "Such as ttl_ms=7d or cap_bytes=1GiB.", many=True)),
            options=(_DRY_RUN,),
            examples=("topics set events ttl_ms=7d cap_records=0", "topics set events cap_records=100 --dry-run"),
        ),
        Command(
            "drop",
            "Drop a topic with all its records.",
            _NOUNS + "drop",
            arguments=(TOPIC,),
            options=(Option("--if-empty", FLAG, "Only when no record is live."), _DRY_RUN, _YES),
        ),
        QUICK["write"],
        QUICK["tail"],
        QUICK["diff"],
        QUICK["get"],
        _DELETE,
        QUICK["claim"],
        QUICK["ack"],
        QUICK["nack"],
        QUICK["extend"],
        _WORK,
        _DLQ,
        Command(
            "cursor",
            "Places of readers that the daemon keeps: ls, info, create, set, drop.",
            "topics_cli.commands.cursor:cursor",
            arguments=(
                Argument("ACTION", "What to do.", kind=CHOICE, choices=("ls", "info", "create", "set", "drop")),
                TOPIC,
                Argument("NAME", "Name of a cursor; with ls only names that begin so.", required=False),
                Argument("SEQ", "The seq up to which all is done (create: 0).", kind=NUMBER, required=False),
            ),
            options=(
                Option("--if-seq", NUMBER, "set: only when the cursor is there now.", metavar="SEQ"),
                _DRY_RUN,
                _YES,
                _JSON,
            ),
            examples=("topics cursor ls orders", "topics cursor set orders mailer 0"),
        ),
        Command(
            "router",
            "Copying from topic to topic: ls, info, create, set, drop.",
            "topics_cli.commands.router:router",
            arguments=(
                Argument("ACTION", "What to do.", kind=CHOICE, choices=("ls", "info", "create", "set", "drop")),
                Argument("NAME", "Name of a router; with ls only names that begin so.", required=False),
            ),
            options=(
                Option("--source", TEXT, "Topic that is copied from.", metavar="TOPIC"),
                Option("--dest", TEXT, "Topic that is copied to.", metavar="TOPIC"),
                Option("--tag", TEXT, "Only records with this tag; 'x*' for a prefix, '' for all.", metavar="TAG"),
                Option("--start", CHOICE, "Where a new router begins (now).", choices=("now", "earliest")),
                Option("--preserve-node", CHOICE, "Copies keep the node (true).", choices=("true", "false")),
                Option("--preserve-tag", CHOICE, "Copies keep the tag (true).", choices=("true", "false")),
                Option("--create-dest", CHOICE, "Make a missing dest (true).", choices=("true", "false")),
                Option("--allow-cycle", CHOICE, "It may close a circle (false).", choices=("true", "false")),
                Option("--must-be-new", FLAG, "create: refuse when the router exists."),
                _DRY_RUN,
                _YES,
                _JSON,
            ),
            examples=("topics router create audit --source orders --dest orders-audit --start earliest",),
        ),
        Command(
            "errors",
            "What exit codes and error codes mean.",
            "topics_cli.commands.errors:errors",
            arguments=(Argument("CODE", "A code.", required=False),),
        ),
        Command(
            "fsck",
            "Check a store, to its last byte; nothing is written.",
            "topics_cli.commands.fsck:fsck",
            arguments=(Argument("DIR", "Data directory (TOPICS_DATA_DIR, ./topics-data).", required=False),),
            options=(
                Option("--quick", FLAG, "Leave out payloads that a start does not read; says what it skipped."),
                Option("--max-time", DURATION, "End after this time; says what is left.", metavar="TIME"),
                Option("--subset", TEXT, "Only the payloads of each M-th topic, from the N-th on.", metavar="N/M"),
                _COLD,
                _JSON,
            ),
            examples=("topics fsck", "topics fsck /srv/topics -o ndjson"),
        ),
        Command(
            "cold",
            "The cold tier of a stopped store: join small segments (compact), remove what is nobody's (sweep).",
            "topics_cli.commands.cold:cold",
            arguments=(
                Argument("ACTION", "What to do.", kind=CHOICE, choices=("compact", "sweep")),
                Argument("DIR", "Data directory (TOPICS_DATA_DIR, ./topics-data).", required=False),
            ),
            options=(
                Option("--min", NUMBER, "compact: so many small neighbours are joined (8).", metavar="N"),
                _COLD,
                _DRY_RUN,
                _YES,
                _JSON,
            ),
            examples=(
                "topics cold compact /srv/topics --cold s3://history/topics --dry-run",
                "topics cold sweep /srv/topics --cold /mnt/cold",
            ),
        ),
        Command(
            "backup",
            "Copy what the daemon holds now, verified, into an empty directory.",
            "topics_cli.commands.backup:backup",
            options=(
                Option("--to", TEXT, "Where the backup goes: empty, or not there yet.", metavar="DIR"),
                Option("--topic", TEXT, "Only this topic.", metavar="TOPIC", many=True),
                _COLD,
                _JSON,
            ),
            examples=("topics backup --to /backups/monday",),
        ),
        Command(
            "restore",
            "Make a store of a backup; nothing that its manifest does not vouch for gets in.",
            "topics_cli.commands.backup:restore",
            arguments=(Argument("SRC", "Directory of the backup."),),
            options=(
                Option("--to", TEXT, "Data directory of the new store: empty, or not there yet.", metavar="DATA"),
                Option("--topic", TEXT, "Only this topic.", metavar="TOPIC", many=True),
                _DRY_RUN,
                _JSON,
            ),
            examples=("topics restore /backups/monday --to /srv/topics",),
        ),
        Command(
            "detach",
            "Seal a topic and offer it, so that another daemon can take it over.",
            "topics_cli.commands.move:detach",
            arguments=(TOPIC,),
            options=(
                Option("--to", TEXT, "A directory, or s3://bucket/prefix, that both daemons reach.", metavar="PLACE"),
                Option("--for", TEXT, "The daemon that is to have it, if that is known.", metavar="URL", name="to_url"),
                Option("--cancel", FLAG, "Take the topic back, unless another daemon has it already."),
                _DRY_RUN,
                _YES,
                _JSON,
            ),
            examples=("topics detach events --to /srv/shared --yes", "topics detach events --cancel"),
        ),
        Command(
            "attach",
            "Take over a topic that another daemon has detached.",
            "topics_cli.commands.move:attach",
            arguments=(TOPIC,),
            options=(
                Option("--from", TEXT, "Where it was detached to.", metavar="PLACE", name="place"),
                Option("--token", TEXT, "Which offer of it, as detach has said.", metavar="TOKEN"),
                Option(
                    "--as",
                    TEXT,
                    "Where this daemon is, for readers of the other one; else as it is reached now.",
                    metavar="URL",
                    name="as_url",
                ),
                _JSON,
            ),
            examples=("topics attach events --from /srv/shared --as http://new:4000",),
        ),
        Command(
            "recover",
            "Save everything that can be proven good of a damaged store, in a new one.",
            "topics_cli.commands.recover:recover",
            arguments=(Argument("SRC", "Data directory of the damaged store; it is only read."),),
            options=(
                Option("--to", TEXT, "Where the new store goes: empty, or not there yet.", metavar="NEW"),
                Option("--topic", TEXT, "Only this topic.", metavar="TOPIC", many=True),
                Option("--keep-doubtful", FLAG, "Keep records that a delete which is lost may have taken."),
                _COLD,
                Option("--cold-lost", FLAG, "The cold tier is gone for good: what lay there becomes gaps."),
                Option("--swap", FLAG, "Put the new store in the old one's place; that is kept beside it."),
                _DRY_RUN,
                _JSON,
            ),
            examples=("topics recover /srv/topics --dry-run", "topics recover /srv/topics --to /srv/topics.new --swap"),
        ),
        *LAKE_COMMANDS,
        _SEGMENT_INSPECT,
        _WAL_INSPECT,
        Command(
            "explain",
            "What happened to a record: written, deleted, evicted, expired or lost, when and by what.",
            "topics_cli.commands.explain:explain",
            arguments=(TOPIC, Argument("SEQ", "Its seq.", kind=NUMBER)),
            options=(Option("--dir", TEXT, "A stopped store, instead of the daemon.", metavar="DIR"), _JSON),
            examples=("topics explain orders 17", "topics explain orders 17 --dir /srv/topics"),
        ),
        Command(
            "checkpoint",
            "Make a checkpoint now: a start reads less log, and the second gives back the space of what was deleted.",
            "topics_cli.commands.checkpoint:checkpoint",
            options=(_JSON,),
        ),
        Command(
            "doctor",
            "Look a daemon over, and say what is wrong with the fix for it.",
            "topics_cli.commands.doctor:doctor",
            arguments=(Argument("FILE", "With --bundle: the file (topics-doctor-TIME.tar.gz).", required=False),),
            options=(
                Option(
                    "--bundle",
                    FLAG,
                    "Also put what was found, metrics and versions into a new file (tar.gz); no payload, no key.",
                ),
                _JSON,
            ),
            examples=("topics doctor", "topics doctor --bundle report.tar.gz"),
        ),
        Command(
            "bench",
            "Put load on the daemon, in topics made for it, and show rates and latencies.",
            "topics_cli.commands.bench:bench",
            arguments=(
                Argument(
                    "MODE",
                    "write; read pages; tail: from written to seen; queue: put, claim, ack; all four, one by one. "
                    "run: a scenario, whose report says whether all adds up.",
                    kind=CHOICE,
                    choices=("write", "read", "tail", "queue", "run"),
                    required=False,
                ),
                Argument("FILE", "run: a scenario (TOML), or the name of one that is in --list.", required=False),
            ),
            options=(
                Option("--duration", DURATION, "How long each mode takes (5s).", metavar="TIME"),
                Option("--records", NUMBER, "End a mode after about so many records.", metavar="N"),
                Option("-c --connections", NUMBER, "Connections in all (4).", metavar="N"),
                Option("-p --processes", NUMBER, "Processes that make the load (1).", metavar="N"),
                Option("--batch", NUMBER, "Records a request (100; tail 1, queue 10).", metavar="N"),
                Option("--size", SIZE, "Bytes of a record (200).", metavar="SIZE"),
                Option(
                    "--rate",
                    RATE,
                    "Records due a second, late ones count from when they were due (tail 100, else as many as go).",
                    metavar="N[/s]",
                ),
                Option(
                    "--durability",
                    CHOICE,
                    "Class of the topics (disk).",
                    choices=("ephemeral", "memory", "disk", "fsync"),
                ),
                Option("--prefix", TEXT, "Beginning of the topics' names (bench).", metavar="TEXT"),
                Option("--prometheus", NUMBER, "Meanwhile give metrics at http://127.0.0.1:PORT.", metavar="PORT"),
                Option("--out", TEXT, "run: directory of the results, new or empty (bench-NAME-TIME).", metavar="DIR"),
                Option("--list", FLAG, "run: the scenarios that come with topics."),
                Option("--dry-run", FLAG, "run: check the scenario and show it with every default; do nothing."),
                _JSON,
            ),
            examples=(
                "topics bench",
                "topics bench write --duration 30s -c 16 -p 2 --durability fsync",
                "topics bench tail --rate 1000 -o json",
                "topics bench run restart --out results",
            ),
        ),
        Command(
            "context",
            "Named places of daemons: ls, show, set, use, drop.",
            "topics_cli.commands.context:context",
            arguments=(
                Argument(
                    "ACTION",
                    "What to do (ls). `set` takes --socket or --url, and --key-file; `use none` uses none.",
                    kind=CHOICE,
                    choices=("ls", "show", "set", "use", "drop"),
                    required=False,
                ),
                Argument("NAME", "Name of a context.", required=False),
            ),
            options=(_DRY_RUN, _JSON),
            examples=(
                "topics context set prod --url http://10.0.0.5:4000 --key-file ~/.topics-key",
                "topics context use prod",
            ),
        ),
        Command(
            "completions",
            "Print the completions for a shell, where the package did not put them in their place.",
            "topics_cli.commands.completions:completions",
            arguments=(
                Argument("SHELL", "Which shell (SHELL).", kind=CHOICE, choices=("bash", "zsh", "fish"), required=False),
            ),
            examples=(
                "source <(topics completions bash)",
                "topics completions fish > ~/.config/fish/completions/topics.fish",
            ),
        ),
        Command("version", "Versions of the client and the daemon.", "topics_cli.commands.version:version"),
    )
}
