"""The strategy of RuntimeClass.

Source: ``registry/node/runtimeclass/strategy.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.node import validation, warnings
from kubechronicle.api.strategy.strategy import Check, Strategy

STRATEGIES: Final[Mapping[str, Strategy]] = {
    "runtimeclasses.node.k8s.io": Strategy(
        update_checks=(Check.METADATA, Check.OBJECT, Check.METADATA_CHANGE, Check.CHANGE),
        status=False,
        create_on_update=True,
        kube_finalizers=False,
        unconditional_update=False,
        validate=validation.runtime_class,
        validate_update=validation.runtime_class_update,
        warnings=warnings.runtime_class_warnings,
    ),
}
