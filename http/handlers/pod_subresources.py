"""POST …/pods/NAME/binding and POST …/bindings: a scheduler says on which node a pod runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kubechronicle.api.errors import status
from kubechronicle.api.meta import metadata, options
from kubechronicle.api.pipeline import bodies
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.subresources import binding as pod_binding
from kubechronicle.api.values.objects import Object
from kubechronicle.http.context import Context
from kubechronicle.http.handlers.bodies import MAX_BODY, caller_of, decoded_body, target_of
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.representation.answers import CACHE_CONTROL, object_form
from kubechronicle.http.representation.entry_encoder import encode

if TYPE_CHECKING:
    from kubechronicle.http.handlers.resources import Resources


async def bind(resources: Resources, request: Request, context: Context, rt: ResourceType) -> Response:
    """``rt`` is pods (the pod is named by the URL) or bindings (by the body). 201 and a Status; 409 for a pod that is
    bound, gated or on its way out."""
    info = context.info
    form = object_form(request, context)
    asked = options.parse_create_options(context.query.as_dict())
    registry = resources.store.registry
    kind, pods = registry.known("", "v1", "bindings"), registry.known("", "v1", "pods")
    if kind is None or pods is None:
        raise AssertionError("built-in resources")
    value, duplicates = await decoded_body(request, kind, asked.field_validation)
    if not isinstance(value, dict):
        raise bodies.unrecognized(kind, bodies.not_an_object(value), await request.body(MAX_BODY))
    binding, warnings = bodies.decode(kind, value, duplicates=duplicates, validation=asked.field_validation)
    context.warnings.extend(warnings)
    metadata.match_namespace(binding["metadata"], namespaced=True, namespace=info.namespace)
    name = info.name if rt is pods else binding["metadata"].get("name", "")
    target = target_of(request, context, pods, asked, name=name, subresource="binding")
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def change(pod: Object) -> Object:
        return pod_binding.bound(pod, binding, now=moment)

    pod_binding.check(binding, name=name)
    await resources.store.writes.rewrite(
        caller_of(request, context, asked.field_manager), target, change, admitted=binding
    )
    body = encode(status.success(code=201), form.media_type, pretty=form.pretty)
    return Response(201, [("content-type", form.content_type), CACHE_CONTROL], body)
