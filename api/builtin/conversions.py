"""Converters between versions of all built-in kinds, merged from the groups, and fields that conversions set.

The order of the groups does not matter: each (kind, from, to) has one converter. A converter does not change its
argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kubechronicle.api.builtin.apps.daemonset.defaults import TEMPLATE_GENERATION
from kubechronicle.api.builtin.autoscaling import conversions as autoscaling
from kubechronicle.api.builtin.autoscaling import conversions_beta as autoscaling_beta
from kubechronicle.api.builtin.batch import conversions as batch
from kubechronicle.api.builtin.common.version_conversion import Converter
from kubechronicle.api.builtin.discovery import conversions as discovery
from kubechronicle.api.builtin.events import conversions as events
from kubechronicle.api.builtin.policy import conversions as policy
from kubechronicle.api.values.objects import Object

CONVERTERS: Final[Mapping[tuple[str, str, str], Converter]] = {
    **autoscaling.CONVERTERS,
    **autoscaling_beta.CONVERTERS,
    **batch.CONVERTERS,
    **discovery.CONVERTERS,
    **events.CONVERTERS,
    **policy.CONVERTERS,
}
"""(kind, from version, to version) -> converter."""


def _set_replicas(empty: Object) -> None:
    empty["spec"] = {"replicas": 0, **empty["spec"]}


def _set_template_generation(empty: Object) -> None:
    empty["metadata"].setdefault("annotations", {})[TEMPLATE_GENERATION] = "0"


FILL_EMPTY: Final[Mapping[str, Callable[[Object], None]]] = {
    "daemonsets.apps": _set_template_generation,
    "deployments.apps": _set_replicas,
    "replicasets.apps": _set_replicas,
    "statefulsets.apps": _set_replicas,
}
"""resource -> the step that sets what Kubernetes' conversion from its internal type sets in an object without contents,
as in a bookmark (``pkg/apis/apps/v1/conversion.go``)."""
