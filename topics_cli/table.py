"""Every command of the command line, as data.

Typer's commands (`full`) are made from here, and the small parser (`parse`) reads by it. A new command is a row, and a
function in the file of its noun under `commands/`.
"""

from __future__ import annotations

from topics_cli.options import (
    CHOICE,
    DURATION,
    FLAG,
    MILLIS,
    NUMBER,
    RATE,
    SIZE,
    SPEED,
    TEXT,
    Argument,
    Command,
    Option,
)
from topics_cli.table_lake import LAKE_COMMANDS

COMMON = (
    Option("-o --output", CHOICE, "Form of the output.", choices=("text", "table", "json", "ndjson", "raw")),
    Option("-t --template", TEXT, "A line of your own: '{seq} {tag} {data.user.name}'.", metavar="TEXT"),
    Option("--fields", TEXT, "Only these fields, in this order.", metavar="A,B"),
    Option("--color", CHOICE, "Colours: when, on a terminal, or by NO_COLOR.", choices=("auto", "always", "never")),
    Option("-q --quiet", FLAG, "Say nothing about the work; errors only."),
    Option(
        "--retry-for",
        DURATION,
        "How long to wait for a daemon that is away: 30s once it was reached, 0 never.",
        metavar="TIME",
    ),
    Option("--socket", TEXT, "Unix socket of the daemon.", metavar="PATH"),
    Option("--url", TEXT, "Address of the daemon: http://HOST:PORT.", metavar="URL"),
    Option("--key-file", TEXT, "File whose first line is the API key.", metavar="FILE"),
)

_TOPIC = Argument("TOPIC", "Name of the topic.")
_NULL = Option("-0 --null", FLAG, "Records end in NUL instead of a line feed.")
_LENGTH = Option("--length", FLAG, "Records are framed as their length, a line feed, and their bytes.")
_YES = Option("-y --yes", FLAG, "Do not ask.")
_DRY_RUN = Option("--dry-run", FLAG, "Show what would be done; do nothing.")
_COLD = Option(
    "--cold", TEXT, "Directory of the store's cold tier (TOPICS_COLD_DIR, or what the pin says).", metavar="DIR"
)
_TAG_FILTER = Option("--tag", TEXT, "Only records with this tag; 'x*' for a prefix.", metavar="TAG")
_NODE_FILTER = Option("--node", TEXT, "Leave out the records that this node wrote.", metavar="NODE", many=True)
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

_WRITE = Command(
    "write",
    "Write records: arguments, files, or lines of standard input.",
    "topics_cli.commands.write:write",
    arguments=(_TOPIC, Argument("DATA", "Records; without any, files or standard input.", required=False, many=True)),
    options=(
        Option("-f --file", TEXT, "Read records from a file ('-' is standard input).", metavar="FILE", many=True),
        Option("--json", FLAG, "Records are JSON values, kept byte for byte.", name="as_json"),
        Option("--records", FLAG, "Records are whole, as `tail -o ndjson` gives them."),
        _NULL,
        _LENGTH,
        Option("--tag", TEXT, "Tag of the records.", metavar="TAG"),
        Option("--node", TEXT, "Node that wrote them.", metavar="NODE"),
        Option("--meta", TEXT, "A member of their meta object.", metavar="K=V", many=True),
        Option("--tag-from", TEXT, "Take each tag from the record.", metavar="POINTER"),
        Option("--key-from", TEXT, "Write each record by itself, with the key at this pointer.", metavar="POINTER"),
        Option("--batch", NUMBER, "Most records in one write (1000).", metavar="N"),
        Option("--idempotency-key", TEXT, "Key of this write; batches get KEY-1, KEY-2...", metavar="KEY"),
        Option("--ack", CHOICE, "Wait for the disk, whatever the topic's class.", choices=("fsync",)),
        Option("--rate", RATE, "At most so many records a second.", metavar="N[/s]"),
        Option("--on-error", TEXT, "stop (default), skip, or file:BAD for lines that are refused.", metavar="WHAT"),
        Option("--no-create", FLAG, "Refuse to create the topic."),
    ),
    examples=(
        "topics write events 'hello' --tag greeting",
        "topics write events --json -f events.ndjson",
        "tail -F app.log | topics write logs",
    ),
    is_light=True,
)

