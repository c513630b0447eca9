#!/bin/sh
# Write requirements.lock again from pyproject.toml: the run-time dependencies, the `test` extra and what builds the
# package, each with its exact version and the hashes of all its files; and what some extras need on top: exports and
# Spark in requirements-spark.lock, buckets and their tests in requirements-s3.lock, the site in requirements-docs.lock.
# Versions already in a lock are kept as long as pyproject.toml allows them; UPGRADE=1 takes the newest. ONLY=spark
# leaves the others as they are.
set -eu
cd "$(dirname "$0")/.."
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
unset PIP_FIND_LINKS || true

"${PYTHON:-python3.11}" -m venv "$tools/venv"
"$tools/venv/bin/pip" install --quiet --disable-pip-version-check 'pip-tools>=7.5,<8'

compile() { # NAME OPTIONS…: one lock file
    name=$1
    shift
    [ -n "${UPGRADE:-}" ] || cp "$name" "$tools/$name" 2>/dev/null || true
    "$tools/venv/bin/pip-compile" --quiet --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url \
        --no-emit-find-links --no-emit-trusted-host --no-emit-options --no-header --no-annotate --newline lf \
        --output-file "$tools/$name" "$@"
    {
        echo "# Made by \`make lock\` from pyproject.toml; do not edit. Exact versions, and the hashes of all their files."
        grep -v '^#' "$tools/$name"
    } >"$name"
    echo "lock: $(grep -c '==' "$name") packages in $name"
}

extras() { # NAME EXTRA…: the lock file of some extras, beside what requirements.lock has
    name=$1
    shift
    {
        echo "-c $PWD/requirements.lock"
        echo "-c $tools/alike.in"
        python3 -c 'import sys, tomllib
extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]
print("\n".join(sorted({need for name in sys.argv[1:] for need in extras[name] if not need.startswith("topics[")})))' "$@"
    } >"$tools/extras.in"
    compile "$name" "$tools/extras.in"
}

# botocore wants an older python-dateutil than others take: all locks go into one environment.
echo 'python-dateutil<3' >"$tools/alike.in"

wanted() { [ "${ONLY:-$1}" = "$1" ]; }

! wanted all || compile requirements.lock --extra test --build-deps-for editable pyproject.toml
! wanted spark || extras requirements-spark.lock export spark lake java
! wanted s3 || extras requirements-s3.lock s3 s3-test
! wanted docs || extras requirements-docs.lock docs
