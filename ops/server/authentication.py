"""Authentication settings: the authenticators that can be made before the server."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kubechronicle.actors.loops.bootstrap.authentication_trust import Trust
from kubechronicle.http.authentication import credentials
from kubechronicle.http.authentication.authorities import Authorities, Bundle
from kubechronicle.http.authentication.chain import Anonymous, StaticTokens, TokenFileError, parse_token_file
from kubechronicle.http.authentication.credentials import (
    STANDARD,
    AuthenticatingProxy,
    ClientCertificates,
    ProxyHeaders,
)
from kubechronicle.http.authentication.user import Authenticator, TokenAuthenticator
from kubechronicle.http.authentication.webhook import TokenWebhook
from kubechronicle.http.outgoing.kubeconfig import KubeconfigError, read_kubeconfig
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.pki import FRONT_PROXY
from kubechronicle.ops.settings.feature_gates import feature_gates
from kubechronicle.ops.settings.settings import Settings

if TYPE_CHECKING:
    from kubechronicle.http.authentication.oidc.authenticator import JwtPlan
    from kubechronicle.ops.server.jwt_issuers import JwtSettings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticationPlan:
    """The parts of a Plan (plan.py) with the same names, and the files for the TLS layer."""

    authenticators: Sequence[Authenticator] = ()
    static_tokens: Sequence[TokenAuthenticator] = ()
    token_webhook: TokenWebhook | None = None
    jwt: JwtPlan | None = None
    anonymous: Anonymous = field(default_factory=Anonymous)
    proxy_headers: ProxyHeaders = STANDARD
    trust: Trust = field(default_factory=Trust)
    files: tuple[Path, ...] = ()
    """All files of authorities whose client certificates the TLS layer accepts."""


def check(settings: Settings) -> None:
    """Check everything that can be checked without starting anything. Raise OperatorError."""
    static_tokens(settings)
    _jwt_settings(settings)
    proxy_headers(settings)
    token_webhook(settings)
    for flag in ("client-ca-file", "requestheader-client-ca-file", "root-ca-file"):
        file = getattr(settings, flag.replace("-", "_"))
        if file is not None:
            try:
                Bundle.of(file.read_bytes())
            except ValueError as error:
                raise OperatorError(f"--{flag}: {file} holds no certificates (PEM): {error}") from None


STANDARD_LISTS: Final[Mapping[str, Sequence[str]]] = {
    "requestheader-allowed-names": (FRONT_PROXY,),
    "requestheader-username-headers": ("X-Remote-User",),
    "requestheader-uid-headers": ("X-Remote-Uid",),
    "requestheader-group-headers": ("X-Remote-Group",),
    "requestheader-extra-headers-prefix": ("X-Remote-Extra-",),
}
"""The settings of the server's own front proxy."""


def has_own_front_proxy(settings: Settings) -> bool:
    """Tell whether the authority and the certificate of proxies are those in DATA_DIR/pki."""
    given = settings.fields_given("requestheader_")
    return not given and settings.proxy_client_cert_file is None


def _anonymous_by_flags(settings: Settings) -> bool:
    """Return whether the flags accept requests without a credential. AlwaysAllow excludes them (ApplyAuthorization)."""
    if settings.anonymous_auth is False:
        return False
    if "AlwaysAllow" not in (settings.authorization_mode or ()):
        return True
    log.warning("Requests without a credential are rejected, because --authorization-mode has AlwaysAllow")
    return False


def authentication_plan(
    settings: Settings, client_cas: Sequence[Path], front_proxy_ca: Path | None = None
) -> AuthenticationPlan:
    """Make the authenticators. Raise OperatorError.

    ``client_cas``: files with authorities of client certificates.
    ``front_proxy_ca``: the authority of the server's own front proxy; None: it has none.
    """
    try:
        clients = Authorities(client_cas)
    except (OSError, ValueError) as error:
        raise OperatorError(f"cannot use {' and '.join(map(str, client_cas))}: {error}") from None
    jwt = _jwt_settings(settings)
    anonymous = Anonymous(_anonymous_by_flags(settings))
    if jwt is not None and jwt.anonymous is not None:
        anonymous = Anonymous(jwt.anonymous.enabled, jwt.anonymous.paths)
    plan = AuthenticationPlan(
        authenticators=[
            ClientCertificates(
                clients.current, reads_uid=feature_gates(settings).enabled(credentials.CERTIFICATE_UID_GATE)
            )
        ],
        static_tokens=static_tokens(settings),
        token_webhook=token_webhook(settings),
        jwt=jwt.plan if jwt is not None else None,
        anonymous=anonymous,
        trust=Trust(client_ca=lambda: clients.current().certificates),
        files=tuple(client_cas),
    )
    file = settings.requestheader_client_ca_file
    if file is not None:
        return _with_proxy(plan, file, proxy_headers(settings), _proxy_lists(settings))
    if front_proxy_ca is not None:
        headers, lists = replace(STANDARD, allowed_names=(FRONT_PROXY,)), dict(STANDARD_LISTS)
        if not feature_gates(settings).enabled(credentials.PROXY_UID_GATE):
            headers = replace(headers, uid=())
            del lists["requestheader-uid-headers"]
        return _with_proxy(plan, front_proxy_ca, headers, lists)
    return plan


