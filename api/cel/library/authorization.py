"""``authorizer.group('apps').resource('deployments').check('get').allowed()``: questions about rights in expressions
(libraries kubernetes.authz, since v1.27, and kubernetes.authzSelectors, since v1.31).

Lives here: how a question is put together. Not here: who answers it. A variable of type `AUTHORIZER` holds an
`Authorizer` made with a function that decides a `Question` about the one who asks, or about a service account.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from kubechronicle.api.cel.declarations import Library
from kubechronicle.api.cel.errors import EvaluationError
from kubechronicle.api.cel.library import costs
from kubechronicle.api.cel.overloads import Function, Overload
from kubechronicle.api.cel.types import BOOL, STRING, Type, object_type
from kubechronicle.api.values import names

AUTHORIZER: Final = object_type("kubernetes.authorization.Authorizer", {})
PATH_CHECK: Final = object_type("kubernetes.authorization.PathCheck", {})
GROUP_CHECK: Final = object_type("kubernetes.authorization.GroupCheck", {})
RESOURCE_CHECK: Final = object_type("kubernetes.authorization.ResourceCheck", {})
DECISION: Final = object_type("kubernetes.authorization.Decision", {})


@dataclass(frozen=True, slots=True)
class Question:
    """May somebody do ``verb`` with a path, or else (``path`` is None) with a resource?

    ``service_account`` is (namespace, name) of whom it is asked of; None: of the one who sent the request. Selectors
    are as the expression gives them, empty if it gives none; one that does not parse is a selector nobody can read,
    not a wrong question.
    """

    verb: str = ""
    service_account: tuple[str, str] | None = None
    path: str | None = None
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    field_selector: str = ""
    label_selector: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer: whether it is allowed, why, and what went wrong in finding out (None: nothing)."""

    cel_type: ClassVar[Type] = DECISION

    allowed: bool
    reason: str = ""
    error: str | None = None


Decide = Callable[[Question], Decision]


@dataclass(frozen=True, slots=True)
class Authorizer:
    """The value of the variable ``authorizer``."""

    cel_type: ClassVar[Type] = AUTHORIZER

    decide: Decide
    service_account: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class PathCheck:
    """``authorizer.path(path)``"""

    cel_type: ClassVar[Type] = PATH_CHECK

    decide: Decide
    question: Question


@dataclass(frozen=True, slots=True)
class GroupCheck:
    """``authorizer.group(group)``"""

    cel_type: ClassVar[Type] = GROUP_CHECK

    decide: Decide
    question: Question


@dataclass(frozen=True, slots=True)
class ResourceCheck:
    """``authorizer.group(group).resource(resource)``; also the value of ``authorizer.requestResource``."""

    cel_type: ClassVar[Type] = RESOURCE_CHECK

    decide: Decide
    question: Question


def _path(self: Authorizer, path: str) -> PathCheck:
    if not path.strip():
        raise EvaluationError("path must not be empty")
    return PathCheck(self.decide, Question(service_account=self.service_account, path=path))


def _group(self: Authorizer, group: str) -> GroupCheck:
    return GroupCheck(self.decide, Question(service_account=self.service_account, group=group))


def _service_account(self: Authorizer, namespace: str, name: str) -> Authorizer:
    if names.subdomain_name(name, False):
        raise EvaluationError("Invalid service account name")
    if names.label_name(namespace, False):
        raise EvaluationError("Invalid service account namespace")
    return Authorizer(self.decide, (namespace, name))


def _resource(self: GroupCheck, resource: str) -> ResourceCheck:
    if not resource.strip():
        raise EvaluationError("resource must not be empty")
    return ResourceCheck(self.decide, replace(self.question, resource=resource))


def _setting(field: str) -> Callable[[ResourceCheck, str], ResourceCheck]:
    def narrowed(self: ResourceCheck, value: str) -> ResourceCheck:
        changes = {field: value}
        return ResourceCheck(self.decide, replace(self.question, **changes))  # type: ignore[arg-type]

    return narrowed


def _check(self: PathCheck | ResourceCheck, verb: str) -> Decision:
    return self.decide(replace(self.question, verb=verb))


def _allowed(self: Decision) -> bool:
    return self.allowed


def _reason(self: Decision) -> str:
    return self.reason


def _errored(self: Decision) -> bool:
    return self.error is not None


def _error(self: Decision) -> str:
    return self.error or ""


def _narrowing(name: str, id_: str, field: str) -> Function:
    args = (RESOURCE_CHECK, STRING)
    return Function(name, (Overload(id_, args, RESOURCE_CHECK, _setting(field), member=True),))


def _selecting(name: str, id_: str, field: str) -> Function:
    args = (RESOURCE_CHECK, STRING)
    return Function(name, (Overload(id_, args, RESOURCE_CHECK, _setting(field), True, costs.selector),))


def _telling(name: str, result: Type, call: Callable[[Decision], object]) -> Function:
    return Function(name, (Overload(f"decision_{name}", (DECISION,), result, call, member=True),))


LIBRARY: Final = Library(
    "kubernetes.authz",
    1,
    (
        Function("path", (Overload("authorizer_path", (AUTHORIZER, STRING), PATH_CHECK, _path, member=True),)),
        Function("group", (Overload("authorizer_group", (AUTHORIZER, STRING), GROUP_CHECK, _group, member=True),)),
        Function(
            "serviceAccount",
            (
                Overload(
                    "authorizer_serviceaccount",
                    (AUTHORIZER, STRING, STRING),
                    AUTHORIZER,
                    _service_account,
                    member=True,
                ),
            ),
        ),
        Function(
            "resource", (Overload("groupcheck_resource", (GROUP_CHECK, STRING), RESOURCE_CHECK, _resource, True),)
        ),
        _narrowing("subresource", "resourcecheck_subresource", "subresource"),
        _narrowing("namespace", "resourcecheck_namespace", "namespace"),
        _narrowing("name", "resourcecheck_name", "name"),
        _selecting("fieldSelector", "authorizer_fieldselector", "field_selector"),
        _selecting("labelSelector", "authorizer_labelselector", "label_selector"),
        Function(
            "check",
            (
                Overload("pathcheck_check", (PATH_CHECK, STRING), DECISION, _check, True, costs.authorization_check),
                Overload(
                    "resourcecheck_check", (RESOURCE_CHECK, STRING), DECISION, _check, True, costs.authorization_check
                ),
            ),
        ),
        _telling("errored", BOOL, _errored),
        _telling("error", STRING, _error),
        _telling("allowed", BOOL, _allowed),
        _telling("reason", STRING, _reason),
    ),
)
