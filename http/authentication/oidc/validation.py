"""Validation and compilation of an AuthenticationConfiguration.

The rules, field paths and messages are those of k8s.io/apiserver/pkg/apis/apiserver/validation.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from kubechronicle.api.builtin.networking.ingresses import domain_prefixed_path
from kubechronicle.api.cel.library.urls import UrlError, parse_reference
from kubechronicle.api.errors.field_errors import (
    Cause,
    Path,
    aggregate,
    duplicate,
    forbidden,
    invalid_value,
    required,
    too_many,
)
from kubechronicle.http.authentication.oidc import expressions
from kubechronicle.http.authentication.oidc.claims import Mapper
from kubechronicle.http.authentication.oidc.configuration import (
    AuthenticationConfiguration,
    ClaimValidationRule,
    ExtraMapping,
    Issuer,
    JWTAuthenticator,
    PrefixedClaimOrExpression,
    UserValidationRule,
)
from kubechronicle.http.authentication.oidc.expressions import ClaimExpression, ExpressionError

MAX_ISSUERS: Final = 64
MATCH_ANY: Final = "MatchAny"
EGRESS_GATE: Final = "StructuredAuthenticationConfigurationEgressSelector"
KEYS_GATE: Final = "StructuredAuthenticationConfigurationJWKSMetrics"
"""The gate of metrics of issuers' keys."""
EGRESS_TYPES: Final = ("controlplane", "cluster")
_BOTH: Final = "claim and expression can't both be set"
_NEITHER: Final = "claim or expression is required"
_EMAIL: Final = (
    "claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression "
    "or claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression"
)


class Invalid(ValueError):
    """The configuration is invalid. The text lists all errors."""


def compile_configuration(
    config: AuthenticationConfiguration,
    *,
    disallowed: Collection[str] = (),
    anonymous: Any = ...,
    selects_egress: bool = True,
) -> tuple[Mapper, ...]:
    """Return the compiled issuers, in order. Raises Invalid.

    ``disallowed``: the issuers of this server
    ``anonymous``: the configuration's ``anonymous`` at the start, which must not change
    ``selects_egress``: issuers may have an egress selection: the gate EGRESS_GATE
    """
    causes: list[Cause] = []
    mappers: list[Mapper] = []
    if len(config.jwt) > MAX_ISSUERS:
        causes.append(too_many("jwt", len(config.jwt), MAX_ISSUERS))
    else:
        mappers = _issuers(config.jwt, frozenset(disallowed), causes, selects_egress=selects_egress)
        rule = config.anonymous
        if rule is not None and not rule.enabled and rule.paths:
            shown = [{"Path": path} for path in rule.paths]
            detail = "enabled should be set to true when conditions are defined"
            causes.append(invalid_value("anonymous.conditions", shown, detail))
    if anonymous is not ... and config.anonymous != anonymous:
        causes.append(forbidden("anonymous", "changed from initial configuration file"))
    if causes:
        raise Invalid(aggregate(causes))
    return tuple(mappers)


def _issuers(
    issuers: Sequence[JWTAuthenticator], disallowed: frozenset[str], causes: list[Cause], *, selects_egress: bool
) -> list[Mapper]:
    mappers: list[Mapper] = []
    urls: set[str] = set()
    discovery_urls: set[str] = set()
    for position, config in enumerate(issuers):
        path = Path("jwt").index(position)
        compiler = _IssuerCompiler(config, disallowed, selects_egress=selects_egress)
        mappers.append(compiler.compile(path))
        causes += compiler.causes
        url, discovery_url = config.issuer.url, config.issuer.discovery_url
        if url in urls:
            causes.append(duplicate(path.child("issuer", "url"), url))
        urls.add(url)
        if discovery_url:
            if discovery_url in discovery_urls:
                causes.append(duplicate(path.child("issuer", "discoveryURL"), discovery_url))
            discovery_urls.add(discovery_url)
    return mappers


def issuer_causes(issuer: Issuer, disallowed: frozenset[str], path: Path, *, selects_egress: bool) -> list[Cause]:
    """Return the errors of an issuer."""
    causes: list[Cause] = []
    if not issuer.url:
        causes.append(required(path.child("url")))
    else:
        causes += _url(issuer.url, disallowed, path.child("url"))
    if issuer.discovery_url:
        field = path.child("discoveryURL")
        if issuer.url and issuer.url.rstrip("/") == issuer.discovery_url.rstrip("/"):
            causes.append(invalid_value(field, issuer.discovery_url, "discoveryURL must be different from URL"))
        causes += _url(issuer.discovery_url, frozenset(), field)
    causes += _audiences(issuer, path)
    if issuer.certificate_authority and (problem := _authorities_problem(issuer.certificate_authority)):
        causes.append(invalid_value(path.child("certificateAuthority"), "<omitted>", problem))
    if kind := issuer.egress_selector_type:
        field = path.child("egressSelectorType")
        if not selects_egress:
            detail = f"egress selector is not supported when {EGRESS_GATE} feature gate is disabled"
            causes.append(invalid_value(field, kind, detail))
        if kind not in EGRESS_TYPES:
            causes.append(invalid_value(field, kind, "egress selector must be either controlplane or cluster"))
    return causes


