"""Defaults of ReplicaSets, merged with those of the kinds' folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kubechronicle.api.builtin.apps.daemonset import defaults as daemonset
from kubechronicle.api.builtin.apps.deployment import defaults as deployment
from kubechronicle.api.builtin.apps.statefulset import defaults as statefulset
from kubechronicle.api.values.objects import Object

VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    **daemonset.VALUES,
    **deployment.VALUES,
    **statefulset.VALUES,
    "apps.v1.ReplicaSetSpec": {"replicas": 1},
}

FUNCTIONS: Final[Mapping[str, Callable[[Object], None]]] = {
    **daemonset.FUNCTIONS,
    **deployment.FUNCTIONS,
    **statefulset.FUNCTIONS,
}
