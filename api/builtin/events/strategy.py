"""The strategy of Event, in both versions.

Source: ``registry/core/event/strategy.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.events import validation
from kubechronicle.api.strategy.strategy import UNSUPPORTED, Check, Strategy

STRATEGIES: Final[Mapping[str, Strategy]] = {
    "events": Strategy(
        update_checks=(Check.OBJECT, Check.CHANGE),
        checks_metadata=False,
        kube_finalizers=False,
        status=False,
        create_on_update=True,
        dependents=UNSUPPORTED,
        validate_as=validation.event_as,
    ),
}
