"""Objects that grow in one place: for each list and map of each kind, an object with any number of items there.

    for place in places(rt):
        obj = grown(rt, place, 1000, DISTINCT)

The rest of the object is small and nearly valid, so that the rules reach the items. Names of fields decide values:
a "port" is a number, a "mountPath" a path.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from rejections import TEMPLATE, VALID, WORKLOAD

from kubechronicle.api.kinds import reading
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.schema import types
from kubechronicle.api.schema.types import AnyType, ListType, MapType, ObjectType, Scalar, Type

Object = dict[str, Any]

ITEM: Final = "[]"
VALUE: Final = "{}"
"""The steps of a path into the first item of a list and into the first value of a map."""


class Place(NamedTuple):
    """A list or map in a kind. ``definition``: the type with the field. ``path``: field names, ITEM and VALUE."""

    definition: str
    path: tuple[str, ...]
    kind: ListType | MapType

    @property
    def field(self) -> str:
        return self.path[-1]

    def __str__(self) -> str:
        return ".".join(self.path).replace(".[]", "[]").replace(".{}", "{}")


def places(rt: ResourceType) -> list[Place]:
    """Return every list and map of a kind, managed fields left out, each recursive type entered once."""
    return list(_places(types.object_type(rt.definition), (), frozenset()))


def _places(kind: Type, path: tuple[str, ...], above: frozenset[str]) -> Iterator[Place]:
    if isinstance(kind, ListType):
        yield from _places(kind.item, (*path, ITEM), above)
    elif isinstance(kind, MapType):
        yield from _places(kind.value, (*path, VALUE), above)
    elif isinstance(kind, ObjectType) and kind.definition not in above:
        inside = above | {kind.definition}
        for name, field in kind.fields.items():
            if name == "managedFields":
                continue
            if isinstance(field.type, ListType | MapType):
                yield Place(kind.definition, (*path, name), field.type)
            yield from _places(field.type, (*path, name), inside)


# -- values -----------------------------------------------------------------------------------------------------------

_TEXTS: Final[dict[str, Callable[[int], str]]] = {
    **dict.fromkeys(("mountPath", "devicePath"), lambda number: f"/a{number}"),
    **dict.fromkeys(("ip", "podIP", "hostIP", "nameserver"), lambda number: f"10.{number >> 16}.{number >> 8 & 255}.1"),
    **dict.fromkeys(("cidr", "podCIDR"), lambda number: f"10.{number >> 8 & 255}.{number & 255}.0/24"),
    **dict.fromkeys(("operator",), lambda number: "Exists"),
    **dict.fromkeys(("protocol",), lambda number: "TCP"),
    **dict.fromkeys(("apiVersion",), lambda number: "v1"),
    **dict.fromkeys(("effect",), lambda number: "NoSchedule"),
    **dict.fromkeys(("whenUnsatisfiable",), lambda number: "DoNotSchedule"),
    **dict.fromkeys(("fieldPath",), lambda number: "metadata.name"),
    **dict.fromkeys(("expression", "valueExpression", "messageExpression"), lambda number: f"'a{number}' != ''"),
    **dict.fromkeys(("driver",), lambda number: "a.example.com"),
    **dict.fromkeys(("pool",), lambda number: "pool"),
    **dict.fromkeys(("imagePullPolicy", "restartPolicy"), lambda number: "Always"),
    **dict.fromkeys(("terminationMessagePolicy",), lambda number: "File"),
}
_ITEM_TEXTS: Final[dict[str, Callable[[int], str]]] = {
    **dict.fromkeys(("addresses", "nameservers", "externalIPs", "clusterIPs"), _TEXTS["ip"]),
    **dict.fromkeys(("cidrs", "podCIDRs", "loadBalancerSourceRanges", "except"), _TEXTS["cidr"]),
    **dict.fromkeys(("finalizers", "taints"), lambda number: f"example.com/a{number}"),
}
_NUMBERS: Final = frozenset(("port", "containerPort", "targetPort", "hostPort", "nodePort"))


def _scalar(name: str, kind: str, number: int) -> Any:
    if kind == "string":
        return _TEXTS.get(name, lambda each: f"a{each}")(number)
    if kind == "boolean":
        return bool(number % 2)
    if kind == "bytes":
        return "eA=="
    if kind in ("time", "microtime"):
        return "2026-01-01T00:00:00Z" if kind == "time" else "2026-01-01T00:00:00.000000Z"
    if kind == "quantity":
        return str(number % 500 + 1)
    return number % 60000 + 1


def _sample(kind: Type, name: str, number: int, *, full: bool, depth: int = 0) -> Any:
    """Return a value: of an object all required and naming fields, and all scalars if it is ``full``."""
    if isinstance(kind, Scalar):
        return _scalar(name, kind.kind, number)
    if isinstance(kind, AnyType):
        return {"a": number}
    if isinstance(kind, ListType):
        return [_item(kind, name, number, full=full, depth=depth + 1)]
    if isinstance(kind, MapType):
        return {f"a{number}": _sample(kind.value, name, number, full=full, depth=depth + 1)}
    assert isinstance(kind, ObjectType)
    members = reading.release().defined(kind.definition).members
    found = {}
    for field, described in kind.fields.items():
        scalar = isinstance(described.type, Scalar)
        needed = members[field][0].required or (scalar and field in ("name", "key", "path", "type", "operator"))
        if (needed or (full and scalar)) and depth < 4:
            found[field] = _sample(described.type, field, number, full=full and scalar, depth=depth + 1)
    return found


def _item(kind: ListType, name: str, number: int, *, full: bool, depth: int = 0) -> Any:
    if isinstance(kind.item, Scalar) and kind.item.kind == "string":
        return _ITEM_TEXTS.get(name, lambda each: f"a{each}")(number)
    found = _sample(kind.item, name, number, full=full, depth=depth)
    if isinstance(found, dict) and isinstance(kind.item, ObjectType):
        for key in filter(None, (*kind.keys, kind.merge_key)):
            found[key] = _sample(kind.item.fields[key].type, key, number, full=False)
    return found


# -- variants ---------------------------------------------------------------------------------------------------------

DISTINCT: Final = "distinct"
SAME: Final = "same"
EMPTY: Final = "empty"
FULL: Final = "full"
WRONG: Final = "wrong"
TOGETHER: Final = "together"
VARIANTS: Final = (DISTINCT, SAME, EMPTY, FULL, WRONG, TOGETHER)
"""Items that differ; equal ones; empty ones; ones with all plain fields; ones with characters that no name has; items
that differ in this list and all lists and maps beside it."""


def _items(kind: Type, name: str, count: int, variant: str) -> Any:
    if isinstance(kind, MapType):
        keys = (f"a{number}" if variant != WRONG else f"{number} !" for number in range(count))
        return {
            key: _varied(_sample(kind.value, name, number, full=variant == FULL), kind.value, variant)
            for number, key in enumerate(keys)
        }
    assert isinstance(kind, ListType)
    return [
        _varied(_item(kind, name, 0 if variant == SAME else number, full=variant == FULL), kind.item, variant)
        for number in range(count)
    ]


def _varied(item: Any, kind: Type, variant: str) -> Any:
    if variant == EMPTY:
        return {} if isinstance(kind, ObjectType) else item
    if variant != WRONG:
        return item
    if isinstance(item, str) and isinstance(kind, Scalar) and kind.kind == "string":
        return f"{item} !"
    if isinstance(item, dict) and isinstance(kind, ObjectType):
        return {
            name: f"{value} !" if isinstance(value, str) and _is_text(kind, name) else value
            for name, value in item.items()
        }
    return item


def _is_text(kind: ObjectType, name: str) -> bool:
    field = kind.fields[name].type
    return isinstance(field, Scalar) and field.kind == "string"


def reversed_at(obj: Object, place: Place) -> Object:
    """Return a copy with the items of the place in reverse order, and another value in a map of texts."""
    changed = copy.deepcopy(obj)
    held: Any = changed
    for step in place.path[:-1]:
        held = held[0] if step == ITEM else next(iter(held.values())) if step == VALUE else held[step]
    items = held[place.field]
    if isinstance(items, list):
        items.reverse()
    elif items:
        held[place.field] = dict(reversed(items.items()))
        name, value = next(iter(items.items()))
        held[place.field][name] = f"{value}0" if isinstance(value, str) else value
    return changed


def grown(rt: ResourceType, place: Place, count: int, variant: str) -> Object:
    """Return an object of the kind with ``count`` items at the place."""
    obj = skeleton(rt)
    kind: Type = types.object_type(rt.definition)
    held: Any = obj
    for step, following in zip(place.path, (*place.path[1:], None), strict=True):
        if following is None:
            assert isinstance(kind, ObjectType)
            for name, field in kind.fields.items():
                beside = variant == TOGETHER and name != "managedFields"
                if name == step or (beside and isinstance(field.type, ListType | MapType)):
                    held[name] = _items(field.type, name, count, variant)
            break
        if step == ITEM:
            assert isinstance(kind, ListType)
            held, kind = held[0], kind.item
        elif step == VALUE:
            assert isinstance(kind, MapType)
            held, kind = next(iter(held.values())), kind.value
        else:
            assert isinstance(kind, ObjectType)
            kind = kind.fields[step].type
            if not held.get(step):
                held[step] = _sample(kind, step, 0, full=False)
            held = held[step]
    return obj


# -- the rest of the object -------------------------------------------------------------------------------------------

_CLAIM: Final = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
_BODIES: Final[dict[str, Object]] = {
    **{path.rpartition("/")[2]: body for path, body in VALID.items()},
    "services": {"spec": {"type": "NodePort", "ports": [{"port": 80}]}},
    "replicasets": {"spec": WORKLOAD},
    "replicationcontrollers": {"spec": {"selector": {"app": "a"}, "template": TEMPLATE}},
    "podtemplates": {"template": TEMPLATE},
    "persistentvolumes": {
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "nfs": {"server": "s", "path": "/"}}
    },
    "persistentvolumeclaims": {"spec": _CLAIM},
    "storageclasses": {"provisioner": "a.example.com"},
}


def skeleton(rt: ResourceType) -> Object:
    """Return a small object of a kind, valid if the kind has a body here."""
    body = copy.deepcopy(_BODIES.get(rt.plural, {}))
    return {"apiVersion": rt.api_version, "kind": rt.kind, "metadata": {"name": "a"}, **body}
