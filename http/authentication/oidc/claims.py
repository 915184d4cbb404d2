"""From a genuine token's claims to the user they make: k8s.io/apiserver's plugin/pkg/authenticator/token/oidc.

Everything is judged in kube-apiserver's order: username, groups, uid, extra, required claims, rules about claims, rules
about the user. The first that fails decides; what it says is for the log.
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
from kubechronicle.http.authentication.oidc.expressions import EvaluationFailed, Expression
from kubechronicle.http.authentication.user import User

CREDENTIAL_ID: Final = "authentication.kubernetes.io/credential-id"
STRINGS_WANTED: Final = "expression must return a string or a list of strings"


class Refused(Exception):
    """The token does not make a user. The text says why, in kube-apiserver's words, and never holds the token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapper:
    """An issuer's configuration with its expressions compiled; None where there is none. ``extra``: by key;
    ``required``: claims and the values they must have."""

    config: JWTAuthenticator
    username: Expression | None = None
    groups: Expression | None = None
    uid: Expression | None = None
    extra: tuple[tuple[str, Expression], ...] = ()
    required: tuple[tuple[str, str], ...] = ()
    claim_rules: tuple[Expression, ...] = ()
    user_rules: tuple[Expression, ...] = ()

    @property
    def has_expressions(self) -> bool:
        """Whether any sees the claims."""
        return bool(self.username or self.groups or self.uid or self.extra or self.claim_rules)

    def user_of(self, claims: Mapping[str, Any]) -> User:
        """The user. Refused."""
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
            what = "oidc: error evaluating username claim expression"
            found = _evaluated(self.username, variables, what)
            if not isinstance(found, str):
                raise Refused(f"{what}: username claim expression must return a string")
            if not found:
                raise Refused("oidc: empty username via CEL expression is not allowed")
            return found
        mapping = self.config.claim_mappings.username
        name = _text(claims, mapping.claim, f"oidc: parse username claims {go_quote(mapping.claim)}")
        if mapping.claim == "email" and "email_verified" in claims:
            verified = claims["email_verified"]
            if verified is not None and not isinstance(verified, bool):
                why = f"json: cannot unmarshal {json_word(verified)} into Go value of type bool"
                raise Refused(f"oidc: parse 'email_verified' claim: {why}")
            if not verified:
                raise Refused("oidc: email not verified")
        return f"{mapping.prefix or ''}{name}"

    def _groups(self, claims: Mapping[str, Any], variables: Mapping[str, Any]) -> list[str]:
        mapping = self.config.claim_mappings.groups
        if mapping.claim and mapping.claim in claims:
            return [f"{mapping.prefix or ''}{group}" for group in _texts(claims, mapping.claim)]
        if self.groups is None:
            return []
        what = "oidc: error evaluating group claim expression"
        found = _strings(_evaluated(self.groups, variables, what))
        if found is None:
            raise Refused(f"{what}: {STRINGS_WANTED}")
        return found

    def _uid(self, claims: Mapping[str, Any], variables: Mapping[str, Any]) -> str:
        if claim := self.config.claim_mappings.uid.claim:
            return _text(claims, claim, f"oidc: parse uid claim {go_quote(claim)}")
        if self.uid is None:
            return ""
        what = "oidc: error evaluating uid claim expression"
        found = _evaluated(self.uid, variables, what)
        if not isinstance(found, str):
            raise Refused(f"{what}: uid claim expression must return a string")
        return found

    def _extra(self, claims: Mapping[str, Any], variables: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        token_id = claims.get("jti")
        if isinstance(token_id, str) and token_id:
            found[CREDENTIAL_ID] = (f"JTI={token_id}",)
        values = [(key, each, _evaluated(each, variables, "")) for key, each in self.extra]
        for key, expression, value in values:
            texts = _strings(value)
            if texts is None:
                raise Refused(f"oidc: error evaluating extra claim expression: {expression.text}: {STRINGS_WANTED}")
            if texts:
                found[key] = tuple(texts)
        return found


def _evaluated(expression: Expression, variables: Mapping[str, Any], what: str) -> Any:
    try:
        return expression.evaluate(variables)
    except EvaluationFailed as failed:
        raise Refused(f"{what}: {failed}" if what else str(failed)) from None


def _check_rules(rules: Sequence[Expression], variables: Mapping[str, Any], what: str) -> None:
    values = [_evaluated(rule, variables, what) for rule in rules]
    for rule, value in zip(rules, values, strict=True):
        if not isinstance(value, bool):
            raise Refused(f"{what}: validation expression must return a boolean")
        if not value:
            raise Refused(f"{what}: validation expression '{rule.text}' failed: {rule.message}")


def _require(claims: Mapping[str, Any], claim: str, wanted: str) -> None:
    if claim not in claims:
        raise Refused(f"oidc: required claim {claim} not present in ID token")
    value = _text(claims, claim, f"oidc: parse claim {claim}")
    if value != wanted:
        raise Refused(f"oidc: required claim {claim} value does not match. Got = {value}, want = {wanted}")


def _text(claims: Mapping[str, Any], claim: str, what: str) -> str:
    """A claim that is a text; null counts as the empty one, as everywhere in Go's JSON."""
    if claim not in claims:
        raise Refused(f"{what}: claim not present")
    value = claims[claim]
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Refused(f"{what}: json: cannot unmarshal {json_word(value)} into Go value of type string")
    return value


def _texts(claims: Mapping[str, Any], claim: str) -> list[str]:
    """A claim that is a list of texts, or a single one."""
    value = claims[claim]
    if value is None:
        return []
    if isinstance(value, list) and all(each is None or isinstance(each, str) for each in value):
        return [each or "" for each in value]
    return [_text(claims, claim, f"oidc: parse groups claim {go_quote(claim)}")]


def _strings(value: Any) -> list[str] | None:
    """What an expression gives for groups or extra: empty texts are left out, null and "" are none at all. None: it is
    neither a text nor a list of texts."""
    if value is None:
        return []
    if isinstance(value, str):
        return [value] if value else []
    if type_name(value) != "list" or not all(isinstance(each, str) for each in value):
        return None
    return [each for each in value if each]
