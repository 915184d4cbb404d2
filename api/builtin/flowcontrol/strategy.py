"""The strategies of flowcontrol.apiserver.k8s.io.

Sources are the ``strategy.go`` files of Kubernetes' ``registry/flowcontrol``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.common.status_strategies import only_status
from kubechronicle.api.builtin.flowcontrol import validation
from kubechronicle.api.strategy.strategy import Strategy

STRATEGIES: Final[Mapping[str, Strategy]] = {
    "flowschemas.flowcontrol.apiserver.k8s.io": Strategy(
        generation=True,
        validate=validation.flow_schema,
        subresources=only_status(validation.conditions_update),
    ),
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": Strategy(
        generation=True,
        validate=validation.priority_level,
        subresources=only_status(validation.conditions_update),
    ),
}
