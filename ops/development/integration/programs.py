"""Packages of integration tests, and their test programs.

A package is named by its folder below test/integration, such as ``apiserver/cel``. ``crd`` and ``crd/…`` are those of
apiextensions-apiserver.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kubechronicle.ops.cluster.programs import version_flags
from kubechronicle.ops.development.integration.sources import CACHE, EXTENSIONS, KUBERNETES, OVERLAY

DEFINITIONS: Final = "crd"
PLAN: Final = "KUBECHRONICLE_PLAN"
"""The variable with the path of the plan (overlay/chronicle/plan.go)."""
BENCHMARKS: Final = ("benchmark", "ipamperf", "logs/benchmark", "scheduler_perf")
"""Packages, with those below them, that measure and test nothing."""
BUILD_TIMEOUT: Final = 2 * 3600.0


@dataclass(frozen=True, slots=True)
class Package:
    """``name``: as above."""

    name: str

    @property
    def is_of_definitions(self) -> bool:
        return self.name == DEFINITIONS or self.name.startswith(f"{DEFINITIONS}/")

    @property
    def path(self) -> str:
        """The folder within its module."""
        below = self.name.removeprefix(DEFINITIONS).removeprefix("/") if self.is_of_definitions else self.name
        return f"test/integration/{below}".rstrip("/")

    @property
    def folder(self) -> Path:
        """The folder in which the tests run, beside their data."""
        return (EXTENSIONS if self.is_of_definitions else KUBERNETES) / self.path

    @property
    def import_path(self) -> str:
        return f"k8s.io/apiextensions-apiserver/{self.path}" if self.is_of_definitions else f"./{self.path}"

    @property
    def program(self) -> Path:
        """The test program. Tests expect Go's name of it: it is in the user agent, and so in managed fields."""
        return CACHE / "bin" / self.name.replace("/", "_") / f"{Path(self.path).name}.test"

    def tests(self) -> list[str]:
        """Return the names of the tests. With a plan, be it empty, the program starts no etcd."""
        nothing = CACHE / "empty-plan.json"
        nothing.write_text("{}")
        listed = subprocess.run(
            [self.program, "-test.list", "^Test"], cwd=self.folder, capture_output=True, text=True, check=False,
            env=os.environ | {PLAN: str(nothing)},
        )  # fmt: skip
        return [name for name in listed.stdout.split() if name.startswith("Test")]


def all_packages() -> list[Package]:
    """Return every package with tests, but for benchmarks, by name."""
    found = [Package(_name(file.parent, KUBERNETES)) for file in KUBERNETES.glob("test/integration/**/*_test.go")]
    definitions = EXTENSIONS.glob("test/integration/**/*_test.go")
    found += [Package(f"{DEFINITIONS}/{_name(file.parent, EXTENSIONS)}".rstrip("/.")) for file in definitions]
    tests = {each for each in found if not f"{each.name}/".startswith(tuple(f"{name}/" for name in BENCHMARKS))}
    return sorted(tests, key=lambda package: package.name)


def _name(folder: Path, module: Path) -> str:
    return str(folder.relative_to(module / "test" / "integration"))


def build(go: str, packages: Sequence[Package], say: Callable[[str], None]) -> list[Package]:
    """Compile the test programs that are missing or older than the overlay. Return those that do not compile."""
    waiting = [package for package in packages if _is_old(package)]
    failed: list[Package] = []
    for batch in batches(waiting):
        began, made = time.monotonic(), CACHE / "bin" / f".{os.getpid()}"
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        done = subprocess.run(
            [go, "test", "-c", "-vet=off", f"-overlay={OVERLAY}", f"-ldflags=-s -w {version_flags()}", "-o", f"{made}/",
             *(package.import_path for package in batch)],
            cwd=KUBERNETES, env=go_environment(), capture_output=True, text=True, check=False, timeout=BUILD_TIMEOUT,
        )  # fmt: skip
        for package in batch:
            if (made / package.program.name).exists():
                package.program.parent.mkdir(parents=True, exist_ok=True)
                (made / package.program.name).replace(package.program)
            else:
                failed.append(package)
        shutil.rmtree(made)
        say(f"built {' '.join(package.name for package in batch)} in {time.monotonic() - began:.0f} s")
        if done.returncode:
            say("\n".join(line for line in done.stderr.splitlines() if not line.startswith("go: downloading"))[-3000:])
    return failed


def batches(packages: Sequence[Package]) -> list[list[Package]]:
    """Return groups to compile together: one run of Go cannot write two programs of the same name.

    >>> [len(each) for each in batches([Package("service"), Package("apiserver"), Package("crd/service")])]
    [2, 1]
    """
    groups: list[list[Package]] = []
    for package in packages:
        name = package.program.name
        fits = (group for group in groups if name not in {each.program.name for each in group})
        group = next(fits, None)
        if group is None:
            groups.append(group := [])
        group.append(package)
    return groups


def go_environment() -> dict[str, str]:
    return os.environ | {"GOWORK": "off", "GOFLAGS": "-mod=mod -buildvcs=false", "GOTOOLCHAIN": "auto"}


def _is_old(package: Package) -> bool:
    if not package.program.exists():
        return True
    changed = max(file.stat().st_mtime for file in Path(__file__).with_name("overlay").glob("*/*.go"))
    return package.program.stat().st_mtime < changed
