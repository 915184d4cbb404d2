"""The factory of webhook authorizers. Each authorizer has a client of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kubechronicle.api.values.durations import SECOND
from kubechronicle.http.authorization.configuration import DENY, AuthorizationConfigurationError, WebhookConfiguration
from kubechronicle.http.authorization.current_authorizers import AuthorizerWebhooks
from kubechronicle.http.authorization.decision import Authorizer, Decision
from kubechronicle.http.authorization.metrics import MatchConditionMetrics
from kubechronicle.http.authorization.webhook import WebhookAuthorizer, WebhookMetrics
from kubechronicle.http.outgoing.client import TIMEOUT, Outgoing
from kubechronicle.http.outgoing.kubeconfig import KubeconfigError, read_kubeconfig
from kubechronicle.http.outgoing.networks import Network

DEFAULT_VERSION: Final = "v1beta1"


class WebhookMaker:
    """Makes webhook authorizers. ``metrics``: those of all of them."""

    def __init__(self, outgoing: Outgoing) -> None:
        self.metrics = WebhookMetrics()
        self._outgoing = outgoing

    @property
    def webhooks(self) -> AuthorizerWebhooks:
        return AuthorizerWebhooks(self.make, self.forget)

    def make(self, name: str, configured: WebhookConfiguration, matches: MatchConditionMetrics) -> Authorizer:
        """Implement current_authorizers.MakeWebhook. Reads files."""
        file = configured.connection_info.kube_config_file
        if not file:
            raise AuthorizationConfigurationError(f"the webhook {name} needs a kubeconfig file")
        try:
            peer = read_kubeconfig(Path(file))
        except KubeconfigError as error:
            raise AuthorizationConfigurationError(str(error)) from None
        conditions = None
        if configured.match_conditions:
            # Imported here: CEL is loaded only for conditions.
            from kubechronicle.http.authorization.match_conditions import AuthorizerConditions

            expressions = [condition.expression for condition in configured.match_conditions]
            conditions = AuthorizerConditions(expressions, name, matches)
        return WebhookAuthorizer(
            name,
            self._outgoing.client(
                peer,
                timeout=configured.timeout / SECOND if configured.timeout else TIMEOUT,
                network=Network.CONTROL_PLANE,
            ),
            version=configured.subject_access_review_version or DEFAULT_VERSION,
            authorized_ttl=configured.authorized_ttl / SECOND if configured.cache_authorized_requests else 0.0,
            unauthorized_ttl=configured.unauthorized_ttl / SECOND if configured.cache_unauthorized_requests else 0.0,
            on_error=Decision.DENY if configured.failure_policy == DENY else Decision.NO_OPINION,
            matches=conditions.matches if conditions is not None else None,
            metrics=self.metrics,
        )

    async def forget(self, authorizer: Authorizer) -> None:
        """Close the client of a webhook authorizer; ignore other authorizers."""
        if isinstance(authorizer, WebhookAuthorizer):
            self._outgoing.forget(authorizer.client)
