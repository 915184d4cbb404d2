"""The life of API versions: their introduction, deprecation and removal, which api/kinds has for every kind; their
order.

Of removed versions, --runtime-config can enable those of the table LEGACY again. Their conversions are in the folders
of their groups. Objects are always stored in the present version.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kubechronicle.api.features.gates import PROGRAM, Release
from kubechronicle.api.kinds.reading import Declared
from kubechronicle.api.registry.resources import GROUPS, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """The releases of Kubernetes that introduced and removed a kind in one version; None: not known, or never.

    ``warning``: kube-apiserver's for each request of a deprecated one (apiserver ``pkg/endpoints/deprecation``).
    """

    introduced: Release | None = None
    removed: Release | None = None
    warning: str = ""


NO_LIFE: Final = Life()


def life_of(declared: Declared) -> Life:
    """Return the life of a kind. Its deprecation counts once the version of the program is there."""
    marks = declared.marks
    introduced, deprecated, removed = (_release(marks.get(name)) for name in ("introduced", "deprecated", "removed"))
    if deprecated is None or deprecated > PROGRAM:
        return Life(introduced=introduced)
    warning = f"{declared.package.api_version} {declared.name} is deprecated in v{deprecated}+"
    if removed is not None:
        warning += f", unavailable in v{removed}+"
    if "replacement" in marks:
        group, version, kind = marks["replacement"].split("/")
        warning += f"; use {group}/{version} {kind}"
    return Life(introduced=introduced, removed=removed, warning=warning)


def _release(text: str | None) -> Release | None:
    if text is None:
        return None
    major, _, minor = text.partition(".")
    return Release(int(major), int(minor))


@dataclass(frozen=True, slots=True)
class Legacy:
    """A removed version of ``resources``, whose version today is ``present``."""

    group: str
    version: str
    resources: tuple[str, ...]
    present: str

    def rows(self) -> Iterator[Row]:
        """Return the rows of its resources, which are those of the present version."""
        for row in GROUPS[self.group][self.present]:
            if row.plural in self.resources:
                yield row


_VERSIONS: Final = (
    Legacy("autoscaling", "v2beta1", ("horizontalpodautoscalers",), "v2"),
    Legacy("autoscaling", "v2beta2", ("horizontalpodautoscalers",), "v2"),
    Legacy("batch", "v1beta1", ("cronjobs",), "v1"),
    Legacy("policy", "v1beta1", ("poddisruptionbudgets",), "v1"),
    Legacy("discovery.k8s.io", "v1beta1", ("endpointslices",), "v1"),
)

LEGACY: Final[Mapping[tuple[str, str], Legacy]] = {(each.group, each.version): each for each in _VERSIONS}
"""(group, version) -> its record, in the order of discovery."""


_VERSION: Final = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")
_STAGES: Final = {None: 0, "beta": 1, "alpha": 2}


def version_priority(version: str) -> tuple[int, int, int, str]:
    """Return the sort key of Kubernetes' version order: v10, v2, v1, v11beta2, v3beta1, v12alpha1, then any others by
    name (apimachinery ``version.CompareKubeAwareVersionStrings``, highest first)."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return (3, 0, 0, version)
    major, stage, minor = match.groups()
    return (_STAGES[stage], -int(major), -int(minor or 0), "")
