"""The rows of the table (`table`) that start quickly, and what every command has in common.

The small parser looks here first: making the other rows takes longer than reading these.
"""

from __future__ import annotations

from topics_cli.options import CHOICE, DURATION, FLAG, NUMBER, RATE, SEQS, SIZE, SPEED, TEXT, Argument, Command, Option

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

TOPIC = Argument("TOPIC", "Name of the topic.")
NULL = Option("-0 --null", FLAG, "Records end in NUL instead of a line feed.")
LENGTH = Option("--length", FLAG, "Records are framed as their length, a line feed, and their bytes.")
_TAG_FILTER = Option("--tag", TEXT, "Only records with this tag; 'x*' for a prefix.", metavar="TAG")
_NODE_FILTER = Option("--node", TEXT, "Leave out the records that this node wrote.", metavar="NODE", many=True)

_WRITE = Command(
    "write",
    "Write records: arguments, files, or lines of standard input.",
    "topics_cli.commands.write:write",
    arguments=(TOPIC, Argument("DATA", "Records; without any, files or standard input.", required=False, many=True)),
    options=(
        Option("-f --file", TEXT, "Read records from a file ('-' is standard input).", metavar="FILE", many=True),
        Option("--json", FLAG, "Records are JSON values, kept byte for byte.", name="as_json"),
        Option("--records", FLAG, "Records are whole, as `tail -o ndjson` gives them."),
        NULL,
        LENGTH,
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
        NULL,
        LENGTH,
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
    arguments=(TOPIC,),
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
    arguments=(TOPIC, Argument("SEQ", "Seqs, and ranges of them: 5 7-9.", kind=SEQS, many=True)),
    options=(Option("--raw", FLAG, "Only the stored JSON of each."), NULL, LENGTH),
    examples=("topics get events 7", "topics get events 7 10-12 --raw"),
    is_light=True,
)

QUEUE = Argument("QUEUE", "Name of the queue.")
HOLDER = Option("--node", TEXT, "Name that the leases are held under (TOPICS_NODE, else USER@HOST).", metavar="NODE")
LEASE = Option("--lease", DURATION, "How long a job is leased (the queue's lease_ms).", metavar="TIME")
JOB_TAG = Option("--tag", TEXT, "Only jobs with this tag; 'x*' for a prefix.", metavar="TAG")
_SEQS = Argument("SEQ", "Seqs; none or '-': claimed jobs or seqs from standard input.", required=False, many=True)

_CLAIM = Command(
    "claim",
    "Claim jobs of a queue: a line of JSON each, with its lease.",
    "topics_cli.commands.claim:claim",
    arguments=(QUEUE,),
    options=(
        Option("-n --max", NUMBER, "Most jobs (1).", metavar="N"),
        LEASE,
        Option("--wait", DURATION, "Wait so long for a job; 3 when none came.", metavar="TIME"),
        JOB_TAG,
        HOLDER,
        NULL,
        LENGTH,
    ),
    examples=("topics claim jobs -n 10 --wait 30s", "topics claim jobs -n 10 | jq -c . | topics ack jobs -"),
    is_light=True,
)

_ACK = Command(
    "ack",
    "Jobs are done: delete them, if the lease is ours.",
    "topics_cli.commands.settle:ack",
    arguments=(QUEUE, _SEQS),
    options=(HOLDER,),
    examples=("topics ack jobs 7 8", "topics claim jobs -n 10 | topics ack jobs -"),
    is_light=True,
)

_NACK = Command(
    "nack",
    "Give claimed jobs back: at once, later, or to the dead letters.",
    "topics_cli.commands.settle:nack",
    arguments=(QUEUE, _SEQS),
    options=(
        Option("--delay", DURATION, "Ready again after this time (0).", metavar="TIME"),
        Option("--backoff", FLAG, "Ready again later each time: 1s, 2s, 4s ... 15m."),
        Option("--reason", TEXT, "Why; kept with the job's history.", metavar="TEXT"),
        Option("--dead", FLAG, "Move them to the dead letters."),
        HOLDER,
    ),
    examples=("topics nack jobs 7 --backoff --reason 'no such user'", "topics nack jobs 7 --dead"),
    is_light=True,
)

_EXTEND = Command(
    "extend",
    "Hold claimed jobs for longer, from now.",
    "topics_cli.commands.settle:extend",
    arguments=(QUEUE, _SEQS),
    options=(LEASE, HOLDER),
    examples=("topics extend jobs 7 --lease 5m",),
    is_light=True,
)

QUICK: dict[str, Command] = {
    command.name: command for command in (_WRITE, _TAIL, _DIFF, _GET, _CLAIM, _ACK, _NACK, _EXTEND)
}
