"""Resource types, and the immutable registry of served types.

Lives here: ResourceType, Subresource, Registry. Not here: the table of built-in resources (resources.py), discovery
documents (discovery.py), schemas.

A *resource type* is one resource in one version. Several may share one *storage resource*: ``autoscaling/v1`` and
``autoscaling/v2`` HorizontalPodAutoscalers are both stored as ``horizontalpodautoscalers.autoscaling`` in form v2, the
Events of ``v1`` and ``events.k8s.io/v1`` both as ``events`` in form v1. A key of the log names the storage resource.

The operator chooses the served versions (runtime_config.py), but not the stored form. So a registry also knows the
types that it does not serve: ``known``, ``known_as`` and ``storage`` find them. Rules about the stored form use
``known_registry()``, which serves every type.

Invariant: a Registry never changes. Custom resources make a new one with ``registry.with_types(…)``; the old one
remains a consistent snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from kubechronicle.api.codecs.table import message_for
from kubechronicle.api.features.gates import Release
from kubechronicle.api.kinds import reading
from kubechronicle.api.registry import resources as table
from kubechronicle.api.registry.groups import HISTORY
from kubechronicle.api.registry.lives import LEGACY, NO_LIFE, life_of, version_priority

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Subresource:
    """A subresource; group, version and kind are those of its request and response bodies."""

    name: str
    group: str
    version: str
    kind: str
    verbs: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ResourceType:
    """One resource in one version. Compared by identity: registries share them.

    ``resource``: the storage resource ("pods", "deployments.apps").
    ``storage_api_version``, ``storage_kind``: the stored form.
    ``stored``: False for virtual kinds (reviews, bindings, component statuses).
    ``verbs``, ``subresources``: in the order of discovery (custom resources: status before scale).
    ``message``, ``definition``: protobuf message and OpenAPI definition, empty for custom resources without them.
    ``introduced``: the release of Kubernetes that introduced it, None if that is not known.
    ``deprecated``, ``warning``: a deprecated version, and the warning for each of its requests.
    ``removed``: the release of Kubernetes that is without it, if there is one.
    ``printer_columns``, ``selectable_fields``, ``custom``: of a CustomResourceDefinition's version; ``custom`` is that
    version itself.
    """

    group: str
    version: str
    plural: str
    singular: str
    kind: str
    list_kind: str
    namespaced: bool
    verbs: tuple[str, ...]
    resource: str
    storage_api_version: str
    storage_kind: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: Mapping[str, Subresource] = field(default_factory=lambda: _NONE)
    stored: bool = True
    message: str = ""
    definition: str = ""
    introduced: Release | None = None
    deprecated: bool = False
    warning: str = ""
    removed: Release | None = None
    printer_columns: tuple[Mapping[str, Any], ...] = ()
    selectable_fields: tuple[str, ...] = ()
    custom: Any = None

    # Derived values, which every write needs many times.
    api_version: str = field(init=False, default="")
    """The apiVersion of its objects: "v1", "apps/v1"."""
    group_resource: str = field(init=False, default="")
    """Its name in errors and authorization: "pods", "deployments.apps"."""
    stored_group: str = field(init=False, default="")
    """The group in rejections of an object, also if another group serves the same objects (events)."""
    is_storage_version: bool = field(init=False, default=False)
    """True if objects are stored in this form."""
    of_log: bool = field(init=False, default=False)
    """True if its objects are read from the log itself: revisions, recorded reads."""

    def __post_init__(self) -> None:
        api_version = f"{self.group}/{self.version}" if self.group else self.version
        group_resource = f"{self.plural}.{self.group}" if self.group else self.plural
        object.__setattr__(self, "api_version", api_version)
        object.__setattr__(self, "group_resource", group_resource)
        object.__setattr__(self, "stored_group", self.storage_api_version.rpartition("/")[0])
        object.__setattr__(self, "is_storage_version", api_version == self.storage_api_version)
        of_log = self.group == HISTORY and not self.stored and self.plural not in table.OF_BRANCHES
        object.__setattr__(self, "of_log", of_log)

    def namespace_in(self, namespace: str) -> str:
        """Return the namespace of an object by that of the path: "" for cluster-scoped ones, a Namespace included."""
        return namespace if self.namespaced else ""

    @property
    def is_stable(self) -> bool:
        """True if its version is neither alpha nor beta."""
        return self.version.removeprefix("v").isdecimal()

    def __repr__(self) -> str:
        return f"<ResourceType {self.api_version} {self.plural}>"


class Registry:
    """All served resource types by each of their names, and known unserved types. Immutable."""

    __slots__ = ("_by_kind", "_by_path", "_first", "_known", "_known_as", "_storage", "_tree", "_unserved")

    def __init__(self, types: Iterable[ResourceType], *, unserved: Iterable[ResourceType] = ()) -> None:
        """Index ``types``; groups and versions keep the order of their first appearance."""
        tree: dict[str, dict[str, list[ResourceType]]] = {}
        known_as: dict[str, list[ResourceType]] = {}
        self._by_path: dict[tuple[str, str, str], ResourceType] = {}
        self._by_kind: dict[tuple[str, str, str], ResourceType] = {}
        self._storage: dict[str, ResourceType] = {}
        for rt in types:
            path = (rt.group, rt.version, rt.plural)
            if path in self._by_path:
                raise ValueError(f"{rt.api_version} {rt.plural} is there twice")
            self._by_path[path] = rt
            self._by_kind.setdefault((rt.group, rt.version, rt.kind), rt)
            tree.setdefault(rt.group, {}).setdefault(rt.version, []).append(rt)
        self._unserved = tuple(unserved)
        self._known = self._by_path | {(rt.group, rt.version, rt.plural): rt for rt in self._unserved}
        for rt in self._known.values():
            known_as.setdefault(rt.resource, []).append(rt)
            if rt.stored and (rt.is_storage_version or rt.resource not in self._storage):
                self._storage[rt.resource] = rt
        self._tree = {
            group: {version: tuple(sorted(found, key=_plural)) for version, found in versions.items()}
            for group, versions in tree.items()
        }
        self._first = {group: tuple(versions) for group, versions in self._tree.items()}
        """The groups and versions whose order is given."""
        self._known_as = {resource: tuple(found) for resource, found in known_as.items()}

    def __iter__(self) -> Iterator[ResourceType]:
        return iter(self._by_path.values())

    def __len__(self) -> int:
        return len(self._by_path)

    def lookup(self, group: str, version: str, plural: str) -> ResourceType | None:
        """Return the type served at /apis/GROUP/VERSION/PLURAL, or /api/VERSION/PLURAL for group ""."""
        return self._by_path.get((group, version, plural))

    def known(self, group: str, version: str, plural: str) -> ResourceType | None:
        """Return that type, served or not."""
        return self._known.get((group, version, plural))

    def builtin(self, group: str, version: str, plural: str) -> ResourceType:
        """Return a type that every server has, served or not."""
        rt = self.known(group, version, plural)
        assert rt is not None, f"{group}/{version} {plural} is a built-in resource"
        return rt

    def by_kind(self, group: str, version: str, kind: str) -> ResourceType | None:
        """Return the type of objects with this apiVersion and kind."""
        return self._by_kind.get((group, version, kind))

    def by_api_version(self, api_version: str, kind: str) -> ResourceType | None:
        """Return the type of an object by its own apiVersion and kind."""
        group, _, version = api_version.rpartition("/")
        return self._by_kind.get((group, version, kind))

    def groups(self) -> tuple[str, ...]:
        """Return the groups in the order of discovery; "" is the core group."""
        return tuple(self._tree)

    def versions(self, group: str) -> tuple[str, ...]:
        """Return a group's versions, the preferred first; none for an unknown group."""
        return tuple(self._tree.get(group, ()))

    def has_builtin(self, group: str) -> bool:
        """Tell whether a built-in resource of the group is served."""
        return any(rt.custom is None for types in self._tree.get(group, {}).values() for rt in types)

    def resources(self, group: str, version: str) -> tuple[ResourceType, ...]:
        """Return the types of a group version by name; none for an unknown one."""
        return self._tree.get(group, {}).get(version, ())

    def storage(self, resource: str) -> ResourceType | None:
        """Return the type of the storage resource's stored form, served or not."""
        return self._storage.get(resource)

    def stored(self) -> tuple[ResourceType, ...]:
        """Return the storage type of every stored resource, served or not."""
        return tuple(self._storage.values())

    def served_as(self, resource: str) -> tuple[ResourceType, ...]:
        """Return every served type of a storage resource."""
        return tuple(rt for rt in self.known_as(resource) if self.lookup(rt.group, rt.version, rt.plural) is rt)

    def known_as(self, resource: str) -> tuple[ResourceType, ...]:
        """Return every type of a storage resource, served or not."""
        return self._known_as.get(resource, ())

    def with_types(
        self,
        types: Iterable[ResourceType],
        *,
        unserved: Iterable[ResourceType] = (),
        without: Iterable[ResourceType] = (),
    ) -> Registry:
        """Return a registry that also serves ``types`` and knows ``unserved``, and has forgotten ``without``.

        A custom type in a built-in group's version is not served: kube-apiserver looks for nothing else there.
        Groups that were not there at first follow the others by name, such versions of a group by Kubernetes' version
        priority (GA first, then beta, then alpha, newest first). The cost is that of copying a few dictionaries, so
        that a thousand definitions may come one by one.
        """
        changed = Registry.__new__(Registry)
        changed._first = self._first
        for name in ("_by_path", "_by_kind", "_known", "_known_as", "_storage", "_tree"):
            setattr(changed, name, dict(getattr(self, name)))
        gone = frozenset(without)
        given = tuple(types)
        served = tuple(rt for rt in given if not self._hides(rt))
        known = (*unserved, *(rt for rt in given if self._hides(rt)))
        changed._unserved = tuple(rt for rt in self._unserved if rt not in gone) + known
        changed._forget(gone)
        for rt in served:
            changed._serve(rt)
        for rt in (*served, *known):
            changed._known[rt.group, rt.version, rt.plural] = rt
            changed._known_as[rt.resource] = (*changed._known_as.get(rt.resource, ()), rt)
        for resource in {rt.resource for rt in (*gone, *served, *known)}:
            changed._find_storage(resource)
        groups = {rt.group for rt in (*gone, *served)}
        for group in groups:
            changed._sort_group(group, gone, [rt for rt in served if rt.group == group])
        if groups - self._tree.keys():
            first = [group for group in changed._tree if group in self._first]
            later = sorted(changed._tree.keys() - self._first.keys())
            changed._tree = {group: changed._tree[group] for group in (*first, *later)}
        return changed

    def _hides(self, rt: ResourceType) -> bool:
        return rt.custom is not None and rt.version in self._first.get(rt.group, ())

    # Steps of ``with_types``, on a registry that nobody has seen yet.

    def _serve(self, rt: ResourceType) -> None:
        path = (rt.group, rt.version, rt.plural)
        if path in self._by_path:
            raise ValueError(f"{rt.api_version} {rt.plural} is there twice")
        self._by_path[path] = rt
        self._by_kind.setdefault((rt.group, rt.version, rt.kind), rt)

    def _forget(self, gone: frozenset[ResourceType]) -> None:
        for rt in gone:
            for index, key in (
                (self._by_path, (rt.group, rt.version, rt.plural)),
                (self._known, (rt.group, rt.version, rt.plural)),
                (self._by_kind, (rt.group, rt.version, rt.kind)),
            ):
                if index.get(key) is rt:
                    del index[key]
        for resource in {rt.resource for rt in gone}:
            self._known_as[resource] = tuple(rt for rt in self._known_as[resource] if rt not in gone)

    def _find_storage(self, resource: str) -> None:
        found = [rt for rt in self._known_as[resource] if rt.stored]
        self._storage.pop(resource, None)
        if found:
            self._storage[resource] = next((rt for rt in found if rt.is_storage_version), found[0])
        if not self._known_as[resource]:
            del self._known_as[resource]

    def _sort_group(self, group: str, gone: frozenset[ResourceType], added: Iterable[ResourceType]) -> None:
        by_version: dict[str, list[ResourceType]] = {}
        present = self._tree.get(group, {})
        for rt in (*(rt for types in present.values() for rt in types if rt not in gone), *added):
            by_version.setdefault(rt.version, []).append(rt)
        first = self._first.get(group, ())
        versions = [version for version in first if version in by_version]
        versions += sorted(by_version.keys() - set(first), key=version_priority)
        self._tree[group] = {version: tuple(sorted(by_version[version], key=_plural)) for version in versions}
        if not versions:
            del self._tree[group]