def _url(text: str, disallowed: frozenset[str], field: Path) -> list[Cause]:
    causes: list[Cause] = []
    if text in disallowed:
        detail = f"URL must not overlap with disallowed issuers: [{' '.join(sorted(disallowed))}]"
        causes.append(invalid_value(field, text, detail))
    try:
        url = parse_reference(text)
    except UrlError as error:
        return [*causes, invalid_value(field, text, str(error))]
    problems = (
        (url.scheme != "https", "URL scheme must be https"),
        (url.user is not None, "URL must not contain a username or password"),
        (bool(url.query), "URL must not contain a query"),
        (bool(url.fragment), "URL must not contain a fragment"),
    )
    return causes + [invalid_value(field, text, detail) for wrong, detail in problems if wrong]


def _audiences(issuer: Issuer, path: Path) -> list[Cause]:
    field, policy_field = path.child("audiences"), path.child("audienceMatchPolicy")
    audiences, policy = issuer.audiences, issuer.audience_match_policy
    if not audiences:
        return [required(field, f"at least one {field} is required")]
    causes: list[Cause] = []
    for position, audience in enumerate(audiences):
        if not audience:
            causes.append(required(field.index(position)))
        if audience in audiences[:position]:
            causes.append(duplicate(field.index(position), audience))
    if len(audiences) > 1 and policy != MATCH_ANY:
        detail = "audienceMatchPolicy must be MatchAny for multiple audiences"
        causes.append(invalid_value(policy_field, policy, detail))
    if len(audiences) == 1 and policy not in ("", MATCH_ANY):
        detail = "audienceMatchPolicy must be empty or MatchAny for single audience"
        causes.append(invalid_value(policy_field, policy, detail))
    return causes


def _authorities_problem(pem: str) -> str:
    """Return the error of a PEM text without usable authorities, "" if it has some."""
    blocks = pem.encode().split(b"-----BEGIN CERTIFICATE-----")[1:]
    if not blocks:
        return "data does not contain any valid RSA or ECDSA certificates"
    for block in blocks:
        try:
            certificate = x509.load_pem_x509_certificate(b"-----BEGIN CERTIFICATE-----" + block)
            key = certificate.public_key()
        except ValueError as error:
            return f"x509: malformed certificate: {error}"
        if not isinstance(key, rsa.RSAPublicKey | ec.EllipticCurvePublicKey):
            return "data does not contain any valid RSA or ECDSA certificates"
    return ""


@dataclass(slots=True)
class _Compiled:
    """The expressions of an issuer that are compiled so far."""

    username: ClaimExpression | None = None
    groups: ClaimExpression | None = None
    uid: ClaimExpression | None = None
    extra: tuple[tuple[str, ClaimExpression], ...] = ()
    claim_rules: tuple[ClaimExpression, ...] = ()
    user_rules: tuple[ClaimExpression, ...] = ()

    def verifies_email(self) -> bool:
        """Return whether any expression reads claims.email_verified."""
        expressions_of_claims = [*self.claim_rules, *(each for _, each in self.extra)]
        if self.username is not None:
            expressions_of_claims.append(self.username)
        return any(each.reads("claims.email_verified") for each in expressions_of_claims)


