"""AuthenticationConfiguration (apiserver.config.k8s.io v1, v1beta1, v1alpha1), as records.

Lives here: the shape of the file and of what the --oidc-* flags stand for. Not here: which values are allowed
(validation.py). The three versions have the same fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kubechronicle.api.configuration import files
from kubechronicle.api.configuration.files import FLAG, TEXT, file_of, items, shape

VERSIONS: Final = ("v1", "v1beta1", "v1alpha1")

_PREFIXED: Final = shape("PrefixedClaimOrExpression", claim=TEXT, prefix=TEXT, expression=TEXT)
_FILE: Final = file_of(
    "AuthenticationConfiguration",
    jwt=items(
        shape(
            "JWTAuthenticator",
            issuer=shape(
                "Issuer",
                url=TEXT,
                discoveryURL=TEXT,
                certificateAuthority=TEXT,
                audiences=items(TEXT),
                audienceMatchPolicy=TEXT,
                egressSelectorType=TEXT,
            ),
            claimValidationRules=items(
                shape("ClaimValidationRule", claim=TEXT, requiredValue=TEXT, expression=TEXT, message=TEXT)
            ),
            claimMappings=shape(
                "ClaimMappings",
                username=_PREFIXED,
                groups=_PREFIXED,
                uid=shape("ClaimOrExpression", claim=TEXT, expression=TEXT),
                extra=items(shape("ExtraMapping", key=TEXT, valueExpression=TEXT)),
            ),
            userValidationRules=items(shape("UserValidationRule", expression=TEXT, message=TEXT)),
        )
    ),
    anonymous=shape("AnonymousAuthConfig", enabled=FLAG, conditions=items(shape("AnonymousAuthCondition", path=TEXT))),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimMapping:
    """Where a part of the user comes from: a claim with something before it, or an expression. ``prefix`` None: not
    given, which is not the same as empty."""

    claim: str = ""
    prefix: str | None = None
    expression: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRule:
    """A claim's required value, or an expression that must be true, and what to say if it is not."""

    claim: str = ""
    required_value: str = ""
    expression: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRule:
    """What must be true of the user."""

    expression: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraMapping:
    """A key of the user's extra, and the expression of its values."""

    key: str
    expression: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """``discovery_url``: where the provider describes itself, "" for its usual place; ``certificate_authority``: PEM,
    "" for whom the system believes."""

    url: str
    discovery_url: str = ""
    certificate_authority: str = ""
    audiences: tuple[str, ...] = ()
    audience_match_policy: str = ""
    egress_selector_type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JWTAuthenticator:
    """One issuer whose tokens are believed, and which users they make."""

    issuer: Issuer
    claim_rules: tuple[ClaimRule, ...] = ()
    username: ClaimMapping = ClaimMapping()
    groups: ClaimMapping = ClaimMapping()
    uid: ClaimMapping = ClaimMapping()
    extra: tuple[ExtraMapping, ...] = ()
    user_rules: tuple[UserRule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AnonymousConfig:
    """``paths``: where anonymous requests are let in; none: everywhere."""

    enabled: bool
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticationConfiguration:
    """``anonymous`` None: as --anonymous-auth says."""

    jwt: tuple[JWTAuthenticator, ...] = ()
    anonymous: AnonymousConfig | None = None


def parse(data: bytes) -> AuthenticationConfiguration:
    """What a file says. ConfigFileError: it is no such file."""
    found = files.decode(data, _FILE, VERSIONS)
    anonymous = found.get("anonymous")
    return AuthenticationConfiguration(
        jwt=tuple(map(_authenticator, found.get("jwt") or ())),
        anonymous=_anonymous(anonymous) if anonymous is not None else None,
    )


def _anonymous(found: Mapping[str, Any]) -> AnonymousConfig:
    conditions: Sequence[Mapping[str, str]] = found.get("conditions") or ()
    return AnonymousConfig(
        enabled=found.get("enabled", False), paths=tuple(each.get("path", "") for each in conditions)
    )


def _authenticator(found: Mapping[str, Any]) -> JWTAuthenticator:
    mappings = found.get("claimMappings") or {}
    issuer = found.get("issuer") or {}
    return JWTAuthenticator(
        issuer=Issuer(
            url=issuer.get("url", ""),
            discovery_url=issuer.get("discoveryURL", ""),
            certificate_authority=issuer.get("certificateAuthority", ""),
            audiences=tuple(issuer.get("audiences") or ()),
            audience_match_policy=issuer.get("audienceMatchPolicy", ""),
            egress_selector_type=issuer.get("egressSelectorType", ""),
        ),
        claim_rules=tuple(
            ClaimRule(
                claim=rule.get("claim", ""),
                required_value=rule.get("requiredValue", ""),
                expression=rule.get("expression", ""),
                message=rule.get("message", ""),
            )
            for rule in found.get("claimValidationRules") or ()
        ),
        username=ClaimMapping(**mappings.get("username") or {}),
        groups=ClaimMapping(**mappings.get("groups") or {}),
        uid=ClaimMapping(**mappings.get("uid") or {}),
        extra=tuple(
            ExtraMapping(key=each.get("key", ""), expression=each.get("valueExpression", ""))
            for each in mappings.get("extra") or ()
        ),
        user_rules=tuple(
            UserRule(expression=rule.get("expression", ""), message=rule.get("message", ""))
            for rule in found.get("userValidationRules") or ()
        ),
    )


def of_flags(
    *,
    issuer_url: str,
    client_id: str,
    username_claim: str = "sub",
    username_prefix: str = "",
    groups_claim: str = "",
    groups_prefix: str = "",
    required_claims: Mapping[str, str] | None = None,
    certificate_authority: str = "",
) -> AuthenticationConfiguration:
    """What the --oidc-* flags of these names stand for: one issuer. User names get the issuer's URL and # before them,
    but for e-mail addresses, unless a prefix is given; ``-`` is the empty prefix."""
    prefix = username_prefix
    if not prefix and username_claim != "email":
        prefix = f"{issuer_url}#"
    return AuthenticationConfiguration(
        jwt=(
            JWTAuthenticator(
                issuer=Issuer(url=issuer_url, audiences=(client_id,), certificate_authority=certificate_authority),
                claim_rules=tuple(
                    ClaimRule(claim=claim, required_value=value) for claim, value in (required_claims or {}).items()
                ),
                username=ClaimMapping(claim=username_claim, prefix="" if prefix == "-" else prefix),
                groups=ClaimMapping(claim=groups_claim, prefix=groups_prefix) if groups_claim else ClaimMapping(),
            ),
        )
    )
