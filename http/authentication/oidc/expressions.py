"""CEL expressions of an AuthenticationConfiguration (k8s.io/apiserver/pkg/authentication/cel), and their variables.

    claims   a map of the token's claims; numbers are doubles, as in JSON
    user     the resulting user: kubernetes.UserInfo with username, uid, groups and extra

Names that CEL can't spell are escaped as for CRDs: ``claims.kubernetes__dot__io`` is ``claims["kubernetes.io"]``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kubechronicle.actors.evaluation import bounded
from kubechronicle.api import cel
from kubechronicle.api.cel.types import ANY, BOOL, STRING, list_of, map_of, object_type
from kubechronicle.http.authentication.user import User

# -- names -------------------------------------------------------------------------------------------------------------
#
# JSON objects with keys that CEL may spell as escaped identifiers (k8s.io/apiserver/pkg/cel: Escape, Unescape).
#
# claims.kubernetes__dot__io.namespace  ==  claims["kubernetes.io"]["namespace"]

_ESCAPE: Final = re.compile("__([^_]+)__")
_MEANING: Final = {"underscores": "__", "dot": ".", "dash": "-", "slash": "/"}
_RESERVED: Final = frozenset(
    ["as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop",
     "namespace", "null", "package", "return", "true", "var", "void", "while"]
)  # fmt: skip


class ClaimNames(dict[str, Any]):
    """An object with look-ups by either spelling. Iteration yields the unescaped keys."""

    __slots__ = ()

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> ClaimNames:
        """Convert an object and all objects within. Numbers become doubles, as in Go's JSON."""
        return cls((key, _converted(item)) for key, item in value.items())

    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(unescaped(key))

    def get(self, key: str, default: Any = None) -> Any:
        return super().get(unescaped(key), default)

    def __contains__(self, key: object) -> bool:
        return super().__contains__(unescaped(key))


def _converted(value: Any) -> Any:
    if value.__class__ is int:
        return float(value)
    if value.__class__ is dict:
        return ClaimNames.of(value)
    if value.__class__ is list:
        return [_converted(item) for item in value]
    return value


def unescaped(key: Any) -> Any:
    """Return the unescaped key; the key itself if it is not escaped."""
    if key.__class__ is not str or "__" not in key:
        return key
    whole = _ESCAPE.fullmatch(key)
    if whole is not None and whole[1] in _RESERVED:
        return whole[1]
    if any(word not in _MEANING for word in _ESCAPE.findall(key)):
        return key
    return _ESCAPE.sub(lambda match: _MEANING[match[1]], key)


# -- expressions -------------------------------------------------------------------------------------------------------

BUDGET: Final = 100_000
"""Cost limit of one evaluation. Kubernetes' PerCallLimit is ten times as much and takes 0.1 s there; here an evaluation
blocks all other tasks."""
SECONDS: Final = 0.02
"""CPU of one evaluation. Beyond, it fails as one that costs too much."""


class ExpressionError(ValueError):
    """The expression can't be used. The compiler's message has several lines."""


class EvaluationFailed(Exception):
    """The expression has no value for this token."""


@dataclass(frozen=True, slots=True)
class ClaimExpression:
    """A compiled expression. ``message``: the error of a rule that is false."""

    text: str
    program: cel.Program
    message: str = ""

    def reads(self, path: str) -> bool:
        """Return whether it selects this path, such as ``claims.email``. Access by index does not count."""
        return any(each == path or each.startswith(f"{path}.") for each in self.program.reads)

    def evaluate(self, variables: Mapping[str, Any]) -> Any:
        """Return its value. Raises EvaluationFailed, also if it costs too much."""
        try:
            with bounded(SECONDS):
                return self.program.evaluate(variables, budget=BUDGET)
        except cel.EvaluationError as error:
            raise EvaluationFailed(f"expression '{self.text}' resulted in error: {error}") from None


def of_claims(text: str, message: str = "", *, boolean: bool = False) -> ClaimExpression:
    """Compile an expression over ``claims``; ``boolean``: of the static type bool. Raises ExpressionError."""
    return _compiled(_claims_environment(), text, message, boolean=boolean)


def of_user(text: str, message: str = "") -> ClaimExpression:
    """Compile an expression over ``user`` of the type bool. Raises ExpressionError."""
    return _compiled(_user_environment(), text, message, boolean=True)


def claims_variables(claims: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables of expressions over claims."""
    return {"claims": ClaimNames.of(claims)}


def user_variables(user: User) -> dict[str, Any]:
    """Return the variables of expressions over the user: every field, also empty ones."""
    fields = {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra.items()},
    }
    return {"user": ClaimNames.of(fields)}


def _compiled(environment: cel.Environment, text: str, message: str, *, boolean: bool) -> ClaimExpression:
    try:
        program = environment.compile(text)
    except cel.CompileError as error:
        raise ExpressionError(f"compilation failed: {error}") from None
    if boolean and program.result_type != BOOL:
        raise ExpressionError("must evaluate to bool")
    return ClaimExpression(text, program, message)


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
