"""Settings of external JWT issuers: the --oidc-* flags, or the file of --authentication-config."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kubechronicle.http.authentication.oidc import configuration
from kubechronicle.http.authentication.oidc.authenticator import JwtPlan, check_peers
from kubechronicle.http.authentication.oidc.configuration import AnonymousAuthConfig, AuthenticationConfiguration
from kubechronicle.http.authentication.oidc.validation import EGRESS_GATE, compile_configuration
from kubechronicle.http.authentication.oidc.web_keys import ALGORITHMS
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.server.outside.egress import configured_networks
from kubechronicle.ops.settings.feature_gates import feature_gates
from kubechronicle.ops.settings.settings import Settings

FILE_FLAG = "authentication-config"
DEFAULT_ALGORITHMS = ("RS256",)
DEFAULT_USERNAME_CLAIM = "sub"


@dataclass(frozen=True, slots=True)
class JwtSettings:
    """The issuers, and the file's rule for anonymous requests (None if it has none)."""

    plan: JwtPlan
    anonymous: AnonymousAuthConfig | None = None


def jwt_settings(settings: Settings, oidc_fields: Sequence[str]) -> JwtSettings:
    """Return the issuers. ``oidc_fields``: the --oidc-* settings that have a value. Raise OperatorError."""
    disallowed, egress = settings.service_account_issuer, configured_networks(settings)
    selects = feature_gates(settings).enabled(EGRESS_GATE)
    if settings.authentication_config is not None:
        if oidc_fields:
            raise OperatorError("authentication-config file and oidc-* flags are mutually exclusive")
        flag_given = settings.anonymous_auth is not None
        return _of_file(
            settings.authentication_config, disallowed, egress, selects_egress=selects, anonymous_flag=flag_given
        )
    if not settings.oidc_issuer_url or not settings.oidc_client_id:
        raise OperatorError(
            "--oidc-issuer-url, --oidc-client-id: oidc-issuer-url and oidc-client-id must be specified together when "
            "any oidc-* flags are set"
        )
    algorithms = settings.oidc_signing_algs if settings.oidc_signing_algs is not None else DEFAULT_ALGORITHMS
    for algorithm in algorithms:
        if algorithm not in ALGORITHMS:
            known = ", ".join(ALGORITHMS)
            raise OperatorError(f'--oidc-signing-algs: oidc: unsupported signing alg: "{algorithm}"; there are {known}')
    plan = _plan(_of_flags(settings), "--oidc-*", disallowed, egress, algorithms=frozenset(algorithms))
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


def _of_file(
    file: Path,
    disallowed: Iterable[str],
    egress: frozenset[str] | None,
    *,
    selects_egress: bool,
    anonymous_flag: bool,
) -> JwtSettings:
    try:
        content = file.read_bytes()
        config = configuration.parse(content)
    except (OSError, ValueError) as error:
        problem = _one_line(error)
        raise OperatorError(
            f'--{FILE_FLAG}: failed to load authentication configuration from file "{file}": {problem}'
        ) from None
    if config.anonymous is not None and anonymous_flag:
        raise OperatorError(
            f"--{FILE_FLAG}: anonymous: Forbidden: --anonymous-auth flag cannot be set when anonymous field is "
            "configured in authentication configuration file"
        )
    plan = _plan(
        config, f"--{FILE_FLAG}", disallowed, egress, selects_egress=selects_egress, file=file, content=content
    )
    return JwtSettings(plan, config.anonymous)


def _plan(
    config: AuthenticationConfiguration,
    flag: str,
    disallowed: Iterable[str],
    egress: frozenset[str] | None,
    *,
    selects_egress: bool = True,
    algorithms: frozenset[str] = frozenset(ALGORITHMS),
    file: Path | None = None,
    content: bytes = b"",
) -> JwtPlan:
    try:
        mappers = compile_configuration(config, disallowed=tuple(disallowed), selects_egress=selects_egress)
        check_peers(mappers, egress)
    except ValueError as error:
        raise OperatorError(f"{flag}: invalid authentication configuration: {_one_line(error)}") from None
    return JwtPlan(
        mappers=mappers,
        algorithms=algorithms,
        file=file,
        content=content,
        disallowed=tuple(disallowed),
        egress=egress,
        selects_egress=selects_egress,
        anonymous=config.anonymous,
    )


def _one_line(error: Exception) -> str:
    """Join the lines of an error: a CEL compiler's has three."""
    return " ".join(str(error).split())
