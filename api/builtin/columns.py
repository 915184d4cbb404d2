"""Table columns of all built-in kinds, merged from the groups.

The order of the groups does not matter: each storage resource has one printer. Kinds without a printer are shown by
name and creation time, as in Kubernetes: LimitRange, Role, ClusterRole, CustomResourceDefinition and
CSIStorageCapacity.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin import kinds
from kubechronicle.api.builtin.common.printer import Printer

PRINTERS: Final[Mapping[str, Printer]] = {
    **kinds.PRINTERS,
}
"""Storage resource -> printer."""
