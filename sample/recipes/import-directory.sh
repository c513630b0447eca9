#!/usr/bin/env bash
# A directory of files into a topic, a record a file, whatever is in it: the name is the tag, and the content comes back
# byte for byte. What went in is moved to done/; the key is made of name and content, so a file that went in just before
# a crash is not written again by the next run.
#   import-directory.sh /srv/spool uploads
set -euo pipefail

directory=$1
topic=$2
mkdir -p "$directory/done"
find "$directory" -maxdepth 1 -type f ! -name '.*' -print0 | sort -z | while IFS= read -r -d '' file; do
    name=$(basename -- "$file")
    key=$(printf '%s\0' "$name" | cat - "$file" | sha256sum | cut -c1-64)
    { printf '%d\n' "$(stat -c %s -- "$file")" && cat -- "$file"; } |
        topics write "$topic" --length --tag "$name" --idempotency-key "$key" --retry-for 10m >/dev/null
    mv -- "$file" "$directory/done/"
done
