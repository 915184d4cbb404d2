"""Expressions of admission: their environment, and the check of an expression before a policy or webhook stores it.

Source: k8s.io/apiserver/pkg/admission/plugin/cel (compile.go, composition.go), pkg/cel/mutation.

Lives here: variables, types, and the check at the time of writing. Not here: evaluation for a request.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from kubechronicle.api.cel import CompileError, Environment, base_environment
from kubechronicle.api.cel.errors import ExpressionReport, InstantiationError
from kubechronicle.api.cel.library import base_libraries
from kubechronicle.api.cel.library.authorization import AUTHORIZER, RESOURCE_CHECK
from kubechronicle.api.cel.syntax.ast import Node
from kubechronicle.api.cel.types import (
    ANY,
    BOOL,
    DYN,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    CelField,
    CelType,
    list_of,
    map_of,
    object_type,
)

_STRINGS: Final = list_of(STRING)
_TEXTS: Final = map_of(STRING, STRING)

GROUP_VERSION_KIND: Final = object_type(
    "kubernetes.GroupVersionKind", {"group": STRING, "version": STRING, "kind": STRING}
)
GROUP_VERSION_RESOURCE: Final = object_type(
    "kubernetes.GroupVersionResource", {"group": STRING, "version": STRING, "resource": STRING}
)
USER_INFO: Final = object_type(
    "kubernetes.UserInfo",
    {"username": STRING, "uid": STRING, "groups": _STRINGS, "extra": map_of(STRING, _STRINGS)},
)
REQUEST: Final = object_type(
    "kubernetes.AdmissionRequest",
    {
        "kind": GROUP_VERSION_KIND,
        "resource": GROUP_VERSION_RESOURCE,
        "subResource": STRING,
        "requestKind": GROUP_VERSION_KIND,
        "requestResource": GROUP_VERSION_RESOURCE,
        "requestSubResource": STRING,
        "name": STRING,
        "namespace": STRING,
        "operation": STRING,
        "userInfo": USER_INFO,
        "dryRun": BOOL,
        "options": DYN,
    },
)
NAMESPACE: Final = object_type(
    "kubernetes.Namespace",
    {
        "metadata": object_type(
            "kubernetes.NamespaceMetadata",
            {
                "name": STRING,
                "generateName": STRING,
                "namespace": STRING,
                "labels": _TEXTS,
                "annotations": _TEXTS,
                "UID": STRING,
                "creationTimestamp": TIMESTAMP,
                "deletionGracePeriodSeconds": INT,
                "deletionTimestamp": TIMESTAMP,
                "generation": INT,
                "resourceVersion": STRING,
                "finalizers": _STRINGS,
            },
        ),
        "spec": object_type("kubernetes.NamespaceSpec", {"finalizers": _STRINGS}),
        "status": object_type(
            "kubernetes.NamespaceStatus",
            {
                "conditions": list_of(
                    object_type(
                        "kubernetes.NamespaceCondition",
                        {
                            "status": STRING,
                            "type": STRING,
                            "lastTransitionTime": TIMESTAMP,
                            "message": STRING,
                            "reason": STRING,
                        },
                    )
                ),
                "phase": STRING,
            },
        ),
    },
)
VARIABLES: Final = "kubernetes.variables"


class _AnyField(Mapping[str, CelType | CelField]):
    """Fields of any name, of type dyn."""

    def __getitem__(self, name: str) -> CelType | CelField:
        return DYN

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class _ObjectTypes(Mapping[str, CelType]):
    """``Object``, ``Object.spec`` and so on: types that a mutation may construct without a schema."""

    def __getitem__(self, name: str) -> CelType:
        if name == "Object" or name.startswith("Object."):
            return object_type(name, _AnyField())
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(("Object",))

    def __len__(self) -> int:
        return 1


OBJECT: Final = object_type("Object", _AnyField())
OBJECT_TYPES: Final = _ObjectTypes()


class OfferedNames(NamedTuple):
    """The names of an environment besides object, oldObject, namespaceObject and request.

    ``params``: the policy's parameters.
    ``authorizer``: the authorizer and its check of the request's resource.
    ``patches``: the types and functions of patches.
    """

    params: bool = False
    authorizer: bool = True
    patches: bool = False


@functools.cache
def environment(offer: OfferedNames) -> Environment:
    """Return the environment of admission expressions."""
    variables = {"object": DYN, "oldObject": DYN, "namespaceObject": NAMESPACE, "request": REQUEST}
    if offer.params:
        variables["params"] = DYN
    if offer.authorizer:
        variables |= {"authorizer": AUTHORIZER, "authorizer.requestResource": RESOURCE_CHECK}
    if offer.patches:
        return base_environment().extend(variables=variables, libraries=(base_libraries.LIBRARY,), types=OBJECT_TYPES)
    return base_environment().extend(variables=variables)


FAILED: Final = "compilation failed: "

CONDITION: Final = (BOOL,)
MESSAGE: Final = (STRING,)
ANNOTATION: Final = (STRING, NULL)
VARIABLE: Final = (ANY, DYN)
APPLY_CONFIGURATION: Final = (OBJECT,)
JSON_PATCHES: Final = (list_of(base_libraries.JSON_PATCH),)
"""The result types allowed for each use of an expression."""


def is_composed(spec: Mapping[str, Any]) -> bool:
    """Tell whether expressions of a policy know ``variables``: those of mutations always do."""
    return bool(spec.get("variables") or spec.get("mutations"))


class Composition:
    """The expressions of one policy. Each may name the variables declared before it."""

    def __init__(self, composed: bool) -> None:
        """``composed``: the policy has variables, so that ``variables`` exists from the start."""
        self._variables: dict[str, CelType] | None = {} if composed else None
        self._scopes: dict[OfferedNames, Environment] = {}

    def problem(self, expression: str, wanted: tuple[CelType, ...], offer: OfferedNames) -> str | ExpressionReport:
        """Return the reason against storing the expression, empty if none. InstantiationError as in `check`."""
        return self._compile(expression, wanted, offer)[0]

    def declare(self, name: str, expression: str, offer: OfferedNames) -> str | ExpressionReport:
        """Declare a variable for later expressions; return the reason against storing its expression, empty if none.

        Raises InstantiationError as `check` does."""
        kind = DYN
        try:
            problem, kind = self._compile(expression, VARIABLE, offer)
        finally:
            if self._variables is not None:
                self._variables[name] = as_variable(kind)
        return problem

    def _compile(
        self, expression: str, wanted: tuple[CelType, ...], offer: OfferedNames
    ) -> tuple[str | ExpressionReport, CelType]:
        return check(expression, self._scope(offer), wanted)

    def _scope(self, offer: OfferedNames) -> Environment:
        """Return the environment with the variables so far. It grows with each declaration, so one serves all."""
        if self._variables is None:
            return environment(offer)
        scope = self._scopes.get(offer)
        if scope is None:
            declared = {"variables": object_type(VARIABLES, self._variables)}
            scope = self._scopes[offer] = environment(offer).extend(variables=declared)
        return scope


def check(expression: str, scope: Environment, wanted: tuple[CelType, ...]) -> tuple[str | ExpressionReport, CelType]:
    """Return (reason against storing the expression, its type). ANY among the wanted types takes every type.

    InstantiationError if a constant in it cannot be converted: callers report that in other words."""
    problem, kind = compiled_type(expression, scope)
    if isinstance(problem, ExpressionReport):
        return problem, DYN
    if ANY not in wanted and kind not in wanted:
        return unwanted(kind, wanted), kind
    if problem is not None:
        raise problem
    return "", kind


def unwanted(kind: CelType, wanted: tuple[CelType, ...]) -> str:
    """Return the reason against an expression of a type that is not wanted."""
    shown = type_text(wanted[0]) if len(wanted) == 1 else f"one of [{' '.join(map(type_text, wanted))}]"
    return f"must evaluate to {shown} but got {type_text(kind)}"


def compiled_type(expression: str, scope: Environment) -> tuple[ExpressionReport | InstantiationError | None, CelType]:
    """Return (problem of the expression, its type). An InstantiationError is found last, when the type is known."""
    try:
        tree = scope.check(expression)
    except CompileError as problem:
        return problem.report._replace(head=FAILED), DYN
    return program_problem(expression, tree, scope), tree.type


def program_problem(expression: str, tree: Node, scope: Environment) -> ExpressionReport | InstantiationError | None:
    """Return the problem of making a program of a checked expression, if there is any."""
    try:
        scope.program(expression, tree)
    except InstantiationError as problem:
        return problem
    except CompileError as problem:
        return problem.report._replace(head=FAILED)
    return None


def type_text(of: CelType) -> str:
    """Return a type's name at run time, as in Status messages: ``list(string)``, ``google.protobuf.Timestamp``."""
    if not of.parameters:
        return of.name
    return f"{of.name}({', '.join(map(type_text, of.parameters))})"


_PLAIN: Final = frozenset(("any", "bool", "bytes", "double", "duration", "int", "null", "string", "timestamp", "uint"))


def as_variable(of: CelType) -> CelType:
    """Return the type of a variable for the expressions that name it: objects and opaque values become dyn."""
    if of.kind in _PLAIN:
        return of
    if of.kind in ("list", "map"):
        return of.with_parameters(tuple(map(as_variable, of.parameters)))
    return DYN
