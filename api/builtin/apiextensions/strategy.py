"""The strategy of CustomResourceDefinition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.common.status_strategies import STATUS
from kubechronicle.api.strategy.strategy import Strategy

STRATEGIES: Final[Mapping[str, Strategy]] = {
    "customresourcedefinitions.apiextensions.k8s.io": Strategy(
        generation=True, unconditional_update=False, subresources=STATUS, kube_finalizers=False
    ),
}
