"""Removed API versions, which --runtime-config can enable again.

A table like resources.py: their rows, and the releases that deprecated and removed them. schema/legacy.py has their
types as differences; their conversions are in the folders of their groups. Objects are always stored in the present
version. Source: the API deprecation guide, and the life cycle of each type in k8s.io/api.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kubechronicle.api.registry.resources import GROUPS, Row


@dataclass(frozen=True, slots=True)
class Legacy:
    """A removed version of ``resources``.

    ``replacement``: their version today.
    ``deprecated``, ``removed``: minor versions of Kubernetes 1.
    """

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
        """Return the rows of its resources, which are those of the replacing version."""
        for row in GROUPS[self.group][self.replacement]:
            if row.plural in self.resources:
                yield row

    def warning(self, kind: str) -> str:
        """Return kube-apiserver's warning for each request of the kind in this version."""
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
"""(group, version) -> its record, in the order of discovery."""
