"""Whose JWTs are believed, as the settings say it: the --oidc-* flags, or the file of --authentication-config."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kubechronicle.http.authentication.oidc import configuration
from kubechronicle.http.authentication.oidc.authenticator import JwtPlan, check_peers
from kubechronicle.http.authentication.oidc.configuration import AnonymousConfig, AuthenticationConfiguration
from kubechronicle.http.authentication.oidc.validation import compile_configuration
from kubechronicle.http.authentication.oidc.web_keys import ALGORITHMS
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.settings.settings import Settings

FILE_FLAG = "authentication-config"
DEFAULT_ALGORITHMS = ("RS256",)
DEFAULT_USERNAME_CLAIM = "sub"


@dataclass(frozen=True, slots=True)
class JwtSettings:
    """``anonymous``: what the file says of requests without a credential, None for nothing."""

    plan: JwtPlan
    anonymous: AnonymousConfig | None = None


def jwt_settings(settings: Settings, given: Sequence[str]) -> JwtSettings:
    """``given``: the --oidc-* flags that are. OperatorError: what the settings say can't be used."""
    disallowed = settings.service_account_issuer.names
    if settings.authentication_config is not None:
        if given:
            raise OperatorError("authentication-config file and oidc-* flags are mutually exclusive")
        return _of_file(settings.authentication_config, disallowed, anonymous_flag=settings.anonymous_auth is not None)
    if not settings.oidc_issuer_url or not settings.oidc_client_id:
        raise OperatorError(
            "--oidc-issuer-url, --oidc-client-id: oidc-issuer-url and oidc-client-id must be specified together when "
            "any oidc-* flags are set"
        )
    algorithms = settings.oidc_signing_algs.names if settings.oidc_signing_algs is not None else DEFAULT_ALGORITHMS
    for algorithm in algorithms:
        if algorithm not in ALGORITHMS:
            known = ", ".join(ALGORITHMS)
            raise OperatorError(f'--oidc-signing-algs: oidc: unsupported signing alg: "{algorithm}"; there are {known}')
    plan = _plan(_of_flags(settings), "--oidc-*", disallowed, algorithms=frozenset(algorithms))
    return JwtSettings(plan)


def _of_flags(settings: Settings) -> AuthenticationConfiguration:
    required = settings.oidc_required_claim
    return configuration.of_flags(
        issuer_url=settings.oidc_issuer_url or "",
        client_id=settings.oidc_client_id or "",
        username_claim=settings.oidc_username_claim or DEFAULT_USERNAME_CLAIM,
        username_prefix=settings.oidc_username_prefix or "",
        groups_claim=settings.oidc_groups_claim or "",
        groups_prefix=settings.oidc_groups_prefix or "",
        required_claims=dict(required.pairs) if required is not None else {},
        certificate_authority=_authorities(settings.oidc_ca_file),
    )


def _authorities(file: Path | None) -> str:
    if file is None:
        return ""
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OperatorError(f"--oidc-ca-file: cannot read {file}: {error}") from None
    if not text.strip():
        raise OperatorError(f"--oidc-ca-file: {file} holds no certificates (PEM)")
    return text


def _of_file(file: Path, disallowed: Iterable[str], *, anonymous_flag: bool) -> JwtSettings:
    try:
        content = file.read_bytes()
        config = configuration.parse(content)
    except (OSError, ValueError) as error:
        why = _line(error)
        raise OperatorError(
            f'--{FILE_FLAG}: failed to load authentication configuration from file "{file}": {why}'
        ) from None
    if config.anonymous is not None and anonymous_flag:
        raise OperatorError(
            f"--{FILE_FLAG}: anonymous: Forbidden: --anonymous-auth flag cannot be set when anonymous field is "
            "configured in authentication configuration file"
        )
    plan = _plan(config, f"--{FILE_FLAG}", disallowed, file=file, content=content)
    return JwtSettings(plan, config.anonymous)


def _plan(
    config: AuthenticationConfiguration,
    flag: str,
    disallowed: Iterable[str],
    *,
    algorithms: frozenset[str] = frozenset(ALGORITHMS),
    file: Path | None = None,
    content: bytes = b"",
) -> JwtPlan:
    try:
        mappers = compile_configuration(config, disallowed=tuple(disallowed))
        check_peers(mappers)
    except ValueError as error:
        raise OperatorError(f"{flag}: invalid authentication configuration: {_line(error)}") from None
    return JwtPlan(
        mappers=mappers,
        algorithms=algorithms,
        file=file,
        content=content,
        disallowed=tuple(disallowed),
        anonymous=config.anonymous,
    )


def _line(error: Exception) -> str:
    """An error in one line: a compiler's has three."""
    return " ".join(str(error).split())
