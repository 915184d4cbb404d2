"""The discovery documents: the served resources, for clients.

Pure functions from a Registry to plain documents. Not here: authorization, encoding and ETags (http/). Legacy documents
(APIVersions, APIGroupList, APIGroup, APIResourceList), aggregated discovery (apidiscovery.k8s.io v2 and v2beta1), the
list of root paths and /version.
"""

from __future__ import annotations

import base64
import hashlib
import platform
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from kubechronicle.api.features.gates import DEFAULT, PROGRAM, EffectiveVersion, FeatureGates
from kubechronicle.api.kinds import reading
from kubechronicle.api.kinds.reading import Declared
from kubechronicle.api.registry.lives import life_of, version_priority
from kubechronicle.api.registry.registry import Registry, ResourceType, Subresource
from kubechronicle.api.registry.resources import STORED_AS
from kubechronicle.api.values.steps import Steps

Document = dict[str, Any]
Versions = Mapping[str, Sequence[str]]
"""The versions of each group, the preferred one first."""

KUBERNETES_PATCH: Final = "2"

AGGREGATED_VERSIONS: Final = ("v2", "v2beta1")
_NOT_WHILE_TERMINATING: Final = frozenset(("create", "patch", "update"))


# -- legacy documents -------------------------------------------------------------------------------------------------


def server_addresses(address: str) -> list[Document]:
    """Return serverAddressByClientCIDRs: every client reaches the server at ``address`` ("host:port")."""
    return [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]


def api_versions(registry: Registry, address: str) -> Document:
    """Return the APIVersions document of /api."""
    return {
        "kind": "APIVersions",
        "versions": list(registry.versions("")),
        "serverAddressByClientCIDRs": server_addresses(address),
    }


