"""apiVersion and kind of a body: filled in, or rejected with the words of Kubernetes' decoder."""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.kinds import reading
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.schema import types
from kubechronicle.api.schema.values import json_word
from kubechronicle.api.values.objects import Object

DEFINITIONS: Final = "apiextensions.k8s.io"
_SCHEME: Final = "pkg/api/legacyscheme/scheme.go:30"
_DEFINITIONS_SCHEME: Final = "pkg/runtime/scheme.go:111"


def unrecognized_as(rt: ResourceType) -> str:
    """Return the beginning of the message about an unreadable body."""
    return f"the object provided is unrecognized (must be of type {rt.kind}): "


def definition_of(api_version: str, kind: str) -> str:
    """Return the name of the definition of a built-in kind, "" for another kind."""
    group, _, version = api_version.rpartition("/")
    found = reading.release().kinds.get((group, version, kind))
    return "" if found is None else found.definition


def internal_kind(rt: ResourceType) -> str:
    """Return the Go type of a resource's internal objects: ``core.ConfigMap``."""
    return f"{types.short_name(rt.definition).partition('.')[0]}.{rt.kind}"


def set_type(rt: ResourceType, obj: Object) -> None:
    """Fill in apiVersion and kind, or reject (400) another kind or version."""
    if obj.get("apiVersion") == rt.api_version and obj.get("kind") == rt.kind:
        return
    for name in ("apiVersion", "kind"):
        value = obj.get(name)
        if value is not None and not isinstance(value, str):
            raise status.bad_request(unrecognized_as(rt) + not_a_text(name, value))
    api_version = _without_empty_group(obj.get("apiVersion") or "") or rt.api_version
    kind = obj.get("kind") or rt.kind
    if api_version == rt.api_version and kind == rt.kind:
        obj["apiVersion"], obj["kind"] = api_version, kind
        return
    raise wrong_type(rt, api_version, kind)


def _without_empty_group(api_version: str) -> str:
    """Return an apiVersion without the slash of an empty group, as Go's ParseGroupVersion reads it: "/v1" is v1."""
    return api_version if api_version.count("/") > 1 else api_version.removeprefix("/")


def not_a_text(name: str, value: Any) -> str:
    """Return the problem of an apiVersion or kind that is not a text."""
    return (
        f"couldn't get version/kind; json parse error: json: cannot unmarshal {json_word(value)} "
        f"into Go struct field .{name} of type string"
    )


def wrong_type(rt: ResourceType, api_version: str, kind: str) -> status.StatusError:
    group, _, version = api_version.rpartition("/")
    if kind == rt.kind and group == rt.group and (group, version, kind) in reading.release().kinds:
        return status.bad_request(
            f"the API version in the data ({api_version}) does not match the expected API version ({rt.api_version})"
        )
    why = why_not(rt, api_version, kind)
    return status.bad_request(f"{kind} in version {go_quote(version)} cannot be handled as a {rt.kind}: {why}")


def why_not(rt: ResourceType, api_version: str, kind: str) -> str:
    """Return the reason why an object of another kind or version can't become one of the resource's."""
    group, _, version = api_version.rpartition("/")
    if "/" in group:
        return f"unexpected GroupVersion string: {api_version}"
    # Definitions have a scheme of their own in Kubernetes, without the kinds of other groups.
    if (group, version, kind) in reading.release().kinds and (rt.group == group or rt.group != DEFINITIONS):
        return f"converting ({version}.{kind}) to ({internal_kind(rt)}): unknown conversion"
    return (
        f"no kind {go_quote(kind)} is registered for version {go_quote(api_version)} "
        f'in scheme "{_DEFINITIONS_SCHEME if rt.group == DEFINITIONS else _SCHEME}"'
    )


def why_not_internal(rt: ResourceType, kind: str) -> str:
    """Return the reason why an object of another kind, without a version, can't become one of the resource's."""
    if any(group == rt.group and name == kind for group, _, name in reading.release().kinds):
        internal = internal_kind(rt)
        return f"converting ({internal.partition('.')[0]}.{kind}) to ({internal}): unknown conversion"
    return (
        f"no kind {go_quote(kind)} is registered for the internal version of group {go_quote(rt.group)} "
        f'in scheme "{_DEFINITIONS_SCHEME if rt.group == DEFINITIONS else _SCHEME}"'
    )
