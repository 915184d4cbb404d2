"""Reviews: what may somebody do, and who am I (authorization.k8s.io and authentication.k8s.io). Answered, never kept.

SubjectAccessReview, LocalSubjectAccessReview   whether a user may make a request
SelfSubjectAccessReview                         whether the one who asks may
SelfSubjectRulesReview                          all that the one who asks may do in a namespace
SelfSubjectReview                               who the one who asks is
TokenReview                                     whose token this is
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kubechronicle.actors.external_answers import decide_with_answers
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value, required
from kubechronicle.api.meta import metadata, options
from kubechronicle.api.pipeline import bodies, pipeline
from kubechronicle.api.pipeline.pipeline import WriteContext
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.objects import Object
from kubechronicle.http.authentication.user import NotSeen, Rejected, User
from kubechronicle.http.authorization.decision import Decision, aggregate
from kubechronicle.http.context import Context
from kubechronicle.http.handlers import review_selectors
from kubechronicle.http.handlers.bodies import MAX_BODY, decoded_body
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.representation.answers import CACHE_CONTROL, object_form
from kubechronicle.http.representation.entry_encoder import encode
from kubechronicle.http.request_info import RequestInfo

if TYPE_CHECKING:
    from kubechronicle.http.handlers.resources import Resources

AUTHORIZATION: Final = "authorization.k8s.io"
ONE_OF: Final = "exactly one of nonResourceAttributes or resourceAttributes must be specified"

Review = Callable[["Resources", Context, Object], Awaitable[Object]]


async def review(resources: Resources, request: Request, context: Context, rt: ResourceType) -> Response:
    """POST of a review: 201 and the review with its status. 400 and 422 for what can't be reviewed."""
    form = object_form(request, context)
    asked = options.parse_create_options(context.query.as_dict())
    value, duplicates = await decoded_body(request, rt, asked.field_validation)
    if not isinstance(value, dict):
        raise bodies.unrecognized(rt, bodies.not_an_object(value), await request.body(MAX_BODY))
    sent, warnings = bodies.decode(rt, value, duplicates=duplicates, validation=asked.field_validation)
    context.warnings.extend(warnings)
    namespace = context.info.namespace if rt.namespaced else ""
    metadata.match_namespace(sent["metadata"], namespaced=rt.namespaced, namespace=namespace)
    manager = options.manager_of(asked.field_manager, request.headers.get("user-agent"))
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    pipeline.accept_create(rt, sent, WriteContext(now=now, manager=manager, namespace=namespace))
    answer = await REVIEWS[rt.kind](resources, context, sent)
    body = encode(answer, form.media_type, pretty=form.pretty)
    return Response(201, [("content-type", form.content_type), CACHE_CONTROL], body)


# -- may somebody do something ----------------------------------------------------------------------------------------


async def subject_access(resources: Resources, context: Context, sent: Object) -> Object:
    spec = sent["spec"]
    _refuse_if(_subject_causes(spec) + _metadata_causes(sent["metadata"]))
    return {**sent, "status": await _decided(resources, _subject(spec), spec)}


async def local_subject_access(resources: Resources, context: Context, sent: Object) -> Object:
    spec, namespace = sent["spec"], sent["metadata"].get("namespace", "")
    causes = _subject_causes(spec) + _metadata_causes(sent["metadata"], "namespace")
    attributes = spec.get("resourceAttributes")
    if attributes is not None and attributes.get("namespace", "") != namespace:
        shown = attributes.get("namespace", "")
        causes.append(invalid_value("spec.resourceAttributes.namespace", shown, "must match metadata.namespace"))
    if spec.get("nonResourceAttributes") is not None:
        causes.append(forbidden("spec.nonResourceAttributes", "disallowed on this kind of request"))
    _refuse_if(causes)
    return {**sent, "status": await _decided(resources, _subject(spec), spec)}


async def self_subject_access(resources: Resources, context: Context, sent: Object) -> Object:
    spec = sent["spec"]
    _refuse_if(_attributes_causes(spec) + _metadata_causes(sent["metadata"]))
    return {**sent, "status": await _decided(resources, context.user, spec)}


def _refuse_if(causes: Sequence[Cause]) -> None:
    if causes:
        raise status.invalid(AUTHORIZATION, "", "", causes)


def _subject_causes(spec: Mapping[str, Any]) -> list[Cause]:
    causes = _attributes_causes(spec)
    if not spec.get("user") and not spec.get("groups"):
        causes.append(invalid_value("spec.user", "", "at least one of user or group must be specified"))
    return causes


def _attributes_causes(spec: Mapping[str, Any]) -> list[Cause]:
    """Exactly one kind of request, and selectors that say something."""
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    causes: list[Cause] = []
    if resource is not None and path is not None:
        shown = {"Path": path.get("path", ""), "Verb": path.get("verb", "")}
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


def _metadata_causes(given: Mapping[str, Any], *allowed: str) -> list[Cause]:
    """A review has no name and no labels: it is no object."""
    if set(given) <= {"managedFields", *allowed}:
        return []
    shown = {name: value for name, value in given.items() if name not in ("managedFields", *allowed)}
    return [invalid_value("metadata", shown, "must be empty" + (" except for namespace" if allowed else ""))]


