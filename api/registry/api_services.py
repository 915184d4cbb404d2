"""APIServices as records, and their order in discovery: API groups of other servers beside the served registry.

    /apis/example.com/v1/…   belongs to the APIService v1.example.com; without spec.service this server answers

Sources: kube-aggregator ``pkg/apis/apiregistration/v1/helper`` and ``pkg/apiserver``. Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kubechronicle.api.registry.lives import version_priority
from kubechronicle.api.registry.registry import Registry

OWN_GROUP: Final = "apiregistration.k8s.io"
"""The group of APIServices themselves. It is always served here, and comes first in discovery."""
RESOURCE: Final = f"apiservices.{OWN_GROUP}"
AVAILABLE: Final = "Available"
HTTPS_PORT: Final = 443
UNREGISTERED: Final = (1000, 15)
"""The priorities of a served version that has no APIService (yet)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceReference:
    """spec.service: the Service in front of another server."""

    namespace: str
    name: str
    port: int = HTTPS_PORT

    @property
    def server_name(self) -> str:
        """The name that the certificate of the other server must have."""
        return f"{self.name}.{self.namespace}.svc"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiService:
    """The fields of an APIService that requests and discovery need.

    ``service``: None: this server answers.
    ``ca_bundle``: authorities (PEM in base64); "": those of the system.
    ``available``: the condition Available is True.
    """

    name: str
    group: str
    version: str
    group_priority: int
    version_priority: int
    service: ServiceReference | None = None
    ca_bundle: str = field(default="", repr=False)
    insecure: bool = False
    available: bool = False

    @property
    def path(self) -> str:
        """The path of its resource list: /apis/example.com/v1, or /api/v1 for the core group."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"


def api_service(obj: Mapping[str, Any]) -> ApiService:
    """Return the record of a stored APIService."""
    spec, reference = obj["spec"], obj["spec"].get("service")
    service = None
    if reference is not None:
        service = ServiceReference(
            namespace=reference.get("namespace", ""),
            name=reference.get("name", ""),
            port=reference.get("port") or HTTPS_PORT,
        )
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return ApiService(
        name=obj["metadata"]["name"],
        group=spec.get("group", ""),
        version=spec.get("version", ""),
        group_priority=spec.get("groupPriorityMinimum", 0),
        version_priority=spec.get("versionPriority", 0),
        service=service,
        ca_bundle=spec.get("caBundle") or "",
        insecure=bool(spec.get("insecureSkipTLSVerify")),
        available=any(one.get("type") == AVAILABLE and one.get("status") == "True" for one in conditions),
    )


def ordered_versions(
    services: Iterable[ApiService], registry: Registry, *, aggregated: bool = False
) -> dict[str, tuple[str, ...]]:
    """Return the versions of each group but the core one, of the registry and of all APIServices, in their order.

    Groups are sorted by their highest groupPriorityMinimum, then by the name of their first APIService, but in
    ``aggregated`` discovery by their own name. Versions are sorted by versionPriority, then by Kubernetes' order. A
    served version without an APIService has the priorities UNREGISTERED. A group in which no version has an APIService
    with a service keeps the registry's order of versions.

    >>> from kubechronicle.api.registry.registry import Registry
    >>> high = ApiService(name="v1.b", group="b", version="v1", group_priority=2, version_priority=1)
    >>> low = ApiService(name="v1.a", group="a", version="v1", group_priority=1, version_priority=1)
    >>> ordered_versions([low, high], Registry(()))
    {'b': ('v1',), 'a': ('v1',)}
    """
    found = [each for each in services if each.group]
    remote = {each.group for each in found if each.service is not None}
    ranks = {group: dict.fromkeys(registry.versions(group), UNREGISTERED) for group in registry.groups() if group}
    for each in found:
        ranks.setdefault(each.group, {})[each.version] = (each.group_priority, each.version_priority)

    def place(group: str) -> tuple[bool, int, str]:
        first = min((-rank[0], version) for version, rank in ranks[group].items())
        return (group != OWN_GROUP, first[0], group if aggregated else f"{first[1]}.{group}")

    ordered: dict[str, tuple[str, ...]] = {}
    for group in sorted(ranks, key=place):
        versions = ranks[group]
        if group not in remote and set(registry.versions(group)) == set(versions):
            ordered[group] = registry.versions(group)
        else:
            ordered[group] = tuple(sorted(versions, key=lambda one: (-versions[one][1], version_priority(one))))
    return ordered


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignResource:
    """A resource of another server, as it stands in discovery."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    verbs: frozenset[str]

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"

    def path(self, namespace: str, name: str = "") -> str:
        """Return the path of the resource or of one object; namespace "": of the whole cluster.

        /apis/example.com/v1/namespaces/a/things/x
        """
        within = f"/namespaces/{namespace}" if namespace else ""
        return f"/apis/{self.group}/{self.version}{within}/{self.plural}" + (f"/{name}" if name else "")


