"""Service account tokens: their issuer, and the authentication of requests with them.

A token is valid if its signature is, and while the objects it names exist with the same uid: its service account, and
the Pod, Secret or Node it is bound to. Verified signatures are cached. The objects are looked up in the views for each
request (a few dictionary look-ups), so a deletion has effect from the next request on.

    POST …/serviceaccounts/NAME/token        tokens with expiry and audiences  (KEP-1205, KEP-2799, KEP-4193)
    Secrets of type …/service-account-token  tokens that last as long as their Secret (issuer kubernetes/serviceaccount)
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from kubechronicle.api.access import account_tokens
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.subresources.token_request import HOOKS, HOOKS_GATE, REVIEW_GROUPS, WEBHOOKS
from kubechronicle.api.values.caches import kept_in_order
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.views.views import View, Views
from kubechronicle.http.authentication import jws, legacy_tokens
from kubechronicle.http.authentication.legacy_tokens import SecretToken, TokenUses
from kubechronicle.http.authentication.metrics import AuthenticationMetrics
from kubechronicle.http.authentication.token_issuer import KnownKeys, ServiceAccountIssuer
from kubechronicle.http.authentication.user import CredentialRejected, Identified, NotSeen, User

USER_PREFIX: Final = "system:serviceaccount:"
EXTRA: Final = "authentication.kubernetes.io/"

# Seconds of clock difference, and for which a token outlives the deletion of an object it names (go-jose's leeway).
LEEWAY: Final = 60.0
# Verified tokens in the cache: one per client process, about 2 KB each.
CACHE_SIZE: Final = 8192

GONE: Final = "service account token has been invalidated"


@dataclass(slots=True)
class _NamedObject:
    """An object that a token names, with its state at the last look.

    ``uid``: None for any uid
    ``missing``, ``other``, ``gone``: errors for no object, another uid, and a deleted object
    ``check``: a further check of the object
    ``revision``: of the entry that was seen
    ``deleted``: its deletionTimestamp, in seconds since the epoch
    """

    view: View
    namespace: str
    name: str
    uid: str | None
    missing: str
    other: str
    gone: str
    check: Callable[[Entry], None] | None = None
    leeway: float = LEEWAY
    revision: int = -1
    deleted: float = math.inf

    def look(self, now: float) -> None:
        """Check the object. Raises NotSeen if it is missing or another one, and Rejected if it is being deleted."""
        entry = self.view.get(self.namespace, self.name)
        if entry is None:
            raise NotSeen(self.missing)
        if entry.revision != self.revision:
            if self.uid is not None and entry.uid != self.uid:
                raise NotSeen(self.other.format(entry.uid, self.uid))
            self.deleted = _deletion_of(entry)
            if self.check is not None and self.deleted == math.inf:
                self.check(entry)
            self.revision = entry.revision
        if self.deleted < now - self.leeway:
            raise CredentialRejected(self.gone)


@dataclass(slots=True, kw_only=True)
class _Verified:
    """A token with a valid signature. Times are in seconds since the epoch.

    ``identified``: its user, with all its audiences
    ``begins``, ``ends``, ``issued``: its times
    ``named``: the objects that must exist at each use
    ``stored_in``: its Secret, if it is a legacy token
    ``warn_after``: the time after which it should have been renewed; 0: none
    ``stale``: whether it was used after that
    """

    identified: Identified
    begins: float
    ends: float
    issued: float
    named: list[_NamedObject]
    stored_in: SecretToken | None = None
    warn_after: float = 0.0
    stale: bool = False


class ServiceAccountTokens:
    """The authenticator. ``uses`` records uses of tokens; ``clock``: seconds since the epoch."""

    def __init__(
        self,
        issuer: ServiceAccountIssuer,
        views: Views,
        uses: TokenUses | None = None,
        *,
        lookup: bool = True,
        hook_tokens: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``lookup``: check that the Secret and the account of a token that is stored in a Secret exist.

        ``hook_tokens``: tokens may be bound to webhooks (the gate HOOKS_GATE).
        """
        self._lookup = lookup
        self._audiences = issuer.audiences
        self._issuers = frozenset(issuer.issuers)
        self._keys = KnownKeys(issuer)
        self._accounts, self._secrets = views["serviceaccounts"], views["secrets"]
        self._pods, self._nodes = views["pods"], views["nodes"]
        self._hooks = {kind: views[f"{plural}.{HOOKS}"] for kind, plural in WEBHOOKS.items()}
        self._hook_tokens = hook_tokens
        self._uses = uses if uses is not None else TokenUses(views, AuthenticationMetrics())
        self._clock = clock
        self._known: OrderedDict[bytes, _Verified] = kept_in_order("verified tokens")
        # Digests of tokens of other issuers, so that they are not parsed for each request.
        self._foreign: OrderedDict[bytes, None] = OrderedDict()

    def user_of(self, token: str, audiences: Sequence[str]) -> Identified | None:
        """Implement TokenAuthenticator."""
        if len(token) > jws.MAX_TOKEN:
            return None
        if self._keys.follow():
            self._known.clear()  # they may be signed with a key that is gone
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        known = self._known.get(digest)
        if known is None:
            if digest in self._foreign:
                return None
            known = self._verify(token)
            if known is None:
                self._foreign[digest] = None
                if len(self._foreign) > CACHE_SIZE:
                    self._foreign.popitem(last=False)
                return None
            self._known[digest] = known
            if len(self._known) > CACHE_SIZE:
                self._known.popitem(last=False)
        identified = known.identified
        if identified.audiences != audiences:
            common = tuple(audience for audience in audiences if audience in identified.audiences)
            if not common:
                ours, target = _quoted(identified.audiences), _quoted(audiences)
                raise CredentialRejected(f"token audiences {ours} is invalid for the target audiences {target}")
            identified = Identified(identified.user, common)
        now = self._clock()
        if now + LEEWAY < known.begins:
            raise CredentialRejected("service account token is not valid yet")
        if now - LEEWAY > known.ends:
            raise CredentialRejected("service account token has expired")
        if now + LEEWAY < known.issued:
            raise CredentialRejected("service account token is issued in the future")
        for each in known.named:
            each.look(now)
        if known.stored_in is not None:
            warnings = self._uses.of_secret(known.stored_in, now)
            notes = legacy_tokens.legacy_annotations(known.stored_in, identified.user.name)
            return Identified(identified.user, identified.audiences, warnings, notes)
        if known.warn_after:
            known.stale = self._uses.of_pod(identified.user.name, known.warn_after, now, logged=known.stale)
            if known.stale:
                notes = legacy_tokens.stale_annotations(identified.user.name, known.warn_after, now)
                return Identified(identified.user, identified.audiences, annotations=notes)
        return identified

    # -- verification of a new token ----------------------------------------------------------------------------------

    def _verify(self, token: str) -> _Verified | None:
        """Verify and parse a token. Returns None for another issuer's token. Raises Rejected for a wrong signature."""
        try:
            parsed = jws.parse(token)
        except jws.BadToken:
            return None
        claims = parsed.claims
        issuer = claims.get("iss")
        legacy = issuer == account_tokens.ISSUER
        if not isinstance(issuer, str) or not (legacy or issuer in self._issuers):
            return None
        keys = self._keys.of(parsed.key_id)
        if not keys:
            raise CredentialRejected("invalid signature, no keys found")
        if not any(key.verify(parsed) for key in keys):
            raise CredentialRejected("go-jose/go-jose: error in cryptographic primitive")
        audiences = _audiences_of(claims) or self._audiences
        user, named = self._legacy(claims, token) if legacy else self._bound(claims)
        private = {} if legacy else _mapping(claims, "kubernetes.io")
        return _Verified(
            identified=Identified(user, audiences),
            begins=_moment(claims, "nbf", 0.0),
            ends=_moment(claims, "exp", math.inf),
            issued=_moment(claims, "iat", 0.0),
            named=named,
            stored_in=_secret_of(claims) if legacy and self._lookup else None,
            warn_after=_moment(private, "warnafter", 0.0),
        )

    def _bound(self, claims: Mapping[str, Any]) -> tuple[User, list[_NamedObject]]:
        """Return the user of a token of the TokenRequest API, and the objects it names."""
        private = _mapping(claims, "kubernetes.io")
        namespace = _text(private, "namespace")
        account, pod = _reference(private, "serviceaccount"), _reference(private, "pod")
        node, secret = _reference(private, "node"), _reference(private, "secret")
        name, uid = account or ("", "")
        named = [self._account(namespace, name, uid)]
        if secret is not None:
            other = "secret UID ({}) does not match service account secret ref claim ({})"
            named.append(_NamedObject(self._secrets, namespace, *secret, GONE, other, GONE))
        extra: dict[str, tuple[str, ...]] = {}
        if pod is not None:
            other = "pod UID ({}) does not match service account pod ref claim ({})"
            named.append(_NamedObject(self._pods, namespace, *pod, GONE, other, GONE))
            extra[f"{EXTRA}pod-name"], extra[f"{EXTRA}pod-uid"] = (pod[0],), (pod[1],)
        elif node is not None:
            other = "node UID ({}) does not match service account node ref claim ({})"
            named.append(_NamedObject(self._nodes, "", *node, GONE, other, GONE))
        for kind, view in self._hooks.items():
            if (hook := _reference(private, kind.lower())) is not None:
                self._add_hook(kind, view, hook, private, named, extra)
        if _text(claims, "jti"):
            extra[f"{EXTRA}credential-id"] = (f"JTI={claims['jti']}",)
        if node is not None and node[0]:
            extra[f"{EXTRA}node-name"] = (node[0],)
            if node[1]:
                extra[f"{EXTRA}node-uid"] = (node[1],)
        return service_account_user(namespace, name, uid, extra), named

    def _add_hook(
        self,
        kind: str,
        view: View,
        hook: tuple[str, str],
        private: Mapping[str, Any],
        named: list[_NamedObject],
        extra: dict[str, tuple[str, ...]],
    ) -> None:
        """Add the configuration of a webhook that a token names, and what the token attests."""
        if not self._hook_tokens:
            raise CredentialRejected(f"feature gate {go_quote(HOOKS_GATE)} is disabled, but token is webhook bound")
        if not (groups := _mapping(private, "attestations").get(REVIEW_GROUPS)):
            raise CredentialRejected(
                f"bound object was a webhook config, but {go_quote(REVIEW_GROUPS)} attestation is missing"
            )
        other, key = f"{kind} UID ({{}}) does not match service account validating ref claim ({{}})", kind.lower()
        named.append(_NamedObject(view, "", *hook, GONE, other, GONE))
        extra[f"{EXTRA}{key}-name"], extra[f"{EXTRA}{key}-uid"] = (hook[0],), (hook[1],)
        extra[f"attestation.{EXTRA}{REVIEW_GROUPS}"] = tuple(groups)

    def _legacy(self, claims: Mapping[str, Any], token: str) -> tuple[User, list[_NamedObject]]:
        """Return the user and objects of a token that is stored in a Secret. The Secret must hold that same token."""
        namespace = _text(claims, f"{account_tokens.CLAIM}namespace")
        secret = _text(claims, f"{account_tokens.CLAIM}secret.name")
        name = _text(claims, f"{account_tokens.CLAIM}service-account.name")
        uid = _text(claims, f"{account_tokens.CLAIM}service-account.uid")
        subject = _text(claims, "sub")
        present = (
            ("sub", subject),
            ("namespace", namespace),
            ("secretName", secret),
            ("serviceAccountName", name),
            ("serviceAccountUID", uid),
        )
        for label, value in present:
            if not value:
                raise CredentialRejected(f"{label} claim is missing")
        if subject != f"{USER_PREFIX}{namespace}:{name}":
            raise CredentialRejected("sub claim is invalid")
        user = service_account_user(namespace, name, uid, {})
        if not self._lookup:
            return user, []
        digest = hashlib.sha256(token.encode()).digest()
        account = self._account(namespace, name, uid)
        account.leeway, account.gone = -math.inf, f"ServiceAccount {namespace}/{name} has been deleted"
        account.other = "ServiceAccount UID ({}) does not match claim ({})"
        invalidated = "Token has been invalidated"
        held = _NamedObject(
            self._secrets,
            namespace,
            secret,
            None,
            invalidated,
            "",
            invalidated,
            check=lambda entry: _check_held(entry, digest),
            leeway=-math.inf,
        )
        return user, [held, account]

    def _account(self, namespace: str, name: str, uid: str) -> _NamedObject:
        missing = f"serviceaccounts {go_quote(name)} not found"
        other = "service account UID ({}) does not match claim ({})"
        gone = f"service account {namespace}/{name} has been deleted"
        return _NamedObject(self._accounts, namespace, name, uid, missing, other, gone)


