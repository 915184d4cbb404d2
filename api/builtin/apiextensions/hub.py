"""The internal form of a definition's spec, which kube-apiserver validates.

Schemas, subresources, columns and selectable fields that are the same in all versions move to the top, and the versions
lose them. So a definition with one version has its schema's problems at ``spec.validation``, not ``spec.versions[0]``.

Source: apiextensions-apiserver ``pkg/apis/apiextensions/v1/conversion.go``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kubechronicle.api.schema.equality import same_json
from kubechronicle.api.values.objects import Object

SHARED: Final = ("schema", "subresources", "additionalPrinterColumns", "selectableFields")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hub:
    """A spec whose versions lack the fields that are the same in all of them, and have moved to ``shared``."""

    spec: Object
    versions: Sequence[Object]
    shared: Mapping[str, Any]

    @property
    def preserves_unknown(self) -> bool:
        """True if unknown fields are kept, as in definitions of v1beta1."""
        return bool(self.spec.get("preserveUnknownFields"))

    def schemas(self) -> Iterator[Object]:
        """Yield each openAPIV3Schema: the shared one, or those of the versions."""
        for holder in (self.shared, *self.versions):
            schema = openapi_of(holder)
            if schema is not None:
                yield schema

    def schemas_by_version(self) -> dict[str, Any]:
        """Return the ``schema`` of each version by its name; of several versions with one name, that of the first."""
        own = any(version.get("schema") is not None for version in self.versions)
        found: dict[str, Any] = {}
        for version in self.versions:
            found.setdefault(version.get("name", ""), (version if own else self.shared).get("schema"))
        return found


def openapi_of(holder: Mapping[str, Any]) -> Object | None:
    """Return ``schema.openAPIV3Schema`` of a version or of the shared fields, None if there is none."""
    schema = holder.get("schema")
    found: Object | None = None if schema is None else schema.get("openAPIV3Schema")
    return found


def hub(spec: Object) -> Hub:
    """Return the internal form of a spec. The spec stays unchanged."""
    versions: Sequence[Object] = spec.get("versions") or ()
    if not versions:
        return Hub(spec=spec, versions=(), shared={})
    first = versions[0]
    same = [name for name in SHARED if all(_same(each.get(name), first.get(name)) for each in versions[1:])]
    rest = [{name: value for name, value in version.items() if name not in same} for version in versions]
    shared = {name: first[name] for name in same if first.get(name) is not None}
    return Hub(spec=spec, versions=rest, shared=shared)


def _same(one: Any, other: Any) -> bool:
    """Return whether two fields are equal. An empty list is none."""
    return same_json(None if one == [] else one, None if other == [] else other)
