"""AuthenticationConfiguration (apiserver.config.k8s.io v1, v1beta1, v1alpha1) as records, named as in Kubernetes.

Lives here: the shape of the file, and the same records made of the --oidc-* flags. Not here: the allowed values
(validation.py). The three versions have the same fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from kubechronicle.api.configuration import files
from kubechronicle.api.configuration.structuring import FieldKey

VERSIONS: Final = ("v1", "v1beta1", "v1alpha1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """An identity provider.

    ``discovery_url``: its discovery document, "" for the usual place below ``url``
    ``certificate_authority``: PEM, "" for the authorities of the system
    """

    url: str = ""
    discovery_url: Annotated[str, FieldKey("discoveryURL")] = ""
    certificate_authority: str = ""
    audiences: tuple[str, ...] = ()
    audience_match_policy: str = ""
    egress_selector_type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimValidationRule:
    """A claim's required value, or an expression that must be true. ``message``: the error if it is not."""

    claim: str = ""
    required_value: str = ""
    expression: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixedClaimOrExpression:
    """The source of user or group names: a claim with a prefix, or an expression.

    ``prefix`` None: missing, which differs from empty.
    """

    claim: str = ""
    prefix: str | None = None
    expression: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimOrExpression:
    """The source of the user's UID: a claim or an expression."""

    claim: str = ""
    expression: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraMapping:
    """A key of the user's extra, and the expression of its values."""

    key: str = ""
    value_expression: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimMappings:
    """The sources of a user's attributes."""

    username: PrefixedClaimOrExpression = PrefixedClaimOrExpression()
    groups: PrefixedClaimOrExpression = PrefixedClaimOrExpression()
    uid: ClaimOrExpression = ClaimOrExpression()
    extra: tuple[ExtraMapping, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UserValidationRule:
    """An expression that must be true of the user."""

    expression: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JWTAuthenticator:
    """An issuer whose tokens are accepted, and the users they make."""

    issuer: Issuer = Issuer()
    claim_validation_rules: tuple[ClaimValidationRule, ...] = ()
    claim_mappings: ClaimMappings = ClaimMappings()
    user_validation_rules: tuple[UserValidationRule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AnonymousAuthCondition:
    """A path on which anonymous requests are allowed."""

    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnonymousAuthConfig:
    """Anonymous requests. No ``conditions``: they are allowed on every path."""

    enabled: bool = False
    conditions: tuple[AnonymousAuthCondition, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(condition.path for condition in self.conditions)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticationConfiguration:
    """The file. ``anonymous`` None: --anonymous-auth decides."""

    jwt: tuple[JWTAuthenticator, ...] = ()
    anonymous: AnonymousAuthConfig | None = None


def parse(data: bytes) -> AuthenticationConfiguration:
    """Return the content of a file. Raises ConfigFileError."""
    return files.decode(data, AuthenticationConfiguration, VERSIONS)


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
    """Return the configuration of the --oidc-* flags with these names: one issuer.

    Without a prefix, user names other than e-mail addresses are prefixed with the issuer's URL and #. ``-`` is the
    empty prefix.
    """
    prefix = username_prefix
    if not prefix and username_claim != "email":
        prefix = f"{issuer_url}#"
    groups = PrefixedClaimOrExpression(claim=groups_claim, prefix=groups_prefix)
    issuer = Issuer(url=issuer_url, audiences=(client_id,), certificate_authority=certificate_authority)
    rules = [ClaimValidationRule(claim=claim, required_value=value) for claim, value in (required_claims or {}).items()]
    mappings = ClaimMappings(
        username=PrefixedClaimOrExpression(claim=username_claim, prefix="" if prefix == "-" else prefix),
        groups=groups if groups_claim else PrefixedClaimOrExpression(),
    )
    authenticator = JWTAuthenticator(issuer=issuer, claim_validation_rules=tuple(rules), claim_mappings=mappings)
    return AuthenticationConfiguration(jwt=(authenticator,))