def service_account_user(namespace: str, name: str, uid: str, extra: Mapping[str, tuple[str, ...]]) -> User:
    """Return the user of a service account."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    return User(name=f"{USER_PREFIX}{namespace}:{name}", uid=uid, groups=groups, extra=extra)


def _secret_of(claims: Mapping[str, Any]) -> SecretToken:
    prefix = account_tokens.CLAIM
    secret, account = _text(claims, f"{prefix}secret.name"), _text(claims, f"{prefix}service-account.name")
    return SecretToken(_text(claims, f"{prefix}namespace"), secret, account)


def _check_held(entry: Entry, digest: bytes) -> None:
    secret = entry.object()
    try:
        held = base64.b64decode((secret.get("data") or {}).get("token") or "")
    except binascii.Error:
        held = b""
    if not hmac.compare_digest(hashlib.sha256(held).digest(), digest):
        raise NotSeen("Token does not match server's copy")


def _deletion_of(entry: Entry) -> float:
    """Return the deletionTimestamp in seconds since the epoch; infinity without one."""
    if b'"deletionTimestamp"' not in entry.json:
        return math.inf
    text = entry.ending().deleted
    return datetime.fromisoformat(text).timestamp() if text else math.inf


# -- claims of a verified token: the holder of the key may still have signed nonsense --------------------------------


def _mapping(claims: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = claims.get(name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise CredentialRejected(f"claim {name} is no object")
    return found


def _text(claims: Mapping[str, Any], name: str) -> str:
    found = claims.get(name)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise CredentialRejected(f"claim {name} is no text")
    return found


def _reference(claims: Mapping[str, Any], name: str) -> tuple[str, str] | None:
    """Return (name, uid) of the object of this kind that a token names, None without one."""
    if claims.get(name) is None:
        return None
    found = _mapping(claims, name)
    return _text(found, "name"), _text(found, "uid")


def _moment(claims: Mapping[str, Any], name: str, default: float) -> float:
    found = claims.get(name)
    if found is None:
        return default
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise CredentialRejected(f"claim {name} is no time")
    return float(found)


def _audiences_of(claims: Mapping[str, Any]) -> tuple[str, ...]:
    found = claims.get("aud")
    if isinstance(found, str):
        return (found,)
    if found is None:
        return ()
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise CredentialRejected("claim aud is no list of texts")
    return tuple(found)


def _quoted(texts: Sequence[str]) -> str:
    return "[" + " ".join(map(go_quote, texts)) + "]"
