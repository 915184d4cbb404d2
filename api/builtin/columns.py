"""Table columns of all built-in kinds, merged from the groups.

The order of the groups does not matter: each storage resource has one printer. Kinds without a printer are shown by
name and creation time, as in Kubernetes: LimitRange, Role, ClusterRole, CustomResourceDefinition and
CSIStorageCapacity.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin import kinds
from kubechronicle.api.builtin.autoscaling import columns as autoscaling
from kubechronicle.api.builtin.certificates import columns as certificates
from kubechronicle.api.builtin.common.printer import Printer
from kubechronicle.api.builtin.discovery import columns as discovery
from kubechronicle.api.builtin.flowcontrol import columns as flowcontrol
from kubechronicle.api.builtin.networking import columns as networking
from kubechronicle.api.builtin.node import columns as node
from kubechronicle.api.builtin.rbac import columns as rbac
from kubechronicle.api.builtin.resource import columns as resource
from kubechronicle.api.builtin.scheduling import columns as scheduling
from kubechronicle.api.builtin.storage import columns as storage
from kubechronicle.api.builtin.storagemigration import columns as storagemigration

PRINTERS: Final[Mapping[str, Printer]] = {
    **kinds.PRINTERS,
    **autoscaling.PRINTERS,
    **certificates.PRINTERS,
    **discovery.PRINTERS,
    **flowcontrol.PRINTERS,
    **networking.PRINTERS,
    **node.PRINTERS,
    **rbac.PRINTERS,
    **resource.PRINTERS,
    **scheduling.PRINTERS,
    **storage.PRINTERS,
    **storagemigration.PRINTERS,
}
"""Storage resource -> printer."""
