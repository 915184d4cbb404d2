"""Server-side apply, from a request's body to the object to write.

Lives here: the checks of the configuration, the entry for fields from before the first apply, kubectl's last-applied
annotation, the decoded form of the result. Not here: the merge and the owners (patch/apply.py), the rules of writes
(pipeline.py).

The order of the rejections is k8s.io/apiserver's: kind and version, managedFields, schema, conflicts, repeated keys,
and last the name, because a configuration need not repeat it.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import orjson

from kubechronicle.api.custom import numbers
from kubechronicle.api.custom.version import CustomVersion
from kubechronicle.api.errors import status
from kubechronicle.api.managed_fields import managers
from kubechronicle.api.managed_fields.field_sets import FieldSet, NoPathElement, compare, difference
from kubechronicle.api.managed_fields.managers import Entry, Writer
from kubechronicle.api.managed_fields.path_elements import may_lack_keys
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.patch import apply, typed_readers, typed_values
from kubechronicle.api.patch.apply import Applied, Conflicts, Typed, Unconvertible
from kubechronicle.api.pipeline import applied_bodies, bodies, conversion
from kubechronicle.api.pipeline.applied_bodies import KUBECTL, LAST_APPLIED
from kubechronicle.api.pipeline.applied_bodies import ApplyRequest as ApplyRequest
from kubechronicle.api.registry.registry import ResourceType, known_registry
from kubechronicle.api.schema import check, equality, unstructured
from kubechronicle.api.schema.empties import Empty
from kubechronicle.api.schema.types import ListType, MapType, ObjectType, Type, object_type
from kubechronicle.api.values.objects import Object

BEFORE_FIRST_APPLY: Final = "before-first-apply"
"""The manager of the fields from before the first apply, if the object has no entries."""

MAX_ANNOTATIONS: Final = 256 * 1024
"""Bytes of all annotations together (apimachinery: TotalAnnotationSizeLimitB)."""


def apply_to(rt: ResourceType, old: Object | None, request: ApplyRequest) -> tuple[Object, list[str]]:
    """Return (the object to write, warnings).

    ``old`` is in the request's version, None if absent. It is consumed: the result contains its parts. The result has
    its managedFields, and the resourceVersion of the configuration or of ``old``. Raises 400, 409 for conflicts with
    other managers, 500 for a configuration that does not fit the schema (as Kubernetes does).
    """
    kind = bodies.kind_type(rt)
    if kind is None:
        raise status.unsupported_media_type_generic()
    config, named, duplicates = applied_bodies.read(kind, request.body)
    _check_type(rt, config)
    live, entries = _live(rt, kind, old, request)
    _refuse_managed_fields(config)
    if named is None:
        config = config if rt.custom is None else numbers.as_decoded(config)
        named = typed_readers.read(config, kind)
    if named is None:
        problems = typed_values.validate(config, kind)
        if problems:
            raise status.unknown(
                f"failed to create typed patch object ({_named(rt, config)}): {typed_values.explain(problems)}"
            )
        named = typed_values.field_set(config, kind)
    if problems := _misfits(live, kind, config, request) if rt.custom is not None else _keyless(live, kind):
        raise status.unknown(
            f"failed to create typed live object ({_named(rt, live)}): {typed_values.explain(problems)}"
        )
    noted = copy_object(config) if request.writer.manager == KUBECTL else None
    try:
        applied = _apply(rt, kind, live, config, named, entries, request)
    except NoPathElement as error:
        raise status.unknown(f"failed to create typed live object ({_named(rt, live)}): {error}") from None
    except Unconvertible as error:
        raise status.unknown(str(error)) from None
    obj = live if applied.object is None else _decoded(rt, kind, config, applied.object, request.empties)
    if noted is not None:
        _note_last_applied(obj, noted)
    if applied.entries:
        obj["metadata"]["managedFields"] = applied.entries
    if duplicates and request.validation == "Strict":
        text = "\n  ".join(["error converting YAML to JSON: yaml: unmarshal errors:", *duplicates])
        raise status.bad_request(f"error strict decoding patch: {text}")
    return obj, [] if request.validation == "Ignore" else duplicates


# -- the configuration ------------------------------------------------------------------------------------------------


def check_type(rt: ResourceType, body: bytes) -> None:
    """Check that a configuration can be read, and is an object of the type. 400 otherwise."""
    _check_type(rt, applied_bodies.read_any(body)[0])


def _check_type(rt: ResourceType, config: Object) -> None:
    kind, api_version = config.get("kind"), config.get("apiVersion")
    if (kind, api_version) != (rt.kind, rt.api_version):
        raise status.bad_request(f"invalid object type: {_type_text(api_version, kind)}")


def _type_text(api_version: Any, kind: Any) -> str:
    version = api_version if isinstance(api_version, str) else ""
    word = kind if isinstance(kind, str) else ""
    if version.count("/") > 1:
        return "/, Kind="
    group, _, version = version.rpartition("/")
    return f"{group}/{version}, Kind={word}"


def _refuse_managed_fields(config: Object) -> None:
    meta = config.get("metadata")
    entries = meta.get("managedFields") if isinstance(meta, dict) else None
    if isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries):
        raise status.bad_request("metadata.managedFields must be nil")


def _named(rt: ResourceType, obj: Object) -> str:
    """Return an object as messages about types name it: ``namespace/name; group/version, Kind=kind``."""
    meta = obj.get("metadata")
    given = meta if isinstance(meta, dict) else {}
    namespace, name = (
        text if isinstance(text, str) else "" for text in (given.get("namespace", ""), given.get("name", ""))
    )
    return f"{namespace}/{name}; {_type_text(rt.api_version, rt.kind)}"


# -- the merge --------------------------------------------------------------------------------------------------------


def _live(rt: ResourceType, kind: ObjectType, old: Object | None, request: ApplyRequest) -> tuple[Object, list[Entry]]:
    """Return the live object without managedFields, and the entries before the apply. StatusError 500 if it has none,
    and none can be made for it: an element of a list lacks its key."""
    if old is None:
        zero = kind.zero() if rt.custom is None else {"metadata": {}}
        return {"apiVersion": rt.api_version, "kind": rt.kind, **zero}, []
    meta = dict(old["metadata"])
    entries: list[Entry] = meta.pop("managedFields", None) or []
    live = {**old, "metadata": meta}
    if entries:
        return live, entries
    if problems := typed_values.misfits(live, kind):
        raise status.unknown(
            "failed to create manager for existing fields: failed to convert new object "
            f"({_named(rt, live)}) to smd typed: {typed_values.explain(problems)}"
        )
    tracked = {**live, "metadata": dict(meta)}
    writer = request.writer
    first = Writer(
        manager=BEFORE_FIRST_APPLY, api_version=writer.api_version, subresource=writer.subresource, now=writer.now
    )
    managers.track(kind, None, tracked, writer=first, reset=request.reset)
    return live, tracked["metadata"].get("managedFields") or []


def _misfits(live: Object, kind: ObjectType, config: Object, request: ApplyRequest) -> list[str]:
    """Return the problems of a live custom object. ``config``: a valid configuration."""
    if request.fits:
        return typed_values.misfits({"metadata": live["metadata"]}, kind)
    return typed_values.misfits(live, kind, valid=config)


def _keyless(live: Object, kind: ObjectType) -> list[str]:
    """Return the problems of a live built-in object: items of lists that lack their keys. Few kinds can have some."""
    held = {name: live[name] for name in _with_keyless_lists(kind) if live.get(name)}
    return typed_values.misfits(held, kind) if held else []


@cache
def _with_keyless_lists(kind: ObjectType) -> tuple[str, ...]:
    """Return the fields in which lists may have items without a key, such as ``secrets`` of ServiceAccounts."""
    return tuple(name for name, field in kind.fields.items() if _may_be_keyless(field.type, frozenset()))


def _may_be_keyless(kind: Type, above: frozenset[str]) -> bool:
    if isinstance(kind, ListType):
        return (bool(kind.keys) and may_lack_keys(kind)) or _may_be_keyless(kind.item, above)
    if isinstance(kind, MapType):
        return _may_be_keyless(kind.value, above)
    if not isinstance(kind, ObjectType) or kind.definition in above:
        return False
    return any(_may_be_keyless(field.type, above | {kind.definition}) for field in kind.fields.values())


def _apply(
    rt: ResourceType,
    kind: ObjectType,
    live: Object,
    config: Object,
    named: FieldSet,
    entries: list[Entry],
    request: ApplyRequest,
) -> Applied:
    def once(*, force: bool) -> Applied:
        return apply.apply(
            kind,
            live,
            config,
            named,
            entries,
            writer=request.writer,
            force=force,
            reset=request.reset,
            versions=versions_of(rt),
        )

    try:
        return once(force=request.force)
    except Conflicts as conflicts:
        allowed = _last_applied_fields(live, kind, rt.api_version) if request.writer.manager == KUBECTL else {}
        left = conflicts.without(allowed) if allowed else conflicts.conflicts
        if not left:
            return once(force=True)
        raise status.apply_conflict(*Conflicts(left).describe()) from None


def versions_of(rt: ResourceType) -> managers.Versions:
    """Return the function that converts objects of a resource to its other versions."""
    if rt.custom is not None:
        return lambda obj, api_version: _custom_typed(rt, obj, api_version)
    return lambda obj, api_version: _typed(rt, obj, api_version)


def _typed(rt: ResourceType, obj: Object, api_version: str) -> Typed | None:
    """Return an object in another version of its resource; None for an unknown version."""
    if rt.api_version != api_version and not is_version(rt, api_version):
        return None
    if obj["apiVersion"] == api_version:
        served: ResourceType | None = rt if rt.api_version == api_version else _served(rt, api_version)
    else:
        served = _served(rt, api_version)
        if served is None or not served.definition:
            return None
        obj = copy_object(obj)
        source = rt if rt.api_version == obj["apiVersion"] else _served(rt, obj["apiVersion"])
        if source is not None and source.definition:
            # During a merge, a field may be missing that a complete object always has.
            check.check(obj, object_type(source.definition))
        obj = conversion.convert(obj, api_version)
    return (obj, object_type(served.definition)) if served is not None and served.definition else None


def _custom_typed(rt: ResourceType, obj: Object, api_version: str) -> Typed | None:
    """Do as ``_typed`` for a custom object. Unconvertible if it does not fit the schema of the other version."""
    if not is_version(rt, api_version):
        return None
    version: CustomVersion = rt.custom.versions[api_version.rpartition("/")[2]]
    if obj["apiVersion"] != api_version:
        obj = conversion.convert_custom(rt.custom, copy_object(obj), api_version)
        if problems := typed_values.misfits(obj, version.kind_type):
            raise Unconvertible(typed_values.explain(problems))
    return obj, version.kind_type


def _served(rt: ResourceType, api_version: str) -> ResourceType | None:
    for served in known_registry().known_as(rt.resource):
        if served.api_version == api_version:
            return served
    return None


def is_version(rt: ResourceType, api_version: str) -> bool:
    """Return whether the resource is known in an API version.

    As in kube-apiserver, the core group and the named groups do not know each other: each has types of its own. So an
    Event changed in events.k8s.io/v1 loses the entries of v1, and the other way round.
    """
    if rt.custom is not None:
        group, _, version = api_version.rpartition("/")
        return group == rt.group and version in rt.custom.versions
    return ("/" in api_version) == bool(rt.group) and _served(rt, api_version) is not None


def _decoded(rt: ResourceType, kind: ObjectType, config: Object, obj: Object, empties: list[Empty] | None) -> Object:
    """Return the merged object in the form of a decoded and defaulted object."""
    if rt.custom is not None:
        rt.custom.schema.complete(obj)
        obj.setdefault("metadata", {})
        return obj
    try:
        unstructured.check_converted(obj, kind, empties)
        conversion.apply(obj, kind)
        equality.encode_again(obj, rt.definition)
    except (check.TypeMismatch, unstructured.ConversionError) as error:
        why = f"unable to convert unstructured object to {_type_text(rt.api_version, rt.kind)}: {error}"
        raise status.unknown(f"failed to convert new object ({_named(rt, config)}) to proper version: {why}") from None
    return obj


# -- kubectl's client-side apply --------------------------------------------------------------------------------------


def _last_applied_fields(live: Object, kind: ObjectType, api_version: str) -> FieldSet:
    """Return the unchanged fields of the last client-side apply."""
    text = (live["metadata"].get("annotations") or {}).get(LAST_APPLIED)
    if not text:
        return {}
    try:
        last = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(last, dict) or last.get("apiVersion") != api_version or typed_values.validate(last, kind):
        return {}
    changed, removed = compare(last, live, kind)
    return difference(difference(typed_values.field_set(last, kind), changed), removed)


def _note_last_applied(obj: Object, noted: Object) -> None:
    """Update the annotation of a client-side apply, if present, to the applied configuration."""
    annotations = obj["metadata"].get("annotations")
    if not annotations or not annotations.get(LAST_APPLIED):
        return
    given = noted.get("metadata", {}).get("annotations")
    if isinstance(given, dict):
        given.pop(LAST_APPLIED, None)
    text = _go_json(noted)
    rest = {name: value for name, value in annotations.items() if name != LAST_APPLIED}
    total = sum(len(name.encode()) + len(value.encode()) for name, value in rest.items())
    if total + len(LAST_APPLIED) + len(text.encode()) <= MAX_ANNOTATIONS:
        rest = {**annotations, LAST_APPLIED: text}
    if rest:
        obj["metadata"]["annotations"] = rest
    else:
        del obj["metadata"]["annotations"]


_ESCAPED: Final = str.maketrans({mark: f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"})


def _go_json(value: Any) -> str:
    """Return JSON as Go's encoder writes it: keys sorted, HTML's characters escaped, a newline at the end."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode().translate(_ESCAPED) + "\n"
