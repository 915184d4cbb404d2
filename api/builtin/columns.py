"""Every built-in kind's printer by storage resource, gathered from the tables beside.

A kind that is not here is shown by name and creation time: LimitRange, Role, ClusterRole, CustomResourceDefinition and
CSIStorageCapacity, as in Kubernetes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin import (
    columns_access,
    columns_config,
    columns_core,
    columns_history,
    columns_nodes,
    columns_workloads,
)
from kubechronicle.api.builtin.printer import Printer

PRINTERS: Final[Mapping[str, Printer]] = {
    **columns_core.PRINTERS,
    **columns_nodes.PRINTERS,
    **columns_workloads.PRINTERS,
    **columns_config.PRINTERS,
    **columns_access.PRINTERS,
    **columns_history.PRINTERS,
}
