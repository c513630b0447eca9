#!/usr/bin/env bash
# What is new since the last run, as one more file of NDJSON: byte for byte, nothing twice and nothing left out.
# A file is named for the seq that it begins after and appears whole, by rename; a run that is cut short, wherever, is
# done again by the next one, into the same name.
#   15 0 * * *  export-night.sh orders /srv/exports
set -euo pipefail

topic=$1
directory=$2
mkdir -p "$directory"
place=$directory/.$topic.place
start=$(sed -n 's/.*"seq":\([0-9]*\).*/\1/p' "$place" 2>/dev/null || true)
file=$directory/$topic-$(printf %020d "${start:-0}").ndjson
rm -f "$place.next"
if [ -e "$place" ]; then cp "$place" "$place.next"; fi
topics tail "$topic" --from 0 --cursor "$place.next" -o raw --retry-for 10m >"$file.part"
if [ -s "$file.part" ]; then mv "$file.part" "$file"; else rm "$file.part"; fi
mv "$place.next" "$place"