class _IssuerCompiler:
    """Validates one issuer, and compiles its valid parts."""

    def __init__(self, config: JWTAuthenticator, disallowed: frozenset[str], *, selects_egress: bool) -> None:
        self.causes: list[Cause] = []
        self._config = config
        self._disallowed = disallowed
        self._selects_egress = selects_egress
        self._made = _Compiled()

    def compile(self, path: Path) -> Mapper:
        """Return the compiled issuer. It is valid only if ``causes`` is empty afterwards."""
        config, made = self._config, self._made
        place = path.child("issuer")
        self.causes += issuer_causes(config.issuer, self._disallowed, place, selects_egress=self._selects_egress)
        made.claim_rules = self._claim_rules(config.claim_validation_rules, path.child("claimValidationRules"))
        self._mappings(path.child("claimMappings"))
        made.user_rules = self._user_rules(config.user_validation_rules, path.child("userValidationRules"))
        return Mapper(
            config=config,
            username=made.username,
            groups=made.groups,
            uid=made.uid,
            extra=made.extra,
            required=tuple((rule.claim, rule.required_value) for rule in config.claim_validation_rules if rule.claim),
            claim_rules=made.claim_rules,
            user_rules=made.user_rules,
        )

    def _claim_rules(self, rules: Sequence[ClaimValidationRule], path: Path) -> tuple[ClaimExpression, ...]:
        claims: set[str] = set()
        texts: set[str] = set()
        compiled: list[ClaimExpression] = []
        for position, rule in enumerate(rules):
            field = path.index(position)
            if rule.claim and rule.expression:
                self.causes.append(invalid_value(field, rule.claim, _BOTH))
            elif rule.claim:
                if rule.message:
                    detail = "may not be specified when claim is set"
                    self.causes.append(invalid_value(field.child("message"), rule.message, detail))
                if rule.claim in claims:
                    self.causes.append(duplicate(field.child("claim"), rule.claim))
                claims.add(rule.claim)
            elif rule.expression:
                if rule.required_value:
                    detail = "may not be specified when expression is set"
                    self.causes.append(invalid_value(field.child("requiredValue"), rule.required_value, detail))
                if rule.expression in texts:
                    self.causes.append(duplicate(field.child("expression"), rule.expression))
                    continue
                texts.add(rule.expression)
                compiled += self._compile(rule.expression, field.child("expression"), rule.message, boolean=True)
            else:
                self.causes.append(required(field, _NEITHER))
        return tuple(compiled)

    def _mappings(self, path: Path) -> None:
        mappings, made = self._config.claim_mappings, self._made
        made.username = self._prefixed(mappings.username, path.child("username"), needed=True)
        made.groups = self._prefixed(mappings.groups, path.child("groups"), needed=False)
        uid, field = mappings.uid, path.child("uid")
        if uid.claim and uid.expression:
            self.causes.append(invalid_value(field, "", _BOTH))
        elif uid.expression:
            made.uid = next(iter(self._compile(uid.expression, field.child("expression"))), None)
        made.extra = self._extra(mappings.extra, path.child("extra"))
        username = made.username
        if username is not None and username.reads("claims.email") and not made.verifies_email():
            self.causes.append(invalid_value(path.child("username", "expression"), username.text, _EMAIL))

    def _prefixed(self, mapping: PrefixedClaimOrExpression, path: Path, *, needed: bool) -> ClaimExpression | None:
        before = len(self.causes)
        compiled: list[ClaimExpression] = []
        if mapping.claim and mapping.expression:
            self.causes.append(invalid_value(path, "", _BOTH))
        elif mapping.expression:
            if mapping.prefix is not None:
                detail = "may not be specified when expression is set"
                self.causes.append(invalid_value(path.child("prefix"), mapping.prefix, detail))
            compiled = self._compile(mapping.expression, path.child("expression"))
        elif mapping.claim:
            if mapping.prefix is None:
                detail = "prefix is required when claim is set. It can be set to an empty string to disable prefixing"
                self.causes.append(required(path.child("prefix"), detail))
        elif needed:
            self.causes.append(required(path, _NEITHER))
        return compiled[0] if compiled and len(self.causes) == before else None

    def _extra(self, mappings: Sequence[ExtraMapping], path: Path) -> tuple[tuple[str, ClaimExpression], ...]:
        keys: set[str] = set()
        compiled: list[tuple[str, ClaimExpression]] = []
        for position, mapping in enumerate(mappings):
            field, key = path.index(position), mapping.key
            self.causes += _extra_key(key, str(field.child("key")))
            if key in keys:
                self.causes.append(duplicate(field.child("key"), key))
                continue
            keys.add(key)
            if not mapping.value_expression:
                self.causes.append(required(field.child("valueExpression")))
                continue
            compiled += [
                (key, each) for each in self._compile(mapping.value_expression, field.child("valueExpression"))
            ]
        return tuple(compiled)

    def _user_rules(self, rules: Sequence[UserValidationRule], path: Path) -> tuple[ClaimExpression, ...]:
        texts: set[str] = set()
        compiled: list[ClaimExpression] = []
        for position, rule in enumerate(rules):
            field = path.index(position).child("expression")
            if not rule.expression:
                self.causes.append(required(field))
            elif rule.expression in texts:
                self.causes.append(duplicate(field, rule.expression))
            else:
                texts.add(rule.expression)
                try:
                    compiled.append(expressions.of_user(rule.expression, rule.message))
                except ExpressionError as error:
                    self.causes.append(invalid_value(field, rule.expression, str(error)))
        return tuple(compiled)

    def _compile(self, text: str, field: Path, message: str = "", *, boolean: bool = False) -> list[ClaimExpression]:
        """Return the compiled expression; nothing, and add a cause, if it can't be compiled."""
        try:
            return [expressions.of_claims(text, message, boolean=boolean)]
        except ExpressionError as error:
            self.causes.append(invalid_value(field, text, str(error)))
            return []


def _extra_key(key: str, field: str) -> list[Cause]:
    causes = domain_prefixed_path(key, field)
    if key != key.lower():
        causes.append(invalid_value(field, key, "must be lowercase"))
    domain, slash, _ = key.partition("/")
    if slash and any(domain == own or domain.endswith(f".{own}") for own in ("kubernetes.io", "k8s.io")):
        detail = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use"
        causes.append(invalid_value(field, key, detail))
    return causes
