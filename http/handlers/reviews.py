"""Reviews: questions about rights and identities (authorization.k8s.io, authentication.k8s.io). Nothing is stored.

SubjectAccessReview, LocalSubjectAccessReview   may a user make a request?
SelfSubjectAccessReview                         may the client make a request?
SelfSubjectRulesReview                          the rights of the client in a namespace
SelfSubjectReview                               the user that the client is
TokenReview                                     the user of a token

Below /history/at/MOMENT/ the reviews of access and rules are answered by the roles, bindings and Pods of the moment
(authorization/past.py). A warning says that the authorizers, and the client's own groups, are the present ones.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from kubechronicle.actors.external_answers import decide_with_answers
from kubechronicle.api.builtin.kinds import strategy_of
from kubechronicle.api.codecs.negotiate import Representation
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import Path
from kubechronicle.api.meta.options import CreateOptions, parse_create_options
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.api.pipeline import conversion, pipeline
from kubechronicle.api.pipeline.pipeline import WriteContext
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.schema.types import ObjectType
from kubechronicle.api.selectors.field_selectors import FieldSelector, FieldTerm, field_terms, label_selector_problem
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object
from kubechronicle.http.authentication.chain import bearer_token
from kubechronicle.http.authentication.user import ANONYMOUS_USER, CredentialRejected, Identified, NotSeen, User
from kubechronicle.http.authorization.decision import Decision, UserRules, Verdict, aggregate
from kubechronicle.http.authorization.past import PastRights
from kubechronicle.http.context import Context
from kubechronicle.http.handlers.backend import Backend
from kubechronicle.http.handlers.responses import computed_response
from kubechronicle.http.handlers.write_request import WriteRequest, decode_object, read_write, showing_warnings
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.representation.answers import object_form

# -- review selectors --------------------------------------------------------------------------------------------------
#
# Selectors of a review's resourceAttributes, converted to the text that a request would have.
#
# Requirements that cannot be converted are left out: the review is then about more objects (k8s.io/kubernetes,
# registry/authorization/util).
#
#     {"requirements": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}    app in (a,b)

# Characters of a raw selector; longer ones are ignored. No request line holds as many.
MAX_RAW: Final = 64 * 1024

FIELD_OPERATORS: Final[Mapping[str, bool]] = {"In": True, "NotIn": False}
LABEL_OPERATORS: Final[Mapping[str, str]] = {
    "In": "{key} in ({values})",
    "NotIn": "{key} notin ({values})",
    "Exists": "{key}",
    "DoesNotExist": "!{key}",
}


def field_selector(selector: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the text, and True if nothing was left out."""
    requirements = selector.get("requirements") or ()
    if not requirements:
        raw = selector.get("rawSelector", "")
        return (raw, True) if len(raw) <= MAX_RAW and field_terms(raw) is not None else ("", False)
    terms = []
    for each in requirements:
        key, operator, values = each.get("key", ""), each.get("operator", ""), each.get("values") or []
        if operator in FIELD_OPERATORS and len(values) == 1 and not set(key) & set("=!,\\"):
            terms.append(FieldTerm(key, FIELD_OPERATORS[operator], values[0]))
    return str(FieldSelector(terms)), len(terms) == len(requirements)


