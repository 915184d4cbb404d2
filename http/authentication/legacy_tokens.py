"""Uses of service account tokens that should not be: those kept in Secrets, and those older than they need to be.
Counted by kube-apiserver's names; what it adds to its audit log is told in ours."""

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
"""Notes a use of a Secret's token (namespace, name, uid of the Secret); False if that can't be done now."""


@dataclass(slots=True)
class SecretToken:
    """Where a token is kept, and for whom; and what was found when that was last looked at."""

    namespace: str
    secret: str
    account: str
    revisions: tuple[int, int] = (-1, -1)
    generated: bool = False
    told: str = ""  # the last-used label when the use was last told of, with the day


class TokenUses:
    def __init__(self, views: Views, metrics: AuthenticationMetrics, used: Used | None = None) -> None:
        """``used`` None: nobody notes uses of tokens kept in Secrets."""
        self._secrets, self._accounts = views["secrets"], views["serviceaccounts"]
        self._tokens = metrics.tokens
        self._used = used

    def of_secret(self, token: SecretToken, now: float) -> tuple[str, ...]:
        """A good token kept in a Secret is used: warnings for whoever uses it. Rejected: the Secret is marked as one
        whose token is not to be used any more."""
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
        if token.told == day.isoformat() or is_current(secret.labels.get(LAST_USED, ""), day):
            return
        if self._used is not None and self._used(token.namespace, token.secret, secret.uid):
            token.told = day.isoformat()
            kind = "generated" if token.generated else "manual"
            where = {"secret": f"{token.namespace}/{token.secret}", "kind": kind}
            log.info("Token kept in a Secret is used", extra={**where, "invalid": INVALID_SINCE in secret.labels})

    def of_pod(self, subject: str, warn_after: float, now: float, *, told: bool) -> bool:
        """A pod's token that lasts longer than asked for is used, good for ``warn_after`` (seconds since the epoch);
        whether it is past that. Told in the log unless it was ``told``."""
        if now <= warn_after:
            self._tokens["serviceaccount_valid_tokens"] += 1
            return False
        self._tokens["serviceaccount_stale_tokens"] += 1
        if not told:
            seconds = int(now) - int(warn_after)
            log.info("Stale token: subject: %s, seconds after warning threshold: %d", subject, seconds)
        return True
