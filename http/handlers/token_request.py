"""POST …/serviceaccounts/NAME/token: issue a token of a service account, which is not stored (KEP-1205)."""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime
from typing import Any, Final

from kubechronicle.api.errors import status
from kubechronicle.api.meta.options import parse_create_options
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.subresources import token_request
from kubechronicle.api.subresources.token_request import Bound
from kubechronicle.api.values.objects import Object
from kubechronicle.http.authentication.token_issuer import ServiceAccountIssuer, SigningFailed
from kubechronicle.http.context import Context
from kubechronicle.http.handlers.backend import Backend
from kubechronicle.http.handlers.kubelets import read_object
from kubechronicle.http.handlers.responses import computed_response
from kubechronicle.http.handlers.write_request import decode_object, enter_manager, read_write, showing_warnings
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.representation.answers import object_form

ISSUED: Final = "authentication.kubernetes.io/issued-credential-id"
"""The annotation of an audit event with the id of the new token."""


async def request_token(backend: Backend, request: Request, context: Context, rt: ResourceType) -> Response:
    """Answer 201 and the TokenRequest with its token; 404 without the account or the object to bind to. ``rt`` is
    serviceaccounts. Nothing is stored, so the answer to a dry run is the same."""
    issuer = backend.issuer
    if issuer is None:
        raise status.path_not_found()
    form = object_form(request, context, tables=False)
    body_type = token_request.token_type(rt)
    write = await read_write(request, context, rt, parse_create_options, body_type=body_type)
    sent = await decode_object(write.body, body_type, context, write.options.field_validation)
    if sent["spec"].get("expirationSeconds") is None:
        sent["spec"]["expirationSeconds"] = token_request.DEFAULT_SECONDS
    enter_manager(body_type, sent, write.target)
    now = int(time.time())

    async def complete(asked: Object) -> None:
        account = await _account(backend, context, asked)
        token_request.complete(asked, account, audiences=issuer.audiences, now=_timestamp(now))

    with showing_warnings(context, write.target):
        await backend.store.writes.admit(write.caller, write.target, sent, complete)
    return computed_response(201, form, body_type, await _issue(backend, issuer, context, sent, now))


async def _account(backend: Backend, context: Context, asked: Object) -> Object:
    """Return the service account of a request. StatusError 404, 409, 422."""
    info = context.info
    token_request.match_account(asked, info.name)
    account = await read_object(backend, context, "serviceaccounts", info.namespace, info.name, token_request.named)
    token_request.match_uid(asked, account)
    return account


async def _issue(backend: Backend, issuer: ServiceAccountIssuer, context: Context, sent: Object, now: int) -> Object:
    """Return the TokenRequest, which is complete, with its token. StatusError 400, 404, 409, 500."""
    spec = sent["spec"]
    account = await _account(backend, context, sent)
    bound = await _bound(backend, context, spec.get("boundObjectRef"))
    limit = issuer.max_expiration
    if limit and spec["expirationSeconds"] > limit:
        requested = spec["expirationSeconds"]
        context.warnings.append(f"requested expiration of {requested} seconds shortened to {limit} seconds")
        spec["expirationSeconds"] = limit
    extended = issuer.extended if issuer.extend_expiration else None
    lasts, warn_after = token_request.lifetime(spec, bound, ours=issuer.audiences, extended=extended)
    token_id = str(uuid.uuid4())
    context.annotate(ISSUED, f"JTI={token_id}")
    claims = token_request.claims(
        account,
        bound,
        issuer=issuer.issuers[0],
        audiences=spec["audiences"],
        token_id=token_id,
        now=now,
        lasts=lasts,
        warn_after=warn_after,
    )
    shown = {name: spec.get(name) for name in ("audiences", "expirationSeconds", "boundObjectRef")}
    # The requested expiration, even if the token is valid for longer: clients should renew it by then.
    expires = _timestamp(now + spec["expirationSeconds"])
    try:
        token = await issuer.sign(claims)
    except SigningFailed as error:
        raise status.internal_error(f"failed to generate token: {error}") from None
    result = {"token": token, "expirationTimestamp": expires}
    kind = {"kind": sent["kind"], "apiVersion": sent["apiVersion"]}
    return {**kind, "metadata": sent["metadata"], "spec": shown, "status": result}


async def _bound(backend: Backend, context: Context, reference: Any) -> Bound:
    """Return the object that the token is bound to, in its current state."""
    if reference is None:
        return Bound()
    kind = token_request.bound_kind(reference)
    namespace, resource = context.info.namespace, token_request.BINDABLE[kind]
    obj = await read_object(backend, context, resource, namespace, reference["name"], token_request.named)
    token_request.match_bound(reference, kind, obj, context.info.name)
    identity = (obj["metadata"]["name"], obj["metadata"]["uid"])
    if kind == "Secret":
        return Bound(kind=kind, secret=identity)
    if kind == "Node":
        return Bound(kind=kind, node=identity)
    node_name = obj["spec"].get("nodeName", "")
    if not node_name:
        return Bound(kind=kind, pod=identity)
    node = backend.store.reads.peek("nodes", "", node_name)
    return Bound(kind=kind, pod=identity, node=(node_name, node.uid if node is not None else ""))


def _timestamp(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
