"""Write the facts of a Kubernetes release into api/kinds/MINOR, or compare them: `make kinds KUBERNETES=v1.36.3`.

With --check, nothing is written; the exit code is 1 if a file differs, and each such file is named.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from kubechronicle.api.kinds import RELEASE
from kubechronicle.ops.development.differential import reference
from kubechronicle.ops.development.kinds import bootstrap, gates, modules, report, running, writing

ROOT: Final = Path(__file__).resolve().parents[3]
CACHE: Final = ROOT / ".cache" / "kinds"

Part = Callable[[str, Path], Iterator[tuple[str, str]]]
"""(release, folder for builds) -> (path below api/kinds/MINOR, text) of each of its files."""


def _gates(release: str, folder: Path) -> Iterator[tuple[str, str]]:
    yield gates.FILE, gates.feature_gates(release, folder)


def _types(release: str, folder: Path) -> Iterator[tuple[str, str]]:
    yield from writing.files(modules.packages(release), release).items()


def _bootstrap(release: str, folder: Path) -> Iterator[tuple[str, str]]:
    yield bootstrap.FILE, bootstrap.objects(release, folder)


def _server(release: str, folder: Path) -> Iterator[tuple[str, str]]:
    if release == RELEASE:  # the one that is built to compare with
        yield running.FILE, running.names(release)


PARTS: Final[Sequence[Part]] = (_types, _gates, _bootstrap, _server)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make kinds", description=__doc__)
    parser.add_argument("release", help="such as v1.36.3")
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    given = parser.parse_args(arguments)
    match = re.fullmatch(r"v(1\.\d+)\.\d+(-[a-z0-9.]+)?", given.release)
    if match is None:
        parser.error(f"KUBERNETES must be a release such as {RELEASE}, not {given.release}")
    try:
        code = _run(given.release, ROOT / "api" / "kinds" / match[1], check=given.check)
    except subprocess.CalledProcessError as error:
        print(error.stderr or error.output or error, file=sys.stderr)
        return 2
    except (writing.NoTypesError, reference.Unavailable) as error:
        print(error, file=sys.stderr)
        return 2
    if not given.check:
        for line in report.unserved(match[1]):
            print(f"not served: {line}")
        for name in report.gone_gates(match[1]):
            print(f"gate gone: {name}")
    return code


def _run(release: str, target: Path, *, check: bool) -> int:
    different = 0
    obsolete = {file for file in target.rglob("*") if file.is_file()}
    for part in PARTS:
        for name, text in part(release, CACHE):
            file = target / name
            obsolete.discard(file)
            if file.is_file() and file.read_text() == text:
                continue
            different += 1
            print(f"{file.relative_to(ROOT)} {'differs' if check else 'is written'}")
            if not check:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
    for file in sorted(obsolete):
        print(f"{file.relative_to(ROOT)} {'is obsolete' if check else 'is removed'}")
        if not check:
            file.unlink()
    return int(check and (different > 0 or bool(obsolete)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