def _subject(spec: Mapping[str, Any]) -> User:
    extra = {key.lower(): tuple(values or ()) for key, values in (spec.get("extra") or {}).items()}
    groups = tuple(spec.get("groups") or ())
    return User(name=spec.get("user", ""), uid=spec.get("uid", ""), groups=groups, extra=extra)


async def _decided(resources: Resources, user: User, spec: Mapping[str, Any]) -> Object:
    info, errors = _request_of(spec)
    verdict = await decide_with_answers(partial(resources.authorization.explain, user, info))
    found: Object = {"allowed": verdict.decision is Decision.ALLOW}
    if verdict.decision is Decision.DENY:
        found["denied"] = True
    if verdict.reason:
        found["reason"] = verdict.reason
    if verdict.error or errors:
        found["evaluationError"] = "; ".join(filter(None, (verdict.error, *errors)))
    return found


def _request_of(spec: Mapping[str, Any]) -> tuple[RequestInfo, list[str]]:
    """The request that is asked about, and what of its selectors could not be used."""
    resource = spec.get("resourceAttributes")
    if resource is None:
        path = spec["nonResourceAttributes"]
        return RequestInfo(path=path.get("path", ""), verb=path.get("verb", "")), []
    given = {name: resource.get(name, "") for name in ("verb", "group", "resource", "subresource", "name", "namespace")}
    errors = []
    for attribute, field, read in (
        ("fieldSelector", "field_selector", review_selectors.field_selector),
        ("labelSelector", "label_selector", review_selectors.label_selector),
    ):
        text, whole = read(resource.get(attribute) or {})
        given[field] = text
        if not whole:
            ignored = "partially ignored" if text else "ignored"
            errors.append(f"spec.resourceAttributes.{attribute} {ignored} due to parse error")
    return RequestInfo(path="", is_resource=True, version=resource.get("version") or "*", **given), errors


# -- all that one may do ----------------------------------------------------------------------------------------------


async def self_subject_rules(resources: Resources, context: Context, sent: Object) -> Object:
    namespace = sent["spec"].get("namespace", "")
    if not namespace:
        raise status.bad_request("no namespace on request")
    found = resources.authorization.rules(context.user, namespace)
    answer: Object = {
        "resourceRules": [_listed(rule, RESOURCE_FIELDS) for rule in found.rules if rule.get("resources")],
        "nonResourceRules": [_listed(rule, PATH_FIELDS) for rule in found.rules if rule.get("nonResourceURLs")],
        "incomplete": found.incomplete,
    }
    if found.errors:
        answer["evaluationError"] = aggregate(found.errors)
    # Kubernetes answers with the status alone.
    return {"apiVersion": sent["apiVersion"], "kind": sent["kind"], "metadata": {}, "spec": {}, "status": answer}


RESOURCE_FIELDS: Final = ("verbs", "apiGroups", "resources", "resourceNames")
PATH_FIELDS: Final = ("verbs", "nonResourceURLs")


def _listed(rule: Mapping[str, Any], fields: Sequence[str]) -> Object:
    return {name: list(rule[name]) for name in fields if rule.get(name)}


# -- who --------------------------------------------------------------------------------------------------------------


async def self_subject(resources: Resources, context: Context, sent: Object) -> Object:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": sent["apiVersion"],
        "kind": sent["kind"],
        "metadata": {"creationTimestamp": now},
        "status": {"userInfo": user_info(context.user)},
    }


async def token(resources: Resources, context: Context, sent: Object) -> Object:
    spec = sent["spec"]
    if not spec.get("token"):
        raise status.bad_request("token is required for TokenReview in authentication")
    identify = partial(resources.authentication.authenticate_token, spec["token"], tuple(spec.get("audiences") or ()))
    try:
        try:
            found = await decide_with_answers(identify)
        except NotSeen:
            await resources.store.reads.wait_consistent()
            found = await decide_with_answers(identify)
    except Rejected as rejected:
        return {**sent, "status": {"user": {}, "error": rejected.why}}
    answer: Object = {"authenticated": True, "user": user_info(found.user)}
    if found.audiences:
        answer["audiences"] = list(found.audiences)
    return {**sent, "status": answer}


def user_info(user: User) -> Object:
    """authentication.k8s.io/v1 UserInfo, without what is empty."""
    found: Object = {"username": user.name, "uid": user.uid, "groups": list(user.groups)}
    found["extra"] = {key: list(values) for key, values in sorted(user.extra.items())}
    return {name: value for name, value in found.items() if value}


REVIEWS: Final[Mapping[str, Review]] = {
    "LocalSubjectAccessReview": local_subject_access,
    "SelfSubjectAccessReview": self_subject_access,
    "SelfSubjectReview": self_subject,
    "SelfSubjectRulesReview": self_subject_rules,
    "SubjectAccessReview": subject_access,
    "TokenReview": token,
}