def _plural(rt: ResourceType) -> str:
    return rt.plural


def serving(types: Iterable[ResourceType]) -> Registry:
    """Return a registry that serves these built-in types, and knows the others."""
    chosen = frozenset(types)
    return Registry(
        (rt for rt in _builtin_types() if rt in chosen),
        unserved=(rt for rt in _builtin_types() if rt not in chosen),
    )


def body_type(parent: ResourceType, *, group: str, version: str, kind: str) -> ResourceType:
    """Return the type of a subresource's request body, if it differs from ``parent``'s kind (an Eviction)."""
    api_version = f"{group}/{version}" if group else version
    connects = any(
        each.kind == kind and each.verbs in (table.CONNECT, table.PROXY) for each in parent.subresources.values()
    )
    return replace(
        parent,
        group=group,
        version=version,
        kind=kind,
        list_kind="",
        storage_api_version=api_version,
        storage_kind=kind,
        message=message_for(api_version, kind) or "",
        definition="" if connects else definition_of(group, version, kind),  # OpenAPI defines no options
        subresources=_NONE,
    )


@cache
def builtin_registry() -> Registry:
    """Return the registry of the types that are served by default: those of present versions that are neither alpha nor
    beta."""
    return serving(rt for rt in _builtin_types() if rt.is_stable and (rt.group, rt.version) not in LEGACY)


