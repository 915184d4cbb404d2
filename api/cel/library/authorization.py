"""Authorization checks: ``authorizer.group('apps').resource('deployments').check('get').allowed()``.

Libraries kubernetes.authz (since v1.27) and kubernetes.authzSelectors (since v1.31). Lives here: building a `Question`.
Not here: the answer. A variable of type `AUTHORIZER` holds an `Authorizer` with a function that decides questions about
the requesting user or a service account.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from kubechronicle.api.cel.declarations import Library
from kubechronicle.api.cel.errors import EvaluationError
from kubechronicle.api.cel.library import costs
from kubechronicle.api.cel.types import BOOL, STRING, CelType, Function, Overload, object_type
from kubechronicle.api.values import names

AUTHORIZER: Final = object_type("kubernetes.authorization.Authorizer", {})
PATH_CHECK: Final = object_type("kubernetes.authorization.PathCheck", {})
GROUP_CHECK: Final = object_type("kubernetes.authorization.GroupCheck", {})
RESOURCE_CHECK: Final = object_type("kubernetes.authorization.ResourceCheck", {})
DECISION: Final = object_type("kubernetes.authorization.Decision", {})


@dataclass(frozen=True, slots=True)
class AuthorizerQuestion:
    """An authorization question: may a user do ``verb`` with a path, or with a resource if ``path`` is None?

    ``service_account``: (namespace, name) of the user; None: the user of the request.
    ``field_selector``, ``label_selector``: as written in the expression, empty if absent. One that does not parse is
    passed on unparsed; it is no error here.
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
class AuthorizerDecision:
    """The answer to a question. ``error``: the failure while deciding, None if there was none."""

    cel_type: ClassVar[CelType] = DECISION

    allowed: bool
    reason: str = ""
    error: str | None = None


Decide = Callable[[AuthorizerQuestion], AuthorizerDecision]


@dataclass(frozen=True, slots=True)
class AuthorizerValue:
    """The value of the variable ``authorizer``."""

    cel_type: ClassVar[CelType] = AUTHORIZER

    decide: Decide
    service_account: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class PathCheck:
    """``authorizer.path(path)``"""

    cel_type: ClassVar[CelType] = PATH_CHECK

    decide: Decide
    question: AuthorizerQuestion


@dataclass(frozen=True, slots=True)
class GroupCheck:
    """``authorizer.group(group)``"""

    cel_type: ClassVar[CelType] = GROUP_CHECK

    decide: Decide
    question: AuthorizerQuestion


@dataclass(frozen=True, slots=True)
class ResourceCheck:
    """``authorizer.group(group).resource(resource)``; also the value of ``authorizer.requestResource``."""

    cel_type: ClassVar[CelType] = RESOURCE_CHECK

    decide: Decide
    question: AuthorizerQuestion


def _path(self: AuthorizerValue, path: str) -> PathCheck:
    if not path.strip():
        raise EvaluationError("path must not be empty")
    return PathCheck(self.decide, AuthorizerQuestion(service_account=self.service_account, path=path))


def _group(self: AuthorizerValue, group: str) -> GroupCheck:
    return GroupCheck(self.decide, AuthorizerQuestion(service_account=self.service_account, group=group))


def _service_account(self: AuthorizerValue, namespace: str, name: str) -> AuthorizerValue:
    if names.subdomain_name(name, False):
        raise EvaluationError("Invalid service account name")
    if names.label_name(namespace, False):
        raise EvaluationError("Invalid service account namespace")
    return AuthorizerValue(self.decide, (namespace, name))


def _resource(self: GroupCheck, resource: str) -> ResourceCheck:
    if not resource.strip():
        raise EvaluationError("resource must not be empty")
    return ResourceCheck(self.decide, replace(self.question, resource=resource))


def _setting(field: str) -> Callable[[ResourceCheck, str], ResourceCheck]:
    def narrowed(self: ResourceCheck, value: str) -> ResourceCheck:
        changes = {field: value}
        return ResourceCheck(self.decide, replace(self.question, **changes))  # type: ignore[arg-type]

    return narrowed


def _check(self: PathCheck | ResourceCheck, verb: str) -> AuthorizerDecision:
    return self.decide(replace(self.question, verb=verb))


def _allowed(self: AuthorizerDecision) -> bool:
    return self.allowed


def _reason(self: AuthorizerDecision) -> str:
    return self.reason


def _errored(self: AuthorizerDecision) -> bool:
    return self.error is not None


def _error(self: AuthorizerDecision) -> str:
    return self.error or ""


def _narrowing_method(name: str, id_: str, field: str) -> Function:
    args = (RESOURCE_CHECK, STRING)
    return Function(name, (Overload(id_, args, RESOURCE_CHECK, _setting(field), member=True),))


def _selector_method(name: str, id_: str, field: str) -> Function:
    args = (RESOURCE_CHECK, STRING)
    return Function(name, (Overload(id_, args, RESOURCE_CHECK, _setting(field), True, costs.selector),))


def _getter(name: str, result: CelType, call: Callable[[AuthorizerDecision], object]) -> Function:
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
        _narrowing_method("subresource", "resourcecheck_subresource", "subresource"),
        _narrowing_method("namespace", "resourcecheck_namespace", "namespace"),
        _narrowing_method("name", "resourcecheck_name", "name"),
        _selector_method("fieldSelector", "authorizer_fieldselector", "field_selector"),
        _selector_method("labelSelector", "authorizer_labelselector", "label_selector"),
        Function(
            "check",
            (
                Overload("pathcheck_check", (PATH_CHECK, STRING), DECISION, _check, True, costs.authorization_check),
                Overload(
                    "resourcecheck_check", (RESOURCE_CHECK, STRING), DECISION, _check, True, costs.authorization_check
                ),
            ),
        ),
        _getter("errored", BOOL, _errored),
        _getter("error", STRING, _error),
        _getter("allowed", BOOL, _allowed),
        _getter("reason", STRING, _reason),
    ),
)
