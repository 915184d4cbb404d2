"""The strategies of storage.k8s.io.

Sources are the ``strategy.go`` files of Kubernetes' ``registry/storage``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from kubechronicle.api.builtin.common.status_strategies import only_status
from kubechronicle.api.builtin.storage import validation, warnings
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values.objects import Object


def prepare_csi_driver_update(new: Object, old: Object) -> None:
    """Count changes of the spec in the generation."""
    if new["spec"] != old["spec"]:
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def default_scheduling(new: Object) -> None:
    """Let pods be scheduled where the driver is missing, as Kubernetes' defaults do with VolumeLimitScaling."""
    new["spec"].setdefault("preventPodSchedulingIfMissing", False)


def prepare_csi_driver_of_scheduling(new: Object, old: Object) -> None:
    """Default the field of VolumeLimitScaling, and count changes of the spec in the generation."""
    default_scheduling(new)
    prepare_csi_driver_update(new, old)


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "storageclasses.storage.k8s.io": Strategy(
        update_checks=(Check.METADATA, Check.OBJECT, Check.METADATA_CHANGE, Check.CHANGE),
        returns_deleted=True,
        status=False,
        validate=validation.storage_class,
        validate_update=validation.storage_class_update,
        warnings=warnings.storage_class_warnings,
    ),
    "csidrivers.storage.k8s.io": Strategy(
        update_checks=(Check.METADATA_CHANGE, Check.OBJECT, Check.CHANGE),
        returns_deleted=True,
        status=False,
        unconditional_update=False,
        prepare_update=prepare_csi_driver_update,
        with_gates={
            "VolumeLimitScaling": {
                "prepare_create": default_scheduling,
                "prepare_update": prepare_csi_driver_of_scheduling,
            }
        },
        validate=validation.csi_driver,
        validate_update=validation.csi_driver_update,
        warnings=warnings.csi_driver_warnings,
    ),
    "csinodes.storage.k8s.io": Strategy(
        update_checks=(Check.METADATA, Check.OBJECT, Check.CHANGE),
        returns_deleted=True,
        status=False,
        unconditional_update=False,
        validate=validation.csi_node,
        validate_update=validation.csi_node_update,
        without_gates={
            "MutableCSINodeAllocatableCount": {"validate_update": partial(validation.csi_node_update, mutable=())}
        },
    ),
    "csistoragecapacities.storage.k8s.io": Strategy(
        update_checks=(Check.METADATA, Check.OBJECT, Check.METADATA_CHANGE, Check.CHANGE),
        status=False,
        unconditional_update=False,
        validate=validation.storage_capacity,
        validate_update=validation.storage_capacity_update,
        warnings=warnings.storage_capacity_warnings,
    ),
    "volumeattachments.storage.k8s.io": Strategy(
        update_checks=(Check.METADATA, Check.OBJECT, Check.CHANGE),
        returns_deleted=True,
        unconditional_update=False,
        validate=validation.attachment,
        validate_update=validation.attachment_update,
        subresources=only_status(checks=(Check.METADATA, Check.OBJECT)),
    ),
    "volumeattributesclasses.storage.k8s.io": Strategy(
        returns_deleted=True,
        status=False,
        validate=validation.attributes_class,
        validate_update=validation.attributes_class_update,
    ),
}
