"""Mapping of a verified token's claims to its user: k8s.io/apiserver's plugin/pkg/authenticator/token/oidc.

Parts are evaluated in kube-apiserver's order: username, groups, uid, extra, required claims, claim validation rules,
user validation rules. The first failure rejects the token, and its text goes to the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kubechronicle.api.cel.values import type_name
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.schema.values import json_word
from kubechronicle.http.authentication.oidc import expressions
from kubechronicle.http.authentication.oidc.configuration import JWTAuthenticator
from kubechronicle.http.authentication.oidc.expressions import ClaimExpression, EvaluationFailed
from kubechronicle.http.authentication.user import User

CREDENTIAL_ID: Final = "authentication.kubernetes.io/credential-id"
STRINGS_WANTED: Final = "expression must return a string or a list of strings"


class TokenRejected(Exception):
    """The token is rejected. The text is kube-apiserver's and never holds the token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapper:
    """An issuer's configuration with its compiled expressions, None where there is none.

    ``extra``: (key, expression)
    ``required``: (claim, value)
    """

    config: JWTAuthenticator
    username: ClaimExpression | None = None
    groups: ClaimExpression | None = None
    uid: ClaimExpression | None = None
    extra: tuple[tuple[str, ClaimExpression], ...] = ()
    required: tuple[tuple[str, str], ...] = ()
    claim_rules: tuple[ClaimExpression, ...] = ()
    user_rules: tuple[ClaimExpression, ...] = ()

    @property
    def has_expressions(self) -> bool:
        """Return whether any expression reads the claims."""
        return bool(self.username or self.groups or self.uid or self.extra or self.claim_rules)

    def user_of(self, claims: Mapping[str, Any]) -> User:
        """Return the user of the claims. Raises TokenRejected."""
        variables = expressions.claims_variables(claims) if self.has_expressions else {}
        user = User(
            name=self._username(claims, variables),
            groups=tuple(self._groups(claims, variables)),
            uid=self._uid(claims, variables),
            extra=self._extra(claims, variables),
        )
        for claim, wanted in self.required:
            _require(claims, claim, wanted)
        _check_rules(self.claim_rules, variables, "oidc: error evaluating claim validation expression")
        if self.user_rules:
            seen = expressions.user_variables(user)
            _check_rules(self.user_rules, seen, "oidc: error evaluating user info validation rule")
        return user

    def _username(self, claims: Mapping[str, Any], variables: Mapping[str, Any]) -> str:
        if self.username is not None:
            error = "oidc: error evaluating username claim expression"
            value = _evaluated(self.username, variables, error)
            if not isinstance(value, str):
                raise TokenRejected(f"{error}: username claim expression must return a string")
            if not value:
                raise TokenRejected("oidc: empty username via CEL expression is not allowed")
            return value
        mapping = self.config.claim_mappings.username
        name = _text(claims, mapping.claim, f"oidc: parse username claims {go_quote(mapping.claim)}")
        if mapping.claim == "email" and "email_verified" in claims:
            verified = claims["email_verified"]
            if verified is not None and not isinstance(verified, bool):
                why = f"json: cannot unmarshal {json_word(verified)} into Go value of type bool"
                raise TokenRejected(f"oidc: parse 'email_verified' claim: {why}")
            if not verified:
                raise TokenRejected("oidc: email not verified")
        return f"{mapping.prefix or ''}{name}"

    def _groups(self, claims: Mapping[str, Any], variables: Mapping[str, Any]) -> list[str]:
        mapping = self.config.claim_mappings.groups
        if mapping.claim and mapping.claim in claims:
            return [f"{mapping.prefix or ''}{group}" for group in _texts(claims, mapping.claim)]
        if self.groups is None:
            return []
        error = "oidc: error evaluating group claim expression"
        groups = _strings(_evaluated(self.groups, variables, error))
        if groups is None:
            raise TokenRejected(f"{error}: {STRINGS_WANTED}")
        return groups

    def _uid(self, claims: Mapping[str, Any], variables: Mapping[str, Any]) -> str:
        if claim := self.config.claim_mappings.uid.claim:
            return _text(claims, claim, f"oidc: parse uid claim {go_quote(claim)}")
        if self.uid is None:
            return ""
        error = "oidc: error evaluating uid claim expression"
        value = _evaluated(self.uid, variables, error)
        if not isinstance(value, str):
            raise TokenRejected(f"{error}: uid claim expression must return a string")
        return value

    def _extra(self, claims: Mapping[str, Any], variables: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
        extra: dict[str, tuple[str, ...]] = {}
        token_id = claims.get("jti")
        if isinstance(token_id, str) and token_id:
            extra[CREDENTIAL_ID] = (f"JTI={token_id}",)
        values = [(key, each, _evaluated(each, variables, "")) for key, each in self.extra]
        for key, expression, value in values:
            texts = _strings(value)
            if texts is None:
                raise TokenRejected(
                    f"oidc: error evaluating extra claim expression: {expression.text}: {STRINGS_WANTED}"
                )
            if texts:
                extra[key] = tuple(texts)
        return extra


def _evaluated(expression: ClaimExpression, variables: Mapping[str, Any], context: str) -> Any:
    try:
        return expression.evaluate(variables)
    except EvaluationFailed as failed:
        raise TokenRejected(f"{context}: {failed}" if context else str(failed)) from None


def _check_rules(rules: Sequence[ClaimExpression], variables: Mapping[str, Any], context: str) -> None:
    values = [_evaluated(rule, variables, context) for rule in rules]
    for rule, value in zip(rules, values, strict=True):
        if not isinstance(value, bool):
            raise TokenRejected(f"{context}: validation expression must return a boolean")
        if not value:
            raise TokenRejected(f"{context}: validation expression '{rule.text}' failed: {rule.message}")


def _require(claims: Mapping[str, Any], claim: str, wanted: str) -> None:
    if claim not in claims:
        raise TokenRejected(f"oidc: required claim {claim} not present in ID token")
    value = _text(claims, claim, f"oidc: parse claim {claim}")
    if value != wanted:
        raise TokenRejected(f"oidc: required claim {claim} value does not match. Got = {value}, want = {wanted}")


def _text(claims: Mapping[str, Any], claim: str, context: str) -> str:
    """Return a string claim; "" for null, as in Go's JSON."""
    if claim not in claims:
        raise TokenRejected(f"{context}: claim not present")
    value = claims[claim]
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TokenRejected(f"{context}: json: cannot unmarshal {json_word(value)} into Go value of type string")
    return value


def _texts(claims: Mapping[str, Any], claim: str) -> list[str]:
    """Return a claim that is a list of strings or one string."""
    value = claims[claim]
    if value is None:
        return []
    if isinstance(value, list) and all(each is None or isinstance(each, str) for each in value):
        return [each or "" for each in value]
    return [_text(claims, claim, f"oidc: parse groups claim {go_quote(claim)}")]


def _strings(value: Any) -> list[str] | None:
    """Return the strings of an expression's value for groups or extra, without empty ones.

    Returns None for a value that is neither null, a string nor a list of strings.
    """
    if value is None:
        return []
    if isinstance(value, str):
        return [value] if value else []
    if type_name(value) != "list" or not all(isinstance(each, str) for each in value):
        return None
    return [each for each in value if each]
