"""JSON patches in the answers of mutating webhooks: their application, and the decoding of the result.

Source: k8s.io/apiserver ``pkg/admission/plugin/webhook/mutating/dispatcher.go``.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from kubechronicle.api.admission.connections import FIELDS, decoded_options
from kubechronicle.api.admission.reviews import CallFailed
from kubechronicle.api.codecs import json
from kubechronicle.api.codecs.errors import DecodeError
from kubechronicle.api.custom.schema.defaults import TooManyDefaultsError
from kubechronicle.api.custom.schema.embedded import MalformedError
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import go_quote, invalid_value
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.patch import json_patch
from kubechronicle.api.pipeline import bodies, body_types, conversion
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.schema import check, types
from kubechronicle.api.values.objects import Object

# -- other kinds -------------------------------------------------------------------------------------------------------
#
# Patched objects whose apiVersion or kind is another than that of the resource: why they are rejected.
#
# kube-apiserver decodes a patched object as the kind that it names, and then tries to convert it to the resource's
# kind.
#
# Sources: k8s.io/apiserver ``pkg/admission/plugin/webhook/mutating/dispatcher.go``, ``…/policy/mutating/patch``.


SCHEME = 'in scheme "pkg/runtime/scheme.go:111"'


def set_type(rt: ResourceType, obj: Object, *, strict: bool) -> None:
    """Fill in apiVersion and kind of a patched object of a built-in resource. StatusError 500: they are others.

    ``strict``: unknown fields are errors. That is so for the patches of policies, and not for those of webhooks.
    """
    for name in ("apiVersion", "kind"):
        value = obj.get(name)
        if value is not None and not isinstance(value, str):
            raise status.internal_error(body_types.not_a_text(name, value))
    version, kind = obj.get("apiVersion") or rt.api_version, obj.get("kind") or rt.kind
    if (version, kind) != (rt.api_version, rt.kind):
        raise _rejected(rt, obj, version, kind, strict=strict)
    obj["apiVersion"], obj["kind"] = version, kind


def _rejected(rt: ResourceType, obj: Object, version: str, kind: str, *, strict: bool) -> StatusError:
    if version.count("/") > 1:
        return status.internal_error(f"unexpected GroupVersion string: {version}")
    definition = body_types.definition_of(version, kind)
    if not definition:
        return status.internal_error(f"no kind {go_quote(kind)} is registered for version {go_quote(version)} {SCHEME}")
    try:
        unknown = check.check(obj, types.object_type(definition))
    except check.TypeMismatch as error:
        return status.internal_error(str(error))
    converting = f"converting ({version.rpartition('/')[2]}.{kind}) to ({body_types.internal_kind(rt)})"
    if not strict:
        return StatusError(500, "", f"{converting}: unknown conversion")
    if unknown:
        return status.internal_error(f"strict decoding error: {', '.join(bodies.strict_texts((), unknown))}")
    return status.internal_error(f"failed to convert object: {converting}: unknown conversion")


MAX_OBJECT: Final = 3 * 1024 * 1024
"""Bytes of a patched object: those of a request body."""


SMALL_PATCH: Final = 64 * 1024
"""Bytes up to which a patch that copies and moves nothing makes no object too large."""


_LOCAL: Final = frozenset(("add", "remove", "replace", "test"))
"""Operations that look at the place of their path alone."""
_TYPE: Final = frozenset(("apiVersion", "kind"))


def operations(patch: bytes) -> list[Any]:
    """Return the operations of a patch as sent, which may be changed. Raises CallFailed."""
    try:
        return json_patch.decode(json.decode_value(patch)[0], checked=False)
    except DecodeError as error:
        why = str(error)
    except status.StatusError as error:
        why = error.message
    raise CallFailed(f"received undecodable patch in webhook response: {why}")


def patched(rt: ResourceType, obj: Object, found: list[Any], *, size: int = 0) -> Object:
    """Return a copy of an object after the operations of a patch, checked and defaulted. StatusError 500.

    ``rt``: the type of the object; of a subresource with a kind of its own, the type of that.
    ``obj``: an object as ``decoded`` leaves it. The copy may share its managed fields.
    ``size``: the bytes of the patch.
    """
    members = _members(found)
    try:
        result = json_patch.apply(_copy(obj, members), found)
    except json_patch.PatchFailed as error:
        raise status.internal_error(str(error)) from None
    if members is not None and size <= SMALL_PATCH and _TYPE.isdisjoint(members):
        kind = _checked_type(rt, obj)
        if kind is not None and result.__class__ is dict:
            return _decoded_members(result, kind, members)
    try:
        made = json.as_object(result)
    except DecodeError as error:
        raise status.internal_error(str(error)) from None
    if (size > SMALL_PATCH or members is None) and len(orjson.dumps(made)) > MAX_OBJECT:
        raise status.request_entity_too_large(f"limit is {MAX_OBJECT}")
    return decoded(rt, made)


def _members(found: list[Any]) -> dict[str, set[str] | None] | None:
    """Return the members of an object that a patch may change; None: perhaps any, or it copies values."""
    members: dict[str, set[str] | None] = {}
    for operation in found:
        path = (operation or {}).get("path")
        if not isinstance(path, str) or "~" in path or operation.get("op") not in _LOCAL:
            return None
        _, *tokens = path.split("/", 3)
        if not tokens:
            return None
        if len(tokens) == 1:
            members[tokens[0]] = None
        elif (below := members.setdefault(tokens[0], set())) is not None:
            below.add(tokens[1])
    return members


def _copy(obj: Object, members: check.Members | None) -> Object:
    """Return a copy for a patch that changes these members. Managed fields are shared if it does not change them."""
    copied: Object
    meta: Any = obj.get("metadata")
    below = None if members is None else members.get("metadata", ())
    if below is None or "managedFields" in below or meta.__class__ is not dict or "managedFields" not in meta:
        copied = copy_object(obj)
    else:
        copied = copy_object({**obj, "metadata": {**meta, "managedFields": None}})
        copied["metadata"]["managedFields"] = meta["managedFields"]
    return copied


def _checked_type(rt: ResourceType, obj: Object) -> types.ObjectType | None:
    """Return the structural type of a built-in kind whose objects are checked member by member, None for others."""
    if rt.custom is not None or (rt.kind in FIELDS and rt.group == ""):
        return None
    if (obj.get("apiVersion"), obj.get("kind")) != (rt.api_version, rt.kind):
        return None
    return bodies.kind_type(rt)


def decoded(rt: ResourceType, obj: Object) -> Object:
    """Check and default a patched object, in place. StatusError 500."""
    if rt.custom is not None:
        return _decoded_custom(rt, obj)
    set_type(rt, obj, strict=False)
    if rt.kind in FIELDS and rt.group == "":
        return decoded_options(rt.kind, obj)
    kind = bodies.kind_type(rt)
    return _with_metadata(obj) if kind is None else _decoded_members(obj, kind, None)


def _decoded_members(obj: Object, kind: types.ObjectType, members: check.Members | None) -> Object:
    """Check these members of a patched object (None: all) and default it, in place. StatusError 500."""
    try:
        if members is None:
            check.check(obj, kind)
        else:
            check.check_members(obj, kind, members)
    except check.TypeMismatch as error:
        raise status.internal_error(str(error)) from None
    conversion.apply(obj, kind)
    return _with_metadata(obj)


def _with_metadata(obj: Object) -> Object:
    if not isinstance(obj.get("metadata"), dict):
        obj["metadata"] = {}
    return obj


def _decoded_custom(rt: ResourceType, obj: Object) -> Object:
    """Default a custom object; its schema is checked by the rules of the write. StatusError 422.

    Like kube-apiserver, which decodes it without a schema, ignore another served version and metadata of wrong types,
    and leave unknown fields: they are removed where the object is stored, after validating admission.
    """
    version, kind = obj.get("apiVersion") or rt.api_version, obj.get("kind") or rt.kind
    if kind != rt.kind:
        name = (obj.get("metadata") or {}).get("name") or ""
        raise status.invalid(rt.group, str(kind), name, [invalid_value("kind", kind, f"must be {rt.kind}")])
    if str(version).rpartition("/")[0] != rt.group:
        raise status.internal_error(f"the patched object is of {version}, and not of {rt.api_version}")
    obj["apiVersion"], obj["kind"] = rt.api_version, kind
    try:
        rt.custom.schema.coerce(obj, drop_malformed=True)
        rt.custom.schema.default(obj)
    except MalformedError as error:
        raise status.internal_error(str(error)) from None
    except TooManyDefaultsError as error:
        raise status.request_entity_too_large(str(error)) from None
    return _with_metadata(obj)
