#!/bin/sh
# Make .venv with the locked dependencies and the kubechronicle command. `install.sh test` adds the tests' dependencies.
# Does nothing when .venv is up to date. Needs Python 3.11 or newer. If Python lacks venv (a bare Debian), root installs
# python3-venv with apt; other users need pip or virtualenv on the system.
# Environment: PYTHON (the interpreter to use; otherwise python3, or the system's if that was compiled to be faster).
set -eu
cd "$(dirname "$0")/.."
target=${1:-run}
case $target in
run) lock=requirements.lock ;;
test) lock=requirements-test.lock ;;
*) echo "install: usage: ops/install.sh [test]" >&2; exit 2 ;;
esac

say() { printf 'install: %s\n' "$*" >&2; }
die() { say "$*"; exit 2; }

fits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
has_venv() { "$1" -c 'import venv, ensurepip' 2>/dev/null; }
# Tell whether a Python says that it was compiled with profile-guided optimisation, with which it takes a tenth less CPU.
optimised() {
    "$1" -c 'import sys, sysconfig
sys.exit("--enable-optimizations" not in str(sysconfig.get_config_var("CONFIG_ARGS")))' 2>/dev/null
}
find_python() {
    for candidate in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11; do
        if [ -n "$candidate" ] && fits "$candidate"; then
            found=$(command -v "$candidate")
            # Distributions optimise theirs by other means. Version managers compile without, unless they are told to.
            if [ "$candidate" != "${PYTHON:-}" ] && ! optimised "$found" && fits "$system" && has_venv "$system"; then
                found=$system
            fi
            echo "$found"
            return
        fi
    done
    die "no Python 3.11 or newer; install one, or name it: make install PYTHON=/path/to/python3"
}
system=/usr/bin/python3

# One process at a time: two runs must not build the same .venv.
if command -v flock >/dev/null 2>&1 && [ "${KUBECHRONICLE_INSTALL_LOCKED:-}" != yes ]; then
    mkdir -p .cache
    KUBECHRONICLE_INSTALL_LOCKED=yes exec flock .cache/install.lock "$0" "$target"
fi

# Python compiles a module at its first import and keeps the result, unless PYTHONDONTWRITEBYTECODE is set, as in many
# containers. Then each start would compile every module, which takes most of a second.
compile_modules() {
    if [ -f .venv/.compiled ] && [ -z "$(find ./kubechronicle/*/ -name '*.py' -newer .venv/.compiled | head -n 1)" ]; then
        return
    fi
    touch .venv/.compiling # before compiling: files edited meanwhile are newer
    .venv/bin/python -m compileall -q "$(pwd -P)"/kubechronicle/* || say "some modules do not compile (see above)"
    mv .venv/.compiling .venv/.compiled
}

# The stamp: a checksum of the lock file, the package metadata, this script, and the folder's path, which is written into
# the scripts of .venv. A .venv with the tests' dependencies can run the server too.
stamp() { { pwd -P; cat "$1" pyproject.toml "$0"; } | cksum; }
for made in requirements.lock requirements-test.lock; do
    if [ "$made" = "$lock" ] || [ "$made" = requirements-test.lock ]; then
        stamped=.venv/.$made.stamp
        if [ -x .venv/bin/kubechronicle ] && [ -f "$stamped" ] && [ "$(cat "$stamped")" = "$(stamp "$made")" ]; then
            compile_modules
            exit 0
        fi
    fi
done

make_venv() {
    python=$(find_python)
    say "making .venv with $("$python" --version) ($python)"
    rm -rf .venv
    if ! has_venv "$python" && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        say "this Python lacks venv: installing python3-venv with apt-get"
        { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq -y install python3-venv; } >/dev/null ||
            say "apt-get could not install python3-venv"
    fi
    if has_venv "$python" && "$python" -m venv .venv; then return; fi
    rm -rf .venv
    # The system's pip can install pip into an environment without it.
    if "$python" -m venv --without-pip .venv 2>/dev/null &&
        "$python" -m pip --disable-pip-version-check --python .venv/bin/python install -q pip 2>/dev/null; then return; fi
    rm -rf .venv
    if command -v virtualenv >/dev/null 2>&1 && virtualenv -q -p "$python" .venv; then return; fi
    die "this Python can make no virtual environment; install python3-venv (as root: apt-get install python3-venv)"
}

pip() { .venv/bin/python -m pip --disable-pip-version-check "$@"; }

if ! { [ -x .venv/bin/python ] && fits .venv/bin/python && pip --version >/dev/null 2>&1; }; then make_venv; fi
say "installing $lock"
quiet=-q
if [ -t 2 ]; then quiet=; fi # a terminal shows what is fetched
pip install $quiet --require-hashes --no-deps -r "$lock" || die "pip could not install the dependencies (see above)"
# compat: a line in a .pth file. The usual finder of modules would take 5 % of the start of each command.
pip install -q --no-deps --no-build-isolation --config-settings editable_mode=compat --editable . ||
    die "pip could not install kubechronicle (see above)"
rm -f .venv/.requirements*.stamp
compile_modules
stamp "$lock" >".venv/.$lock.stamp"