def label_selector(selector: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the text, and True if nothing was left out."""
    requirements = selector.get("requirements") or ()
    if not requirements:
        raw = selector.get("rawSelector", "")
        return (raw, True) if len(raw) <= MAX_RAW and label_selector_problem(raw, Path()) is None else ("", False)
    terms = []
    for each in requirements:
        key, values = each.get("key", ""), each.get("values") or []
        form = LABEL_OPERATORS.get(each.get("operator", ""))
        if form is not None and not names.qualified_name(key) and not any(map(names.label_value, values)):
            terms.append(form.format(key=key, values=",".join(values)))
    return ",".join(terms), len(terms) == len(requirements)


# -- reviews -----------------------------------------------------------------------------------------------------------

Review = Callable[[Backend, Context, Object], Awaitable[Object]]


async def review(backend: Backend, request: Request, context: Context, rt: ResourceType) -> Response:
    """Answer the POST of a review: 201 and the review with its status; 400 and 422 for an invalid one."""
    form = object_form(request, context, tables=False)
    write = await read_write(request, context, rt, parse_create_options)
    sent = await decode_object(write.body, rt, context, write.options.field_validation)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    accept = WriteContext(now=now, manager=write.target.manager, namespace=write.target.namespace)
    await context.turn.run(0, pipeline.accept_create, rt, sent, accept)
    causes = await context.turn.run(0, strategy_of(rt.resource).validate, sent)
    if causes:
        raise status.invalid(rt.group, "", "", causes)
    with showing_warnings(context, write.target):
        await _admit(backend, write, sent)
    answers = [await REVIEWS[rt.kind](backend, context, sent)]
    return await context.turn.run(0, _response, form, rt, answers)


def _response(form: Representation, rt: ResourceType, answers: list[Object]) -> Response:
    """Return the response with the answer. It is taken from the list, so that a large one is freed in this thread."""
    return computed_response(201, form, rt, answers.pop())


async def _admit(backend: Backend, write: WriteRequest[CreateOptions], sent: Object) -> None:
    """Pass a review through admission, with the empty status that it has in kube-apiserver."""
    empty = "status" not in sent
    if empty:
        field = conversion.storage_kind(write.rt).fields.get("status")
        if field is not None and isinstance(field.type, ObjectType):
            sent["status"] = field.type.zero()
    await backend.store.writes.admit(write.caller, write.target, sent)
    if empty:
        sent.pop("status", None)


# -- access reviews ---------------------------------------------------------------------------------------------------


async def subject_access(backend: Backend, context: Context, sent: Object) -> Object:
    spec = sent["spec"]
    return {**sent, "status": await _status(backend, context, await context.turn.run(0, _subject, spec), spec)}


async def self_subject_access(backend: Backend, context: Context, sent: Object) -> Object:
    return {**sent, "status": await _status(backend, context, context.user, sent["spec"])}


def _subject(spec: Mapping[str, Any]) -> User:
    extra = {key.lower(): tuple(values or ()) for key, values in (spec.get("extra") or {}).items()}
    groups = tuple(spec.get("groups") or ())
    return User(name=spec.get("user", ""), uid=spec.get("uid", ""), groups=groups, extra=extra)


async def _status(backend: Backend, context: Context, user: User, spec: Mapping[str, Any]) -> Object:
    info, errors = await context.turn.run(0, _request_of, spec)
    verdict = await _verdict(backend, context, user, info)
    result: Object = {"allowed": verdict.decision is Decision.ALLOW}
    if verdict.decision is Decision.DENY:
        result["denied"] = True
    if verdict.reason:
        result["reason"] = verdict.reason
    if verdict.error or errors:
        result["evaluationError"] = "; ".join(filter(None, (verdict.error, *errors)))
    return result


async def _verdict(backend: Backend, context: Context, user: User, info: RequestInfo) -> Verdict:
    if context.at is None:
        return await decide_with_answers(partial(backend.authorization.explain, user, info))
    past = PastRights(backend.store.reads, backend.store.registry, context.at)
    chain = await past.chain(backend.authorization, user, info)
    _warn_of_present_parts(backend, context, own=user is context.user)
    return await context.turn.run(past.size, chain.explain, user, info)


def _warn_of_present_parts(backend: Backend, context: Context, *, own: bool) -> None:
    """Say which parts of an answer about the past are those of the present."""
    types = ", ".join(backend.authorization.types())
    groups = "; your groups are the present ones" if own else ""
    context.warnings.append(f"rights as of {_shown(context)}, by the authorizers of the present flags: {types}{groups}")


def _shown(context: Context) -> str:
    assert context.at is not None
    return f"{context.at.time.strftime('%Y-%m-%dT%H:%M:%SZ')} (revision {context.at.revision})"


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
        ("fieldSelector", "field_selector", field_selector),
        ("labelSelector", "label_selector", label_selector),
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
    rules = await _rules(backend, context, namespace)
    await context.turn.begin(rules.size)
    return await context.turn.run(rules.size, _rules_review, sent, rules)


def _rules_review(sent: Object, rules: UserRules) -> Object:
    answer: Object = {
        "resourceRules": [_listed(rule, RESOURCE_FIELDS) for rule in rules.rules if rule.get("resources")],
        "nonResourceRules": [_listed(rule, PATH_FIELDS) for rule in rules.rules if rule.get("nonResourceURLs")],
        "incomplete": rules.incomplete,
    }
    if rules.errors:
        answer["evaluationError"] = aggregate(rules.errors)
    # Kubernetes answers with nothing but the status.
    return {"apiVersion": sent["apiVersion"], "kind": sent["kind"], "metadata": {}, "spec": {}, "status": answer}


async def _rules(backend: Backend, context: Context, namespace: str) -> UserRules:
    if context.at is None:
        return await decide_with_answers(partial(backend.authorization.rules, context.user, namespace))
    past = PastRights(backend.store.reads, backend.store.registry, context.at)
    chain = await past.chain(backend.authorization, context.user, RequestInfo("", "", True, namespace=namespace))
    _warn_of_present_parts(backend, context, own=True)
    return await context.turn.run(past.size, chain.rules, context.user, namespace)


RESOURCE_FIELDS: Final = ("verbs", "apiGroups", "resources", "resourceNames")
PATH_FIELDS: Final = ("verbs", "nonResourceURLs")


def _listed(rule: Mapping[str, Any], fields: Sequence[str]) -> Object:
    """Return these fields of a rule, and not copies: many would cause a garbage collection. The rule itself, if it has
    no others: a review of 150,000 stops others for 78 ms of CPU then, and for 121 with a new object for each."""
    listed = {name: rule[name] for name in fields if rule.get(name)}
    return rule if type(rule) is dict and len(listed) == len(rule) else listed


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
    answer: Object = {name: value for name, value in (sent.get("status") or {}).items() if name != "authenticated"}
    audiences = tuple(spec.get("audiences") or ())
    try:
        identity = await _identify(backend, spec["token"], audiences)
    except CredentialRejected as rejected:
        return {**sent, "status": {"user": {}, **answer, "error": rejected.why}}
    answer |= {"authenticated": True, "user": user_info(identity.user), "audiences": list(identity.audiences)}
    return {**sent, "status": {name: value for name, value in answer.items() if value}}


async def _identify(backend: Backend, text: str, audiences: tuple[str, ...]) -> Identified:
    """Return the user of a token, which is read as the header field ``Authorization: Bearer TEXT`` would be.

    The client gets no warnings about this field, since it did not send it.
    """
    field = f"Bearer {text}".strip()
    token = bearer_token(field)
    if token is None:
        return Identified(ANONYMOUS_USER, audiences or backend.authentication.audiences)
    identify = partial(backend.authentication.authenticate_token, token, audiences)
    try:
        return await decide_with_answers(identify)
    except NotSeen:
        await backend.store.reads.wait_consistent()
        return await decide_with_answers(identify)


def user_info(user: User) -> Object:
    """Return an authentication.k8s.io/v1 UserInfo without its empty fields."""
    info: Object = {"username": user.name, "uid": user.uid, "groups": list(user.groups)}
    info["extra"] = {key: list(values) for key, values in sorted(user.extra.items())}
    return {name: value for name, value in info.items() if value}


OF_RIGHTS: Final = frozenset(
    ("LocalSubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectRulesReview", "SubjectAccessReview")
)
"""Reviews that history answers by the rights of the moment."""

REVIEWS: Final[Mapping[str, Review]] = {
    "LocalSubjectAccessReview": subject_access,
    "SelfSubjectAccessReview": self_subject_access,
    "SelfSubjectReview": self_subject,
    "SelfSubjectRulesReview": self_subject_rules,
    "SubjectAccessReview": subject_access,
    "TokenReview": token,
}
