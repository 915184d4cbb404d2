"""The report at the end of ``make kinds``: kinds of a release that are not served, and gates that it has no more.

A test fails on those of stable versions of the served release. The others tell what there is to do for the next minor.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from kubechronicle.api.features.gates import ALL, Release, gates_of
from kubechronicle.api.kinds import reading
from kubechronicle.api.registry.groups import HISTORY
from kubechronicle.api.registry.lives import LEGACY
from kubechronicle.api.registry.resources import GROUPS
from kubechronicle.ops.settings.feature_gates import NAMED

NEVER_RESOURCES: Final[Mapping[str, str]] = {
    "admission.k8s.io": "reviews that are sent to webhooks",
    "imagepolicy.k8s.io": "reviews that are sent to a webhook",
    "apidiscovery.k8s.io": "discovery documents",
    "meta.k8s.io": "forms of objects of any kind",
    HISTORY: "our own kinds, which have a table of their own",
}
"""Groups without resources, and what their kinds are."""
NO_RESOURCES: Final[Mapping[str, str]] = {
    "core.v1.List": "a list of objects of any kind",
    "core.v1.RangeAllocation": "the allocation of addresses and ports in etcd",
    "core.v1.SerializedReference": "an annotation of former controllers",
    "apiextensions.v1.ConversionReview": "reviews that are sent to webhooks",
}
"""Kinds that are no resources, and what they are."""

NEVER_SERVED: Final = frozenset({("node.k8s.io", "v1alpha1"), ("rbac.authorization.k8s.io", "v1alpha1")})
"""Versions that kube-apiserver has types for, and serves no more. Their types do not say when they were removed."""
UNSERVED_PATHS: Final[Mapping[str, str]] = {
    r"/(healthz|livez|readyz)/(poststarthook/.+|autoregister-completion|log|loopback-serving-certificate)": (
        "Checks of parts that are no parts of this server; its own are at /readyz?verbose."
    ),
    r"/(healthz|livez|readyz)/etcd(-readiness)?": "The store is Postgres: /readyz/database.",
}
"""Patterns of paths that kube-apiserver names at / and this server does not, and why not."""

_STABLE: Final = re.compile(r"v\d+")


def unserved(minor: str, *, stable: bool = False) -> Iterator[str]:
    """Yield the kinds of a minor without a row in the table of resources: ``apps/v1 Deployment``.

    ``stable``: only those of stable versions. Kinds that the minor has removed do not count.
    """
    now = Release(*map(int, minor.split(".")))
    for (group, version, kind), declared in sorted(reading.release(minor).kinds.items()):
        removed = declared.marks.get("removed")
        if removed is not None and Release(*map(int, removed.split("."))) <= now:
            continue
        if group in NEVER_RESOURCES or (group, version) in NEVER_SERVED:
            continue
        if declared.full_name in NO_RESOURCES or kind.endswith(("Options", "List")):
            continue
        if declared.package.name == "meta.v1" or (stable and not _STABLE.fullmatch(version)):
            continue
        if kind not in _served(group, version):
            yield f"{declared.package.api_version} {kind}"


def gone_gates(minor: str) -> list[str]:
    """Return the gates that this server's code asks for, and a minor does not know: their features are always on."""
    return sorted({*NAMED} - gates_of(Release(*map(int, minor.split(".")))).keys() - ALL.keys())


def missing_paths(listed: Collection[str], served: Collection[str]) -> list[str]:
    """Return the paths that kube-apiserver names at /, and this server neither names nor explains."""
    known = re.compile("|".join(UNSERVED_PATHS))
    return [path for path in listed if path not in served and not known.fullmatch(path)]


def _served(group: str, version: str) -> set[str]:
    """Return the kinds of a version: of its resources, and of the bodies of subresources."""
    legacy = LEGACY.get((group, version))
    rows = legacy.rows() if legacy is not None else GROUPS.get(group, {}).get(version, ())
    return {row.kind for row in rows} | {kind for each, kind in _bodies() if each == (group, version)}


def _bodies() -> Iterator[tuple[tuple[str, str], str]]:
    """Yield group and version, and kind, of the bodies of all subresources."""
    for group, versions in GROUPS.items():
        for version, rows in versions.items():
            for sub in (sub for row in rows for sub in row.subs):
                other, _, its_version = sub.group_version.rpartition("/")
                yield (other, its_version) if sub.group_version else (group, version), sub.kind
