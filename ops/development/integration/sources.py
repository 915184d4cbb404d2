"""The sources of Kubernetes' integration tests, and the overlay that has them start kubechronicle.

The tests call a few functions that start a server in their process. The overlay renames these, and adds others of the
same names (``overlay/starters``), which start a kubechronicle if there is a plan for it (``overlay/chronicle``). All
else is upstream's. The sources lie in .cache/integration/src, as tests write beside them.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from kubechronicle.api.kinds import RELEASE
from kubechronicle.ops.development.differential import reference

ROOT: Final = Path(__file__).resolve().parents[3]
CACHE: Final = (ROOT / ".cache" / "integration").resolve()
STAGING: Final = RELEASE.replace("v1.", "v0.", 1)
KUBERNETES: Final = CACHE / "src" / "kubernetes"
EXTENSIONS: Final = CACHE / "src" / "apiextensions-apiserver"
OVERLAY: Final = CACHE / "overlay.json"
GO_FILES: Final = Path(__file__).with_name("overlay")

RENAMED: Final[Mapping[str, tuple[str, ...]]] = {
    "kubernetes/cmd/kube-apiserver/app/testing/testserver.go": ("StartTestServer", "StartTestServerOrDie"),
    "kubernetes/test/integration/etcd/server.go": ("StartRealAPIServerOrDie",),
    "kubernetes/test/integration/framework/test_server.go": ("StartTestServer",),
    "kubernetes/test/integration/framework/etcd.go": ("EtcdMain", "StartEtcd", "RunCustomEtcd"),
    "apiextensions-apiserver/pkg/cmd/server/testing/testserver.go": ("StartTestServer",),
}  # fmt: skip
"""File of upstream -> the functions that the overlay has under the same name."""
STARTERS: Final[Mapping[str, str]] = {
    "kubernetes/cmd/kube-apiserver/app/testing": "apiserver.go",
    "kubernetes/test/integration/etcd": "etcd.go",
    "kubernetes/test/integration/framework": "framework.go",
    "apiextensions-apiserver/pkg/cmd/server/testing": "extensions.go",
}
"""Folder of upstream -> the file of ``overlay/starters`` that is added."""
LIBRARY: Final = "kubernetes/test/integration/chronicle"


def prepare(go: str) -> None:
    """Fetch the sources, and write the overlay. CalledProcessError: Go failed."""
    for module, version, target in (
        ("k8s.io/kubernetes", RELEASE, KUBERNETES),
        ("k8s.io/apiextensions-apiserver", STAGING, EXTENSIONS),
    ):
        if _version_in(target) != version:
            _copy(_fetched(go, module, version), target)
            (target / ".version").write_text(version)
    fixtures = KUBERNETES / "staging" / "src" / "k8s.io" / "api"  # tests read its testdata
    fixtures.parent.mkdir(parents=True, exist_ok=True)
    fixtures.unlink(missing_ok=True)
    fixtures.symlink_to(_fetched(go, "k8s.io/api", STAGING))
    module_file = KUBERNETES / "go.mod"
    module_file.write_text(with_replaced_modules(module_file.read_text()))
    OVERLAY.write_text(json.dumps({"Replace": _overlay()}, indent=1))


def _version_in(folder: Path) -> str:
    file = folder / ".version"
    return file.read_text() if file.exists() else ""


def _fetched(go: str, module: str, version: str) -> Path:
    CACHE.mkdir(parents=True, exist_ok=True)
    command = [go, "mod", "download", "-json", f"{module}@{version}"]
    done = subprocess.run(
        command, cwd=CACHE, env=reference.go_environment(), capture_output=True, text=True, check=True
    )
    return Path(json.loads(done.stdout)["Dir"])


def _copy(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    for path in (target, *target.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)  # the module cache is read-only
    for script in target.glob("test/integration/**/testdata/*.sh"):
        if "not-executable" not in script.name:
            script.chmod(0o755)  # the archive of a module keeps no modes


def with_replaced_modules(text: str) -> str:
    """Return Kubernetes' go.mod, with published modules in the place of its staging folders.

    >>> with_replaced_modules("k8s.io/api => ./staging/src/k8s.io/api\\n") == f"k8s.io/api => k8s.io/api {STAGING}\\n"
    True
    """
    text = re.sub(r"=> \./staging/src/(k8s\.io/\S+)", rf"=> \1 {STAGING}", text)
    return re.sub(r"(k8s\.io/apiextensions-apiserver) => .*", rf"\1 => {EXTENSIONS}", text)


def with_renamed(text: str, names: Iterable[str]) -> str:
    """Return Go source whose functions of these names have others: StartEtcd becomes startEtcdInProcess.

    Only their first lines change. ValueError: there is no such function.
    """
    for name in names:
        renamed = f"{name[0].lower()}{name[1:]}InProcess"
        text, count = re.subn(rf"^func {name}\(", f"func {renamed}(", text, flags=re.MULTILINE)
        if count != 1:
            raise ValueError(f"there are {count} functions {name}")
    return text


def _overlay() -> dict[str, str]:
    """Return the files that replace others while Go compiles, and those that are added."""
    replaced, folder = {}, CACHE / "renamed"
    folder.mkdir(exist_ok=True)
    for path, names in RENAMED.items():
        source, copy = CACHE / "src" / path, folder / path.replace("/", "_")
        copy.write_text(with_renamed(source.read_text(), names))
        replaced[str(source)] = str(copy)
    for path, name in STARTERS.items():
        replaced[str(CACHE / "src" / path / "zz_chronicle.go")] = str(GO_FILES / "starters" / name)
    for file in (GO_FILES / "chronicle").glob("*.go"):
        replaced[str(CACHE / "src" / LIBRARY / file.name)] = str(file)
    return replaced
