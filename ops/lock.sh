#!/bin/sh
# Makes requirements.lock, requirements-test.lock and requirements-bench.lock from pyproject.toml with uv, for every
# platform and Python >= 3.11.
# Arguments go to `uv pip compile`, e.g. --upgrade or --upgrade-package trio.
set -eu
cd "$(dirname "$0")/.."
[ -x .cache/uv/bin/uv ] || { .venv/bin/python -m venv .cache/uv && .cache/uv/bin/pip install -q uv; }
compile() { # compile FILE HEADING ARGUMENT...
    file=$1 heading=$2
    shift 2
    cp "$file" ".cache/$file" 2>/dev/null || : >".cache/$file"
    # setuptools builds kubechronicle itself, without a download of its own
    echo "setuptools>=77" | .cache/uv/bin/uv pip compile -q --universal --generate-hashes --python-version 3.11 \
        --no-annotate --no-header -o ".cache/$file" "$@" >/dev/null
    { echo "# Made by \`make lock\` from pyproject.toml: $heading, exactly. Do not edit."; cat ".cache/$file"; } >"$file"
}
compile requirements-test.lock "what kubechronicle and its tests need" pyproject.toml - --extra test "$@"
compile requirements.lock "what kubechronicle needs to run" pyproject.toml - --constraint requirements-test.lock "$@"
compile requirements-bench.lock "what draws the benchmark's pictures" --group bench "$@"
