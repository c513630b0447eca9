# Made by `make docs` from the option table of topics; change that, not this file.

# Puts the words before the cursor that are no options and no values of options (the command and its arguments) into
# __topics_words. fish asks for them for each line of this file, so they are kept while the line is the same.
function __topics_read
    set -l line (commandline -cp)
    test "$line" = "$__topics_line"; and return
    set -g __topics_line $line
    set -l valued -o --output -t --template --fields --color --retry-for --socket --url --key-file
    set -l plain
    set -l skip 0
    set -l ended 0
    for word in (commandline -opc)[2..]
        if test $skip = 1
            set skip 0
        else if test $ended = 0; and test "x$word" = x--
            set ended 1
        else if test $ended = 0; and string match -q -- '-?*' $word
            if contains -- $word $valued
                set skip 1
            end
        else
            set -a plain $word
            if test (count $plain) = 1
                switch $word
        case status
            set -a valued --interval
        case create
            set -a valued --type --ttl --ttl-ms --cap-records --cap-bytes --discard --durable --durability --priority --auto-priority --auto-create --idempotency-window --idempotency-window-ms --dedupe-node --lease --lease-ms --claim-jitter --claim-jitter-ms --max-deliveries --dead-letter --leases-durable
        case write
            set -a valued -f --file --tag --node --meta --tag-from --key-from --batch --idempotency-key --ack --rate --on-error
        case tail
            set -a valued -n --last --from --since --until --max --tag --node --cursor --server-cursor --exec --exec-batch --speed --idle-exit
        case diff
            set -a valued --from --to --limit --max-bytes --wait --tag --node
        case delete
            set -a valued --before --tag --tag-prefix --seq
        case claim
            set -a valued -n --max --lease --wait --tag --node
        case ack
            set -a valued --node
        case nack
            set -a valued --delay --reason --node
        case extend
            set -a valued --lease --node
        case work
            set -a valued -j --jobs --batch --timeout --grace --retry-code --dead-code --delay --halt --lease --tag --node
        case dlq
            set -a valued --tag --to
        case cursor
            set -a valued --if-seq
        case router
            set -a valued --source --dest --tag --start --preserve-node --preserve-tag --create-dest --allow-cycle
        case fsck
            set -a valued --max-time --subset --cold
        case cold
            set -a valued --min --cold
        case backup
            set -a valued --to --topic --cold
        case restore
            set -a valued --to --topic
        case detach
            set -a valued --to --for
        case attach
            set -a valued --from --token --as
        case recover
            set -a valued --to --topic --cold
        case lake
            set -a valued --to --batch-bytes --max-file-bytes --compression --keep
        case export
            set -a valued --to --dir --format --compression --partition-by --from --until --max-rows --max-file-bytes --on-corrupt
        case spark-export
            set -a valued --to --dir --format --compression --partition-by --from --until --max-rows --max-file-bytes --on-corrupt --schema --select --master --memory
        case spark-import
            set -a valued --format --data-column --tag-column --name --master --memory
        case segment-inspect
            set -a valued --at --from --to
        case wal-inspect
            set -a valued --at --from --to
        case explain
            set -a valued --dir
        case bench
            set -a valued --duration --records -c --connections -p --processes --batch --size --rate --durability --prefix --prometheus --out
                end
            end
        end
    end
    set -g __topics_words $plain
end

function __topics_wants_command
    __topics_read
    not set -q __topics_words[1]
end

function __topics_in
    __topics_read
    test "$__topics_words[1]" = $argv[1]
end

function __topics_at # command, place, and whether there may be more
    __topics_read
    test "$__topics_words[1]" = $argv[1]; or return 1
    set -l place (math (count $__topics_words) - 1)
    test $place = $argv[2]; or test "$argv[3]" = more -a $place -gt $argv[2]
end

function __topics_names # what of, asked of the daemon that the line names
    set -l where
    set -l takes 0
    for word in (commandline -opc)
        if test $takes = 1
            set -a where $word
            set takes 0
        else if contains -- $word --socket --url --key-file
            set -a where $word
            set takes 1
        end
    end
    set -l asked
    switch $argv[1]
        case topics
            set asked ls -t '{topic} {type}'
        case queues
            set asked ls -t '{topic} {type}'
        case cursors
            __topics_read
            set -q __topics_words[2]; or return
            set asked cursor ls -t '{name}' $__topics_words[-1]
        case routers
            set asked router ls -t '{router}'
        case contexts
            set asked context ls -t '{name}'
    end
    timeout 1 topics -q --retry-for 0 $where $asked 2>/dev/null </dev/null | while read -l name type
        if test $argv[1] != queues -o "$type" = queue
            echo $name
        end
    end
end

