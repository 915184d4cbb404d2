"""Facts from Go modules: the sources of a Kubernetes release, fetched by Go and read by facts.go.

The release v1.36.3 has version v0.36.3 of the libraries. API versions that a release no longer has, but that this
server can still serve, come from the last modules with them (`FORMER`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from kubechronicle.ops.development.differential import reference
from kubechronicle.ops.development.kinds.gates import run_go

Package = dict[str, Any]
"""A package as facts.go prints it; ``module`` is the module with its version."""

FACTS: Final = Path(__file__).with_name("facts.go")

API: Final = "k8s.io/api"
MACHINERY: Final = "k8s.io/apimachinery"
EXTENSIONS: Final = "k8s.io/apiextensions-apiserver"
EXTENSIONS_API: Final = "k8s.io/apiextensions-api"
"""The module of the types of EXTENSIONS since 1.38."""
AGGREGATOR: Final = "k8s.io/kube-aggregator"
MODULES: Final = (API, MACHINERY, EXTENSIONS, AGGREGATOR)
KUBERNETES: Final = "k8s.io/kubernetes"

OTHERS: Final = (
    f"{MACHINERY}/pkg/apis/meta/v1",
    f"{MACHINERY}/pkg/apis/meta/v1beta1",
    f"{AGGREGATOR}/pkg/apis/apiregistration/v1",
    f"{AGGREGATOR}/pkg/apis/apiregistration/v1beta1",
    f"{MACHINERY}/pkg/api/resource",
    f"{MACHINERY}/pkg/runtime",
    f"{MACHINERY}/pkg/types",
    f"{MACHINERY}/pkg/util/intstr",
    f"{MACHINERY}/pkg/version",
)
"""The packages beside the group versions of k8s.io/api."""

INTERNAL: Final = (
    *("batch", "certificates", "core", "flowcontrol", "lifecycle", "networking", "rbac", "resource", "scheduling"),
    "storage",
)
"""The groups whose internal types messages print (k8s.io/kubernetes ``pkg/apis``)."""

FORMER: Final = {"v0.25.16": (f"{API}/autoscaling/v2beta1", f"{API}/autoscaling/v2beta2")}
"""Version of k8s.io/api -> packages that later ones lack."""


def packages(release: str) -> list[Package]:
    """Return the packages of a release such as ``v1.36.3``, sorted by path. CalledProcessError: Go failed."""
    libraries = "v0" + release.removeprefix("v1")
    versions = dict.fromkeys(MODULES, libraries)
    folders = {module: folder(module, version) for module, version in versions.items()}
    extensions = EXTENSIONS
    if f"{EXTENSIONS_API} v" in (folders[EXTENSIONS] / "go.mod").read_text():
        extensions, versions[EXTENSIONS_API] = EXTENSIONS_API, libraries
        folders[EXTENSIONS_API] = folder(EXTENSIONS_API, libraries)
    definitions = [f"{extensions}/pkg/apis/apiextensions/{version}" for version in ("v1", "v1beta1")]
    found = _facts(folders, versions, [*_group_versions(folders[API]), *OTHERS, *definitions])
    for version, paths in FORMER.items():
        missing = [path for path in paths if path not in {each["path"] for each in found}]
        if missing:
            former = _facts({**folders, API: folder(API, version)}, {**versions, API: version}, missing)
            # The release does not know these versions, so its scheme has no options of theirs.
            found += [{**package, "options": False} for package in former]
    folders[KUBERNETES], versions[KUBERNETES] = folder(KUBERNETES, release), release
    groups = [each for each in INTERNAL if (folders[KUBERNETES] / "pkg" / "apis" / each).is_dir()]
    found += _facts(folders, versions, [f"{KUBERNETES}/pkg/apis/{each}" for each in groups])
    return sorted(found, key=lambda each: str(each["path"]))


def folder(module: str, version: str) -> Path:
    """Return the folder of a module's sources, which Go fetches if it has not yet."""
    answer = json.loads(_go("mod", "download", "-json", f"{module}@{version}"))
    return Path(answer["Dir"])


def _group_versions(api: Path) -> list[str]:
    return sorted(f"{API}/{found.parent.relative_to(api)}" for found in api.glob("*/v*/register.go"))


def _facts(folders: dict[str, Path], versions: dict[str, str], paths: list[str]) -> list[Package]:
    places = [f"{module}={found}" for module, found in folders.items()]
    printed: list[Package] = json.loads(_go("run", str(FACTS), *places, "--", *paths))
    for package in printed:
        module = next(each for each in versions if package["path"].startswith(each + "/"))
        package["module"] = f"{module}@{versions[module]}"
    return printed


def _go(*arguments: str) -> str:
    return run_go(reference.find_go(), FACTS.parent, *arguments)
