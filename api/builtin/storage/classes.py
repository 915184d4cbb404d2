"""StorageClass: a way to provision volumes.

Source: Kubernetes' ``registry/storage/storageclass``, ``apis/storage`` and ``pkg/printers/internalversion``.

VolumeAttributesClass: parameters that a volume can change.

Source: Kubernetes' ``registry/storage/volumeattributesclass``, ``apis/storage`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import one_of_if_set, qualified_name, unique, wrong
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import AGE, NAME, Cells, Printer, age_of, field_column, name_of
from kubechronicle.api.builtin.common.scheduling import old_label_warnings
from kubechronicle.api.errors.field_errors import Cause, duplicate, forbidden, invalid_value, required, too_long
from kubechronicle.api.kinds.reading import enum
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object, ReadOnlyObject

# -- validation -------------------------------------------------------------------------------------------------------

MAX_PARAMETERS: Final = 512
MAX_PARAMETERS_SIZE: Final = 256 * 1024
MAX_REPEATED: Final = 100
"""Causes for one topology that occurs before: Kubernetes has one for each earlier occurrence, without a limit."""


def check_parameters(parameters: Mapping[str, str], field: str, *, needed: bool = False) -> list[Cause]:
    if len(parameters) > MAX_PARAMETERS:
        return [too_long(field, MAX_PARAMETERS)]
    causes = [invalid_value(field, key, "field can not be empty.") for key in parameters if not key]
    size = sum(len(key.encode()) + len(value.encode()) for key, value in parameters.items())
    if size > MAX_PARAMETERS_SIZE:
        causes.append(too_long(field, MAX_PARAMETERS_SIZE))
    if needed and not parameters:
        causes.append(required(field, "must contain at least one key/value pair"))
    return causes


def check_provisioner(name: str, field: str) -> list[Cause]:
    return qualified_name(name.lower(), field) if name else [required(field)]


def validate_storage_class(obj: Object) -> list[Cause]:
    """Check the provisioner, parameters, modes and topologies of a StorageClass."""
    causes = check_provisioner(obj["provisioner"], "provisioner") if obj.get("provisioner") else []
    causes += check_parameters(obj.get("parameters") or {}, "parameters")
    policy, mode = obj.get("reclaimPolicy"), obj.get("volumeBindingMode")
    causes += one_of_if_set(policy or None, ("Delete", "Retain"), "reclaimPolicy")
    if mode is None:
        causes.append(required("volumeBindingMode"))
    causes += one_of_if_set(mode, enum("storage.v1.VolumeBindingMode"), "volumeBindingMode")
    return causes + _topologies(obj.get("allowedTopologies") or ())


def _topologies(terms: Any) -> list[Cause]:
    causes: list[Cause] = []
    earlier: Counter[frozenset[tuple[str, frozenset[str]]]] = Counter()
    for index, term in enumerate(terms):
        seen: dict[str, frozenset[str]] = {}
        for position, requirement in enumerate(term.get("matchLabelExpressions") or ()):
            path = f"allowedTopologies[{index}].matchLabelExpressions[{position}]"
            key, values = requirement.get("key", ""), requirement.get("values") or []
            if not values:
                causes.append(required(f"{path}.values"))
            causes += unique(values, f"{path}.values")
            causes += wrong(f"{path}.key", key, names.qualified_name(key))
            if key in seen:
                causes.append(duplicate(f"{path}.key", key))
            seen[key] = frozenset(values)
        shown = frozenset(seen.items())
        # Kubernetes compares a term with every earlier one, and first with as many empty terms as there are terms.
        times = min(earlier[shown] + (0 if seen else len(terms)), MAX_REPEATED)
        causes += [duplicate(f"allowedTopologies[{index}].matchLabelExpressions", "")] * times
        earlier[shown] += 1
    return causes


# -- warnings ---------------------------------------------------------------------------------------------------------


def storage_class_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about old labels in the allowed topologies."""
    return [
        warning
        for index, term in enumerate(new.get("allowedTopologies") or ())
        for position, expression in enumerate(term.get("matchLabelExpressions") or ())
        for warning in old_label_warnings(
            expression.get("key", ""), f"allowedTopologies[{index}].matchLabelExpressions[{position}].key"
        )
    ]


# -- table columns ----------------------------------------------------------------------------------------------------

_DEFAULT_CLASS: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)


def _cells(obj: ReadOnlyObject, since: Since, *, default: str = "") -> list[Any]:
    name = name_of(obj)
    return [
        f"{name} (default)" if name == default else name,
        obj.get("provisioner") or "",
        obj.get("reclaimPolicy") or "Delete",
        obj.get("volumeBindingMode") or "Immediate",
        bool(obj.get("allowVolumeExpansion")),
        age_of(obj, since),
    ]


def _default_of(classes: Sequence[ReadOnlyObject]) -> str:
    """Return the name of the class that claims without one get: the newest of the marked ones; "" if there is none."""
    marked = [each for each in classes if _is_marked(each)]
    newest = max((_created(each) for each in marked), default="")
    return min((name_of(each) for each in marked if _created(each) == newest), default="")


def _is_marked(obj: ReadOnlyObject) -> bool:
    given = obj["metadata"].get("annotations") or {}
    return any(given.get(key) == "true" for key in _DEFAULT_CLASS)


def _created(obj: ReadOnlyObject) -> str:
    return obj["metadata"].get("creationTimestamp") or ""


def _cells_of_list(classes: Sequence[ReadOnlyObject]) -> Cells:
    return partial(_cells, default=_default_of(classes))


_CLASS: Final = "storage.v1.StorageClass"


# -- the kind ---------------------------------------------------------------------------------------------------------

STORAGECLASS: Final = BuiltinKind(
    resource="storageclasses.storage.k8s.io",
    strategy=Strategy(
        update_checks=(Check.METADATA, Check.OBJECT, Check.METADATA_CHANGE, Check.CHANGE),
        returns_deleted=True,
        status=False,
        validate=validate_storage_class,
        warnings=storage_class_warnings,
    ),
    default_values={"storage.v1.StorageClass": {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}},
    printer=Printer(
        (
            NAME,
            field_column("Provisioner", f"{_CLASS}.provisioner"),
            field_column("ReclaimPolicy", f"{_CLASS}.reclaimPolicy"),
            field_column("VolumeBindingMode", f"{_CLASS}.volumeBindingMode"),
            field_column("AllowVolumeExpansion", f"{_CLASS}.allowVolumeExpansion"),
            AGE,
        ),
        _cells,
        cells_of_list=_cells_of_list,
    ),
)


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


def _volumeattributesclass_cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [name_of(obj), obj.get("driverName") or "", age_of(obj, since)]


VOLUMEATTRIBUTESCLASS: Final = BuiltinKind(
    resource="volumeattributesclasses.storage.k8s.io",
    strategy=Strategy(
        returns_deleted=True,
        status=False,
        validate=validate_attributes_class,
        validate_update=validate_attributes_class_update,
    ),
    printer=Printer(
        (NAME, field_column("DriverName", "storage.v1.VolumeAttributesClass.driverName"), AGE),
        _volumeattributesclass_cells,
    ),
)

KINDS: Final = (
    STORAGECLASS,
    VOLUMEATTRIBUTESCLASS,
)
