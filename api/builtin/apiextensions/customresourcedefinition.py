"""CustomResourceDefinition: its strategy, and the validation of its creation, update and status.

A write of the object never changes the status but for stored versions. Some rules hold only for what an update
changes (validation_schema.py). Source: apiextensions-apiserver ``pkg/registry/customresourcedefinition/strategy.go``,
``pkg/apis/apiextensions`` with its validation and defaults, and ``pkg/apiserver/validation/formats.go``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from kubechronicle.api.builtin.apiextensions import printed, validation_names
from kubechronicle.api.builtin.apiextensions.hub import (
    Hub,
    every,
    has_default,
    has_extensions,
    hub,
    openapi_of,
    unsupported,
)
from kubechronicle.api.builtin.apiextensions.validation_defaults import drop_unknown_metadata
from kubechronicle.api.builtin.apiextensions.validation_schema import (
    Demands,
    condition_is_true,
    demands_of,
    schema_causes,
)
from kubechronicle.api.builtin.apiextensions.validation_versions import (
    NONE,
    conversion_causes,
    printer_columns,
    selectable_fields,
    subresources,
)
from kubechronicle.api.builtin.apiextensions.where import SchemaPatterns, Where
from kubechronicle.api.builtin.common.cell_text import Since, is_true
from kubechronicle.api.builtin.common.checks import immutable, one_of
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import CREATED_AT, NAME, Column, Printer, name_of, wide
from kubechronicle.api.errors.field_errors import BoundedCauses, Cause, go_quote, invalid_value, required
from kubechronicle.api.meta import metadata
from kubechronicle.api.strategy.strategy import MOST_WARNINGS, Check, Strategy, status_update
from kubechronicle.api.values.objects import Object, ReadOnlyObject

# -- defaults ---------------------------------------------------------------------------------------------------------


def default_custom_resource_definition(obj: Object) -> None:
    """Derive the singular and list names from the kind, set the conversion strategy, and note the stored version."""
    spec = obj["spec"]
    names = spec.setdefault("names", {})
    kind = names.get("kind", "")
    if kind:
        names["singular"] = names.get("singular") or kind.lower()
        names["listKind"] = names.get("listKind") or f"{kind}List"
    if spec.get("conversion") is None:
        spec["conversion"] = {"strategy": "None"}
    webhook = spec["conversion"].get("webhook")
    if webhook is not None and not webhook.get("conversionReviewVersions") and webhook.get("clientConfig") is None:
        del spec["conversion"]["webhook"]  # kube-apiserver's internal form cannot hold it
    service_reference = ((spec["conversion"].get("webhook") or {}).get("clientConfig") or {}).get("service")
    if service_reference is not None and service_reference.get("port") is None:
        service_reference["port"] = 443
    status = obj.get("status")
    if status is not None and not status.get("storedVersions"):
        stored = [version.get("name", "") for version in spec.get("versions") or () if version.get("storage")]
        if stored:
            status["storedVersions"] = stored[:1]


# -- preparation ------------------------------------------------------------------------------------------------------


def _note_storage_version(new: Object) -> None:
    """Add the storage version to the stored versions. The old object may hold the same status: it is copied."""
    status = new.get("status") or {}
    stored = status.get("storedVersions") or []
    for version in new["spec"].get("versions") or ():
        if version.get("storage"):
            if version.get("name", "") not in stored:
                new["status"] = {**status, "storedVersions": [*stored, version.get("name", "")]}
            return


# -- validation -------------------------------------------------------------------------------------------------------

SCOPES = ("Cluster", "Namespaced")
ESTABLISHED = "Established"
STRICT = Demands(any_bundle=False)
"""All rules, for an update that needs no tolerance."""


def validate_definition(new: Object) -> list[Cause]:
    """Return the problems of a new definition, its metadata included."""
    check = validation_names.check_name(new)
    causes = metadata.validate(new["metadata"], namespaced=False, name_check=check, kube=False)
    causes += _Spec(hub(new["spec"]), Demands()).check()
    causes += validate_definition_status(new, None)
    causes += _stored_versions(new)
    causes += validation_names.approval(new, None)
    return causes + list(_preserving(new, None))


def validate_definition_change(new: Object, old: Object) -> list[Cause]:
    """Return the problems of a changed definition. The problems of its metadata are found elsewhere."""
    form, held = hub(new["spec"]), hub(old["spec"])
    causes = _Spec(form, STRICT).check()
    if causes:  # seldom, so the old definition is seldom searched for flaws to tolerate
        causes = _Spec(form, demands_of(form, held, old)).check()
    causes += _constant(new["spec"], old["spec"], established=condition_is_true(old, ESTABLISHED))
    causes += validate_definition_status(new, old)
    causes += _stored_versions(new)
    causes += validation_names.approval(new, old)
    return causes + list(_preserving(new, old))


def validate_definition_status(new: Object, old: Object | None) -> list[Cause]:
    """Return the problems of a status, which is all that an update of the status checks."""
    accepted = (new.get("status") or {}).get("acceptedNames") or {}
    found = BoundedCauses()
    found.extend(validation_names.resource_names(accepted, Where.of("status").child("acceptedNames")))
    return found.found


def _constant(new: Object, old: Object, *, established: bool) -> list[Cause]:
    causes: list[Cause] = []
    names, held = new.get("names") or {}, old.get("names") or {}
    if established:
        causes += immutable("spec.scope", new.get("scope", ""), old.get("scope", ""))
        causes += immutable("spec.names.kind", names.get("kind", ""), held.get("kind", ""))
    causes += immutable("spec.group", new.get("group", ""), old.get("group", ""))
    return causes + immutable("spec.names.plural", names.get("plural", ""), held.get("plural", ""))


def _stored_versions(new: Object) -> list[Cause]:
    where, stored = Where.of("status").child("storedVersions"), (new.get("status") or {}).get("storedVersions")
    if not stored:
        return [invalid_value(where, stored, "must have at least one stored version")]
    found = BoundedCauses()
    places = {name: index for index, name in enumerate(stored)}
    for version in new["spec"].get("versions") or ():
        name = version.get("name", "")
        if version.get("storage") and name not in places:
            found.add(invalid_value(where, stored, f"must have the storage version {name}"))
        places.pop(name, None)
    for name, index in places.items():
        detail = (
            f"missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions "
            f"until a storage migration ensures no data remains persisted in {name} and removes {name} from "
            "status.storedVersions"
        )
        found.add(invalid_value(where.index(index), name, detail))
    return found.found


def _preserving(new: Object, old: Object | None) -> Iterator[Cause]:
    if new["spec"].get("preserveUnknownFields") and not (old and old["spec"].get("preserveUnknownFields")):
        detail = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        )
        yield invalid_value("spec.preserveUnknownFields", True, detail)


def _has_status(subresources: Mapping[str, Any] | None) -> bool:
    return subresources is not None and subresources.get("status") is not None


class _Spec:
    """The check of one spec."""

    def __init__(self, form: Hub, demands: Demands) -> None:
        self._hub = form
        self._spec = form.spec
        self._demands = demands
        self._where = Where.of("spec")
        schemas = list(form.schemas())
        self._defaults = any(map(has_default, schemas))
        self._structural = (
            demands.structural or not form.preserves_unknown or self._defaults or any(map(has_extensions, schemas))
        )
        self._patterns = SchemaPatterns()
        self._own_subresources = any(version.get("subresources") is not None for version in form.versions)
        self._found = BoundedCauses()

    def check(self) -> list[Cause]:
        spec, where, found = self._spec, self._where, self._found
        found.extend(validation_names.group(spec.get("group", ""), where.child("group")))
        found.extend(one_of(spec.get("scope", ""), SCOPES, "spec.scope"))
        found.extend(self._missing_schemas())
        if self._defaults and self._hub.preserves_unknown:
            detail = "must be false in order to use defaults in the schema"
            found.add(invalid_value(where.child("preserveUnknownFields"), True, detail))
        for index, version in enumerate(self._hub.versions):
            self._version(version, where.child("versions").index(index))
        found.extend(self._versions_together())
        names = spec.get("names") or {}
        found.extend(validation_names.required_names(names, where.child("names")))
        found.extend(validation_names.resource_names(names, where.child("names")))
        self._shared()
        self._conversion()
        return found.found

    def _missing_schemas(self) -> Iterator[Cause]:
        if openapi_of(self._hub.shared) is not None:
            return
        for index, version in enumerate(self._hub.versions):
            if openapi_of(version) is not None:
                continue
            at = self._where.child("versions").index(index).child("schema").child("openAPIV3Schema")
            if self._demands.schemas:
                yield required(at)
            elif version.get("served") and not self._hub.preserves_unknown:
                yield required(at, "because otherwise all fields are pruned")

    def _version(self, version: Object, where: Where) -> None:
        found, name = self._found, version.get("name", "")
        found.extend(validation_names.version_name(name, where.child("name")))
        found.extend(validation_names.deprecation_warning(version, where.child("deprecationWarning")))
        holder = version if self._own_subresources else self._hub.shared
        self._schema(version, where.child("schema"), name, has_status=_has_status(holder.get("subresources")))
        found.extend(subresources(version.get("subresources"), where.child("subresources")))
        columns = version.get("additionalPrinterColumns") or ()
        found.extend(printer_columns(columns, where.child("additionalPrinterColumns")))
        if version.get("selectableFields"):
            detail = "may only be set when `version.schema.openAPIV3Schema` is not included"
            self._selectable(version, where, name, detail)

    def _schema(self, holder: Mapping[str, Any], where: Where, name: str, *, has_status: bool) -> None:
        schema = openapi_of(holder)
        if schema is not None and not self._found.full:
            self._found.extend(
                schema_causes(
                    schema,
                    where,
                    self._demands,
                    self._patterns,
                    has_status=has_status,
                    unchanged=name in self._demands.unchanged,
                    must_be_structural=self._structural,
                )
            )

    def _selectable(self, holder: Mapping[str, Any], where: Where, name: str, missing: str) -> None:
        at, schema = where.child("selectableFields"), openapi_of(holder)
        if schema is None:
            self._found.add(invalid_value(at, "", missing))
            return
        reason = unsupported(schema)
        if reason:
            self._found.add(invalid_value(where.child("schema.openAPIV3Schema"), "", reason))
        many = name in self._demands.many_fields
        self._found.extend(selectable_fields(holder["selectableFields"], schema, at, any_number=many))

    def _versions_together(self) -> Iterator[Cause]:
        where, versions = self._where.child("versions"), self._hub.versions
        names = [version.get("name", "") for version in versions]
        problems = []
        if len(set(names)) < len(names):
            problems.append("must contain unique version names")
        if sum(bool(version.get("storage")) for version in versions) != 1:
            problems.append("must have exactly one version marked as storage version")
        if problems:
            shown = printed.versions(versions if "versions" in self._spec else None)
            if self._spec.get("versions", ()) is None:
                shown = None
            for problem in problems:
                yield invalid_value(where, shown, problem)
        if names and names[0]:
            yield from validation_names.version_name(names[0], self._where.child("version"))

    def _shared(self) -> None:
        """Check what all versions share."""
        shared, where, found = self._hub.shared, self._where, self._found
        first = self._hub.versions[0].get("name", "") if self._hub.versions else ""
        holders = (shared, *self._hub.versions)
        has_status = any(_has_status(holder.get("subresources")) for holder in holders)
        self._schema(shared, where.child("validation"), first, has_status=has_status)
        found.extend(subresources(shared.get("subresources"), where.child("subresources")))
        columns = shared.get("additionalPrinterColumns") or ()
        found.extend(printer_columns(columns, where.child("additionalPrinterColumns")))
        if shared.get("selectableFields"):
            self._selectable(shared, where, "", "may only be set when validations.schema is included")

    def _conversion(self) -> None:
        conversion, where = self._spec.get("conversion"), self._where.child("conversion")
        if conversion is None:
            return
        strategy = conversion.get("strategy", "")
        if strategy != NONE and self._hub.preserves_unknown:
            detail = "must be None if spec.preserveUnknownFields is true"
            self._found.add(invalid_value(where.child("strategy"), strategy, detail))
        self._found.extend(
            conversion_causes(
                conversion, where, known_review=self._demands.known_review, any_bundle=self._demands.any_bundle
            )
        )


# -- warnings ---------------------------------------------------------------------------------------------------------

_OF_STRINGS: Final = frozenset(
    (
        "bsonobjectid", "uri", "email", "hostname", "ipv4", "ipv6", "cidr", "mac", "uuid", "uuid3", "uuid4", "uuid5",
        "isbn", "isbn10", "isbn13", "creditcard", "ssn", "hexcolor", "rgbcolor", "byte", "password", "date",
        "duration", "datetime", "k8sshortname", "k8slongname",
    )
)  # fmt: skip
"""Formats of strings, without dashes."""
_OF_NUMBERS: Final = {"integer": ("int32", "int64"), "number": ("float", "double")}


def is_known(kind: str, shape: str) -> bool:
    """Return whether a format is known for a type; "" is any type."""
    if kind in ("", "string"):
        return shape.replace("-", "") in _OF_STRINGS
    return shape in _OF_NUMBERS.get(kind, ())


def _unknown_formats(obj: Object, limit: int) -> list[str]:
    found: list[str] = []
    for schema in hub(obj["spec"]).schemas():
        for each in every(schema):
            shape = each.get("format")
            if shape and not is_known(each.get("type", ""), shape):
                found.append(shape)
                if len(found) >= limit:
                    return found
    return found


def definition_warnings(new: Object, old: Object | None) -> list[str]:
    """Warn about each unknown format that the old definition does not have."""
    if old is None:
        return [f"unrecognized format {go_quote(shape)}" for shape in _unknown_formats(new, MOST_WARNINGS)]
    held = set(_unknown_formats(old, 1 << 30))
    found = [shape for shape in _unknown_formats(new, 1 << 30) if shape not in held]
    return [f"unrecognized format {go_quote(shape)}" for shape in found[:MOST_WARNINGS]]


# -- the kind ---------------------------------------------------------------------------------------------------------


def _cells(obj: ReadOnlyObject, _: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    served = (version for version in spec.get("versions") or () if version.get("served"))
    shown = sorted(f"{each.get('name', '')}{'(storage)' if each.get('storage') else ''}" for each in served)
    names, conditions = spec.get("names") or {}, (obj.get("status") or {}).get("conditions")
    return [
        name_of(obj),
        spec.get("scope", ""),
        ",".join(shown),
        obj["metadata"].get("creationTimestamp", ""),
        spec.get("group", ""),
        names.get("kind", ""),
        ",".join(names.get("shortNames") or ()),
        is_true(conditions, "Established"),
    ]


KIND: Final = BuiltinKind(
    resource="customresourcedefinitions.apiextensions.k8s.io",
    strategy=Strategy(
        repeats_causes=True,
        generation=True,
        unconditional_update=False,
        kube_finalizers=False,
        checks_metadata=False,
        update_checks=(Check.METADATA_CHANGE, Check.CHANGE),
        prepare_create=_note_storage_version,
        prepare_update=lambda new, old: _note_storage_version(new),
        validate=validate_definition,
        validate_update=validate_definition_change,
        canonicalize=drop_unknown_metadata,
        warnings=definition_warnings,
        subresources=MappingProxyType(
            # Metadata may change with the status, as in kube-apiserver.
            {"status": status_update("spec", validate_update=validate_definition_status)}
        ),
    ),
    default_functions={"apiextensions.v1.CustomResourceDefinition": default_custom_resource_definition},
    printer=Printer(
        (
            NAME,
            Column("Scope", text="Cluster/Namespaced"),
            Column("Versions", text="Served versions"),
            CREATED_AT,
            wide("Group", "API group"),
            wide("Kind", "CustomResource kind"),
            wide("ShortNames", "Short names"),
            Column("Established", "boolean", text="Established status", priority=1),
        ),
        _cells,
        null_when_empty=True,
    ),
)
