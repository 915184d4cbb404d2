"""The strategy of HorizontalPodAutoscaler.

Source: ``registry/autoscaling/horizontalpodautoscaler/strategy.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from kubechronicle.api.builtin.autoscaling import validation
from kubechronicle.api.strategy.strategy import Check, Strategy, status_update

STRATEGIES: Final[Mapping[str, Strategy]] = {
    "horizontalpodautoscalers.autoscaling": Strategy(
        update_checks=(Check.METADATA_CHANGE, Check.CHANGE),
        subresources=MappingProxyType({"status": status_update("spec", validate_update=validation.autoscaler_status)}),
        validate=validation.autoscaler,
        validate_update=validation.autoscaler_update,
        with_gates={
            "HPAScaleToZero": {
                "validate": partial(validation.autoscaler, least=0),
                "validate_update": partial(validation.autoscaler_update, least=0),
            }
        },
    ),
}
