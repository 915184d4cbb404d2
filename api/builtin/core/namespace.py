"""Namespace: its phase, and the finalizers that clear its contents.

Source: Kubernetes' ``registry/core/namespace``, ``apis/core`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import wrong
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, at, name_of
from kubechronicle.api.errors.field_errors import Cause, invalid_value
from kubechronicle.api.strategy.strategy import Check, Strategy, SubresourceStrategy, keep, status_update
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object, ReadOnlyObject


def default_namespace(obj: Object) -> None:
    """Label every namespace with its name."""
    name = obj["metadata"].get("name")
    if name:
        obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name


NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"


def prepare_new_namespace(new: Object) -> None:
    """Set the phase to Active, and add the finalizer that clears the namespace's contents."""
    new["status"] = {"phase": "Active"}
    finalizers = new["spec"].setdefault("finalizers", [])
    if "kubernetes" not in finalizers:
        finalizers.append("kubernetes")


def keep_namespace_finalizers(new: Object, old: Object) -> None:
    """Keep spec.finalizers: only the finalize subresource changes them."""
    keep("finalizers", new["spec"], old["spec"])


def keep_namespace_status(new: Object, old: Object) -> None:
    """Keep the status: the finalize subresource changes only metadata and spec.finalizers."""
    keep("status", new, old)


def label_namespace(new: Object) -> None:
    """Set the label with the name, also for a generated name."""
    new["metadata"].setdefault("labels", {})[NAMESPACE_LABEL] = new["metadata"]["name"]


_STANDARD_FINALIZERS: Final = ("kubernetes", "orphan", "foregroundDeletion")


def _finalizer(name: str, field: str) -> list[Cause]:
    causes = wrong(field, name, names.qualified_name(name))
    if "/" not in name and name not in _STANDARD_FINALIZERS:
        detail = "name is neither a standard finalizer name nor is it fully qualified"
        causes.append(invalid_value(field, name, detail))
    return causes


def validate_namespace(obj: Object) -> list[Cause]:
    """Check the names of a namespace's finalizers."""
    finalizers = obj["spec"].get("finalizers") or ()
    return [cause for name in finalizers for cause in _finalizer(name, "spec.finalizers")]


def validate_namespace_finalize(new: Object, old: Object) -> list[Cause]:
    """Check finalizers in the finalize subresource; the causes name the index."""
    causes: list[Cause] = []
    for index, name in enumerate(new["spec"].get("finalizers") or ()):
        causes += _finalizer(name, f"spec.finalizers[{index}]")
    return causes


def validate_namespace_status(new: Object, old: Object) -> list[Cause]:
    """Check that the phase is Terminating for a deleted namespace, and Active otherwise."""
    deleted, phase = bool(new["metadata"].get("deletionTimestamp")), (new.get("status") or {}).get("phase", "")
    wanted, words = ("Terminating", "not empty") if deleted else ("Active", "empty")
    if phase == wanted:
        return []
    return [invalid_value("status.Phase", phase, f"may only be '{wanted}' if `deletionTimestamp` is {words}")]


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [name_of(obj), at(obj, "status", "phase", default=""), age_of(obj, since)]


KIND: Final = BuiltinKind(
    resource="namespaces",
    strategy=Strategy(
        unsafe_deletion=False,
        update_checks=(Check.METADATA, Check.OBJECT, Check.METADATA_CHANGE),
        names="label",
        prepare_create=prepare_new_namespace,
        prepare_update=keep_namespace_finalizers,
        canonicalize=label_namespace,
        validate=validate_namespace,
        returns_deleted=True,
        reset=(("status",),),
        subresources=MappingProxyType(
            {
                "status": status_update("spec", validate_update=validate_namespace_status),
                "finalize": SubresourceStrategy(
                    prepare=keep_namespace_status,
                    validate_update=validate_namespace_finalize,
                    reset=(("status",),),
                ),
            }
        ),
    ),
    default_values={"core.v1.NamespaceStatus": {"phase": "Active"}},
    default_functions={"core.v1.Namespace": default_namespace},
    printer=Printer((NAME, Column("Status", text="The status of the namespace"), AGE), _cells),
)
