"""Versions Kubernetes has served before and no longer does, which --runtime-config can switch on again.

A table like resources.py: their rows, and when they were deprecated and removed. Their types are told by the
differences in schema/legacy.py, their conversions stand in their groups' folders; objects are always kept in
the present version.
Source: the API deprecation guide and the life cycle of each type as k8s.io/api declares it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kubechronicle.api.registry.resources import GROUPS, Row


@dataclass(frozen=True, slots=True)
class Legacy:
    """A version of ``resources``, which are served in ``replacement`` today. ``deprecated`` and ``removed`` are minor
    versions of Kubernetes 1."""

    group: str
    version: str
    resources: tuple[str, ...]
    replacement: str
    deprecated: int
    removed: int

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"

    def rows(self) -> Iterator[Row]:
        """The rows of its resources: those of the version that replaces it."""
        for row in GROUPS[self.group][self.replacement]:
            if row.plural in self.resources:
                yield row

    def warning(self, kind: str) -> str:
        """What kube-apiserver tells everybody who asks for the kind in this version."""
        return (
            f"{self.api_version} {kind} is deprecated in v1.{self.deprecated}+, unavailable in v1.{self.removed}+; "
            f"use {self.group}/{self.replacement} {kind}"
        )


_VERSIONS: Final = (
    Legacy("autoscaling", "v2beta1", ("horizontalpodautoscalers",), "v2", deprecated=22, removed=25),
    Legacy("autoscaling", "v2beta2", ("horizontalpodautoscalers",), "v2", deprecated=23, removed=26),
    Legacy("batch", "v1beta1", ("cronjobs",), "v1", deprecated=21, removed=25),
    Legacy("policy", "v1beta1", ("poddisruptionbudgets",), "v1", deprecated=21, removed=25),
    Legacy("discovery.k8s.io", "v1beta1", ("endpointslices",), "v1", deprecated=21, removed=25),
)

LEGACY: Final[Mapping[tuple[str, str], Legacy]] = {(each.group, each.version): each for each in _VERSIONS}
"""(group, version) -> what is to be known of it, in the order in which discovery lists a group's versions."""
