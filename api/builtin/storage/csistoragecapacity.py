"""CSIStorageCapacity: the free storage of a class in a part of the cluster.

Source: Kubernetes' ``registry/storage/csistoragecapacity``, ``apis/storage`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from typing import Final

from kubechronicle.api.builtin.common.checks import dns_subdomain, immutable, label_selector
from kubechronicle.api.builtin.common.go_shapes import selector
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.scheduling import old_label_warnings
from kubechronicle.api.errors.field_errors import Cause, invalid_value
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values import quantity
from kubechronicle.api.values.objects import Object


def validate_storage_capacity(obj: Object) -> list[Cause]:
    """Check the topology, class and capacity of a CSIStorageCapacity."""
    causes = label_selector(obj.get("nodeTopology"), "nodeTopology")
    causes += dns_subdomain(obj.get("storageClassName", ""), "storageClassName")
    given = obj.get("capacity")
    if given is not None and quantity.value_of(given) < 0:
        causes.append(invalid_value("capacity", given, "must be greater than or equal to 0"))
    return causes


def validate_storage_capacity_update(new: Object, old: Object) -> list[Cause]:
    """Reject a changed topology or class."""
    topologies = [selector(each.get("nodeTopology")) for each in (new, old)]
    causes = immutable("nodeTopology", *topologies)
    return causes + immutable("storageClassName", new.get("storageClassName"), old.get("storageClassName"))


def storage_capacity_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about old labels in the node topology."""
    topology, warnings = new.get("nodeTopology") or {}, list[str]()
    for index, expression in enumerate(topology.get("matchExpressions") or ()):
        warnings += old_label_warnings(expression.get("key", ""), f"nodeTopology.matchExpressions[{index}].key")
    for label in topology.get("matchLabels") or ():
        warnings += old_label_warnings(label, f"nodeTopology.matchLabels.{label}")
    return warnings


KIND: Final = BuiltinKind(
    resource="csistoragecapacities.storage.k8s.io",
    strategy=Strategy(
        update_checks=(Check.METADATA, Check.OBJECT, Check.METADATA_CHANGE, Check.CHANGE),
        status=False,
        unconditional_update=False,
        validate=validate_storage_capacity,
        validate_update=validate_storage_capacity_update,
        warnings=storage_capacity_warnings,
    ),
)
