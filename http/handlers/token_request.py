"""POST …/serviceaccounts/NAME/token: issue a token of a service account, which is not stored (KEP-1205)."""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime
from typing import Any, Final

from kubechronicle.actors.external_answers import decide_with_answers
from kubechronicle.api.errors import status
from kubechronicle.api.history.accesses import MOST_GROUPS
from kubechronicle.api.meta.options import parse_create_options
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.subresources import token_request
from kubechronicle.api.subresources.token_request import BoundObject
from kubechronicle.api.values.objects import Object
from kubechronicle.http.authentication.service_accounts import service_account_user
from kubechronicle.http.authentication.token_issuer import ServiceAccountIssuer, SigningFailed
from kubechronicle.http.authorization.decision import Decision, forbidden
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
    strict = backend.features.enabled(token_request.UIDS_GATE)
    if differs := token_request.match_uid(asked, account, strict=strict):
        context.annotate("authentication.k8s.io/token-request-uid-mismatch", differs)
        later = "In the future, this will return a conflict error"
        warning = f"{differs} but {token_request.UIDS_GATE} is not enabled. {later}"
        if warning not in context.warnings:
            context.warnings.append(warning)
    return account


async def _issue(backend: Backend, issuer: ServiceAccountIssuer, context: Context, sent: Object, now: int) -> Object:
    """Return the TokenRequest, which is complete, with its token. StatusError 400, 404, 409, 500."""
    spec = sent["spec"]
    account = await _account(backend, context, sent)
    reference = spec.get("boundObjectRef")
    if token_request.is_hook(reference or {}):
        enabled = backend.features.enabled(token_request.HOOKS_GATE)
        token_request.bind_to_hook(spec, ours=issuer.audiences, enabled=enabled)
        bound = await _bound_to_hook(backend, context, spec, account)
    else:
        bound = await _bound(backend, context, reference)
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
        attestations=spec.get("attestations"),
    )
    shown = {name: spec.get(name) for name in ("audiences", "expirationSeconds", "boundObjectRef")}
    if spec.get("attestations"):
        shown["attestations"] = spec["attestations"]
    # The requested expiration, even if the token is valid for longer: clients should renew it by then.
    expires = _timestamp(now + spec["expirationSeconds"])
    try:
        token = await issuer.sign(claims)
    except SigningFailed as error:
        raise status.internal_error(f"failed to generate token: {error}") from None
    if context.issued is not None:
        bound_to = f"{reference['kind']}/{reference.get('name', '')}" if reference else ""
        context.issued |= {
            "tokenID": token_id, "audiences": spec["audiences"][:MOST_GROUPS], "expires": expires, "boundTo": bound_to
        }  # fmt: skip
    result = {"token": token, "expirationTimestamp": expires}
    kind = {"kind": sent["kind"], "apiVersion": sent["apiVersion"]}
    return {**kind, "metadata": sent["metadata"], "spec": shown, "status": result}


async def _bound(backend: Backend, context: Context, reference: Any) -> BoundObject:
    """Return the object that the token is bound to, in its current state."""
    if reference is None:
        return BoundObject()
    kind = token_request.bound_kind(reference)
    namespace, resource = context.info.namespace, token_request.BINDABLE[kind]
    obj = await read_object(backend, context, resource, namespace, reference["name"], token_request.named)
    token_request.match_bound(reference, kind, obj, context.info.name)
    identity = (obj["metadata"]["name"], obj["metadata"]["uid"])
    if kind == "Secret":
        return BoundObject(kind=kind, secret=identity)
    if kind == "Node":
        return BoundObject(kind=kind, node=identity)
    node_name = obj["spec"].get("nodeName", "")
    if not node_name:
        return BoundObject(kind=kind, pod=identity)
    node = backend.store.reads.peek("nodes", "", node_name)
    return BoundObject(kind=kind, pod=identity, node=(node_name, node.uid if node is not None else ""))


async def _bound_to_hook(backend: Backend, context: Context, spec: Object, account: Object) -> BoundObject:
    """Return the configuration of a webhook. 403: the account may not attest the group, or no webhook asks for it."""
    reference, (group,) = spec["boundObjectRef"], spec["attestations"][token_request.REVIEW_GROUPS]
    kind, (audience,), meta = reference["kind"], spec["audiences"], account["metadata"]
    info = RequestInfo(
        "", "attest", is_resource=True, group=token_request.GROUP, version="*", resource=token_request.REVIEW_GROUPS,
        name=group,
    )  # fmt: skip
    user = service_account_user(meta["namespace"], meta["name"], meta["uid"], {})
    verdict = await decide_with_answers(lambda: backend.authorization.explain(user, info))
    if verdict.decision is not Decision.ALLOW:
        raise forbidden(user, info, verdict.reason)
    rt = backend.store.registry.builtin(token_request.HOOKS, "v1", token_request.WEBHOOKS[kind])
    entry = await backend.store.reads.get(rt, "", reference.get("name", ""))
    found = None
    if entry is not None:
        now = _timestamp(int(time.time()))
        found = await context.turn.read(
            entry, lambda obj: token_request.asks_for_reviews(obj, audience=audience, group=group, now=now)
        )
    if found is None:
        raise status.forbidden("serviceaccounts/token", meta["name"], "token request denied")
    token_request.match_bound(reference, kind, found, meta["name"])
    return BoundObject(kind=kind, hook=(found["metadata"]["name"], found["metadata"]["uid"]))


def _timestamp(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
