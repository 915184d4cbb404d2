"""From a decoded request body to an object of the resource's type, with the rejections of Kubernetes' decoder.

Lives here: apiVersion and kind, the schema check with its warnings, defaulting. Not here: names and namespaces, which
come from the URL, and the rules of writes (pipeline.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import go_quote, invalid_value
from kubechronicle.api.pipeline import defaulting
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.schema import check, types
from kubechronicle.api.schema.values import json_word
from kubechronicle.api.values.objects import Object

SUMMARY_BYTES: Final = 30
"""Bytes of an unreadable body in its error."""

_TYPE_META: Final = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
)

OLD_VERSIONS: Final = {
    "apps": ("v1beta1", "v1beta2"),
    "autoscaling": ("v2beta1", "v2beta2"),
    "batch": ("v1beta1",),
    "policy": ("v1beta1",),
    "networking.k8s.io": ("v1beta1",),
    "rbac.authorization.k8s.io": ("v1beta1", "v1alpha1"),
    "storage.k8s.io": ("v1beta1", "v1alpha1"),
    "scheduling.k8s.io": ("v1beta1", "v1alpha1"),
    "coordination.k8s.io": ("v1beta1",),
    "node.k8s.io": ("v1beta1", "v1alpha1"),
    "discovery.k8s.io": ("v1beta1",),
    "events.k8s.io": ("v1beta1",),
    "certificates.k8s.io": ("v1beta1",),
    "admissionregistration.k8s.io": ("v1beta1", "v1alpha1"),
    "flowcontrol.apiserver.k8s.io": ("v1beta3", "v1beta2", "v1beta1"),
    "resource.k8s.io": ("v1beta2", "v1beta1", "v1alpha3"),
}
"""Removed versions with kinds that Kubernetes still knows by name."""


def unrecognized(rt: ResourceType, problem: str, raw: bytes) -> status.StatusError:
    """Return the 400 for an unreadable body. ``problem`` is the codec's text, ``raw`` the body."""
    message = f"the object provided is unrecognized (must be of type {rt.kind}): {problem} ({summarize(raw)})"
    return status.bad_request(message)


def summarize(raw: bytes) -> str:
    """Return the beginning of a body as errors show it: text if it looks like JSON, hexadecimal otherwise."""
    if not raw:
        return "<empty>"
    more = " ..." if len(raw) > SUMMARY_BYTES else ""
    head = raw[:SUMMARY_BYTES]
    return (head.decode("utf-8", "replace") if raw.startswith(b"{") else head.hex()) + more


def not_an_object(value: Any) -> str:
    """Return the problem of a body that is JSON, but not an object."""
    return (
        "couldn't get version/kind; json parse error: json: cannot unmarshal "
        f"{json_word(value)} into Go value of type {_TYPE_META}"
    )


@functools.cache
def _known_kinds() -> frozenset[tuple[str, str, str]]:
    return frozenset(
        (entry["group"], entry["version"], entry["kind"])
        for schema in types.definitions().values()
        for entry in schema.get("x-kubernetes-group-version-kind", ())
    )


def set_type(rt: ResourceType, obj: Object) -> None:
    """Fill in apiVersion and kind, or reject (400) another kind or version."""
    api_version = obj.get("apiVersion") or rt.api_version
    kind = obj.get("kind") or rt.kind
    for name, value in (("apiVersion", api_version), ("kind", kind)):
        if not isinstance(value, str):
            raise status.bad_request(
                f"the object provided is unrecognized (must be of type {rt.kind}): couldn't get version/kind; "
                f"json parse error: json: cannot unmarshal {json_word(value)} into Go struct field .{name} of type "
                "string"
            )
    if api_version == rt.api_version and kind == rt.kind:
        obj["apiVersion"], obj["kind"] = api_version, kind
        return
    raise _wrong_type(rt, api_version, kind)


def _wrong_type(rt: ResourceType, api_version: str, kind: str) -> status.StatusError:
    group, _, version = api_version.rpartition("/")
    known = (group, version, kind) in _known_kinds()
    if kind == rt.kind and group == rt.group and (known or version in OLD_VERSIONS.get(group, ())):
        return status.bad_request(
            f"the API version in the data ({api_version}) does not match the expected API version ({rt.api_version})"
        )
    if known:
        internal = types.short_name(rt.definition).partition(".")[0]
        why = f"converting ({version}.{kind}) to ({internal}.{rt.kind}): unknown conversion"
    else:
        why = (
            f"no kind {go_quote(kind)} is registered for version {go_quote(api_version)} "
            'in scheme "pkg/api/legacyscheme/scheme.go:30"'
        )
    return status.bad_request(f"{kind} in version {go_quote(version)} cannot be handled as a {rt.kind}: {why}")


