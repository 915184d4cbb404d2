"""The values of one write that policies read, each made when the first policy reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from kubechronicle.actors.admission.chain import AdmissionState, Attributes
from kubechronicle.actors.admission.versions import Versions, name_of, namespace_of, user_of
from kubechronicle.actors.evaluation import on_event_loop
from kubechronicle.api.admission.matching import NAMESPACES
from kubechronicle.api.admission.policy_sources import PolicyRequest, namespace_value, request_value
from kubechronicle.api.cel.library.authorization import AuthorizerDecision, AuthorizerQuestion
from kubechronicle.api.errors import status
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.records import Who

SERVICE_ACCOUNTS: Final = "system:serviceaccounts"


@dataclass(eq=False)
class PolicyReading:
    """The values of a write. ``versions``: its objects."""

    attributes: Attributes
    state: AdmissionState
    versions: Versions

    def __post_init__(self) -> None:
        self._requests: dict[ResourceType, dict[str, Any]] = {}

    def values(self, matched: ResourceType, params: Object | None, *, has_params: bool) -> dict[str, Any]:
        """Return CEL's variables. ``matched``: the type in whose version the policy matches. StatusError.

        ``has_params``: the policy declares parameters.
        """
        request = self._requests.get(matched)
        if request is None:
            request = self._requests[matched] = request_value(self.request, matched)
        values = {
            "object": self.versions.new(matched),
            "oldObject": self.versions.old(matched),
            "request": request,
            "namespaceObject": self.namespace,
        }
        if has_params:
            values["params"] = params
        return values

    @cached_property
    def request(self) -> PolicyRequest:
        """The request itself, and the rights of its user."""
        attributes = self.attributes
        return PolicyRequest(
            rt=attributes.rt,
            subresource=attributes.subresource,
            operation=attributes.operation,
            name=name_of(attributes),
            namespace=namespace_of(attributes),
            dry_run=attributes.dry_run,
            user=user_of(attributes.who),
            options=attributes.options,
            decide=_decide(self.state, attributes.who),
        )

    @property
    def authorizer(self) -> Mapping[str, Any]:
        """The variables that ask for rights."""
        return self.request.authorizer

    @cached_property
    def namespace(self) -> dict[str, Any] | None:
        """The namespace of the object; None for a namespace, and for cluster-scoped objects. StatusError 404."""
        attributes = self.attributes
        if not attributes.namespace or attributes.rt.resource == NAMESPACES:
            return None
        entry = self.state.peek(NAMESPACES, "", attributes.namespace)
        if entry is None:
            raise status.not_found(NAMESPACES, attributes.namespace)
        return namespace_value(entry.object())


def _decide(state: AdmissionState, requester: Who) -> Callable[[AuthorizerQuestion], AuthorizerDecision]:
    """Return the function that answers questions of expressions, each once."""
    answers: dict[AuthorizerQuestion, AuthorizerDecision] = {}

    def decide(question: AuthorizerQuestion) -> AuthorizerDecision:
        answer = answers.get(question)
        if answer is None:
            judged = on_event_loop(state.judge, _asked(requester, question), _info(question))
            answer = answers[question] = AuthorizerDecision(judged.allowed, judged.reason, judged.error or None)
        return answer

    return decide


def _asked(requester: Who, question: AuthorizerQuestion) -> Who:
    if question.service_account is None:
        return requester
    namespace, name = question.service_account
    # Like kube-apiserver, which asks about the account itself: only authentication adds system:authenticated.
    groups = (SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{namespace}")
    return Who(user=f"system:serviceaccount:{namespace}:{name}", groups=groups)


def _info(question: AuthorizerQuestion) -> RequestInfo:
    if question.path is not None:
        return RequestInfo(path=question.path, verb=question.verb)
    return RequestInfo(
        path="",
        verb=question.verb,
        is_resource=True,
        group=question.group,
        version="*",
        namespace=question.namespace,
        resource=question.resource,
        subresource=question.subresource,
        name=question.name,
        field_selector=question.field_selector,
        label_selector=question.label_selector,
    )
