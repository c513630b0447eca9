#!/usr/bin/env bash
# A topic again into another one, whole records: data, tag, node and meta as they were, seqs and times anew. How far it
# got is kept by the daemon, so the next run goes on there; only what was under way when a run was killed (a page of at
# most 1000 records) may be in there twice. Where that matters, a router copies exactly once.
#   replay.sh orders orders-test
set -euo pipefail

from=$1
to=$2
topics tail "$from" --from 0 --server-cursor "replay-$to" -o ndjson --retry-for 10m \
    --exec-batch "topics write '$to' --records --retry-for 10m >/dev/null"
