#!/usr/bin/env bash
# The dead letters of a queue: a line each for people to read, and those of one tag back into the queue, since what ailed
# them is mended. `dlq requeue` moves: a letter is in the queue or among the dead, never in both.
#   review-dead-letters.sh thumbnails mended
set -euo pipefail

queue=$1
tag=$2
topics dlq ls "$queue" --fields seq,deliveries,why,tag,data --retry-for 1m
topics dlq requeue "$queue" --all --tag "$tag" --retry-for 1m
