"""Detection of discouraged service account tokens: those stored in Secrets, and those used past their renewal time.

They are counted in kube-apiserver's metrics. Facts that kube-apiserver adds to its audit log go to our log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from kubechronicle.actors.loops.service_accounts.legacy_tokens import LAST_USED, is_current
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.views.views import Views
from kubechronicle.http.authentication.metrics import AuthenticationMetrics
from kubechronicle.http.authentication.user import Rejected

log = logging.getLogger(__name__)

INVALID_SINCE: Final = "kubernetes.io/legacy-token-invalid-since"
AUTO_GENERATED: Final = (
    "Use tokens from the TokenRequest API or manually created secret-based tokens instead of auto-generated "
    "secret-based tokens."
)

Used = Callable[[str, str, str], bool]
"""Records a use of a Secret's token (namespace, name, uid of the Secret); returns False if that is impossible now."""


@dataclass(slots=True)
class SecretToken:
    """The Secret and account of a token.

    ``revisions``: of Secret and account when they were last read
    ``generated``: whether the account lists the Secret
    ``recorded_day``: the day of the last recorded use
    """

    namespace: str
    secret: str
    account: str
    revisions: tuple[int, int] = (-1, -1)
    generated: bool = False
    recorded_day: str = ""


class TokenUses:
    def __init__(self, views: Views, metrics: AuthenticationMetrics, used: Used | None = None) -> None:
        """``used`` None: uses of tokens in Secrets are not recorded."""
        self._secrets, self._accounts = views["secrets"], views["serviceaccounts"]
        self._tokens = metrics.tokens
        self._used = used

    def of_secret(self, token: SecretToken, now: float) -> tuple[str, ...]:
        """Record the use of a valid token that is stored in a Secret, and return warnings for the client.

        Raises Rejected if the Secret is marked as invalid.
        """
        secret = self._secrets.get(token.namespace, token.secret)
        account = self._accounts.get(token.namespace, token.account)
        if secret is None or account is None:
            return ()
        if token.revisions != (secret.revision, account.revision):
            token.revisions = (secret.revision, account.revision)
            listed = account.object().get("secrets") or ()
            token.generated = any(each.get("name") == token.secret for each in listed)
        self._note(token, secret, now)
        if secret.labels.get(INVALID_SINCE):
            self._tokens["serviceaccount_invalid_legacy_auto_token_uses"] += 1
            where = f"{token.namespace}/{token.secret} for service account {token.namespace}/{token.account}"
            raise Rejected(
                f"the token in secret {where} has been marked invalid. Use tokens from the TokenRequest API or "
                f"manually created secret-based tokens, or remove the '{INVALID_SINCE}' label from the secret to "
                "temporarily allow use of this token"
            )
        self._tokens["serviceaccount_legacy_tokens"] += 1
        if token.generated:
            self._tokens["serviceaccount_legacy_auto_token_uses"] += 1
            return (AUTO_GENERATED,)
        self._tokens["serviceaccount_legacy_manual_token_uses"] += 1
        return ()

    def _note(self, token: SecretToken, secret: Entry, now: float) -> None:
        day = datetime.fromtimestamp(now, UTC).date()
        if token.recorded_day == day.isoformat() or is_current(secret.labels.get(LAST_USED, ""), day):
            return
        if self._used is not None and self._used(token.namespace, token.secret, secret.uid):
            token.recorded_day = day.isoformat()
            kind = "generated" if token.generated else "manual"
            where = {"secret": f"{token.namespace}/{token.secret}", "kind": kind}
            log.info("Token kept in a Secret is used", extra={**where, "invalid": INVALID_SINCE in secret.labels})

    def of_pod(self, subject: str, warn_after: float, now: float, *, logged: bool) -> bool:
        """Record the use of a pod's token with an extended lifetime, and return whether it is stale.

        It is stale after ``warn_after`` (seconds since the epoch): the client should have renewed it. A stale token is
        logged unless it was ``logged`` before.
        """
        if now <= warn_after:
            self._tokens["serviceaccount_valid_tokens"] += 1
            return False
        self._tokens["serviceaccount_stale_tokens"] += 1
        if not logged:
            seconds = int(now) - int(warn_after)
            log.info("Stale token: subject: %s, seconds after warning threshold: %d", subject, seconds)
        return True
