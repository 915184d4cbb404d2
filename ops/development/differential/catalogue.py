"""Served resources: discovery and the OpenAPI documents of the reference, without the areas that are left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kubechronicle.ops.development.differential.transport import Connection

# Resources that are left out, by group and plural ("*": the whole group), with the reason.
LEFT_OUT: Mapping[tuple[str, str], str] = {
    ("", "componentstatuses"): "the probes of components differ by installation",
    ("apiextensions.k8s.io", "*"): "custom resources are not built yet",
    ("apiregistration.k8s.io", "*"): "an APIService would route requests away from the server",
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): "a webhook would act on all other requests",
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): "a webhook would act on all other requests",
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"): "a bound policy would act on other requests",
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"): "a bound policy would act on other requests",
}
# Subresources that connect to a node or a container, which neither server has.
CONNECTING = frozenset({"attach", "exec", "log", "portforward", "proxy"})


@dataclass(frozen=True, slots=True)
class Resource:
    """One served resource of one group-version, with its subresources."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    verbs: frozenset[str]
    schema: str | None
    subresources: tuple[tuple[str, frozenset[str]], ...] = ()

    @property
    def group_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        return f"/apis/{self.group_version}" if self.group else f"/api/{self.version}"

    def collection(self, *, everywhere: bool = False) -> str:
        """Return the path of the collection, in the sequence's own namespace."""
        if self.namespaced and not everywhere:
            return f"{self.root}/namespaces/$NS/{self.plural}"
        return f"{self.root}/{self.plural}"

    def has(self, subresource: str) -> bool:
        return any(name == subresource for name, _ in self.subresources)


@dataclass(slots=True)
class Catalogue:
    """All resources to be tested, and the component schemas by name."""

    resources: list[Resource] = field(default_factory=list)
    schemas: dict[str, dict[str, Any]] = field(default_factory=dict)

    def resolve(self, schema: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Follow references to the schema that has the type."""
        found: Mapping[str, Any] = schema or {}
        while True:
            if "$ref" in found:
                found = self.schemas.get(found["$ref"].rsplit("/", 1)[1], {})
            elif len(found.get("allOf", ())) == 1:
                found = found["allOf"][0]
            else:
                return found

    def of(self, resource: Resource) -> Mapping[str, Any]:
        return self.schemas.get(resource.schema or "", {})

    def find(self, api_version: str, kind: str) -> Resource | None:
        return next((one for one in self.resources if one.group_version == api_version and one.kind == kind), None)

    def siblings(self, resource: Resource) -> list[Resource]:
        """Return the same resource in other versions."""
        return [
            one
            for one in self.resources
            if one != resource and (one.group, one.kind) == (resource.group, resource.kind)
        ]


def load(connection: Connection) -> Catalogue:
    """Read discovery and OpenAPI from a server."""
    catalogue = Catalogue()
    for group_version, path in group_versions(connection):
        document = connection.get_json(f"/openapi/v3{path}")
        schemas = document.get("components", {}).get("schemas", {})
        catalogue.schemas.update(schemas)
        group, _, version = group_version.rpartition("/")
        listed = connection.get_json(path)["resources"]
        catalogue.resources += resources_of(group, version, listed, schemas)
    return catalogue


def group_versions(connection: Connection) -> Iterator[tuple[str, str]]:
    yield "v1", "/api/v1"
    for group in connection.get_json("/apis")["groups"]:
        for version in group["versions"]:
            yield version["groupVersion"], f"/apis/{version['groupVersion']}"


def resources_of(group: str, version: str, listed: list[dict[str, Any]], schemas: dict[str, Any]) -> Iterator[Resource]:
    for one in listed:
        name = one["name"]
        if "/" in name or (group, "*") in LEFT_OUT or (group, name) in LEFT_OUT:
            continue
        below = [
            (other["name"].split("/", 1)[1], frozenset(other["verbs"]))
            for other in listed
            if other["name"].startswith(name + "/") and other["name"].split("/")[1] not in CONNECTING
        ]
        yield Resource(
            group,
            version,
            name,
            one["kind"],
            one["namespaced"],
            frozenset(one["verbs"]),
            schema_of(group, version, one["kind"], schemas),
            tuple(below),
        )


def schema_of(group: str, version: str, kind: str, schemas: Mapping[str, Any]) -> str | None:
    wanted = {"group": group, "version": version, "kind": kind}
    for name, schema in schemas.items():
        if wanted in schema.get("x-kubernetes-group-version-kind", ()):
            return name
    return None
