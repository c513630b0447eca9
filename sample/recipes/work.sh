#!/usr/bin/env bash
# Workers for a queue: four at a time, half a minute each, until the queue is empty. A job that fails comes back with
# backoff when it says 75, goes to the dead letters when it says 65, and comes back at once otherwise.
#   work.sh thumbnails ./make-thumbnail
set -euo pipefail

queue=$1
shift
topics create "$queue-dead" --type queue --retry-for 10m >/dev/null
topics create "$queue" --type queue --max-deliveries 5 --dead-letter "$queue-dead" --retry-for 10m >/dev/null
topics work "$queue" -j 4 --timeout 30s --until-empty --retry-for 10m -- "$@"
