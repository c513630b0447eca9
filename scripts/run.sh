#!/bin/sh
# What `make run` shows: a daemon in a temporary directory, the sample events written through the command line,
# followed, looked at, kept through a `kill -9`, and the daemon stopped. Each command is printed before its output.
set -eu
cd "$(dirname "$0")/.."
bin=$(cd "${VENV:-.venv}/bin" && pwd)
place=$(mktemp -d)
daemon=
clean_up() {
    status=$?
    [ -z "$daemon" ] || kill -9 "$daemon" 2>/dev/null || true
    [ "$status" = 0 ] || cat "$place/log" >&2
    rm -rf "$place"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

PATH=$bin:$PATH
TOPICS_SOCKET=$place/topics.sock
TOPICS_DATA_DIR=$place/data
TOPICS_PORT=none
export PATH TOPICS_SOCKET TOPICS_DATA_DIR TOPICS_PORT

show() {
    printf '$ %s\n' "$*"
    eval "$*"
}
start() {
    printf '$ topicsd &\n'
    topicsd >>"$place/log" 2>&1 &
    daemon=$!
    until topics status >/dev/null 2>&1; do
        kill -0 "$daemon" || exit 1
        sleep 0.1
    done
}

start
show topics status
show topics write line-4 --json -f sample/events.ndjson
show "(sleep 1; topics write line-4 'line 4 stopped' --tag note >/dev/null) &"
show topics tail line-4 --follow -n 2 --max 3
show topics ls --fields topic,count,earliest_seq,head_seq,bytes,durability

printf '$ kill -9 %s\n' "$daemon"
kill -9 "$daemon"
wait "$daemon" 2>/dev/null || true
start
show 'topics tail line-4 --from 0 --max 200 -o raw | cmp - sample/events.ndjson && echo every byte is there'

printf '$ kill %s\n' "$daemon"
kill "$daemon"
wait "$daemon"
daemon=
echo "stopped"
