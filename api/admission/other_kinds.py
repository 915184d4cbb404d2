"""Patched objects whose apiVersion or kind is another than that of the resource: why they are rejected.

kube-apiserver decodes a patched object as the kind that it names, and then tries to convert it to the resource's kind.

Sources: k8s.io/apiserver ``pkg/admission/plugin/webhook/mutating/dispatcher.go``, ``…/policy/mutating/patch``.
"""

from __future__ import annotations

from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.pipeline import bodies, body_types
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.schema import check, types
from kubechronicle.api.values.objects import Object

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
