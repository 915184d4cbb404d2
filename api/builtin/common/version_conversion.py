"""Building blocks for converters between versions, and the annotation that makes conversion to an old version lossless.

A legacy version (api/registry/lives.py) cannot express everything that the current version can. Sometimes it also
expresses one thing twice. Fields that Kubernetes moves to annotations are in the same annotations here. All else that
a round trip would lose is kept in our own annotation (``KEPT``). So an old client that reads an object and writes it
back changes no field that it does not know:

    discovery.k8s.io/v1       zone: a, deprecatedTopology: {topology.kubernetes.io/zone: b}
    discovery.k8s.io/v1beta1  topology: {topology.kubernetes.io/zone: a}, annotation: deprecatedTopology is converted
                              back to nothing, but is {topology.kubernetes.io/zone: b}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import orjson

from kubechronicle.api.errors.field_errors import go_json
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.schema import check, types
from kubechronicle.api.values.objects import Object

Converter = Callable[[Object], Object]

KEPT: Final = "kubechronicle.io/kept-by-conversion"
"""Annotation, never stored, with the fields that a legacy version cannot express.

It is a JSON list of {"at": path, "as": value after a round trip, "is": true value}. A missing "as" or "is" means that
the field is absent.
"""


def typed(obj: Object, api_version: str, definition: str) -> Object:
    """Return the object with another apiVersion, normalized and checked by that version's schema."""
    result = {**obj, "apiVersion": api_version}
    check.check(result, types.object_type(definition))
    return result


def renaming(api_version: str, definition: str) -> Converter:
    """Return a converter to a version that has the same fields. A field that it lacks is lost."""
    return lambda obj: typed(copy_object(obj), api_version, definition)


# -- lossless conversion ----------------------------------------------------------------------------------------------

_Path = tuple[str | int, ...]
_ABSENT: Final[Any] = object()


def lossless(down: Converter, up: Converter, definition: str) -> tuple[Converter, Converter]:
    """Return both converters, extended so that up(down(obj)) equals obj. ``definition`` is that of the current
    version."""
    kind = types.object_type

    def down_with_note(obj: Object) -> Object:
        old = down(obj)
        wanted = copy_object(obj)
        check.check(wanted, kind(definition))
        lost = list(_differences(up(old), wanted, ()))
        if lost:
            noted = [_note_entry(*each) for each in lost]
            old["metadata"].setdefault("annotations", {})[KEPT] = go_json(noted)
        return old

    def up_with_note(obj: Object) -> Object:
        text = (obj["metadata"].get("annotations") or {}).get(KEPT)
        if text is None:
            return up(obj)
        new = up(_without_note(obj))
        restored: Object = copy_object(new)
        for entry in _read_entries(text):
            _restore(restored, entry)
        try:
            check.check(restored, kind(definition))
        except check.TypeMismatch:
            return new  # the client has changed the annotation
        return restored

    return down_with_note, up_with_note


def _differences(seen: Any, wanted: Any, path: _Path) -> Iterator[tuple[_Path, Any, Any]]:
    if seen.__class__ is dict and wanted.__class__ is dict:
        for name in {**seen, **wanted}:
            yield from _differences(seen.get(name, _ABSENT), wanted.get(name, _ABSENT), (*path, name))
    elif seen.__class__ is list and wanted.__class__ is list and len(seen) == len(wanted):
        for index, (one, other) in enumerate(zip(seen, wanted, strict=True)):
            yield from _differences(one, other, (*path, index))
    elif seen != wanted:
        yield path, seen, wanted


def _note_entry(path: _Path, seen: Any, wanted: Any) -> Object:
    note: Object = {"at": list(path)}
    for name, value in (("as", seen), ("is", wanted)):
        if value is not _ABSENT:
            note[name] = value
    return note


def _without_note(obj: Object) -> Object:
    notes = {name: value for name, value in obj["metadata"]["annotations"].items() if name != KEPT}
    metadata = {**obj["metadata"], "annotations": notes}
    if not notes:
        del metadata["annotations"]
    return {**obj, "metadata": metadata}


def _read_entries(text: str) -> Iterator[Object]:
    """Yield the well-formed entries of the annotation; clients may write anything into it."""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return
    for entry in found if isinstance(found, list) else ():
        path = entry.get("at") if isinstance(entry, dict) else None
        if isinstance(path, list) and path and _is_restorable(path):
            yield entry


def _is_restorable(path: list[Any]) -> bool:
    """Return whether a path is a client's field: not apiVersion, kind or metadata other than annotations."""
    return path[:2] == ["metadata", "annotations"] or path[0] not in ("apiVersion", "kind", "metadata")


def _restore(obj: Object, entry: Object) -> None:
    """Restore one lost field, if its value after the conversion is the same as it was when it was recorded."""
    *parents, last = entry["at"]
    place: Any = obj
    for name in parents:
        place = _member(place, name)
    seen = _member(place, last)
    if place is _ABSENT or seen != entry.get("as", _ABSENT):
        return
    if place.__class__ is dict and isinstance(last, str):
        if "is" in entry:
            place[last] = entry["is"]
        else:
            place.pop(last, None)
    elif place.__class__ is list and seen is not _ABSENT and "is" in entry:
        place[last] = entry["is"]


def _member(place: Any, name: Any) -> Any:
    if place.__class__ is dict and isinstance(name, str):
        return place.get(name, _ABSENT)
    if place.__class__ is list and name.__class__ is int and 0 <= name < len(place):
        return place[name]
    return _ABSENT


def lossless_pair(
    kind: str, present: str, past: str, definition: str, down: Converter, up: Converter
) -> Mapping[tuple[str, str, str], Converter]:
    """Return lossless converters between the stored version and a legacy one, by (kind, from, to)."""
    down, up = lossless(down, up, definition)
    return {(kind, present, past): down, (kind, past, present): up}