_TAIL = Command(
    "tail",
    "Show records, the last ten or from a place on, and follow.",
    "topics_cli.commands.tail:tail",
    arguments=(Argument("TOPIC", "Topics; several are merged by time.", many=True),),
    options=(
        Option("-f --follow", FLAG, "Wait for more."),
        Option("-n --last", NUMBER, "Start with the last N records (10).", metavar="N"),
        Option("--from", NUMBER, "Start after this seq; 0 is the beginning.", metavar="SEQ", name="from_seq"),
        Option("--since", TEXT, "Start at a time, or so long ago (2h).", metavar="TIME"),
        Option("--until", TEXT, "End at a time.", metavar="TIME"),
        Option("--max", NUMBER, "End after exactly N records.", metavar="N"),
        _TAG_FILTER,
        _NODE_FILTER,
        Option("--cursor", TEXT, "Start where this file says, and keep it up to date.", metavar="FILE"),
        Option("--server-cursor", TEXT, "The same with a cursor of this name in the daemon.", metavar="NAME"),
        Option("--exec", TEXT, "Run this for each record: data on its input, TOPICS_SEQ ... around it.", metavar="CMD"),
        Option("--exec-batch", TEXT, "Run this for each batch of records as they come.", metavar="CMD"),
        Option("--speed", SPEED, "Let time pass between records as it did: 1x, 10x.", metavar="N"),
        Option("--fail-on-gap", FLAG, "End with 7 where records were lost."),
        Option("--idle-exit", DURATION, "With -f: end when nothing new came for so long.", metavar="TIME"),
        _NULL,
        _LENGTH,
    ),
    examples=(
        "topics tail events -f",
        "topics tail commits --from 0 -o raw > commits.ndjson",
        "topics tail orders payments -f --since 1h -o ndjson",
        "topics tail orders -f --server-cursor mailer --exec './mail.sh \"$TOPICS_TAG\"'",
    ),
    is_light=True,
)

_DIFF = Command(
    "diff",
    "Read one page after a seq, exactly as the API gives it.",
    "topics_cli.commands.diff:diff",
    arguments=(_TOPIC,),
    options=(
        Option("--from", NUMBER, "Read after this seq (0).", metavar="SEQ", name="from_seq"),
        Option("--to", NUMBER, "Read up to this seq.", metavar="SEQ", name="to_seq"),
        Option("--limit", NUMBER, "Most records in the page (256).", metavar="N"),
        Option("--max-bytes", SIZE, "Most bytes in the page (1MiB).", metavar="SIZE"),
        Option("--wait", DURATION, "Wait so long for something new; 3 when nothing came.", metavar="TIME"),
        Option("--all", FLAG, "Page after page until caught up."),
        _TAG_FILTER,
        _NODE_FILTER,
    ),
    examples=("topics diff events --from 100 --limit 10", "topics diff events --from 100 --wait 30s"),
    is_light=True,
)

_GET = Command(
    "get",
    "Show records by seq.",
    "topics_cli.commands.get:get",
    arguments=(_TOPIC, Argument("SEQ", "Seqs.", kind=NUMBER, many=True)),
    options=(Option("--raw", FLAG, "Only the stored JSON of each."), _NULL, _LENGTH),
    examples=("topics get events 7", "topics get events 7 8 --raw"),
    is_light=True,
)