def foreign_resource(group: str, version: str, discovered: Mapping[str, Any]) -> ForeignResource:
    """Return a resource of a group version in aggregated discovery (``from_aggregated``)."""
    return ForeignResource(
        group=group,
        version=version,
        plural=discovered["resource"],
        kind=discovered["responseKind"]["kind"],
        namespaced=discovered["scope"] == "Namespaced",
        verbs=frozenset(discovered["verbs"]),
    )


# -- discovery of other servers ---------------------------------------------------------------------------------------


def from_resource_list(resources: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the resources of an APIResourceList in aggregated form (apidiscovery.k8s.io/v2).

    A subresource without its resource makes one without verbs. ValueError: the two differ in scope. AttributeError,
    KeyError or TypeError: the list is malformed.
    Source: k8s.io/apiserver ``endpoints/installer.go``.
    """
    found: dict[str, dict[str, Any]] = {}
    for one in resources:
        if "/" not in one["name"]:
            found[one["name"]] = _resource(one)
    for one in resources:
        parent, slash, name = one["name"].partition("/")
        if not slash:
            continue
        scope = _scope(one)
        resource = found.setdefault(
            parent, {"resource": parent, "responseKind": _kind({}), "scope": scope, "singularResource": "", "verbs": []}
        )
        if resource["scope"] != scope:
            raise ValueError(f"the scopes of {parent} and its subresource {name} differ")
        resource.setdefault("subresources", []).append(
            {
                "subresource": name,
                "responseKind": _kind(one if one.get("kind") else {}),
                "verbs": _strings(one.get("verbs")),
            }
        )
    return list(found.values())


def _resource(one: Mapping[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "resource": one["name"],
        "responseKind": _kind(one),
        "scope": _scope(one),
        "singularResource": str(one.get("singularName", "")),
        "verbs": _strings(one.get("verbs")),
    }
    return entry | {member: _strings(one[member]) for member in ("shortNames", "categories") if one.get(member)}


def _scope(one: Mapping[str, Any]) -> str:
    return "Namespaced" if one.get("namespaced") else "Cluster"


def _kind(one: Mapping[str, Any]) -> dict[str, str]:
    return {member: str(one.get(member) or "") for member in ("group", "version", "kind")}


def from_aggregated(document: Mapping[str, Any]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return the resources of each (group, version) of an APIGroupDiscoveryList, with known members only.

    AttributeError, KeyError, TypeError or ValueError: it is malformed.
    """
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for group in document.get("items") or ():
        name = (group.get("metadata") or {}).get("name", "")
        for version in group.get("versions") or ():
            found[name, version["version"]] = [_known_members(one) for one in version.get("resources") or ()]
    return found


def _known_members(one: Mapping[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "resource": str(one["resource"]),
        "responseKind": _kind(one.get("responseKind") or {}),
        "scope": str(one["scope"]),
        "singularResource": str(one.get("singularResource", "")),
        "verbs": _strings(one.get("verbs")),
    }
    entry |= {member: _strings(one[member]) for member in ("shortNames", "categories") if one.get(member)}
    subresources = [
        {
            "subresource": str(each["subresource"]),
            "responseKind": _kind(each.get("responseKind") or {}),
            "verbs": _strings(each.get("verbs")),
        }
        for each in one.get("subresources") or ()
    ]
    return entry | ({"subresources": subresources} if subresources else {})


def _strings(values: Any) -> list[str]:
    return [str(each) for each in values or ()]
