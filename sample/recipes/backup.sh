#!/usr/bin/env bash
# A backup for each day, proven by restoring it: one that does not restore, or whose store fsck finds anything in, is no
# backup. The seven newest stay.
#   backup.sh /srv/backups
set -euo pipefail

directory=$1
day=${2:-$(date -u +%F)}
mkdir -p "$directory"
rm -rf "$directory/$day.part" "$directory/.check"
topics backup --to "$directory/$day.part" --retry-for 10m >/dev/null
topics restore "$directory/$day.part" --to "$directory/.check" >/dev/null
topics fsck "$directory/.check" >/dev/null
rm -rf "$directory/.check" "${directory:?}/$day"
mv "$directory/$day.part" "$directory/$day"
find "$directory" -mindepth 1 -maxdepth 1 -name '[0-9]*' | sort -r | tail -n +8 | xargs -r rm -rf
