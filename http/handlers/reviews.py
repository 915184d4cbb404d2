"""Reviews: questions about rights and identities (authorization.k8s.io, authentication.k8s.io). Nothing is stored.

SubjectAccessReview, LocalSubjectAccessReview   may a user make a request?
SelfSubjectAccessReview                         may the client make a request?
SelfSubjectRulesReview                          the rights of the client in a namespace
SelfSubjectReview                               the user that the client is
TokenReview                                     the user of a token
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from kubechronicle.actors.external_answers import decide_with_answers
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value, required
from kubechronicle.api.meta.options import manager_of, parse_create_options
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.api.pipeline import pipeline
from kubechronicle.api.pipeline.pipeline import WriteContext
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.objects import Object
from kubechronicle.http.authentication.user import NotSeen, Rejected, User
from kubechronicle.http.authorization.decision import Decision, aggregate
from kubechronicle.http.context import Context
from kubechronicle.http.handlers import review_selectors
from kubechronicle.http.handlers.backend import Backend
from kubechronicle.http.handlers.responses import object_response
from kubechronicle.http.handlers.write_request import decode_object, read_body
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.representation.answers import object_form

AUTHORIZATION: Final = "authorization.k8s.io"
ONE_OF: Final = "exactly one of nonResourceAttributes or resourceAttributes must be specified"

Review = Callable[[Backend, Context, Object], Awaitable[Object]]


async def review(backend: Backend, request: Request, context: Context, rt: ResourceType) -> Response:
    """Answer the POST of a review: 201 and the review with its status; 400 and 422 for an invalid one."""
    form = object_form(request, context)
    options = parse_create_options(context.query.as_dict())
    body = await read_body(request, context, rt, options.field_validation)
    sent = await decode_object(body, rt, context, options.field_validation)
    namespace = context.info.namespace if rt.namespaced else ""
    manager = manager_of(options.field_manager, request.headers.get("user-agent"))
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    accept = WriteContext(now=now, manager=manager, namespace=namespace)
    await context.turn.run(0, pipeline.accept_create, rt, sent, accept)
    answer = await REVIEWS[rt.kind](backend, context, sent)
    return await context.turn.run(0, object_response, 201, form, answer)


# -- access reviews ---------------------------------------------------------------------------------------------------


async def subject_access(backend: Backend, context: Context, sent: Object) -> Object:
    spec = sent["spec"]
    _reject_if(await context.turn.run(0, _subject_access_causes, sent))
    return {**sent, "status": await _status(backend, _subject(spec), spec)}


def _subject_access_causes(sent: Object) -> list[Cause]:
    return _subject_causes(sent["spec"]) + _metadata_causes(sent["metadata"])


async def local_subject_access(backend: Backend, context: Context, sent: Object) -> Object:
    spec = sent["spec"]
    _reject_if(await context.turn.run(0, _local_subject_access_causes, sent))
    return {**sent, "status": await _status(backend, _subject(spec), spec)}


def _local_subject_access_causes(sent: Object) -> list[Cause]:
    spec, namespace = sent["spec"], sent["metadata"].get("namespace", "")
    causes = _subject_causes(spec) + _metadata_causes(sent["metadata"], "namespace")
    attributes = spec.get("resourceAttributes")
    if attributes is not None and attributes.get("namespace", "") != namespace:
        shown = attributes.get("namespace", "")
        causes.append(invalid_value("spec.resourceAttributes.namespace", shown, "must match metadata.namespace"))
    if spec.get("nonResourceAttributes") is not None:
        shown = _printed_path(spec["nonResourceAttributes"])
        causes.append(invalid_value("spec.nonResourceAttributes", shown, "disallowed on this kind of request"))
    return causes


async def self_subject_access(backend: Backend, context: Context, sent: Object) -> Object:
    spec = sent["spec"]
    _reject_if(await context.turn.run(0, _self_subject_access_causes, sent))
    return {**sent, "status": await _status(backend, context.user, spec)}


def _self_subject_access_causes(sent: Object) -> list[Cause]:
    return _attributes_causes(sent["spec"]) + _metadata_causes(sent["metadata"])


def _reject_if(causes: Sequence[Cause]) -> None:
    if causes:
        raise status.invalid(AUTHORIZATION, "", "", causes)


def _subject_causes(spec: Mapping[str, Any]) -> list[Cause]:
    causes = _attributes_causes(spec)
    if not spec.get("user") and not spec.get("groups"):
        causes.append(invalid_value("spec.user", "", "at least one of user or group must be specified"))
    return causes


def _printed_path(path: Mapping[str, Any]) -> Object:
    """Return a path and its verb as messages print them."""
    return {"Path": path.get("path", ""), "Verb": path.get("verb", "")}


def _attributes_causes(spec: Mapping[str, Any]) -> list[Cause]:
    """Validate that there is one kind of attributes, and no empty selector."""
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    causes: list[Cause] = []
    if resource is not None and path is not None:
        shown = _printed_path(path)
        detail = "cannot be specified in combination with resourceAttributes"
        causes.append(invalid_value("spec.nonResourceAttributes", shown, detail))
    elif resource is None and path is None:
        causes.append(invalid_value("spec.resourceAttributes", None, ONE_OF))
    for name in ("fieldSelector", "labelSelector"):
        selector = (resource or {}).get(name)
        if selector is not None:
            causes += _selector_causes(selector, f"spec.resourceAttributes.{name}")
    return causes


def _selector_causes(selector: Mapping[str, Any], field: str) -> list[Cause]:
    raw, requirements = selector.get("rawSelector", ""), selector.get("requirements") or ()
    causes: list[Cause] = []
    if raw and requirements:
        detail = "may not specified at the same time as requirements"
        causes.append(invalid_value(f"{field}.rawSelector", raw, detail))
    if not raw and not requirements:
        detail = f"when {field} is specified, requirements or rawSelector is required"
        causes.append(required(f"{field}.requirements", detail))
    for index, each in enumerate(requirements):
        path, operator = f"{field}.requirements[{index}]", each.get("operator", "")
        if not each.get("key"):
            causes.append(required(f"{path}.key", "must be specified"))
        if operator in ("In", "NotIn"):
            if not each.get("values"):
                detail = "must be specified when `operator` is 'In' or 'NotIn'"
                causes.append(required(f"{path}.values", detail))
        elif operator in ("Exists", "DoesNotExist"):
            if each.get("values"):
                detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                causes.append(forbidden(f"{path}.values", detail))
        else:
            causes.append(invalid_value(f"{path}.operator", operator, "not a valid selector operator"))
    return causes


def _metadata_causes(metadata: Mapping[str, Any], *allowed: str) -> list[Cause]:
    """Validate that the metadata is empty but for ``allowed``: a review is not stored, so it has no name or labels."""
    if set(metadata) <= {"managedFields", *allowed}:
        return []
    shown = {name: value for name, value in metadata.items() if name not in ("managedFields", *allowed)}
    return [invalid_value("metadata", shown, "must be empty" + (" except for namespace" if allowed else ""))]


def _subject(spec: Mapping[str, Any]) -> User:
    extra = {key.lower(): tuple(values or ()) for key, values in (spec.get("extra") or {}).items()}
    groups = tuple(spec.get("groups") or ())
    return User(name=spec.get("user", ""), uid=spec.get("uid", ""), groups=groups, extra=extra)


async def _status(backend: Backend, user: User, spec: Mapping[str, Any]) -> Object:
    info, errors = _request_of(spec)
    verdict = await decide_with_answers(partial(backend.authorization.explain, user, info))
    result: Object = {"allowed": verdict.decision is Decision.ALLOW}
    if verdict.decision is Decision.DENY:
        result["denied"] = True
    if verdict.reason:
        result["reason"] = verdict.reason
    if verdict.error or errors:
        result["evaluationError"] = "; ".join(filter(None, (verdict.error, *errors)))
    return result


def _request_of(spec: Mapping[str, Any]) -> tuple[RequestInfo, list[str]]:
    """Return the request that the review is about, and the errors of its selectors."""
    resource = spec.get("resourceAttributes")
    if resource is None:
        path = spec["nonResourceAttributes"]
        return RequestInfo(path=path.get("path", ""), verb=path.get("verb", "")), []
    fields = {
        name: resource.get(name, "") for name in ("verb", "group", "resource", "subresource", "name", "namespace")
    }
    errors = []
    for attribute, field, read in (
        ("fieldSelector", "field_selector", review_selectors.field_selector),
        ("labelSelector", "label_selector", review_selectors.label_selector),
    ):
        text, whole = read(resource.get(attribute) or {})
        fields[field] = text
        if not whole:
            ignored = "partially ignored" if text else "ignored"
            errors.append(f"spec.resourceAttributes.{attribute} {ignored} due to parse error")
    return RequestInfo(path="", is_resource=True, version=resource.get("version") or "*", **fields), errors


# -- rules reviews ----------------------------------------------------------------------------------------------------


async def self_subject_rules(backend: Backend, context: Context, sent: Object) -> Object:
    namespace = sent["spec"].get("namespace", "")
    if not namespace:
        raise status.bad_request("no namespace on request")
    rules = backend.authorization.rules(context.user, namespace)
    answer: Object = {
        "resourceRules": [_listed(rule, RESOURCE_FIELDS) for rule in rules.rules if rule.get("resources")],
        "nonResourceRules": [_listed(rule, PATH_FIELDS) for rule in rules.rules if rule.get("nonResourceURLs")],
        "incomplete": rules.incomplete,
    }
    if rules.errors:
        answer["evaluationError"] = aggregate(rules.errors)
    # Kubernetes answers with nothing but the status.
    return {"apiVersion": sent["apiVersion"], "kind": sent["kind"], "metadata": {}, "spec": {}, "status": answer}


RESOURCE_FIELDS: Final = ("verbs", "apiGroups", "resources", "resourceNames")
PATH_FIELDS: Final = ("verbs", "nonResourceURLs")


def _listed(rule: Mapping[str, Any], fields: Sequence[str]) -> Object:
    return {name: list(rule[name]) for name in fields if rule.get(name)}


# -- identities -------------------------------------------------------------------------------------------------------


async def self_subject(backend: Backend, context: Context, sent: Object) -> Object:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": sent["apiVersion"],
        "kind": sent["kind"],
        "metadata": {"creationTimestamp": now},
        "status": {"userInfo": user_info(context.user)},
    }


async def token(backend: Backend, context: Context, sent: Object) -> Object:
    spec = sent["spec"]
    if not spec.get("token"):
        raise status.bad_request("token is required for TokenReview in authentication")
    identify = partial(backend.authentication.authenticate_token, spec["token"], tuple(spec.get("audiences") or ()))
    try:
        try:
            identity = await decide_with_answers(identify)
        except NotSeen:
            await backend.store.reads.wait_consistent()
            identity = await decide_with_answers(identify)
    except Rejected as rejected:
        return {**sent, "status": {"user": {}, "error": rejected.why}}
    answer: Object = {"authenticated": True, "user": user_info(identity.user)}
    if identity.audiences:
        answer["audiences"] = list(identity.audiences)
    return {**sent, "status": answer}


def user_info(user: User) -> Object:
    """Return an authentication.k8s.io/v1 UserInfo without its empty fields."""
    info: Object = {"username": user.name, "uid": user.uid, "groups": list(user.groups)}
    info["extra"] = {key: list(values) for key, values in sorted(user.extra.items())}
    return {name: value for name, value in info.items() if value}


REVIEWS: Final[Mapping[str, Review]] = {
    "LocalSubjectAccessReview": local_subject_access,
    "SelfSubjectAccessReview": self_subject_access,
    "SelfSubjectReview": self_subject,
    "SelfSubjectRulesReview": self_subject_rules,
    "SubjectAccessReview": subject_access,
    "TokenReview": token,
}
