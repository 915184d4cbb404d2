"""StorageVersionMigration: a demand to write all objects of a resource again.

Source: Kubernetes' ``registry/storagemigration``, ``apis/storagemigration`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

import re
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since, is_true
from kubechronicle.api.builtin.common.checks import conditions, dns_subdomain
from kubechronicle.api.builtin.common.go_shapes import in_go_order
from kubechronicle.api.builtin.common.kind import BuiltinKind, only_status
from kubechronicle.api.builtin.common.printer import Column, Printer, at, name_of
from kubechronicle.api.errors.field_errors import Cause, invalid_value, required
from kubechronicle.api.meta.metadata import IMMUTABLE
from kubechronicle.api.schema.equality import same_json
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object, ReadOnlyObject

SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
_REVISION: Final = re.compile(r"[1-9][0-9]*", re.ASCII)


def validate_migration(obj: Object) -> list[Cause]:
    """Check the name of the resource to migrate, and its group."""
    resource = _resource(obj)
    name, group = resource.get("resource", ""), resource.get("group", "")
    causes = [] if name else [required("spec.resource.resource", "resource is required to be set")]
    if name and (problems := names.dns_1035_label(name)):
        causes.append(invalid_value("spec.resource.resource", name, ",".join(problems)))
    return causes + (dns_subdomain(group, "spec.resource.group") if group else [])


def validate_migration_update(new: Object, old: Object) -> list[Cause]:
    """Reject a changed spec."""
    if same_json(new.get("spec") or {}, old.get("spec") or {}):
        return []
    resource = _resource(new)
    shown = {"group": resource.get("group", ""), "resource": resource.get("resource", "")}
    return [invalid_value("spec", {"Resource": shown}, IMMUTABLE)]


def migration_status(new: Object, old: Object) -> list[Cause]:
    """Check the revision and the conditions of a status. Neither the revision nor the end of a migration changes."""
    status, held = new.get("status") or {}, old.get("status") or {}
    revision, given = status.get("resourceVersion", ""), status.get("conditions") or []
    shown = [in_go_order(each, "meta.v1.Condition") for each in given]
    causes: list[Cause] = []
    if revision and not _REVISION.fullmatch(revision):
        text = f"resource version is not well formed: {revision}"
        causes.append(invalid_value("status.resourceVersion", revision, text))
    causes += conditions(given, "status.conditions")
    if held.get("resourceVersion") and held["resourceVersion"] != revision:
        causes.append(invalid_value("status.resourceVersion", revision, "field is immutable"))
    if is_true(given, SUCCEEDED) and is_true(given, FAILED):
        text = "Both success and failed conditions cannot be true at the same time"
        causes.append(invalid_value("status.conditions", shown, text))
    for kind, word in ((SUCCEEDED, "Success"), (FAILED, "Failed")):
        if is_true(held.get("conditions"), kind) and not is_true(given, kind):
            text = f"{word} condition cannot be set to false once it is true"
            causes.append(invalid_value("status.conditions", shown, text))
    return causes


def _resource(obj: Object) -> Object:
    found: Object = (obj.get("spec") or {}).get("resource") or {}
    return found


_SHOWN: Final = ("Running", "Failed", "Succeeded")


def _cells(obj: ReadOnlyObject, _: Since) -> list[Any]:
    resource, group = (at(obj, "spec", "resource", name, default="") for name in ("resource", "group"))
    true = [one.get("type") for one in at(obj, "status", "conditions", default=()) if one.get("status") == "True"]
    state = next((kind for kind in reversed(true) if kind in _SHOWN), "Unknown")
    return [name_of(obj), f"{resource}.{group}" if group else resource, state]


KIND: Final = BuiltinKind(
    resource="storageversionmigrations.storagemigration.k8s.io",
    strategy=Strategy(
        update_checks=(Check.METADATA, Check.OBJECT, Check.METADATA_CHANGE, Check.CHANGE),
        unconditional_update=False,
        subresources=only_status(migration_status),
        validate=validate_migration,
        validate_update=validate_migration_update,
    ),
    printer=Printer(
        (
            Column("Name", field="ObjectMeta.name"),
            Column("Resource", text="GroupResource to migrate"),
            Column("Status", text="Status of the migration"),
        ),
        _cells,
    ),
)