@cache
def known_registry() -> Registry:
    """Return the registry that serves every type, also removed versions and those that are not served by default."""
    return serving(_builtin_types())


@cache
def _builtin_types() -> tuple[ResourceType, ...]:
    found: list[ResourceType] = []
    for group, versions in {**table.GROUPS, **table.OWN_GROUPS}.items():
        preferred = next(iter(versions))
        for version, rows in versions.items():
            found += (_resource_type(group, version, row, preferred=preferred) for row in rows)
        for legacy in LEGACY.values():
            if legacy.group == group:
                found += (_resource_type(group, legacy.version, row, preferred=preferred) for row in legacy.rows())
    return tuple(found)


def definition_of(group: str, version: str, kind: str) -> str:
    """Return the OpenAPI definition of a built-in kind, such as ``io.k8s.api.apps.v1.Deployment``; "" if unknown."""
    declared = reading.release().kinds.get((group, version, kind))
    return "" if declared is None else declared.definition


def _resource_type(group: str, version: str, row: table.Row, *, preferred: str) -> ResourceType:
    declared = reading.release().kinds.get((group, version, row.kind))
    life = NO_LIFE if declared is None else life_of(declared)
    storage_group, storage_version = table.STORED_AS.get((group, row.plural), (group, preferred))
    return ResourceType(
        group=group,
        version=version,
        plural=row.plural,
        singular=row.kind.lower(),
        kind=row.kind,
        list_kind=f"{row.kind}List",
        namespaced=row.namespaced,
        verbs=row.verbs,
        resource=f"{row.plural}.{storage_group}" if storage_group else row.plural,
        storage_api_version=f"{storage_group}/{storage_version}" if storage_group else storage_version,
        storage_kind=row.kind,
        short_names=row.short,
        categories=row.categories,
        subresources=MappingProxyType({sub.name: _subresource(group, version, row, sub) for sub in row.subs}),
        stored=row.stored,
        message=message_for(f"{group}/{version}" if group else version, row.kind) or "",
        definition="" if declared is None else declared.definition,
        introduced=life.introduced,
        deprecated=bool(life.warning),
        warning=life.warning,
        removed=life.removed,
    )


def _subresource(group: str, version: str, row: table.Row, sub: table.Sub) -> Subresource:
    if sub.group_version:
        group, _, version = sub.group_version.rpartition("/")
    return Subresource(name=sub.name, group=group, version=version, kind=sub.kind or row.kind, verbs=sub.verbs)
