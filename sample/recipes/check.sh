#!/usr/bin/env bash
# A check for a monitoring system of the old kind: one line, and 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.
set -euo pipefail

code=0
found=$(topics doctor --retry-for 0 2>/dev/null) || code=$?
wrong=$(awk -F '\t' '$2 == "wrong" { print $1 ": " $3 }' <<<"$found" | paste -sd ';' -)
warnings=$(awk -F '\t' '$2 == "warning" { print $1 ": " $3 }' <<<"$found" | paste -sd ';' -)
if [ "$code" = 69 ]; then
    echo "CRITICAL - no daemon"
    exit 2
elif [ -z "$found" ]; then
    echo "UNKNOWN - topics doctor ended with $code"
    exit 3
elif [ -n "$wrong" ]; then
    echo "CRITICAL - $wrong"
    exit 2
elif [ -n "$warnings" ]; then
    echo "WARNING - $warnings"
    exit 1
fi
echo "OK - $(awk -F '\t' '$1 == "ready" { print $3 }' <<<"$found")"
