"""POST …/pods/NAME/eviction: a pod is asked to go, as far as its disruption budget allows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kubechronicle.actors.eviction import evict as evict_pod
from kubechronicle.api.errors import status
from kubechronicle.api.meta import metadata, options
from kubechronicle.api.pipeline import bodies
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.subresources import eviction
from kubechronicle.api.values.objects import Object
from kubechronicle.http.context import Context
from kubechronicle.http.handlers.bodies import MAX_BODY, caller_of, decoded_body, target_of
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.representation.answers import CACHE_CONTROL, object_form
from kubechronicle.http.representation.entry_encoder import encode

if TYPE_CHECKING:
    from kubechronicle.http.handlers.resources import Resources


async def evict(resources: Resources, request: Request, context: Context, rt: ResourceType) -> Response:
    """``rt`` is pods. 201 and a Status; 400 for an Eviction of another pod than the URL's, 429 by its budget."""
    info = context.info
    form = object_form(request, context)
    query = context.query.as_dict()
    asked = options.parse_create_options(query)
    kind = eviction.eviction_type(rt)
    value, duplicates = await decoded_body(request, kind, asked.field_validation)
    if not isinstance(value, dict):
        raise bodies.unrecognized(kind, bodies.not_an_object(value), await request.body(MAX_BODY))
    if value.get("apiVersion") == eviction.OLD_VERSION:
        value["apiVersion"] = kind.api_version
    sent, warnings = bodies.decode(kind, value, duplicates=duplicates, validation=asked.field_validation)
    context.warnings.extend(warnings)
    metadata.match_namespace(sent["metadata"], namespaced=True, namespace=info.namespace)
    if sent["metadata"].get("name", "") != info.name:
        raise status.bad_request("name in URL does not match name in Eviction object")
    wanted = _delete_options(sent, query.get("dryRun") or ())
    target = target_of(request, context, rt, asked)
    await evict_pod(resources.store, caller_of(request, context, asked.field_manager), target, sent, wanted)
    body = encode(status.success(code=201), form.media_type, pretty=form.pretty)
    return Response(201, [("content-type", form.content_type), CACHE_CONTROL], body)


def _delete_options(sent: Object, dry_run: Sequence[str]) -> options.DeleteOptions:
    """What the Eviction says of the deletion. A dry run may be asked for in it or in the query; both must agree."""
    given = sent.get("deleteOptions") or {}
    inside = given.get("dryRun") or []
    if inside and dry_run and list(inside) != list(dry_run):
        lists = f"[{' '.join(dry_run)}] and [{' '.join(inside)}]"
        raise status.unknown(f"Non-matching dry-run options in request and content: {lists}")
    return options.parse_delete_options({}, {**given, "dryRun": inside or list(dry_run)})
