"""Table columns of DeviceClasses, merged with those of the kinds' folders.

Source: Kubernetes' ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, aged
from kubechronicle.api.builtin.resource.resourceclaim import columns as resourceclaim
from kubechronicle.api.builtin.resource.resourceslice import columns as resourceslice

PRINTERS: Final[Mapping[str, Printer]] = {
    **resourceclaim.PRINTERS,
    **resourceslice.PRINTERS,
    "deviceclasses.resource.k8s.io": Printer((NAME, AGE), aged),
}
