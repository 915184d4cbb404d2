"""POST …/serviceaccounts/NAME/token: a token of a service account, signed and told, never kept (KEP-1205)."""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kubechronicle.api.errors import status
from kubechronicle.api.meta import metadata, options
from kubechronicle.api.pipeline import bodies, pipeline
from kubechronicle.api.pipeline.pipeline import WriteContext
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.subresources import token_request
from kubechronicle.api.subresources.token_request import Bound
from kubechronicle.api.values.objects import Object
from kubechronicle.http.context import Context
from kubechronicle.http.handlers.bodies import MAX_BODY, caller_of, decoded_body, target_of
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.representation.answers import CACHE_CONTROL, object_form
from kubechronicle.http.representation.entry_encoder import encode

if TYPE_CHECKING:
    from kubechronicle.http.authentication.service_accounts import ServiceAccountIssuer
    from kubechronicle.http.handlers.resources import Resources


async def request_token(resources: Resources, request: Request, context: Context, rt: ResourceType) -> Response:
    """``rt`` is serviceaccounts. 201 and the TokenRequest with its token; 404 without the account or the object to
    bind to. Issues nothing that a dry run could spare: its answer is the same."""
    issuer, info = resources.issuer, context.info
    if issuer is None:
        raise status.path_not_found()
    form = object_form(request, context)
    asked = options.parse_create_options(context.query.as_dict())
    kind = token_request.token_type(rt)
    value, duplicates = await decoded_body(request, kind, asked.field_validation)
    if not isinstance(value, dict):
        raise bodies.unrecognized(kind, bodies.not_an_object(value), await request.body(MAX_BODY))
    sent, warnings = bodies.decode(kind, value, duplicates=duplicates, validation=asked.field_validation)
    context.warnings.extend(warnings)
    metadata.match_namespace(sent["metadata"], namespaced=True, namespace=info.namespace)
    if sent["spec"].get("expirationSeconds") is None:
        sent["spec"]["expirationSeconds"] = token_request.DEFAULT_SECONDS
    caller = caller_of(request, context, asked.field_manager)
    target = target_of(request, context, rt, asked)
    sent = _tracked(kind, sent, target.manager, info.namespace)
    await resources.store.writes.admit(caller, target, sent)
    answer = await _answered(resources, issuer, context, sent)
    body = encode(answer, form.media_type, pretty=form.pretty)
    return Response(201, [("content-type", form.content_type), CACHE_CONTROL], body)


def _tracked(kind: ResourceType, sent: Object, manager: str, namespace: str) -> Object:
    """With the client as manager of what it sent. Its uid stays: it says which service account is meant."""
    uid = sent["metadata"].get("uid", "")
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    sent = pipeline.accept_create(
        kind, sent, WriteContext(now=now, manager=manager, namespace=namespace, subresource="token")
    )
    if uid:
        sent["metadata"]["uid"] = uid
    return sent


async def _answered(resources: Resources, issuer: ServiceAccountIssuer, context: Context, sent: Object) -> Object:
    """The TokenRequest with what was decided about it. StatusError 400, 404, 409, 422."""
    info, spec = context.info, sent["spec"]
    token_request.match_account(sent, info.name)
    account = await _read(resources, "serviceaccounts", info.namespace, info.name)
    token_request.match_uid(sent, account)
    spec["audiences"] = spec.get("audiences") or list(issuer.audiences)
    token_request.validate(spec)
    bound = await _bound(resources, spec.get("boundObjectRef"), info.namespace, info.name)
    limit = issuer.max_expiration
    if limit and spec["expirationSeconds"] > limit:
        asked = spec["expirationSeconds"]
        context.warnings.append(f"requested expiration of {asked} seconds shortened to {limit} seconds")
        spec["expirationSeconds"] = limit
    lasts, warn_after = token_request.lifetime(spec, bound, ours=issuer.audiences, extend=issuer.extend_expiration)
    now = int(time.time())
    claims = token_request.claims(
        account,
        bound,
        issuer=issuer.issuers[0],
        audiences=spec["audiences"],
        token_id=str(uuid.uuid4()),
        now=now,
        lasts=lasts,
        warn_after=warn_after,
    )
    named = {name: account["metadata"][name] for name in ("name", "namespace", "uid")}
    meta = {**named, "creationTimestamp": _written(now)}
    meta.update((name, value) for name, value in sent["metadata"].items() if name not in meta)
    shown = {name: spec.get(name) for name in ("audiences", "expirationSeconds", "boundObjectRef")}
    # Told for as long as the client asked for, also where it lasts longer: clients are to come back by then.
    told = {"token": issuer.signing.sign(claims), "expirationTimestamp": _written(now + spec["expirationSeconds"])}
    kind = {"kind": sent["kind"], "apiVersion": sent["apiVersion"]}
    return {**kind, "metadata": meta, "spec": shown, "status": told}


async def _bound(resources: Resources, reference: Any, namespace: str, account_name: str) -> Bound:
    """What the token is to be bound to, as it is now."""
    if reference is None:
        return Bound()
    kind = token_request.bound_kind(reference)
    found = await _read(resources, token_request.BINDABLE[kind], namespace, reference["name"])
    token_request.match_bound(reference, kind, found, account_name)
    named = (found["metadata"]["name"], found["metadata"]["uid"])
    if kind == "Secret":
        return Bound(kind=kind, secret=named)
    if kind == "Node":
        return Bound(kind=kind, node=named)
    node_name = found["spec"].get("nodeName", "")
    if not node_name:
        return Bound(kind=kind, pod=named)
    node = resources.store.reads.peek("nodes", "", node_name)
    return Bound(kind=kind, pod=named, node=(node_name, node.uid if node is not None else ""))


async def _read(resources: Resources, resource: str, namespace: str, name: str) -> Object:
    rt = resources.store.registry.known("", "v1", resource)
    if rt is None:
        raise AssertionError("a built-in resource")
    entry = await resources.store.reads.get(rt, namespace if rt.namespaced else "", name)
    if entry is None:
        raise status.not_found(rt, name)
    return entry.object()


def _written(moment: int) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
