#!/bin/sh
# Make the lock files (requirements*.lock) from pyproject.toml with uv, for every platform and Python >= 3.11.
# Arguments are passed to `uv pip compile`, e.g. --upgrade or --upgrade-package trio.
set -eu
cd "$(dirname "$0")/.."
[ -x .cache/uv/bin/uv ] || { .venv/bin/python -m venv .cache/uv && .cache/uv/bin/pip install -q uv; }
compile() { # compile FILE HEADING ARGUMENT...
    file=$1 heading=$2
    shift 2
    cp "$file" ".cache/$file" 2>/dev/null || : >".cache/$file"
    # setuptools is locked too: kubechronicle is built without a separate build environment
    echo "setuptools>=77" | .cache/uv/bin/uv pip compile -q --universal --generate-hashes --python-version 3.11 \
        --no-annotate --no-header -o ".cache/$file" "$@" >/dev/null
    { echo "# Made by \`make lock\` from pyproject.toml: $heading. Do not edit."; cat ".cache/$file"; } >"$file"
}
compile requirements-test.lock "the dependencies of kubechronicle and its tests" pyproject.toml - --extra test "$@"
compile requirements.lock "the dependencies of kubechronicle" pyproject.toml - --constraint requirements-test.lock "$@"
compile requirements-bench.lock "the dependencies of the benchmarks' pictures" --group bench "$@"
compile requirements-site.lock "the programs of the docs site" --group site "$@"
compile requirements-release.lock "the programs for a release" - --group release "$@"
