#!/bin/sh
# Build the source distribution and the wheel into dist/, and check them: `make release`.
#
#   - The wheel has the migrations, the API data and the web page, but no tests and no developers' tools.
#   - The source distribution builds a wheel with the same files.
#   - The bill of materials (CycloneDX) lists the locked dependencies with their hashes.
#   - The wheel runs in a new environment with the locked dependencies: `kubechronicle version` and `serve --help`.
#
# Needs .cache/release, the environment of the group `release` in pyproject.toml.
set -eu
cd "$(dirname "$0")/.."
root=$(pwd -P)
python=$root/.cache/release/bin/python
work=$root/.cache/release-check

say() { printf 'release: %s\n' "$*" >&2; }

say "building dist/"
rm -rf dist build "$work"
mkdir -p "$work"
build() { # build ARGUMENT...: print the output only on failure
    "$python" -m build --no-isolation "$@" >"$work/build.log" 2>&1 || { cat "$work/build.log" >&2; exit 1; }
}
build --sdist --outdir dist .
build --wheel --outdir dist .
rm -rf build
wheel=$(ls dist/*.whl) sdist=$(ls dist/*.tar.gz)

say "checking $wheel"
"$python" - "$wheel" <<'PYTHON'
import sys
import zipfile

names = zipfile.ZipFile(sys.argv[1]).namelist()
unwanted = ("kubechronicle/ops/bench/", "kubechronicle/ops/development/", "tests/", "kubechronicle/tests/")
wanted = {
    "kubechronicle/__init__.py",
    "kubechronicle/py.typed",
    "kubechronicle/migrations/schema.sql",
    "kubechronicle/ops/cli.py",
    "kubechronicle/ops/install/chart/templates/deployment.yaml",
}
problems = [f"{name} must not be in the wheel" for name in names if name.startswith(unwanted)]
problems += [f"{name} is missing" for name in sorted(wanted - set(names))]
for folder, ending in (("kubechronicle/api/", ".json"), ("kubechronicle/http/ui/", "")):
    if not any(name.startswith(folder) and name.endswith(ending) for name in names):
        problems.append(f"{folder}*{ending} is missing")
for shared in ("man/man1/kubechronicle.1", "bash-completion/completions/kubechronicle"):
    if not any(name.endswith(f".data/data/share/{shared}") for name in names):
        problems.append(f"share/{shared} is missing")
sys.exit("\n".join(problems) or None)
PYTHON

say "building the wheel once more, from $sdist"
tar -xzf "$sdist" -C "$work"
build --wheel --outdir "$work/dist" "$work"/kubechronicle-*
"$python" - "$wheel" "$work"/dist/*.whl <<'PYTHON'
import sys
import zipfile

first, second = ({name: file.read(name) for name in file.namelist()} for file in map(zipfile.ZipFile, sys.argv[1:]))
different = [name for name in sorted(first.keys() | second.keys()) if first.get(name) != second.get(name)]
sys.exit("\n".join(f"{name} differs" for name in different) or None)
PYTHON

say "writing the bill of materials"
bom=${wheel%-py3*}.cdx.json
"$root/.cache/release/bin/cyclonedx-py" requirements --pyproject pyproject.toml --output-reproducible --of JSON \
    -o "$bom" requirements.lock
grep -q '"bomFormat": "CycloneDX"' "$bom"

say "running it in a new environment"
"$python" -m venv "$work/venv"
"$work/venv/bin/pip" --disable-pip-version-check install -q --require-hashes --no-deps -r requirements.lock
"$work/venv/bin/pip" --disable-pip-version-check install -q --no-deps "$wheel"
"$work/venv/bin/pip" --disable-pip-version-check check >/dev/null
cd /
"$work/venv/bin/kubechronicle" version
"$work/venv/bin/kubechronicle" serve --help >/dev/null
[ -f "$work/venv/share/man/man1/kubechronicle.1" ]
cd "$root"
rm -rf "$work"
say "$sdist, $wheel and $bom are good"

# The tag, and the image with its labels, are the last steps of a release: of a commit, so they are told and not done.
version=$("$python" -c 'import tomllib; print(tomllib.load(open("pyproject.toml", "rb"))["project"]["version"])')
# Without a URL there is no label, either: an empty one would tell tools a wrong place.
url=$("$python" -c 'import tomllib; print(tomllib.load(open("pyproject.toml", "rb"))["project"].get("urls", {}).get("Source", ""))')
say "once the commit is on the main branch:"
cat <<COMMANDS
git tag --sign --message "kubechronicle $version" v$version && git push origin v$version
podman build --file ops/install/Containerfile --timestamp "\$(git log -1 --format=%ct v$version)" \\
  --build-arg VERSION=$version --build-arg REVISION="\$(git rev-parse v$version^{commit})" \\
  ${url:+--label org.opencontainers.image.source=$url }--tag kubechronicle:$version .
COMMANDS
