#!/usr/bin/env bash
# A producer for cron: one measurement a minute, once, however often cron or a person runs this within it.
#   * * * * *  produce.sh
# The key is the minute. A second run has measured something else, which the daemon refuses to take for the same: that is
# as it should be. The daemon may be away for as long as --retry-for says.
set -euo pipefail

topic=${1:-disk-use}
minute=${2:-$(date -u +%Y-%m-%dT%H:%M)}
used=$(df -P / | awk 'NR == 2 { print $3 }')
said=$(topics write "$topic" --json "{\"at\":\"$minute\",\"used_kib\":$used}" --idempotency-key "$minute" \
    --retry-for 50s 2>&1) || case $said in
*idempotency_mismatch*) ;;
*)
    echo "$said" >&2
    exit 1
    ;;
esac
