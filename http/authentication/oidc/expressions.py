"""The CEL expressions of an AuthenticationConfiguration (k8s.io/apiserver/pkg/authentication/cel): what they see, what
they may give, and what they need.

    claims   a map of the token's claims; numbers are doubles, as JSON has them
    user     the user they make: kubernetes.UserInfo with username, uid, groups and extra

A name CEL has no spelling for is written as for CRDs: ``claims.kubernetes__dot__io`` is ``claims["kubernetes.io"]``.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kubechronicle.api import cel
from kubechronicle.api.cel.types import ANY, BOOL, STRING, list_of, map_of, object_type
from kubechronicle.http.authentication.oidc.names import Names
from kubechronicle.http.authentication.user import User

BUDGET: Final = 100_000
"""What one evaluation may cost: some 50 ms. Kubernetes' PerCallLimit, ten times as much, stands for 0.1 s there; here
nothing else is done meanwhile."""


class ExpressionError(ValueError):
    """The expression can't be used. Its text has several lines when it is the compiler's."""


class EvaluationFailed(Exception):
    """The expression has no value for this token."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression; ``message``: what to say where it must be true and is not."""

    text: str
    program: cel.Program
    message: str = ""

    def reads(self, path: str) -> bool:
        """Whether it looks at this, such as ``claims.email``, by selection; a look by index does not count."""
        return any(each == path or each.startswith(f"{path}.") for each in self.program.reads)

    def evaluate(self, variables: Mapping[str, Any]) -> Any:
        """EvaluationFailed: it has no value, or costs too much."""
        try:
            return self.program.evaluate(variables, budget=BUDGET)
        except cel.EvaluationError as error:
            raise EvaluationFailed(f"expression '{self.text}' resulted in error: {error}") from None


def of_claims(text: str, message: str = "", *, boolean: bool = False) -> Expression:
    """An expression that sees ``claims``. ``boolean``: it must be known to give a bool. ExpressionError."""
    return _compiled(_claims_environment(), text, message, boolean=boolean)


def of_user(text: str, message: str = "") -> Expression:
    """An expression that sees ``user`` and gives a bool. ExpressionError."""
    return _compiled(_user_environment(), text, message, boolean=True)


def claims_variables(claims: Mapping[str, Any]) -> dict[str, Any]:
    """What expressions of claims see."""
    return {"claims": Names.of(claims)}


def user_variables(user: User) -> dict[str, Any]:
    """What expressions of the user see: every field, empty if need be."""
    found = {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra.items()},
    }
    return {"user": Names.of(found)}


def _compiled(environment: cel.Environment, text: str, message: str, *, boolean: bool) -> Expression:
    try:
        program = environment.compile(text)
    except cel.CompileError as error:
        raise ExpressionError(f"compilation failed: {error}") from None
    if boolean and program.result_type != BOOL:
        raise ExpressionError("must evaluate to bool")
    return Expression(text, program, message)


@functools.cache
def _claims_environment() -> cel.Environment:
    return cel.base_environment().extend(variables={"claims": map_of(STRING, ANY)})


@functools.cache
def _user_environment() -> cel.Environment:
    strings = list_of(STRING)
    info = object_type(
        "kubernetes.UserInfo",
        {"username": STRING, "uid": STRING, "groups": strings, "extra": map_of(STRING, strings)},
    )
    return cel.base_environment().extend(variables={"user": info})
