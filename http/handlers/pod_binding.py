"""POST …/pods/NAME/binding and POST …/bindings: the scheduler assigns a pod to a node."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec.structs import replace

from kubechronicle.api.builtin.core.pod.options import GATES
from kubechronicle.api.errors import status
from kubechronicle.api.meta.options import parse_create_options
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.subresources import binding as pod_binding
from kubechronicle.api.values.objects import Object
from kubechronicle.http.context import Context
from kubechronicle.http.handlers.backend import Backend
from kubechronicle.http.handlers.responses import object_response
from kubechronicle.http.handlers.write_request import decode_object, enter_manager, read_write, showing_warnings
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.representation.answers import object_form


async def bind(backend: Backend, request: Request, context: Context, rt: ResourceType) -> Response:
    """Answer 201 and a Status; 409 for a pod that is bound, gated or being deleted. ``rt`` is pods (the URL names the
    pod) or bindings (the body does)."""
    form = object_form(request, context, tables=False)
    registry = backend.store.registry
    body_type, pods = registry.builtin("", "v1", "bindings"), registry.builtin("", "v1", "pods")
    write = await read_write(request, context, pods, parse_create_options, body_type=body_type)
    binding = await decode_object(write.body, body_type, context, write.options.field_validation)
    name = write.target.name if rt is pods else binding["metadata"].get("name", "")
    target = replace(write.target, name=name, subresource="binding")
    # Rules, webhooks and policies see the resource of the URL.
    reviewed = target if rt is pods else replace(target, rt=body_type, subresource="")
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def change(pod: Object) -> Object:
        ends = backend.features.enabled(GATES["nominations_end"])
        with_labels = backend.features.enabled(pod_binding.LABELS_GATE)
        return pod_binding.bound(pod, binding, now=now, nomination_ends=ends, with_labels=with_labels)

    async def check(admitted: Object) -> None:
        pod_binding.check(admitted, name=name)

    if not target.namespace:
        pod_binding.check(binding, name=name)
        raise status.bad_request("Namespace parameter required.")
    enter_manager(body_type, binding, reviewed)
    with showing_warnings(context, target):
        await backend.store.writes.rewrite(
            write.caller, target, change, admitted=binding, reviewed=reviewed, complete=check
        )
    return object_response(201, form, status.success(code=201))