def strict_texts(duplicates: Iterable[str], unknown: Iterable[str]) -> list[str]:
    """Return the complaints of strict decoding. A duplicate is a path, or a codec's whole sentence."""
    texts = [text if " " in text else f"duplicate field {go_quote(text)}" for text in duplicates]
    return texts + [f"unknown field {go_quote(path)}" for path in unknown]


def kind_type(rt: ResourceType) -> types.ObjectType | None:
    """Return the structural type of a resource's objects, None for kinds without one."""
    return types.object_type(rt.definition) if rt.definition else None


def decode(
    rt: ResourceType, obj: Object, *, duplicates: Sequence[str] = (), validation: str = "Warn"
) -> tuple[Object, list[str]]:
    """Check and default a request's object, in place; return it and the warnings. 400 if it cannot be decoded.

    ``validation`` is Strict (complaints are errors), Warn or Ignore.
    """
    set_type(rt, obj)
    kind = kind_type(rt)
    unknown: list[str] = []
    if kind is not None:
        _mark_reset(obj)
        try:
            unknown = check.check(obj, kind)
        except check.TypeMismatch as error:
            raise _cannot_be_handled(rt, str(error)) from None
        defaulting.apply(obj, kind)
    texts = strict_texts(duplicates, unknown)
    if texts and validation == "Strict":
        raise _cannot_be_handled(rt, f"strict decoding error: {', '.join(texts)}")
    return obj, [] if validation == "Ignore" else texts


def _mark_reset(obj: Object) -> None:
    """Replace an empty list of managedFields by ``[{}]``, which resets them as well: empty lists are dropped later."""
    meta = obj.get("metadata")
    if meta.__class__ is dict and meta.get("managedFields") == []:
        meta["managedFields"] = [{}]


def _cannot_be_handled(rt: ResourceType, why: str) -> status.StatusError:
    return status.bad_request(f"{rt.kind} in version {go_quote(rt.version)} cannot be handled as a {rt.kind}: {why}")


_DELETE_OPTIONS: Final = types.META + "DeleteOptions"


def decode_delete_options(obj: Any) -> Object:
    """Return the decoded body of a DELETE, of the right kind and types, for options.parse_delete_options. 400."""
    if not isinstance(obj, dict):
        raise status.bad_request(not_an_object(obj))
    api_version, kind = obj.get("apiVersion") or "v1", obj.get("kind") or "DeleteOptions"
    if kind != "DeleteOptions":
        raise status.bad_request(
            f"no kind {go_quote(str(kind))} is registered for version {go_quote(str(api_version))} "
            'in scheme "pkg/apis/meta/internalversion/scheme/register.go:27"'
        )
    try:
        check.check(obj, types.object_type(_DELETE_OPTIONS))
    except check.TypeMismatch as error:
        raise status.bad_request(str(error)) from None
    return obj


def decode_patched(
    rt: ResourceType, obj: Any, *, shown: Callable[[], str], validation: str, complaints: Sequence[str] = ()
) -> list[str]:
    """Check and default a patched object, in place; return the warnings.

    422 on the field ``patch``, with the value ``shown``, if the result cannot be decoded.
    """

    def refused(why: str) -> status.StatusError:
        return status.invalid("", "", "", [invalid_value("patch", shown(), why)])

    if not isinstance(obj, dict):
        raise refused(not_an_object(obj))
    try:
        set_type(rt, obj)
    except status.StatusError as error:
        raise refused(error.message) from None
    kind = kind_type(rt)
    unknown: list[str] = []
    if kind is not None:
        _mark_reset(obj)
        try:
            unknown = check.check(obj, kind)
        except check.TypeMismatch as error:
            raise refused(str(error)) from None
        defaulting.apply(obj, kind)
    texts = [*complaints, *strict_texts((), unknown)]
    if texts and validation == "Strict":
        raise refused(f"strict decoding error: {', '.join(texts)}")
    return [] if validation == "Ignore" else texts
