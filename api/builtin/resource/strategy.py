"""Strategy of DeviceClass, merged with those of the kinds' folders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.resource import validation
from kubechronicle.api.builtin.resource.resourceclaim import strategy as resourceclaim
from kubechronicle.api.builtin.resource.resourceslice import strategy as resourceslice
from kubechronicle.api.strategy.strategy import Check, Strategy

STRATEGIES: Final[Mapping[str, Strategy]] = {
    **resourceclaim.STRATEGIES,
    **resourceslice.STRATEGIES,
    "deviceclasses.resource.k8s.io": Strategy(
        update_checks=(Check.METADATA, Check.METADATA_CHANGE, Check.OBJECT),
        names="long",
        returns_deleted=True,
        status=False,
        generation=True,
        validate=validation.device_class,
    ),
}
