"""Who is let in, as the settings say it: what of the authenticators can be made before the server is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kubechronicle.actors.loops.bootstrap.authentication_trust import Trust
from kubechronicle.http.authentication.anonymous import Anonymous
from kubechronicle.http.authentication.authorities import Authorities, Bundle
from kubechronicle.http.authentication.chain import Authenticator, TokenAuthenticator
from kubechronicle.http.authentication.request_header import STANDARD, AuthenticatingProxy, ProxyHeaders
from kubechronicle.http.authentication.token_file import StaticTokens, TokenFileError, parse_token_file
from kubechronicle.http.authentication.webhook import VERSIONS, TokenWebhook
from kubechronicle.http.authentication.x509 import ClientCertificates
from kubechronicle.http.outgoing.kubeconfig import KubeconfigError, read_kubeconfig
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.settings.settings import Settings
from kubechronicle.ops.settings.types import Names

if TYPE_CHECKING:
    from kubechronicle.http.authentication.oidc.authenticator import JwtPlan
    from kubechronicle.ops.server.jwt_issuers import JwtSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class LetIn:
    """Parts of a Plan of the same names; ``files``: all authorities the TLS layer has to believe."""

    authenticators: Sequence[Authenticator] = ()
    static_tokens: Sequence[TokenAuthenticator] = ()
    token_webhook: TokenWebhook | None = None
    jwt: JwtPlan | None = None
    anonymous: Anonymous = field(default_factory=Anonymous)
    proxy_headers: ProxyHeaders = STANDARD
    trust: Trust = field(default_factory=Trust)
    files: tuple[Path, ...] = ()


def check(settings: Settings) -> None:
    """What can be found wrong without starting anything. OperatorError."""
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


def let_in(settings: Settings, client_cas: Sequence[Path]) -> LetIn:
    """``client_cas``: files with authorities of client certificates. OperatorError: one of them can't be used."""
    try:
        clients = Authorities(client_cas)
    except (OSError, ValueError) as error:
        raise OperatorError(f"cannot use {' and '.join(map(str, client_cas))}: {error}") from None
    jwt = _jwt_settings(settings)
    anonymous = Anonymous(settings.anonymous_auth is None or bool(settings.anonymous_auth))
    if jwt is not None and jwt.anonymous is not None:
        anonymous = Anonymous(jwt.anonymous.enabled, jwt.anonymous.paths)
    plain = LetIn(
        authenticators=[ClientCertificates(clients.current)],
        static_tokens=static_tokens(settings),
        token_webhook=token_webhook(settings),
        jwt=jwt.plan if jwt is not None else None,
        anonymous=anonymous,
        trust=Trust(client_ca=lambda: clients.current().certificates),
        files=tuple(client_cas),
    )
    file = settings.requestheader_client_ca_file
    return _with_proxy(plain, settings, file) if file is not None else plain


def _with_proxy(plain: LetIn, settings: Settings, file: Path) -> LetIn:
    """Let an authenticating proxy in as well, whose authorities are in the file."""
    authorities, headers = Authorities([file]), proxy_headers(settings)
    lists = {
        "requestheader-allowed-names": _names(settings.requestheader_allowed_names),
        "requestheader-username-headers": _names(settings.requestheader_username_headers),
        "requestheader-uid-headers": _names(settings.requestheader_uid_headers),
        "requestheader-group-headers": _names(settings.requestheader_group_headers),
        "requestheader-extra-headers-prefix": _names(settings.requestheader_extra_headers_prefix),
    }
    trust = replace(plain.trust, proxy_ca=lambda: authorities.current().certificates, proxy_lists=lists)
    return replace(
        plain,
        authenticators=[AuthenticatingProxy(authorities.current, headers), *plain.authenticators],
        proxy_headers=headers,
        trust=trust,
        files=(*plain.files, file),
    )


def _jwt_settings(settings: Settings) -> JwtSettings | None:
    """None: no JWT of others is believed, nor may it be while the server runs. OperatorError."""
    flags = [name for name in Settings.__dataclass_fields__ if name.startswith("oidc_")]
    given = [name for name in flags if getattr(settings, name) is not None]
    if not given and settings.authentication_config is None:
        return None
    from kubechronicle.ops.server.jwt_issuers import jwt_settings  # few servers need it

    return jwt_settings(settings, given)


def proxy_headers(settings: Settings) -> ProxyHeaders:
    """OperatorError: a name that no header field has."""
    headers = ProxyHeaders(
        username=_fields("username-headers", settings.requestheader_username_headers),
        uid=_fields("uid-headers", settings.requestheader_uid_headers),
        group=_fields("group-headers", settings.requestheader_group_headers),
        extra_prefix=_fields("extra-headers-prefix", settings.requestheader_extra_headers_prefix),
        allowed_names=_names(settings.requestheader_allowed_names),
    )
    if headers.uid and not set(STANDARD.uid) & set(headers.uid):
        # kube-apiserver refuses it, too: extension API servers would not understand each other.
        raise OperatorError("--requestheader-uid-headers: X-Remote-Uid must be among them")
    return headers


def _names(given: Names | None) -> tuple[str, ...]:
    return given.names if given is not None else ()


def _fields(flag: str, given: Names | None) -> tuple[str, ...]:
    names = tuple(name.strip().lower() for name in _names(given))
    if not all(names):
        raise OperatorError(f"--requestheader-{flag}: a name must not be empty")
    return names


def static_tokens(settings: Settings) -> list[TokenAuthenticator]:
    """The tokens of --token-auth-file. OperatorError."""
    if settings.token_auth_file is None:
        return []
    try:
        return [StaticTokens(parse_token_file(settings.token_auth_file))]
    except TokenFileError as error:
        raise OperatorError(f"--token-auth-file: {error}") from None


def token_webhook(settings: Settings) -> TokenWebhook | None:
    """Who is asked about bearer tokens nobody here knows; None: nobody. OperatorError."""
    version = settings.authentication_token_webhook_version
    if version not in VERSIONS:
        raise OperatorError(f"--authentication-token-webhook-version: must be {' or '.join(VERSIONS)}, got {version!r}")
    file = settings.authentication_token_webhook_config_file
    if file is None:
        return None
    try:
        peer = read_kubeconfig(file)
    except KubeconfigError as error:
        raise OperatorError(f"--authentication-token-webhook-config-file: {error}") from None
    return TokenWebhook(peer=peer, version=version, ttl=settings.authentication_token_webhook_cache_ttl)
