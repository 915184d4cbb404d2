"""The first step of a patch or an apply: the patched object, in the version of the request. See pipeline.py."""

from __future__ import annotations

from kubechronicle.api.errors import status
from kubechronicle.api.meta import metadata
from kubechronicle.api.pipeline import patching, scale, server_side_apply, tracking
from kubechronicle.api.pipeline.pipeline import SCALE, WriteContext, match_url, to_request_version
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.objects import Object


def apply_patch(
    rt: ResourceType, old: Object, content_type: str, body: bytes, ctx: WriteContext
) -> tuple[Object, list[str]]:
    """Return (patched object in the request's version, warnings). 400, 415 or 422 if the patch cannot be applied.

    ``old``, in the stored version, is consumed: the result contains its parts. Of ``tracking.seen_by_apply`` it only
    shares them. A server-side apply (``ctx.applies``) is
    rejected with 409 for fields of other managers, and with 500 for fields outside the schema.
    """
    base = old if old is tracking.seen_by_apply(ctx) else to_request_version(rt, old)
    ctx.empties.clear()
    if ctx.subresource == SCALE:
        request = _apply_request(rt, body, ctx)
        return scale.patch_scale(rt, base, content_type, request, name=ctx.name, namespace=ctx.namespace)
    if content_type != patching.APPLY_YAML:
        patched, warnings = patching.apply(
            rt, base, content_type, body, validation=ctx.field_validation, empties=ctx.empties
        )
    else:
        request = _apply_request(rt, body, ctx, fits=base is old and ctx.seen.conforms)
        patched, warnings = server_side_apply.apply_to(rt, base, request)
    match_url(rt, patched["metadata"], ctx, warnings)
    return patched, warnings


def apply_new(rt: ResourceType, body: bytes, ctx: WriteContext) -> tuple[Object, list[str]]:
    """Return (object in the request's version, warnings) of a server-side apply that creates, for accept_create."""
    obj, warnings = server_side_apply.apply_to(rt, None, _apply_request(rt, body, ctx))
    meta = obj["metadata"]
    if meta.get("uid"):
        why = f"uid mismatch: the provided object specified uid {meta['uid']}, and no existing object was found"
        raise status.conflict(rt, ctx.name, why)
    match_url(rt, meta, ctx, warnings)
    metadata.parse_revision(meta)
    meta.pop("resourceVersion", None)  # meaningless for a missing object
    return obj, warnings


def _apply_request(
    rt: ResourceType, body: bytes, ctx: WriteContext, *, fits: bool = False
) -> server_side_apply.ApplyRequest:
    return server_side_apply.ApplyRequest(
        body=body,
        writer=tracking.writer(rt, ctx),
        force=ctx.force,
        validation=ctx.field_validation,
        reset=tracking.reset(rt, ctx),
        fits=fits,
        empties=ctx.empties,
    )
