"""Validation of DeviceClasses."""

from __future__ import annotations

from kubechronicle.api.builtin.common.resource_amounts import is_extended
from kubechronicle.api.builtin.resource.devices import (
    MAX_CONFIGS,
    MAX_SELECTORS,
    cel_selector,
    check_each,
    configuration,
)
from kubechronicle.api.errors.field_errors import Cause, invalid_value
from kubechronicle.api.values.objects import Object


def device_class(obj: Object) -> list[Cause]:
    """Check the selectors, driver configuration and extended resource name of a DeviceClass."""
    spec = obj["spec"]
    causes = check_each(spec.get("selectors"), MAX_SELECTORS, "spec.selectors", cel_selector)
    causes += check_each(spec.get("config"), MAX_CONFIGS, "spec.config", configuration)
    name = spec.get("extendedResourceName")
    if name is not None and not is_extended(name):
        causes.append(invalid_value("spec.extendedResourceName", name, "must be a valid extended resource name"))
    return causes
