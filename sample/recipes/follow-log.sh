#!/usr/bin/env bash
# A log file into a topic, line by line, for as long as it grows: also over rotations (tail -F) and over restarts of the
# daemon (--retry-for). A line is on the daemon within 50 ms.
#   follow-log.sh /var/log/app.log app-log
set -euo pipefail

file=$1
topic=$2
tail -n +1 -F "$file" 2>/dev/null | topics write "$topic" --node "${HOSTNAME:-host}" --retry-for 1h