def _proxy_lists(settings: Settings) -> Mapping[str, Sequence[str]]:
    return {
        "requestheader-allowed-names": settings.requestheader_allowed_names or (),
        "requestheader-username-headers": settings.requestheader_username_headers or (),
        "requestheader-uid-headers": settings.requestheader_uid_headers or (),
        "requestheader-group-headers": settings.requestheader_group_headers or (),
        "requestheader-extra-headers-prefix": settings.requestheader_extra_headers_prefix or (),
    }


def _with_proxy(
    plan: AuthenticationPlan, file: Path, headers: ProxyHeaders, lists: Mapping[str, Sequence[str]]
) -> AuthenticationPlan:
    """Add an authenticating proxy. ``file``: its authorities."""
    authorities = Authorities([file])
    trust = replace(plan.trust, proxy_ca=lambda: authorities.current().certificates, proxy_lists=lists)
    return replace(
        plan,
        authenticators=[AuthenticatingProxy(authorities.current, headers), *plan.authenticators],
        proxy_headers=headers,
        trust=trust,
        files=(*plan.files, file),
    )


def _jwt_settings(settings: Settings) -> JwtSettings | None:
    """Return the external issuers, or None if no setting allows any. Raise OperatorError."""
    oidc_fields = settings.fields_given("oidc_")
    if not oidc_fields and settings.authentication_config is None:
        return None
    from kubechronicle.ops.server.jwt_issuers import jwt_settings  # few servers need it

    return jwt_settings(settings, oidc_fields)


def proxy_headers(settings: Settings) -> ProxyHeaders:
    """Return the header fields in which a proxy names the user. Raise OperatorError."""
    headers = ProxyHeaders(
        username=_lower(settings.requestheader_username_headers),
        uid=_lower(settings.requestheader_uid_headers),
        group=_lower(settings.requestheader_group_headers),
        extra_prefix=_lower(settings.requestheader_extra_headers_prefix),
        allowed_names=settings.requestheader_allowed_names or (),
    )
    if headers.uid and not feature_gates(settings).enabled(credentials.PROXY_UID_GATE):
        raise OperatorError(
            f'--requestheader-uid-headers requires the "{credentials.PROXY_UID_GATE}" feature to be enabled'
        )
    if headers.uid and not set(STANDARD.uid) & set(headers.uid):
        # As in kube-apiserver: every extension API server reads X-Remote-Uid.
        raise OperatorError("--requestheader-uid-headers: X-Remote-Uid must be among them")
    return headers


def _lower(names: tuple[str, ...] | None) -> tuple[str, ...]:
    return tuple(name.lower() for name in names or ())


def static_tokens(settings: Settings) -> list[TokenAuthenticator]:
    """Read --token-auth-file. Raise OperatorError."""
    if settings.token_auth_file is None:
        return []
    try:
        return [StaticTokens(parse_token_file(settings.token_auth_file))]
    except TokenFileError as error:
        raise OperatorError(f"--token-auth-file: {error}") from None


def token_webhook(settings: Settings) -> TokenWebhook | None:
    """Return the webhook for bearer tokens that are unknown here, None for none. Raise OperatorError."""
    file = settings.authentication_token_webhook_config_file
    if file is None:
        return None
    try:
        peer = read_kubeconfig(file)
    except KubeconfigError as error:
        raise OperatorError(f"--authentication-token-webhook-config-file: {error}") from None
    version, ttl = settings.authentication_token_webhook_version, settings.authentication_token_webhook_cache_ttl
    return TokenWebhook(peer=peer, version=version, ttl=ttl)
