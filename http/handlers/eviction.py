"""POST …/pods/NAME/eviction: delete a pod if its disruption budget allows it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

from msgspec.structs import replace

from kubechronicle.actors.eviction import evict as evict_pod
from kubechronicle.api.builtin.core.pod.options import GATES
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import invalid_value
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.options import UNSAFE, DeleteOptions, parse_create_options, parse_later_delete_options
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.subresources import binding as pod_binding
from kubechronicle.api.subresources import eviction
from kubechronicle.api.values.objects import Object
from kubechronicle.http.context import Context
from kubechronicle.http.handlers.backend import Backend
from kubechronicle.http.handlers.responses import object_response
from kubechronicle.http.handlers.write_request import decode_object, enter_manager, read_write, showing_warnings
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.representation.answers import object_form

# -- pod binding -------------------------------------------------------------------------------------------------------
#
# POST …/pods/NAME/binding and POST …/bindings: the scheduler assigns a pod to a node.


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


# -- eviction ----------------------------------------------------------------------------------------------------------

NOT_IN_EVICTIONS: Final = "can not be set for pod eviction, try after removing the option"


async def evict(backend: Backend, request: Request, context: Context, rt: ResourceType) -> Response:
    """Answer 201 and a Status. ``rt`` is pods. 400 for an Eviction of another pod than the URL's; 429 if the budget
    allows no disruption."""
    form = object_form(request, context, tables=False)
    body_type = eviction.eviction_type(rt)
    write = await read_write(request, context, rt, parse_create_options, body_type=body_type)
    value = write.body.value
    if isinstance(value, dict) and value.get("apiVersion") == eviction.OLD_VERSION:
        value["apiVersion"] = body_type.api_version
    sent = await decode_object(write.body, body_type, context, write.options.field_validation)
    read_options = partial(_delete_options, name=write.target.name, dry_run=context.query.get_all("dryRun"))
    enter_manager(body_type, sent, write.target)
    with showing_warnings(context, write.target):
        await evict_pod(backend.store, write.caller, write.target, sent, read_options)
    return object_response(201, form, status.success(code=201))


def _delete_options(sent: Object, *, name: str, dry_run: Sequence[str]) -> tuple[DeleteOptions, StatusError | None]:
    """Return the Eviction's options of the deletion, and the 422 that they cause.

    StatusError: it is of another pod than ``name``, or has an option that evictions must not have. If both the Eviction
    and the query request a dry run, they must agree.
    """
    if sent["metadata"].get("name", "") != name:
        raise status.bad_request("name in URL does not match name in Eviction object")
    if (sent.get("deleteOptions") or {}).get(UNSAFE):
        cause = invalid_value(f"deleteOptions.{UNSAFE}", True, NOT_IN_EVICTIONS)
        raise status.invalid(eviction.GROUP, "Eviction", name, [cause])
    body_options = sent.get("deleteOptions") or {}
    body_dry_run = body_options.get("dryRun") or []
    if body_dry_run and dry_run and list(body_dry_run) != list(dry_run):
        lists = f"[{' '.join(dry_run)}] and [{' '.join(body_dry_run)}]"
        raise status.unknown(f"Non-matching dry-run options in request and content: {lists}")
    return parse_later_delete_options({**body_options, "dryRun": body_dry_run or list(dry_run)})
