"""The authentication chain of a server, and its authorizers as admission sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubechronicle.actors.admission.state import Judge, Judgement, Permits
from kubechronicle.actors.loops.service_account_tokens import LegacyTokenTracking
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.api.subresources.token_request import HOOKS_GATE
from kubechronicle.eventlog.records import Who
from kubechronicle.eventlog.views.views import Views
from kubechronicle.http.authentication.bootstrap_tokens import BootstrapTokens
from kubechronicle.http.authentication.chain import AuthenticationChain
from kubechronicle.http.authentication.legacy_tokens import TokenUses
from kubechronicle.http.authentication.metrics import AuthenticationMetrics
from kubechronicle.http.authentication.oidc.validation import KEYS_GATE
from kubechronicle.http.authentication.service_accounts import ServiceAccountTokens
from kubechronicle.http.authentication.user import User
from kubechronicle.http.authorization.decision import AuthorizationChain, Decision
from kubechronicle.http.outgoing.client import Outgoing
from kubechronicle.ops.server.plan import Plan

if TYPE_CHECKING:
    from kubechronicle.http.authentication.oidc.authenticator import JwtAuthenticators


def jwt_authenticators(plan: Plan, outgoing: Outgoing) -> JwtAuthenticators | None:
    if plan.jwt is None:
        return None
    from kubechronicle.http.authentication.oidc.authenticator import JwtAuthenticators  # few servers need it

    tells_keys = plan.features.enabled(KEYS_GATE)
    return JwtAuthenticators(plan.jwt, outgoing, server=plan.server, tells_keys=tells_keys)


def authentication_chain(
    plan: Plan, views: Views, tracking: LegacyTokenTracking, jwt: JwtAuthenticators | None, outgoing: Outgoing
) -> AuthenticationChain:
    """Return all authenticators in kube-apiserver's order."""
    metrics = AuthenticationMetrics()
    tokens = list(plan.static_tokens)
    if plan.issuer is not None:
        tokens.append(
            ServiceAccountTokens(
                plan.issuer,
                views,
                TokenUses(views, metrics, tracking.used),
                lookup=plan.looks_tokens_up,
                hook_tokens=plan.features.enabled(HOOKS_GATE),
            )
        )
    if plan.bootstrap_tokens:
        tokens.append(BootstrapTokens(views))
    if jwt is not None:
        tokens.append(jwt)
    audiences = plan.issuer.audiences if plan.issuer is not None else ()
    if plan.token_webhook is not None:
        tokens.append(plan.token_webhook.authenticator(outgoing, audiences))
    return AuthenticationChain(
        plan.authenticators,
        tokens,
        audiences=audiences,
        anonymous=plan.anonymous,
        proxy=plan.proxy_headers,
        metrics=metrics,
    )


def permission_check(authorization: AuthorizationChain) -> Permits:
    """Return the function with which admission plugins ask the authorizers."""

    def permits(who: Who, verb: str, group: str, resource: str, name: str, namespace: str = "") -> bool:
        info = RequestInfo(
            path="",
            verb=verb,
            is_resource=True,
            group=group,
            version="*",
            namespace=namespace,
            resource=resource,
            name=name,
        )
        user = User(name=who.user, uid=who.uid, groups=who.groups, extra=who.extra)
        return authorization.decide(user, info).decision is Decision.ALLOW

    return permits


def judgement_of(authorization: AuthorizationChain) -> Judge:
    """Return the function with which expressions of admission ask the authorizers."""

    def judge(who: Who, info: RequestInfo) -> Judgement:
        user = User(name=who.user, uid=who.uid, groups=who.groups, extra=who.extra)
        verdict = authorization.explain(user, info)
        return Judgement(verdict.decision is Decision.ALLOW, verdict.reason, verdict.error)

    return judge
