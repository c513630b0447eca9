#!/bin/sh
# Write requirements.lock again from pyproject.toml: the run-time dependencies, the `test` extra and what builds the
# package, each with its exact version and the hashes of all its files. Versions already in the lock are kept as long
# as pyproject.toml allows them; UPGRADE=1 takes the newest.
set -eu
cd "$(dirname "$0")/.."
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
unset PIP_FIND_LINKS || true

"${PYTHON:-python3.11}" -m venv "$tools/venv"
"$tools/venv/bin/pip" install --quiet --disable-pip-version-check 'pip-tools>=7.5,<8'
[ -n "${UPGRADE:-}" ] || cp requirements.lock "$tools/requirements.lock" 2>/dev/null || true
"$tools/venv/bin/pip-compile" --quiet --extra test --build-deps-for editable --generate-hashes --allow-unsafe \
    --strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options \
    --no-header --no-annotate --newline lf --output-file "$tools/requirements.lock" pyproject.toml
{
    echo "# Made by \`make lock\` from pyproject.toml; do not edit. Exact versions, and the hashes of all their files."
    grep -v '^#' "$tools/requirements.lock"
} >requirements.lock
echo "lock: $(grep -c '==' requirements.lock) packages in requirements.lock"
