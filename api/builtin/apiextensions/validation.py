"""Validation of CustomResourceDefinitions: creation, update, and update of the status.

Lives here: the order of the checks, and what concerns all versions together. Not here: the checks of single parts
(validation_*.py), and what an update tolerates (demands.py). Paths are those of the internal form (hub.py).

Source: apiextensions-apiserver ``pkg/apis/apiextensions/validation/validation.go``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kubechronicle.api.builtin.apiextensions import (
    printed,
    validation_conversion,
    validation_names,
    validation_serving,
)
from kubechronicle.api.builtin.apiextensions.demands import Demands, condition_is_true, demands_of
from kubechronicle.api.builtin.apiextensions.hub import Hub, hub, openapi_of
from kubechronicle.api.builtin.apiextensions.pattern_check import Patterns
from kubechronicle.api.builtin.apiextensions.subschemas import has_default, has_extensions, unsupported
from kubechronicle.api.builtin.apiextensions.validation_schema import schema_causes
from kubechronicle.api.builtin.apiextensions.where import Causes, Where
from kubechronicle.api.builtin.common.checks import immutable, one_of
from kubechronicle.api.errors.field_errors import Cause, invalid_value, required
from kubechronicle.api.meta import metadata
from kubechronicle.api.values.objects import Object

SCOPES = ("Cluster", "Namespaced")
ESTABLISHED = "Established"
STRICT = Demands(any_bundle=False)
"""All rules, for an update that needs no tolerance."""


def definition(new: Object) -> list[Cause]:
    """Return the problems of a new definition, its metadata included."""
    check = validation_names.check_name(new)
    causes = metadata.validate(new["metadata"], namespaced=False, name_check=check, kube=False)
    causes += _Spec(hub(new["spec"]), Demands()).check()
    causes += definition_status(new, None)
    causes += _stored_versions(new)
    causes += validation_names.approval(new, None)
    return causes + list(_preserving(new, None))


def definition_change(new: Object, old: Object) -> list[Cause]:
    """Return the problems of a changed definition. The problems of its metadata are found elsewhere."""
    form, held = hub(new["spec"]), hub(old["spec"])
    causes = _Spec(form, STRICT).check()
    if causes:  # seldom, so the old definition is seldom searched for flaws to tolerate
        causes = _Spec(form, demands_of(form, held, old)).check()
    causes += _constant(new["spec"], old["spec"], established=condition_is_true(old, ESTABLISHED))
    causes += definition_status(new, old)
    causes += _stored_versions(new)
    causes += validation_names.approval(new, old)
    return causes + list(_preserving(new, old))


def definition_status(new: Object, old: Object | None) -> list[Cause]:
    """Return the problems of a status, which is all that an update of the status checks."""
    accepted = (new.get("status") or {}).get("acceptedNames") or {}
    found = Causes()
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
    found = Causes()
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
        self._patterns = Patterns()
        self._own_subresources = any(version.get("subresources") is not None for version in form.versions)
        self._found = Causes()

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
        found.extend(validation_serving.subresources(version.get("subresources"), where.child("subresources")))
        columns = version.get("additionalPrinterColumns") or ()
        found.extend(validation_serving.columns(columns, where.child("additionalPrinterColumns")))
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
        self._found.extend(
            validation_serving.selectable_fields(holder["selectableFields"], schema, at, any_number=many)
        )

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
        found.extend(validation_serving.subresources(shared.get("subresources"), where.child("subresources")))
        columns = shared.get("additionalPrinterColumns") or ()
        found.extend(validation_serving.columns(columns, where.child("additionalPrinterColumns")))
        if shared.get("selectableFields"):
            self._selectable(shared, where, "", "may only be set when validations.schema is included")

    def _conversion(self) -> None:
        conversion, where = self._spec.get("conversion"), self._where.child("conversion")
        if conversion is None:
            return
        strategy = conversion.get("strategy", "")
        if strategy != validation_conversion.NONE and self._hub.preserves_unknown:
            detail = "must be None if spec.preserveUnknownFields is true"
            self._found.add(invalid_value(where.child("strategy"), strategy, detail))
        self._found.extend(
            validation_conversion.conversion(
                conversion, where, known_review=self._demands.known_review, any_bundle=self._demands.any_bundle
            )
        )
