"""The ResourceTypes of a CustomResourceDefinition, one for each of its versions.

Names are the accepted ones (status.acceptedNames), as kube-apiserver serves them. Source: apiextensions-apiserver
``pkg/apiserver/customresource_handler.go`` and ``customresource_discovery_controller.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import orjson

from kubechronicle.api.custom.rule import RuleMeasures
from kubechronicle.api.custom.version import CustomVersion
from kubechronicle.api.registry.lives import version_priority
from kubechronicle.api.registry.registry import ResourceType, Subresource
from kubechronicle.api.selectors.selectable_fields import Getter, dotted
from kubechronicle.api.values.objects import Object, ReadOnlyObject

VERBS: Final = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
"""All verbs, in the order of kube-apiserver's discovery."""
_CHANGE: Final = ("get", "patch", "update")


def resource_types(definition: ReadOnlyObject, *, load: Callable[[], Object] | None = None) -> tuple[ResourceType, ...]:
    """Return the types of the served versions, in the order of the definition. See ``all_types``."""
    return tuple(rt for rt in all_types(definition, load=load) if rt.custom.served)


def all_types(
    definition: ReadOnlyObject,
    *,
    load: Callable[[], Object] | None = None,
    size: int = 0,
    like: Iterable[ResourceType] = (),
    measures: RuleMeasures | None = None,
) -> tuple[ResourceType, ...]:
    """Return the types of all versions, served or not, in the order of the definition, whose names are accepted.

    ``load``: returns the definition, freshly decoded. With it, the types hold no reference to ``definition``.
    ``size``: the bytes of the definition.
    ``like``: the types before a change that left spec and accepted names alone. Both share their compiled parts.
    ``measures``: of their rules.
    """
    former = {rt.version: rt.custom for rt in like}
    spec, accepted = definition["spec"], definition["status"]["acceptedNames"]
    group, plural, kind = spec["group"], accepted["plural"], accepted["kind"]
    storage = next(version["name"] for version in spec["versions"] if version.get("storage"))
    terminating = has_condition(definition, "Terminating")
    versions: dict[str, CustomVersion] = {}
    types = []
    for version in spec["versions"]:
        name = version["name"]
        custom = versions[name] = CustomVersion(
            definition,
            version,
            load=load or (lambda: dict(definition)),
            size=size,
            versions=versions,
            terminating=terminating,
            like=former.get(name),
            measures=measures,
        )
        types.append(
            ResourceType(
                group=group,
                version=name,
                plural=plural,
                singular=accepted.get("singular") or kind.lower(),
                kind=kind,
                list_kind=accepted.get("listKind") or f"{kind}List",
                namespaced=spec["scope"] == "Namespaced",
                verbs=VERBS,
                resource=f"{plural}.{group}",
                storage_api_version=f"{group}/{storage}",
                storage_kind=kind,
                short_names=tuple(accepted.get("shortNames") or ()),
                categories=tuple(accepted.get("categories") or ()),
                subresources=MappingProxyType(dict(_subresources(custom))),
                deprecated=bool(version.get("deprecated")),
                warning=_warning(spec, version),
                printer_columns=tuple(version.get("additionalPrinterColumns") or ()),
                selectable_fields=tuple(path.removeprefix(".") for path in custom.selectable_fields),
                custom=custom,
            )
        )
    return tuple(types)


def has_condition(definition: ReadOnlyObject, kind: str) -> bool:
    """Tell whether a condition of the definition is true."""
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == kind and one.get("status") == "True" for one in conditions)


def _subresources(custom: CustomVersion) -> Sequence[tuple[str, Subresource]]:
    found = []
    if custom.subresources.get("status") is not None:
        own: dict[str, Any] = {"group": custom.group, "version": custom.name, "kind": custom.kind}
        found.append(("status", Subresource(name="status", verbs=_CHANGE, **own)))
    if custom.subresources.get("scale") is not None:
        scale = Subresource(name="scale", group="autoscaling", version="v1", kind="Scale", verbs=_CHANGE)
        found.append(("scale", scale))
    return found


def _warning(spec: ReadOnlyObject, version: ReadOnlyObject) -> str:
    """Return the warning of a deprecated version: its own, or one that names the best newer version."""
    if not version.get("deprecated"):
        return ""
    if version.get("deprecationWarning") is not None:
        return str(version["deprecationWarning"])
    group, kind, name = spec["group"], spec["names"]["kind"], version["name"]
    newer = [
        one["name"]
        for one in spec["versions"]
        if one.get("served") and not one.get("deprecated") and version_priority(one["name"]) < version_priority(name)
    ]
    text = f"{group}/{name} {kind} is deprecated"
    return f"{text}; use {group}/{min(newer, key=version_priority)} {kind}" if newer else text


# -- selectable --------------------------------------------------------------------------------------------------------
#
# Selectable fields of custom resources, with the defaults of the present schema.
#
# A field selector sees an object as it is read: an object that is older than its schema has the defaults that the
# schema gained since. The defaults along the field's path are all that matters, so an object is not defaulted as a
# whole:
#
#     spec: {default: {}}, spec.size: {default: "L"}      {}                      ->  "L"
#                                                         {"spec": {"size": "S"}} ->  "S"


NO_DEFAULT: Final = b""


class PathStep(NamedTuple):
    """One field of a path. ``default``: its JSON. ``nullable``: a null is not replaced by the default."""

    name: str
    default: bytes
    nullable: bool


class SelectableField(NamedTuple):
    """A field of all versions. ``steps``: its path in the stored version; () if no field of it has a default."""

    name: str
    steps: tuple[PathStep, ...]


def selectable_fields(types: Iterable[ResourceType]) -> frozenset[SelectableField]:
    """Return the selectable fields of all versions of a definition."""
    names = {name: rt.custom.storage for rt in types for name in rt.selectable_fields}
    if not names:
        return frozenset()
    storage: CustomVersion = next(iter(names.values()))
    openapi = storage.openapi
    return frozenset(SelectableField(name, _steps(openapi, name.split("."))) for name in names)


def getter(field: SelectableField) -> tuple[str, Getter]:
    """Return the name of a field, and the function that returns its value in a stored object."""
    name, get = dotted(field.name)
    if not field.steps:
        return name, get
    return name, lambda obj: get(_filled(obj, field.steps))


def _steps(openapi: Mapping[str, Any], path: Iterable[str]) -> tuple[PathStep, ...]:
    steps = []
    node: Any = openapi
    for name in path:
        node = (node.get("properties") or {}).get(name) or {}
        default = orjson.dumps(node["default"]) if node.get("default") is not None else NO_DEFAULT
        steps.append(PathStep(name, default, bool(node.get("nullable"))))
    return tuple(steps) if any(step.default for step in steps) else ()


def _filled(obj: ReadOnlyObject, steps: tuple[PathStep, ...]) -> ReadOnlyObject:
    """Return an object with the field at the end of the steps alone, or with as many of them as there are."""
    whole: dict[str, Any] = {}
    place, value = whole, obj
    for index, step in enumerate(steps):
        item = value.get(step.name)
        if step.default and item is None and (step.name not in value or not step.nullable):
            item = orjson.loads(step.default)
        if index + 1 == len(steps) or not isinstance(item, Mapping):
            place[step.name] = item
            break
        value, place[step.name] = item, {}
        place = place[step.name]
    return whole