_DELETE = Command(
    "delete",
    "Delete records for good.",
    "topics_cli.commands.delete:delete",
    arguments=(_TOPIC,),
    options=(
        Option("--before", NUMBER, "Records below this seq.", metavar="SEQ"),
        Option("--tag", TEXT, "Records with this tag.", metavar="TAG"),
        Option("--tag-prefix", TEXT, "Records whose tag begins so.", metavar="TAG"),
        Option("--seq", TEXT, "These seqs: 5, 7-9 or 5,7,9.", metavar="SEQ", many=True),
        _DRY_RUN,
        _YES,
    ),
    examples=("topics delete events --tag user-42 --dry-run", "topics delete events --before 1000 --yes"),
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

_QUEUE = Argument("QUEUE", "Name of the queue.")
_HOLDER = Option("--node", TEXT, "Name that the leases are held under (TOPICS_NODE, else USER@HOST).", metavar="NODE")
_LEASE = Option("--lease", DURATION, "How long a job is leased (the queue's lease_ms).", metavar="TIME")
_JOB_TAG = Option("--tag", TEXT, "Only jobs with this tag; 'x*' for a prefix.", metavar="TAG")
_SEQS = Argument("SEQ", "Seqs; none or '-': claimed jobs or seqs from standard input.", required=False, many=True)

_CLAIM = Command(
    "claim",
    "Claim jobs of a queue: a line of JSON each, with its lease.",
    "topics_cli.commands.claim:claim",
    arguments=(_QUEUE,),
    options=(
        Option("-n --max", NUMBER, "Most jobs (1).", metavar="N"),
        _LEASE,
        Option("--wait", DURATION, "Wait so long for a job; 3 when none came.", metavar="TIME"),
        _JOB_TAG,
        _HOLDER,
        _NULL,
        _LENGTH,
    ),
    examples=("topics claim jobs -n 10 --wait 30s", "topics claim jobs -n 10 | jq -c . | topics ack jobs -"),
    is_light=True,
)

_ACK = Command(
    "ack",
    "Jobs are done: delete them, if the lease is ours.",
    "topics_cli.commands.settle:ack",
    arguments=(_QUEUE, _SEQS),
    options=(_HOLDER,),
    examples=("topics ack jobs 7 8", "topics claim jobs -n 10 | topics ack jobs -"),
    is_light=True,
)

_NACK = Command(
    "nack",
    "Give claimed jobs back: at once, later, or to the dead letters.",
    "topics_cli.commands.settle:nack",
    arguments=(_QUEUE, _SEQS),
    options=(
        Option("--delay", DURATION, "Ready again after this time (0).", metavar="TIME"),
        Option("--backoff", FLAG, "Ready again later each time: 1s, 2s, 4s ... 15m."),
        Option("--reason", TEXT, "Why; kept with the job's history.", metavar="TEXT"),
        Option("--dead", FLAG, "Move them to the dead letters."),
        _HOLDER,
    ),
    examples=("topics nack jobs 7 --backoff --reason 'no such user'", "topics nack jobs 7 --dead"),
    is_light=True,
)

_EXTEND = Command(
    "extend",
    "Hold claimed jobs for longer, from now.",
    "topics_cli.commands.settle:extend",
    arguments=(_QUEUE, _SEQS),
    options=(_LEASE, _HOLDER),
    examples=("topics extend jobs 7 --lease 5m",),
    is_light=True,
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
    arguments=(_QUEUE, Argument("COMMAND", "The command, after '--'; {} stands for the job.", many=True)),
    options=(
        Option("-j --jobs", NUMBER, "So many commands at a time (1).", metavar="N"),
        Option("--batch", NUMBER, "Up to so many jobs for one command (1).", metavar="N"),
        Option("--file", FLAG, "The job is in a file: {} is its path, or the last word."),
        Option("--raw", FLAG, "The job as the JSON that is stored."),
        _NULL,
        _LENGTH,
        Option("--timeout", DURATION, "End a command that takes longer: SIGTERM, then SIGKILL.", metavar="TIME"),
        Option("--grace", DURATION, "Time between SIGTERM and SIGKILL (5s).", metavar="TIME"),
        Option("--retry-code", NUMBER, "Exit status that means: later, with backoff (75).", metavar="N", many=True),
        Option("--dead-code", NUMBER, "Exit status that means: to the dead letters (65).", metavar="N", many=True),
        Option("--delay", DURATION, "How long a job waits after any other failure (0).", metavar="TIME"),
        _LEASE,
        _JOB_TAG,
        _HOLDER,
        Option("--once", FLAG, "One command, then end."),
        Option("--until-empty", FLAG, "End when no job is ready and none runs."),
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
            "Run the daemon in the foreground, with the options of topicsd.",
            "topics_cli.commands.serve:serve",
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
            _NOUNS + "list_topics",
            arguments=(Argument("PREFIX", "Only names that begin so.", required=False),),
            options=(_JSON,),
        ),
        Command("info", "Show a topic.", _NOUNS + "info", arguments=(_TOPIC,), options=(_JSON,)),
        Command(
            "create",
            "Create a topic; one that exists is left as it is.",
            _NOUNS + "create",
            arguments=(_TOPIC,),
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
            arguments=(_TOPIC, Argument("FIELD=VALUE", "Such as ttl_ms=7d or cap_bytes=1GiB.", many=True)),
            examples=("topics set events ttl_ms=7d cap_records=0",),
        ),
        Command(
            "drop",
            "Drop a topic with all its records.",
            _NOUNS + "drop",
            arguments=(_TOPIC,),
            options=(Option("--if-empty", FLAG, "Only when no record is live."), _DRY_RUN, _YES),
        ),
        _WRITE,
        _TAIL,
        _DIFF,
        _GET,
        _DELETE,
        _CLAIM,
        _ACK,
        _NACK,
        _EXTEND,
        _WORK,
        _DLQ,
        Command(
            "cursor",
            "Places of readers that the daemon keeps: ls, info, set, drop.",
            "topics_cli.commands.cursor:cursor",
            arguments=(
                Argument("ACTION", "What to do.", kind=CHOICE, choices=("ls", "info", "set", "drop")),
                _TOPIC,
                Argument("NAME", "Name of a cursor; with ls only names that begin so.", required=False),
                Argument("SEQ", "set: the seq up to which all is done.", kind=NUMBER, required=False),
            ),
            options=(
                Option("--if-seq", NUMBER, "set: only when the cursor is there now.", metavar="SEQ"),
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
            arguments=(_TOPIC, Argument("SEQ", "Its seq.", kind=NUMBER)),
            options=(Option("--dir", TEXT, "A stopped store, instead of the daemon.", metavar="DIR"), _JSON),
            examples=("topics explain orders 17", "topics explain orders 17 --dir /srv/topics"),
        ),
        Command(
            "doctor",
            "Look a daemon over, and say what is wrong with the fix for it.",
            "topics_cli.commands.doctor:doctor",
            options=(
                Option(
                    "--bundle",
                    TEXT,
                    "Also put what was found, metrics and versions into a new file (tar.gz); no payload, no key.",
                    metavar="FILE",
                ),
                _JSON,
            ),
            examples=("topics doctor", "topics doctor --bundle report.tar.gz"),
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
            options=(_JSON,),
            examples=(
                "topics context set prod --url http://10.0.0.5:4000 --key-file ~/.topics-key",
                "topics context use prod",
            ),
        ),
        Command("version", "Versions of the client and the daemon.", "topics_cli.commands.version:version"),
    )
}