complete -c topics -f
complete -c topics -n __topics_wants_command -a serve -d 'Run the daemon in the foreground, with the options of topicsd; --embedded CMD: for a command\'s life.'
complete -c topics -n __topics_wants_command -a status -d 'Is the daemon well, and which one is it?'
complete -c topics -n __topics_wants_command -a ls -d 'List topics.'
complete -c topics -n __topics_wants_command -a info -d 'Show a topic.'
complete -c topics -n __topics_wants_command -a create -d 'Create a topic; one that exists is left as it is.'
complete -c topics -n __topics_wants_command -a set -d 'Change a topic\'s configuration.'
complete -c topics -n __topics_wants_command -a drop -d 'Drop a topic with all its records.'
complete -c topics -n __topics_wants_command -a write -d 'Write records: arguments, files, or lines of standard input.'
complete -c topics -n __topics_wants_command -a tail -d 'Show records, the last ten or from a place on, and follow.'
complete -c topics -n __topics_wants_command -a diff -d 'Read one page after a seq, exactly as the API gives it.'
complete -c topics -n __topics_wants_command -a get -d 'Show records by seq.'
complete -c topics -n __topics_wants_command -a delete -d 'Delete records for good.'
complete -c topics -n __topics_wants_command -a claim -d 'Claim jobs of a queue: a line of JSON each, with its lease.'
complete -c topics -n __topics_wants_command -a ack -d 'Jobs are done: delete them, if the lease is ours.'
complete -c topics -n __topics_wants_command -a nack -d 'Give claimed jobs back: at once, later, or to the dead letters.'
complete -c topics -n __topics_wants_command -a extend -d 'Hold claimed jobs for longer, from now.'
complete -c topics -n __topics_wants_command -a work -d 'Run a command for each job of a queue; its exit status decides what becomes of the job.'
complete -c topics -n __topics_wants_command -a dlq -d 'Dead letters of a queue: ls, show, requeue, purge.'
complete -c topics -n __topics_wants_command -a cursor -d 'Places of readers that the daemon keeps: ls, info, create, set, drop.'
complete -c topics -n __topics_wants_command -a router -d 'Copying from topic to topic: ls, info, create, set, drop.'
complete -c topics -n __topics_wants_command -a errors -d 'What exit codes and error codes mean.'
complete -c topics -n __topics_wants_command -a fsck -d 'Check a store, to its last byte; nothing is written.'
complete -c topics -n __topics_wants_command -a cold -d 'The cold tier of a stopped store: join small segments (compact), remove what is nobody\'s (sweep).'
complete -c topics -n __topics_wants_command -a backup -d 'Copy what the daemon holds now, verified, into an empty directory.'
complete -c topics -n __topics_wants_command -a restore -d 'Make a store of a backup; nothing that its manifest does not vouch for gets in.'
complete -c topics -n __topics_wants_command -a detach -d 'Seal a topic and offer it, so that another daemon can take it over.'
complete -c topics -n __topics_wants_command -a attach -d 'Take over a topic that another daemon has detached.'
complete -c topics -n __topics_wants_command -a recover -d 'Save everything that can be proven good of a damaged store, in a new one.'
complete -c topics -n __topics_wants_command -a lake -d 'Keep a directory of exports in shape: compact joins small batches into few.'
complete -c topics -n __topics_wants_command -a export -d 'Export topics to files, incrementally and exactly once, with gaps visible.'
complete -c topics -n __topics_wants_command -a spark-export -d 'Export topics with Spark: as export, with its tasks on executors.'
complete -c topics -n __topics_wants_command -a spark-import -d 'Write files (Parquet, JSON, CSV) into a topic with Spark, each row once.'
complete -c topics -n __topics_wants_command -a segment-inspect -d 'Look into segments, tails files and snapshots: records, checks, damage.'
complete -c topics -n __topics_wants_command -a wal-inspect -d 'Look into log files: frames, checks, damaged places.'
complete -c topics -n __topics_wants_command -a explain -d 'What happened to a record: written, deleted, evicted, expired or lost, when and by what.'
complete -c topics -n __topics_wants_command -a checkpoint -d 'Make a checkpoint now: a start reads less log, and the second gives back the space of what was deleted.'
complete -c topics -n __topics_wants_command -a doctor -d 'Look a daemon over, and say what is wrong with the fix for it.'
complete -c topics -n __topics_wants_command -a bench -d 'Put load on the daemon, in topics made for it, and show rates and latencies.'
complete -c topics -n __topics_wants_command -a context -d 'Named places of daemons: ls, show, set, use, drop.'
complete -c topics -n __topics_wants_command -a completions -d 'Print the completions for a shell, where the package did not put them in their place.'
complete -c topics -n __topics_wants_command -a version -d 'Versions of the client and the daemon.'
complete -c topics -n __topics_wants_command -a help -d 'Show help.'
complete -c topics -s o -l output -d 'Form of the output.' -x -a 'text table json ndjson raw'
complete -c topics -s t -l template -d 'A line of your own: \'{seq} {tag} {data.user.name}\'.' -x
complete -c topics -l fields -d 'Only these fields, in this order.' -x
complete -c topics -l color -d 'Colours: when, on a terminal, or by NO_COLOR.' -x -a 'auto always never'
complete -c topics -s q -l quiet -d 'Say nothing about the work; errors only.'
complete -c topics -l retry-for -d 'How long to wait for a daemon that is away: 30s once it was reached, 0 never.' -x
complete -c topics -l socket -d 'Unix socket of the daemon.' -r -F
complete -c topics -l url -d 'Address of the daemon: http://HOST:PORT.' -x
complete -c topics -l key-file -d 'File whose first line is the API key.' -r -F
complete -c topics -n '__topics_in status' -s w -l watch -d 'Again and again, with what happens a second; in a pipe a line each time.'
complete -c topics -n '__topics_in status' -l interval -d 'With --watch: time between two looks (1s).' -x
complete -c topics -n '__topics_in status' -l json -d 'Short for -o json.'
complete -c topics -n '__topics_in ls' -l json -d 'Short for -o json.'
complete -c topics -n '__topics_in info' -l json -d 'Short for -o json.'
complete -c topics -n '__topics_at info 0' -a '(__topics_names topics)'
complete -c topics -n '__topics_in create' -l if-missing -d 'An existing topic is fine (the default).'
complete -c topics -n '__topics_in create' -l must-be-new -d 'Refuse when the topic exists.'
complete -c topics -n '__topics_in create' -l type -d 'log or queue; never changes.' -x -a 'log queue'
complete -c topics -n '__topics_in create' -l ttl -l ttl-ms -d 'Age at which records expire; 0 never.' -x
complete -c topics -n '__topics_in create' -l cap-records -d 'Most records kept; 0 no cap.' -x
complete -c topics -n '__topics_in create' -l cap-bytes -d 'Most bytes kept; 0 no cap.' -x
complete -c topics -n '__topics_in create' -l discard -d 'What a full topic does: evict the old, or reject the new.' -x -a 'old reject'
complete -c topics -n '__topics_in create' -l durable -d 'true: acks wait for the disk (durability fsync).' -x -a 'true false'
complete -c topics -n '__topics_in create' -l durability -d 'When a write is acked.' -x -a 'ephemeral memory disk fsync'
complete -c topics -n '__topics_in create' -l priority -d '-1000 ... 1000, or null for automatic.' -x
complete -c topics -n '__topics_in create' -l auto-priority -d 'Recency counts when the priority is null.' -x -a 'true false'
complete -c topics -n '__topics_in create' -l auto-create -d 'Whether writes may create this name.' -x -a 'true false'
complete -c topics -n '__topics_in create' -l idempotency-window -l idempotency-window-ms -d 'How long idempotency keys are remembered.' -x
complete -c topics -n '__topics_in create' -l dedupe-node -d 'Whether readers may leave out their own records.' -x -a 'true false'
complete -c topics -n '__topics_in create' -l lease -l lease-ms -d 'Queue: how long a claimed job is leased.' -x
complete -c topics -n '__topics_in create' -l claim-jitter -l claim-jitter-ms -d 'Queue: spread of claims.' -x
complete -c topics -n '__topics_in create' -l max-deliveries -d 'Queue: deliveries before a job is dead; 0 no limit.' -x
complete -c topics -n '__topics_in create' -l dead-letter -d 'Queue: topic for dead jobs, or null.' -x -a '(__topics_names topics)'
complete -c topics -n '__topics_in create' -l leases-durable -d 'Queue: leases survive a crash.' -x -a 'true false'
complete -c topics -n '__topics_at create 0' -a '(__topics_names topics)'
complete -c topics -n '__topics_in set' -l dry-run -d 'Show what would be done; do nothing.'
complete -c topics -n '__topics_at set 0' -a '(__topics_names topics)'
complete -c topics -n '__topics_at set 1 more' -a 'type= ttl_ms= cap_records= cap_bytes= discard= durable= durability= priority= auto_priority= auto_create= idempotency_window_ms= dedupe_node= lease_ms= claim_jitter_ms= max_deliveries= dead_letter= leases_durable='
complete -c topics -n '__topics_in drop' -l if-empty -d 'Only when no record is live.'
complete -c topics -n '__topics_in drop' -l dry-run -d 'Show what would be done; do nothing.'
complete -c topics -n '__topics_in drop' -s y -l yes -d 'Do not ask.'
complete -c topics -n '__topics_at drop 0' -a '(__topics_names topics)'
complete -c topics -n '__topics_in write' -s f -l file -d 'Read records from a file (\'-\' is standard input).' -r -F
complete -c topics -n '__topics_in write' -l json -d 'Records are JSON values, kept byte for byte.'
complete -c topics -n '__topics_in write' -l records -d 'Records are whole, as `tail -o ndjson` gives them.'
complete -c topics -n '__topics_in write' -s 0 -l null -d 'Records end in NUL instead of a line feed.'
complete -c topics -n '__topics_in write' -l length -d 'Records are framed as their length, a line feed, and their bytes.'
complete -c topics -n '__topics_in write' -l tag -d 'Tag of the records.' -x
complete -c topics -n '__topics_in write' -l node -d 'Node that wrote them.' -x
complete -c topics -n '__topics_in write' -l meta -d 'A member of their meta object.' -x
complete -c topics -n '__topics_in write' -l tag-from -d 'Take each tag from the record.' -x
complete -c topics -n '__topics_in write' -l key-from -d 'Write each record by itself, with the key at this pointer.' -x
complete -c topics -n '__topics_in write' -l batch -d 'Most records in one write (1000).' -x
complete -c topics -n '__topics_in write' -l idempotency-key -d 'Key of this write; batches get KEY-1, KEY-2...' -x
complete -c topics -n '__topics_in write' -l ack -d 'Wait for the disk, whatever the topic\'s class.' -x -a 'fsync'
complete -c topics -n '__topics_in write' -l rate -d 'At most so many records a second.' -x
complete -c topics -n '__topics_in write' -l on-error -d 'stop (default), skip, or file:BAD for lines that are refused.' -x
complete -c topics -n '__topics_in write' -l no-create -d 'Refuse to create the topic.'
complete -c topics -n '__topics_at write 0' -a '(__topics_names topics)'
complete -c topics -n '__topics_in tail' -s f -l follow -d 'Wait for more.'
complete -c topics -n '__topics_in tail' -s n -l last -d 'Start with the last N records (10).' -x
complete -c topics -n '__topics_in tail' -l from -d 'Start after this seq; 0 is the beginning.' -x
complete -c topics -n '__topics_in tail' -l since -d 'Start at a time, or so long ago (2h).' -x
complete -c topics -n '__topics_in tail' -l until -d 'End at a time.' -x
complete -c topics -n '__topics_in tail' -l max -d 'End after exactly N records.' -x
complete -c topics -n '__topics_in tail' -l tag -d 'Only records with this tag; \'x*\' for a prefix.' -x
complete -c topics -n '__topics_in tail' -l node -d 'Leave out the records that this node wrote.' -x
complete -c topics -n '__topics_in tail' -l cursor -d 'Start where this file says, and keep it up to date.' -r -F
complete -c topics -n '__topics_in tail' -l server-cursor -d 'The same with a cursor of this name in the daemon.' -x -a '(__topics_names cursors)'
complete -c topics -n '__topics_in tail' -l exec -d 'Run this for each record: data on its input, TOPICS_SEQ ... around it.' -x
complete -c topics -n '__topics_in tail' -l exec-batch -d 'Run this for each batch of records as they come.' -x
complete -c topics -n '__topics_in tail' -l speed -d 'Let time pass between records as it did: 1x, 10x.' -x
complete -c topics -n '__topics_in tail' -l fail-on-gap -d 'End with 7 where records were lost.'
complete -c topics -n '__topics_in tail' -l idle-exit -d 'With -f: end when nothing new came for so long.' -x
complete -c topics -n '__topics_in tail' -s 0 -l null -d 'Records end in NUL instead of a line feed.'
complete -c topics -n '__topics_in tail' -l length -d 'Records are framed as their length, a line feed, and their bytes.'
complete -c topics -n '__topics_at tail 0 more' -a '(__topics_names topics)'
complete -c topics -n '__topics_in diff' -l from -d 'Read after this seq (0).' -x
complete -c topics -n '__topics_in diff' -l to -d 'Read up to this seq.' -x
complete -c topics -n '__topics_in diff' -l limit -d 'Most records in the page (256).' -x
complete -c topics -n '__topics_in diff' -l max-bytes -d 'Most bytes in the page (1MiB).' -x
complete -c topics -n '__topics_in diff' -l wait -d 'Wait so long for something new; 3 when nothing came.' -x
complete -c topics -n '__topics_in diff' -l all -d 'Page after page until caught up.'
complete -c topics -n '__topics_in diff' -l tag -d 'Only records with this tag; \'x*\' for a prefix.' -x
complete -c topics -n '__topics_in diff' -l node -d 'Leave out the records that this node wrote.' -x
complete -c topics -n '__topics_at diff 0' -a '(__topics_names topics)'
complete -c topics -n '__topics_in get' -l raw -d 'Only the stored JSON of each.'
complete -c topics -n '__topics_in get' -s 0 -l null -d 'Records end in NUL instead of a line feed.'
complete -c topics -n '__topics_in get' -l length -d 'Records are framed as their length, a line feed, and their bytes.'
complete -c topics -n '__topics_at get 0' -a '(__topics_names topics)'
complete -c topics -n '__topics_in delete' -l before -d 'Records below this seq.' -x
complete -c topics -n '__topics_in delete' -l tag -d 'Records with this tag.' -x
complete -c topics -n '__topics_in delete' -l tag-prefix -d 'Records whose tag begins so.' -x
complete -c topics -n '__topics_in delete' -l seq -d 'These seqs: 5, 7-9 or 5,7,9.' -x
complete -c topics -n '__topics_in delete' -l dry-run -d 'Show what would be done; do nothing.'
complete -c topics -n '__topics_in delete' -s y -l yes -d 'Do not ask.'
complete -c topics -n '__topics_at delete 0' -a '(__topics_names topics)'
complete -c topics -n '__topics_in claim' -s n -l max -d 'Most jobs (1).' -x
complete -c topics -n '__topics_in claim' -l lease -d 'How long a job is leased (the queue\'s lease_ms).' -x
complete -c topics -n '__topics_in claim' -l wait -d 'Wait so long for a job; 3 when none came.' -x
complete -c topics -n '__topics_in claim' -l tag -d 'Only jobs with this tag; \'x*\' for a prefix.' -x
complete -c topics -n '__topics_in claim' -l node -d 'Name that the leases are held under (TOPICS_NODE, else USER@HOST).' -x
complete -c topics -n '__topics_in claim' -s 0 -l null -d 'Records end in NUL instead of a line feed.'
complete -c topics -n '__topics_in claim' -l length -d 'Records are framed as their length, a line feed, and their bytes.'
complete -c topics -n '__topics_at claim 0' -a '(__topics_names queues)'
complete -c topics -n '__topics_in ack' -l node -d 'Name that the leases are held under (TOPICS_NODE, else USER@HOST).' -x
complete -c topics -n '__topics_at ack 0' -a '(__topics_names queues)'
complete -c topics -n '__topics_in nack' -l delay -d 'Ready again after this time (0).' -x
complete -c topics -n '__topics_in nack' -l backoff -d 'Ready again later each time: 1s, 2s, 4s ... 15m.'
complete -c topics -n '__topics_in nack' -l reason -d 'Why; kept with the job\'s history.' -x
complete -c topics -n '__topics_in nack' -l dead -d 'Move them to the dead letters.'
complete -c topics -n '__topics_in nack' -l node -d 'Name that the leases are held under (TOPICS_NODE, else USER@HOST).' -x
complete -c topics -n '__topics_at nack 0' -a '(__topics_names queues)'
complete -c topics -n '__topics_in extend' -l lease -d 'How long a job is leased (the queue\'s lease_ms).' -x
complete -c topics -n '__topics_in extend' -l node -d 'Name that the leases are held under (TOPICS_NODE, else USER@HOST).' -x
complete -c topics -n '__topics_at extend 0' -a '(__topics_names queues)'
complete -c topics -n '__topics_in work' -s j -l jobs -d 'So many commands at a time (1).' -x
complete -c topics -n '__topics_in work' -l batch -d 'Up to so many jobs for one command (1).' -x
complete -c topics -n '__topics_in work' -l file -d 'The job is in a file: {} is its path, or the last word.'
complete -c topics -n '__topics_in work' -l raw -d 'The job as the JSON that is stored.'
complete -c topics -n '__topics_in work' -s 0 -l null -d 'Records end in NUL instead of a line feed.'
complete -c topics -n '__topics_in work' -l length -d 'Records are framed as their length, a line feed, and their bytes.'
complete -c topics -n '__topics_in work' -l timeout -d 'End a command that takes longer: SIGTERM, then SIGKILL.' -x
complete -c topics -n '__topics_in work' -l grace -d 'Time between SIGTERM and SIGKILL (5s).' -x
complete -c topics -n '__topics_in work' -l retry-code -d 'Exit status that means: later, with backoff (75).' -x
complete -c topics -n '__topics_in work' -l dead-code -d 'Exit status that means: to the dead letters (65).' -x
complete -c topics -n '__topics_in work' -l delay -d 'How long a job waits after any other failure (0).' -x
complete -c topics -n '__topics_in work' -l halt -d 'Stop when so many commands in a row have failed: no job is at fault.' -x
complete -c topics -n '__topics_in work' -l lease -d 'How long a job is leased (the queue\'s lease_ms).' -x
complete -c topics -n '__topics_in work' -l tag -d 'Only jobs with this tag; \'x*\' for a prefix.' -x
complete -c topics -n '__topics_in work' -l node -d 'Name that the leases are held under (TOPICS_NODE, else USER@HOST).' -x
complete -c topics -n '__topics_in work' -l once -d 'One command, then end.'
complete -c topics -n '__topics_in work' -l until-empty -d 'End when no job is ready and none runs; says how many were not done.'
complete -c topics -n '__topics_at work 0' -a '(__topics_names queues)'
complete -c topics -n '__topics_at work 1 more' -a '(__fish_complete_command)'
complete -c topics -n '__topics_in dlq' -l all -d 'requeue, purge: every dead letter.'
complete -c topics -n '__topics_in dlq' -l tag -d 'Only with this tag; \'x*\' for a prefix.' -x
complete -c topics -n '__topics_in dlq' -l to -d 'requeue: into this queue, instead of where they came from.' -x -a '(__topics_names queues)'
complete -c topics -n '__topics_in dlq' -l itself -d 'QUEUE is the dead-letter topic, though it has dead letters of its own.'
complete -c topics -n '__topics_in dlq' -l dry-run -d 'Show what would be done; do nothing.'
complete -c topics -n '__topics_in dlq' -s y -l yes -d 'Do not ask.'
complete -c topics -n '__topics_at dlq 0' -a 'ls show requeue purge'
complete -c topics -n '__topics_at dlq 1' -a '(__topics_names queues)'
complete -c topics -n '__topics_in cursor' -l if-seq -d 'set: only when the cursor is there now.' -x
complete -c topics -n '__topics_in cursor' -l dry-run -d 'Show what would be done; do nothing.'
complete -c topics -n '__topics_in cursor' -s y -l yes -d 'Do not ask.'
complete -c topics -n '__topics_in cursor' -l json -d 'Short for -o json.'
complete -c topics -n '__topics_at cursor 0' -a 'ls info create set drop'
complete -c topics -n '__topics_at cursor 1' -a '(__topics_names topics)'
complete -c topics -n '__topics_at cursor 2' -a '(__topics_names cursors)'
complete -c topics -n '__topics_in router' -l source -d 'Topic that is copied from.' -x -a '(__topics_names topics)'
complete -c topics -n '__topics_in router' -l dest -d 'Topic that is copied to.' -x -a '(__topics_names topics)'
complete -c topics -n '__topics_in router' -l tag -d 'Only records with this tag; \'x*\' for a prefix, \'\' for all.' -x
complete -c topics -n '__topics_in router' -l start -d 'Where a new router begins (now).' -x -a 'now earliest'
complete -c topics -n '__topics_in router' -l preserve-node -d 'Copies keep the node (true).' -x -a 'true false'
complete -c topics -n '__topics_in router' -l preserve-tag -d 'Copies keep the tag (true).' -x -a 'true false'
complete -c topics -n '__topics_in router' -l create-dest -d 'Make a missing dest (true).' -x -a 'true false'
complete -c topics -n '__topics_in router' -l allow-cycle -d 'It may close a circle (false).' -x -a 'true false'
complete -c topics -n '__topics_in router' -l must-be-new -d 'create: refuse when the router exists.'
complete -c topics -n '__topics_in router' -l dry-run -d 'Show what would be done; do nothing.'
complete -c topics -n '__topics_in router' -s y -l yes -d 'Do not ask.'
complete -c topics -n '__topics_in router' -l json -d 'Short for -o json.'
complete -c topics -n '__topics_at router 0' -a 'ls info create set drop'
complete -c topics -n '__topics_at router 1' -a '(__topics_names routers)'
complete -c topics -n '__topics_at errors 0' -a 'invalid_request batch_too_large record_too_large unauthorized forbidden topic_not_found router_not_found not_found method_not_allowed not_acceptable length_required payload_too_large uri_too_long unsupported_media_type headers_too_large cursor_conflict topic_moved topic_exists_incompatible topic_not_empty router_cycle not_a_queue topic_damaged misdirected topic_full idempotency_mismatch throttled internal not_ready topic_moving shutting_down cold_unavailable read_only disk_full usage no_daemon bad_answer not_allowed bad_key bad_key_file bad_context bad_cursor bad_scenario no_home cursor_in_use gap topic_exists router_exists no_input invalid_record bad_input bad_framing output_failed cannot_write bad_out not_empty command_not_found cannot_execute cannot_start exec_failed halted daemon_failed bench_failed cannot_listen no_completions no_store store_locked store_damaged io_error unreadable missing_package missing_java spark_failed lake_damaged lake_newer locked conflict recreated unsupported 0 1 2 3 4 5 6 7 69 75 77 78 126 127 130 141 143'
complete -c topics -n '__topics_in fsck' -l quick -d 'Leave out payloads that a start does not read; says what it skipped.'
complete -c topics -n '__topics_in fsck' -l max-time -d 'End after this time; says what is left.' -x
complete -c topics -n '__topics_in fsck' -l subset -d 'Only the payloads of each M-th topic, from the N-th on.' -x
complete -c topics -n '__topics_in fsck' -l cold -d 'The store\'s cold tier: a directory, or s3://… (TOPICS_COLD_DIR or _URL, or what the pin says).' -x -a '(__fish_complete_directories)'
complete -c topics -n '__topics_in fsck' -l json -d 'Short for -o json.'
complete -c topics -n '__topics_at fsck 0' -a '(__fish_complete_directories)'
complete -c topics -n '__topics_in cold' -l min -d 'compact: so many small neighbours are joined (8).' -x
complete -c topics -n '__topics_in cold' -l cold -d 'The store\'s cold tier: a directory, or s3://… (TOPICS_COLD_DIR or _URL, or what the pin says).' -x -a '(__fish_complete_directories)'
complete -c topics -n '__topics_in cold' -l dry-run -d 'Show what would be done; do nothing.'
complete -c topics -n '__topics_in cold' -s y -l yes -d 'Do not ask.'
complete -c topics -n '__topics_in cold' -l json -d 'Short for -o json.'
complete -c topics -n '__topics_at cold 0' -a 'compact sweep'
complete -c topics -n '__topics_at cold 1' -a '(__fish_complete_directories)'
complete -c topics -n '__topics_in backup' -l to -d 'Where the backup goes: empty, or not there yet.' -x -a '(__fish_complete_directories)'
complete -c topics -n '__topics_in backup' -l topic -d 'Only this topic.' -x -a '(__topics_names topics)'
complete -c topics -n '__topics_in backup' -l cold -d 'The store\'s cold tier: a directory, or s3://… (TOPICS_COLD_DIR or _URL, or what the pin says).' -x -a '(__fish_complete_directories)'
complete -c topics -n '__topics_in backup' -l json -d 'Short for -o json.'
complete -c topics -n '__topics_in restore' -l to -d 'Data directory of the new store: empty, or not there yet.' -x -a '(__fish_complete_directories)'
complete -c topics -n '__topics_in restore' -l topic -d 'Only this topic.' -x -a '(__topics_names topics)'
complete -c topics -n '__topics_in restore' -l dry-run -d 'Show what would be done; do nothing.'
complete -c topics -n '__topics_in restore' -l json -d 'Short for -o json.'
complete -c topics -n '__topics_at restore 0' -a '(__fish_complete_directories)'
complete -c topics -n '__topics_in detach' -l to -d 'A directory, or s3://bucket/prefix, that both daemons reach.' -x
complete -c topics -n '__topics_in detach' -l for -d 'The daemon that is to have it, if that is known.' -x
complete -c topics -n '__topics_in detach' -l cancel -d 'Take the topic back, unless another daemon has it already.'
complete -c topics -n '__topics_in detach' -l dry-run -d 'Show what would be done; do nothing.'
complete -c topics -n '__topics_in detach' -s y -l yes -d 'Do not ask.'
complete -c topics -n '__topics_in detach' -l json -d 'Short for -o json.'
complete -c topics -n '__topics_at detach 0' -a '(__topics_names topics)'
complete -c topics -n '__topics_in attach' -l from -d 'Where it was detached to.' -x
complete -c topics -n '__topics_in attach' -l token -d 'Which offer of it, as detach has said.' -x
complete -c topics -n '__topics_in attach' -l as -d 'Where this daemon is, for readers of the other one; else as it is reached now.' -x
complete -c topics -n '__topics_in attach' -l json -d 'Short for -o json.'
complete -c topics -n '__topics_at attach 0' -a '(__topics_names topics)'
complete -c topics -n '__topics_in recover' -l to -d 'Where the new store goes: empty, or not there yet.' -x -a '(__fish_complete_directories)'
complete -c topics -n '__topics_in recover' -l topic -d 'Only this topic.' -x -a '(__topics_names topics)'
complete -c topics -n '__topics_in recover' -l keep-doubtful -d 'Keep records that a delete which is lost may have taken.'
complete -c topics -n '__topics_in recover' -l cold -d 'The store\'s cold tier: a directory, or s3://… (TOPICS_COLD_DIR or _URL, or what the pin says).' -x -a '(__fish_complete_directories)'
complete -c topics -n '__topics_in recover' -l cold-lost -d 'The cold tier is gone for good: what lay there becomes gaps.'
complete -c topics -n '__topics_in recover' -l swap -d 'Put the new store in the old one\'s place; that is kept beside it.'
complete -c topics -n '__topics_in recover' -l dry-run -d 'Show what would be done; do nothing.'
complete -c topics -n '__topics_in recover' -l json -d 'Short for -o json.'
complete -c topics -n '__topics_at recover 0' -a '(__fish_complete_directories)'
complete -c topics -n '__topics_in lake' -l to -d 'The directory that exports go to.' -x -a '(__fish_complete_directories)'
complete -c topics -n '__topics_in lake' -l batch-bytes -d 'Join batches up to so many bytes of files (512MiB).' -x
complete -c topics -n '__topics_in lake' -l max-file-bytes -d 'Join files up to so many bytes (128MiB).' -x
complete -c topics -n '__topics_in lake' -l compression -d 'Of Parquet files (zstd).' -x -a 'zstd snappy gzip none'
complete -c topics -n '__topics_in lake' -l keep -d 'Leave so many of the newest batches alone (0).' -x
complete -c topics -n '__topics_in lake' -l dry-run -d 'Show what would be done; do nothing.'
complete -c topics -n '__topics_in lake' -l json -d 'Short for -o json.'
complete -c topics -n '__topics_at lake 0' -a 'compact'
complete -c topics -n '__topics_at lake 1 more' -a '(__topics_names topics)'
complete -c topics -n '__topics_in export' -l to -d 'Directory that gets topic=T/batch=.../ with the files.' -x -a '(__fish_complete_directories)'
complete -c topics -n '__topics_in export' -l dir -d 'A stopped store, a pin or a backup, instead of the daemon.' -x -a '(__fish_complete_directories)'
complete -c topics -n '__topics_in export' -l format -d 'Form of the files: parquet (default), json or csv.' -x
complete -c topics -n '__topics_in export' -l compression -d 'Of Parquet files (zstd).' -x -a 'zstd snappy gzip none'
complete -c topics -n '__topics_in export' -l partition-by -d 'Directories by time, in UTC (none).' -x -a 'none date hour'
complete -c topics -n '__topics_in export' -l since-last -d 'Go on where the last export ended (the default).'
complete -c topics -n '__topics_in export' -l full -d 'Everything, into a directory that has nothing of the topic.'
complete -c topics -n '__topics_in export' -l from -d 'Where a topic begins that was never exported (1).' -x
complete -c topics -n '__topics_in export' -l until -d 'End at this seq.' -x
complete -c topics -n '__topics_in export' -l max-rows -d 'At most so many records of each topic.' -x
complete -c topics -n '__topics_in export' -l max-file-bytes -d 'A file begins when one has so much, uncompressed (128MiB).' -x
complete -c topics -n '__topics_in export' -l on-corrupt -d 'Damaged records: fail (default), or a gap.' -x -a 'fail gap'
complete -c topics -n '__topics_in export' -l verify -d 'Check the whole directory instead: every file, every count.'
complete -c topics -n '__topics_in export' -l dry-run -d 'Show what would be done; do nothing.'
complete -c topics -n '__topics_in export' -l json -d 'Short for -o json.'
complete -c topics -n '__topics_at export 0 more' -a '(__topics_names topics)'
complete -c topics -n '__topics_in spark-export' -l to -d 'Directory that gets topic=T/batch=.../ with the files.' -x -a '(__fish_complete_directories)'
complete -c topics -n '__topics_in spark-export' -l dir -d 'A stopped store, a pin or a backup, instead of the daemon.' -x -a '(__fish_complete_directories)'
complete -c topics -n '__topics_in spark-export' -l format -d 'Form of the files: parquet (default), json or csv.' -x
complete -c topics -n '__topics_in spark-export' -l compression -d 'Of Parquet files (zstd).' -x -a 'zstd snappy gzip none'
complete -c topics -n '__topics_in spark-export' -l partition-by -d 'Directories by time, in UTC (none).' -x -a 'none date hour'
complete -c topics -n '__topics_in spark-export' -l since-last -d 'Go on where the last export ended (the default).'
complete -c topics -n '__topics_in spark-export' -l full -d 'Everything, into a directory that has nothing of the topic.'
complete -c topics -n '__topics_in spark-export' -l from -d 'Where a topic begins that was never exported (1).' -x
complete -c topics -n '__topics_in spark-export' -l until -d 'End at this seq.' -x
complete -c topics -n '__topics_in spark-export' -l max-rows -d 'At most so many records of each topic.' -x
complete -c topics -n '__topics_in spark-export' -l max-file-bytes -d 'A file begins when one has so much, uncompressed (128MiB).' -x
complete -c topics -n '__topics_in spark-export' -l on-corrupt -d 'Damaged records: fail (default), or a gap.' -x -a 'fail gap'
complete -c topics -n '__topics_in spark-export' -l verify -d 'Check the whole directory instead: every file, every count.'
complete -c topics -n '__topics_in spark-export' -l dry-run -d 'Show what would be done; do nothing.'
complete -c topics -n '__topics_in spark-export' -l json -d 'Short for -o json.'
complete -c topics -n '__topics_in spark-export' -l schema -d 'Typed columns out of data: a file with DDL or JSON of Spark, or infer.' -r -F
complete -c topics -n '__topics_in spark-export' -l select -d 'Export what this query over the table records gives.' -x
complete -c topics -n '__topics_in spark-export' -l master -d 'Where Spark runs (local[*]).' -x
complete -c topics -n '__topics_in spark-export' -l memory -d 'Memory of the driver (450m).' -x
complete -c topics -n '__topics_at spark-export 0 more' -a '(__topics_names topics)'
complete -c topics -n '__topics_in spark-import' -l format -d 'Form of the files (parquet).' -x -a 'parquet json csv'
complete -c topics -n '__topics_in spark-import' -l data-column -d 'Column with JSON text; without it a row is an object.' -x
complete -c topics -n '__topics_in spark-import' -l tag-column -d 'Column with the tag.' -x
complete -c topics -n '__topics_in spark-import' -l name -d 'Name of the import; the same name again writes nothing twice.' -x
complete -c topics -n '__topics_in spark-import' -l master -d 'Where Spark runs (local[*]).' -x
complete -c topics -n '__topics_in spark-import' -l memory -d 'Memory of the driver (450m).' -x
complete -c topics -n '__topics_in spark-import' -l json -d 'Short for -o json.'
complete -c topics -n '__topics_at spark-import 0' -a '(__topics_names topics)'
complete -c topics -n '__topics_at spark-import 1 more' -F
complete -c topics -n '__topics_in segment-inspect' -l records -d 'List what is in the file, record by record.'
complete -c topics -n '__topics_in segment-inspect' -l at -d 'Only the record with this seq.' -x
complete -c topics -n '__topics_in segment-inspect' -l from -d 'With --records: from this seq on.' -x
complete -c topics -n '__topics_in segment-inspect' -l to -d 'With --records: up to this seq.' -x
complete -c topics -n '__topics_in segment-inspect' -l hex -d 'Show damaged places byte by byte.'
complete -c topics -n '__topics_in segment-inspect' -l payload -d 'Show what records hold; it is hidden otherwise.'
complete -c topics -n '__topics_at segment-inspect 0 more' -F
complete -c topics -n '__topics_in wal-inspect' -l records -d 'List what is in the file, record by record.'
complete -c topics -n '__topics_in wal-inspect' -l at -d 'Only the record with this seq.' -x
complete -c topics -n '__topics_in wal-inspect' -l from -d 'With --records: from this seq on.' -x
complete -c topics -n '__topics_in wal-inspect' -l to -d 'With --records: up to this seq.' -x
complete -c topics -n '__topics_in wal-inspect' -l hex -d 'Show damaged places byte by byte.'
complete -c topics -n '__topics_in wal-inspect' -l payload -d 'Show what records hold; it is hidden otherwise.'
complete -c topics -n '__topics_at wal-inspect 0 more' -F
complete -c topics -n '__topics_in explain' -l dir -d 'A stopped store, instead of the daemon.' -x -a '(__fish_complete_directories)'
complete -c topics -n '__topics_in explain' -l json -d 'Short for -o json.'
complete -c topics -n '__topics_at explain 0' -a '(__topics_names topics)'
complete -c topics -n '__topics_in checkpoint' -l json -d 'Short for -o json.'
complete -c topics -n '__topics_in doctor' -l bundle -d 'Also put what was found, metrics and versions into a new file (tar.gz); no payload, no key.'
complete -c topics -n '__topics_in doctor' -l json -d 'Short for -o json.'
complete -c topics -n '__topics_at doctor 0' -F
complete -c topics -n '__topics_in bench' -l duration -d 'How long each mode takes (5s).' -x
complete -c topics -n '__topics_in bench' -l records -d 'End a mode after about so many records.' -x
complete -c topics -n '__topics_in bench' -s c -l connections -d 'Connections in all (4).' -x
complete -c topics -n '__topics_in bench' -s p -l processes -d 'Processes that make the load (1).' -x
complete -c topics -n '__topics_in bench' -l batch -d 'Records a request (100; tail 1, queue 10).' -x
complete -c topics -n '__topics_in bench' -l size -d 'Bytes of a record (200).' -x
complete -c topics -n '__topics_in bench' -l rate -d 'Records due a second, late ones count from when they were due (tail 100, else as many as go).' -x
complete -c topics -n '__topics_in bench' -l durability -d 'Class of the topics (disk).' -x -a 'ephemeral memory disk fsync'
complete -c topics -n '__topics_in bench' -l prefix -d 'Beginning of the topics\' names (bench).' -x
complete -c topics -n '__topics_in bench' -l prometheus -d 'Meanwhile give metrics at http://127.0.0.1:PORT.' -x
complete -c topics -n '__topics_in bench' -l out -d 'run: directory of the results, new or empty (bench-NAME-TIME).' -x -a '(__fish_complete_directories)'
complete -c topics -n '__topics_in bench' -l list -d 'run: the scenarios that come with topics.'
complete -c topics -n '__topics_in bench' -l dry-run -d 'run: check the scenario and show it with every default; do nothing.'
complete -c topics -n '__topics_in bench' -l json -d 'Short for -o json.'
complete -c topics -n '__topics_at bench 0' -a 'write read tail queue run'
complete -c topics -n '__topics_at bench 1' -F
complete -c topics -n '__topics_in context' -l dry-run -d 'Show what would be done; do nothing.'
complete -c topics -n '__topics_in context' -l json -d 'Short for -o json.'
complete -c topics -n '__topics_at context 0' -a 'ls show set use drop'
complete -c topics -n '__topics_at context 1' -a '(__topics_names contexts)'
complete -c topics -n '__topics_at completions 0' -a 'bash zsh fish'
complete -c topics -n '__topics_at help 0' -a 'serve status ls info create set drop write tail diff get delete claim ack nack extend work dlq cursor router errors fsck cold backup restore detach attach recover lake export spark-export spark-import segment-inspect wal-inspect explain checkpoint doctor bench context completions version'