def api_group_list(registry: Registry, versions: Versions | None = None) -> Document:
    """Return the APIGroupList document of /apis. ``versions``: of all groups, those of other servers too."""
    if versions is None:
        versions = {group: registry.versions(group) for group in registry.groups() if group}
    groups = [_group(group, found) for group, found in versions.items()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def api_group(registry: Registry, group: str) -> Document | None:
    """Return the APIGroup document of /apis/GROUP, None for an unknown group."""
    if not group or not registry.versions(group):
        return None
    return api_group_of(group, registry.versions(group))


def api_group_of(group: str, versions: Sequence[str]) -> Document:
    """Return the APIGroup document of a group with these versions, the preferred one first."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, versions)}


def _group(group: str, versions: Sequence[str]) -> Document:
    entries = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": entries, "preferredVersion": dict(entries[0])}


def api_resource_list(
    registry: Registry, group: str, version: str, features: FeatureGates | None = None
) -> Document | None:
    """Return the APIResourceList document of /apis/GROUP/VERSION, None for an unknown one.

    ``features``: the gates of the server, whose versions decide in which version Kubernetes stores a resource; None:
    the usual ones.
    """
    types = registry.resources(group, version)
    if not types:
        return None
    document: Document = {"kind": "APIResourceList"}
    if group:
        # Only the core group's list is written without its own apiVersion.
        document["apiVersion"] = "v1"
    document["groupVersion"] = f"{group}/{version}" if group else version
    features = features or FeatureGates()
    document["resources"] = [entry for rt in types for entry in _resource_entries(rt, features)]
    return document


def _verbs(rt: ResourceType) -> list[str]:
    """Return the verbs to show. Those of a definition that is being deleted neither create nor change objects."""
    if rt.custom is not None and rt.custom.terminating:
        return [verb for verb in rt.verbs if verb not in _NOT_WHILE_TERMINATING]
    return list(rt.verbs)


def _resource_entries(rt: ResourceType, features: FeatureGates) -> Iterable[Document]:
    entry: Document = {
        "name": rt.plural,
        "singularName": rt.singular,
        "namespaced": rt.namespaced,
        "kind": rt.kind,
        "verbs": _verbs(rt),
    }
    if rt.short_names:
        entry["shortNames"] = list(rt.short_names)
    if rt.categories:
        entry["categories"] = list(rt.categories)
    if rt.stored and (features.enabled(HASH_GATE) or rt.custom is not None):
        entry["storageVersionHash"] = storage_version_hash(stored_as(rt, features.versions), rt.storage_kind)
    yield entry
    for sub in rt.subresources.values():
        yield _subresource_entry(rt, sub)


def _subresource_entry(rt: ResourceType, sub: Subresource) -> Document:
    entry: Document = {"name": f"{rt.plural}/{sub.name}", "singularName": "", "namespaced": rt.namespaced}
    if (sub.group, sub.version) != (rt.group, rt.version):
        entry |= {"group": sub.group, "version": sub.version}
    return entry | {"kind": sub.kind, "verbs": list(sub.verbs)}


HASH_GATE: Final = "StorageVersionHash"

HASHED_AS: Final[Mapping[tuple[str, str], str]] = {
    ("apiextensions.k8s.io", "customresourcedefinitions"): "apiextensions.k8s.io/v1beta1"
}
"""(group, plural) -> the apiVersion that kube-apiserver stores, if this server stores another one."""


def stored_as(rt: ResourceType, versions: EffectiveVersion) -> str:
    """Return the apiVersion in which kube-apiserver stores a resource.

    Servers of the oldest version beside it must be able to read it (apiserver ``emulatedStorageVersion``). The log
    keeps the present form all the same: an older program of kubechronicle reads that, too.
    """
    path = (rt.group, rt.plural)
    if path in HASHED_AS:
        return HASHED_AS[path]
    kinds, (group, _, version) = reading.release().kinds, rt.storage_api_version.rpartition("/")
    if (
        rt.custom is not None
        or path in STORED_AS
        or not _is_newer(kinds.get((group, version, rt.storage_kind)), versions)
    ):
        return rt.storage_api_version
    others = [declared for (of, _, kind), declared in kinds.items() if (of, kind) == (group, rt.storage_kind)]
    known = [each.package for each in others if not _is_newer(each, versions) and "alpha" not in each.package.version]
    found = min(known, key=lambda package: version_priority(package.version), default=None)
    return rt.storage_api_version if found is None else found.api_version


def _is_newer(declared: Declared | None, versions: EffectiveVersion) -> bool:
    introduced = None if declared is None else life_of(declared).introduced
    return introduced is not None and introduced > versions.compatibility


def storage_version_hash(api_version: str, kind: str) -> str:
    """Return base64 of the first 8 bytes of sha256("group/version/kind"), as kube-apiserver computes it.

    A change of the hash shows a storage version migrator that the stored form has changed.
    """
    group, _, version = api_version.rpartition("/")
    return base64.b64encode(hashlib.sha256(f"{group}/{version}/{kind}".encode()).digest()[:8]).decode()


# -- aggregated discovery ---------------------------------------------------------------------------------------------


def aggregated(
    registry: Registry,
    root: Literal["api", "apis"],
    version: str,
    *,
    versions: Versions | None = None,
    remote: Mapping[tuple[str, str], Document] | None = None,
) -> Steps[Document]:
    """Return the APIGroupDiscoveryList of /api or /apis in ``version``, one of AGGREGATED_VERSIONS. A step is a group.

    ``versions``: of all groups but the core one, those of other servers too, if there are any.
    ``remote``: the entries of group versions of other servers.
    """
    if versions is None or root == "api":
        versions = {group: registry.versions(group) for group in registry.groups() if bool(group) == (root == "apis")}
    items = []
    for group, found in versions.items():
        items.append(_aggregated_group(registry, group, found, remote or {}))
        yield
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": items,
    }


def _aggregated_group(
    registry: Registry, group: str, versions: Sequence[str], remote: Mapping[tuple[str, str], Document]
) -> Document:
    return {
        "metadata": {"name": group} if group else {},
        "versions": [
            remote.get((group, version))
            or {
                "version": version,
                "resources": [_aggregated_resource(rt) for rt in registry.resources(group, version)],
                "freshness": "Current",
            }
            for version in versions
            if (group, version) in remote or registry.resources(group, version)
        ],
    }


def _aggregated_resource(rt: ResourceType) -> Document:
    # Only the discovery of custom resources repeats the list's group and version.
    group, version = (rt.group, rt.version) if rt.custom is not None else ("", "")
    entry: Document = {
        "resource": rt.plural,
        "responseKind": {"group": group, "version": version, "kind": rt.kind},
        "scope": "Namespaced" if rt.namespaced else "Cluster",
        "singularResource": rt.singular,
        "verbs": _verbs(rt),
    }
    if rt.short_names:
        entry["shortNames"] = list(rt.short_names)
    if rt.categories:
        entry["categories"] = list(rt.categories)
    if rt.subresources:
        entry["subresources"] = [_aggregated_subresource(rt, sub) for sub in rt.subresources.values()]
    return entry


def _aggregated_subresource(rt: ResourceType, sub: Subresource) -> Document:
    # Those of a built-in resource are empty if they equal the list's.
    same = rt.custom is None and (sub.group, sub.version) == (rt.group, rt.version)
    group, version = ("", "") if same else (sub.group, sub.version)
    return {
        "subresource": sub.name,
        "responseKind": {"group": group, "version": version, "kind": sub.kind},
        "verbs": list(sub.verbs),
    }


# -- /, /version ------------------------------------------------------------------------------------------------------


def api_paths(registry: Registry) -> list[str]:
    """Return the paths of the discovery documents: /api, /api/v1, /apis, /apis/, /apis/GROUP, …"""
    paths = ["/api", *(f"/api/{version}" for version in registry.versions("")), "/apis", "/apis/"]
    for group in registry.groups():
        if group:
            paths += [f"/apis/{group}", *(f"/apis/{group}/{version}" for version in registry.versions(group))]
    return paths


def root_paths(registry: Registry, others: Collection[str]) -> Document:
    """Return the document of /: the API's paths and ``others``, the other paths of this server."""
    return {"paths": sorted({*api_paths(registry), *others})}


def git_version(program_version: str) -> str:
    """Return the Kubernetes version as a semantic version that names this program in its build part."""
    return f"v{PROGRAM}.{KUBERNETES_PATCH}+kubechronicle-{program_version}"


_PLATFORMS: Final[Mapping[str, str]] = {"x86_64": "amd64", "aarch64": "arm64"}


def version_info(
    program_version: str,
    versions: EffectiveVersion = DEFAULT,
    *,
    commit: str = "",
    tree_state: str = "clean",
    build_date: str = "",
) -> Document:
    """Return the document of /version. ``compiler`` and ``goVersion`` name the actual runtime."""
    machine = platform.machine()
    return {
        "major": str(versions.binary.major),
        "minor": str(versions.binary.minor),
        "emulationMajor": str(versions.emulation.major),
        "emulationMinor": str(versions.emulation.minor),
        "minCompatibilityMajor": str(versions.compatibility.major),
        "minCompatibilityMinor": str(versions.compatibility.minor),
        "gitVersion": git_version(program_version),
        "gitCommit": commit,
        "gitTreeState": tree_state,
        "buildDate": build_date,
        "goVersion": f"python{platform.python_version()}",
        "compiler": platform.python_implementation().lower(),
        "platform": f"{sys.platform}/{_PLATFORMS.get(machine, machine)}",
    }
