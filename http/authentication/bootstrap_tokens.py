"""Bootstrap tokens: credentials of nodes that join the cluster (--enable-bootstrap-token-auth).

A token ``abcdef.0123456789abcdef`` is a Secret in kube-system (docs: "Authenticating with Bootstrap Tokens"):

    name    bootstrap-token-abcdef
    type    bootstrap.kubernetes.io/token
    data    token-id: abcdef, token-secret: 0123456789abcdef, usage-bootstrap-authentication: "true",
            expiration: 2026-11-21T14:00:00Z (none: never),
            auth-extra-groups: system:bootstrappers:NAME,… (none: system:bootstrappers alone)

A token is rejected if its Secret breaks one of these rules or is being deleted. The Secret is read from the view for
each request.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from kubechronicle.eventlog.views.views import Views
from kubechronicle.http.authentication.user import Identified, User

NAMESPACE: Final = "kube-system"
SECRET_TYPE: Final = "bootstrap.kubernetes.io/token"
SECRET_PREFIX: Final = "bootstrap-token-"
USER_PREFIX: Final = "system:bootstrap:"
DEFAULT_GROUP: Final = "system:bootstrappers"

_TOKEN: Final = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})")
_GROUP: Final = re.compile(r"system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]")
_RFC3339: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")


class BootstrapTokens:
    def __init__(self, views: Views) -> None:
        self._secrets = views["secrets"]

    def user_of(self, token: str, audiences: Sequence[str]) -> Identified | None:
        """Implement TokenAuthenticator. Bootstrap tokens name no audiences."""
        match = _TOKEN.fullmatch(token)
        entry = self._secrets.get(NAMESPACE, SECRET_PREFIX + match[1]) if match is not None else None
        if match is None or entry is None:
            return None
        groups = _groups(entry.object(), match[1], match[2], now=time.time())
        return Identified(User(name=USER_PREFIX + match[1], groups=groups)) if groups else None


def _groups(secret: Mapping[str, Any], token_id: str, token_secret: str, *, now: float) -> tuple[str, ...]:
    """Return the groups of the token's user; none if the Secret does not allow the token."""
    if "deletionTimestamp" in secret["metadata"] or secret.get("type") != SECRET_TYPE:
        return ()
    data = secret.get("data") or {}
    if not hmac.compare_digest(_bytes(data, "token-secret"), token_secret.encode()):
        return ()
    if _text(data, "token-id") != token_id or _text(data, "usage-bootstrap-authentication") != "true":
        return ()
    expiration = _text(data, "expiration")
    if expiration and not _moment(expiration) > now:
        return ()
    extra = _text(data, "auth-extra-groups")
    wanted = extra.split(",") if extra else []
    if not all(map(_GROUP.fullmatch, wanted)):
        return ()
    return tuple(sorted({DEFAULT_GROUP, *wanted}))


def _moment(text: str) -> float:
    """Return an RFC 3339 time in seconds since the epoch; 0 for another text."""
    if not _RFC3339.fullmatch(text):
        return 0.0
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def _bytes(data: Mapping[str, Any], key: str) -> bytes:
    try:
        return base64.b64decode(data.get(key) or "")
    except binascii.Error:
        return b""


def _text(data: Mapping[str, Any], key: str) -> str:
    return _bytes(data, key).decode("utf-8", "replace")
