"""DeviceClass: a kind of devices, by selectors.

Source: Kubernetes' ``registry/resource/deviceclass``, ``apis/resource`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from typing import Final

from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, aged
from kubechronicle.api.builtin.resource.devices import (
    MAX_CONFIGS,
    MAX_SELECTORS,
    cel_selector,
    check_tagged,
    configuration,
)
from kubechronicle.api.errors.field_errors import Cause
from kubechronicle.api.strategy.gated_fields import GatedField
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values.names import any_name
from kubechronicle.api.values.objects import Object


def validate_device_class(obj: Object) -> list[Cause]:
    """Check the selectors and driver configuration of a DeviceClass."""
    spec = obj["spec"]
    causes = check_tagged(spec.get("selectors"), MAX_SELECTORS, "spec.selectors", cel_selector)
    return causes + check_tagged(spec.get("config"), MAX_CONFIGS, "spec.config", configuration)


KIND: Final = BuiltinKind(
    resource="deviceclasses.resource.k8s.io",
    strategy=Strategy(
        update_checks=(Check.METADATA, Check.METADATA_CHANGE, Check.OBJECT),
        check_name=any_name,  # a tag has the rule
        returns_deleted=True,
        status=False,
        generation=True,
        validate=validate_device_class,
    ),
    gated_fields={
        "": (GatedField(gate="DRAExtendedResource", fields=("spec.extendedResourceName",)),),
    },
    printer=Printer((NAME, AGE), aged),
)
