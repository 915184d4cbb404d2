"""VolumeAttributesClass: parameters that a volume can change.

Source: Kubernetes' ``registry/storage/volumeattributesclass``, ``apis/storage`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, age_of, field_column, name_of
from kubechronicle.api.builtin.storage.storageclass import check_parameters, check_provisioner
from kubechronicle.api.errors.field_errors import Cause, forbidden
from kubechronicle.api.strategy.strategy import Strategy
from kubechronicle.api.values.objects import Object, ReadOnlyObject


def validate_attributes_class(obj: Object) -> list[Cause]:
    """Check the driver and the parameters of a VolumeAttributesClass."""
    causes = check_provisioner(obj.get("driverName", ""), "driverName")
    return causes + check_parameters(obj.get("parameters") or {}, "parameters", needed=True)


def validate_attributes_class_update(new: Object, old: Object) -> list[Cause]:
    """Reject changes: the meaning of a class is fixed."""
    return [
        forbidden(name, f"updates to {name} are forbidden.")
        for name in ("driverName", "parameters")
        if new.get(name) != old.get(name)
    ]


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [name_of(obj), obj.get("driverName") or "", age_of(obj, since)]


KIND: Final = BuiltinKind(
    resource="volumeattributesclasses.storage.k8s.io",
    strategy=Strategy(
        returns_deleted=True,
        status=False,
        validate=validate_attributes_class,
        validate_update=validate_attributes_class_update,
    ),
    printer=Printer((NAME, field_column("DriverName", "storage.v1.VolumeAttributesClass.driverName"), AGE), _cells),
)
