"""Policies and bindings as compiled from their objects: the writes that they select, and their parameters' type.

Sources: k8s.io/apiserver ``pkg/admission/plugin/policy/generic`` (policy_source.go, policy_matcher.go).

Lives here: one policy or binding by itself. Not here: the ones in force (actors/admission/policies/sources.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from kubechronicle.api.admission.matching import Labels, Rules, Selectors, WriteKind, kind_of, resource_value
from kubechronicle.api.cel.library.authorization import AuthorizerQuestion, AuthorizerValue, Decide, ResourceCheck
from kubechronicle.api.registry.registry import Registry, ResourceType
from kubechronicle.api.selectors.label_selectors import selector_from_spec
from kubechronicle.api.values.objects import ReadOnlyObject

T = TypeVar("T")

GROUP: Final = "admissionregistration.k8s.io"
NO_PARAMS: Final = "no params found for policy binding with `Deny` parameterNotFoundAction"
WITHOUT_NAMESPACE: Final = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
FOREIGN_NAMESPACE: Final = "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"


class ConfigurationError(Exception):
    """A policy or binding that cannot be applied to a request."""


class MatchResources:
    """The matchConstraints of a policy, or the matchResources of a binding."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        policy = spec.get("matchPolicy")
        self.rules = Rules(spec.get("resourceRules"), policy)
        self._excluded = Rules(spec.get("excludeResourceRules"), policy)
        self._selectors = Selectors(spec)

    @property
    def selects(self) -> bool:
        """True if a selector looks at labels."""
        return self._selectors.of_namespaces or self._selectors.of_objects

    @property
    def of_objects(self) -> bool:
        """True if a selector looks at the labels of objects."""
        return self._selectors.of_objects

    @property
    def named(self) -> bool:
        """True if a rule is limited to names of objects."""
        return self.rules.named or self._excluded.named

    def match(
        self,
        kind: WriteKind,
        registry: Registry,
        name: str,
        labels: Labels,
        candidate: ResourceType | None = None,
    ) -> ResourceType | None:
        """Return the type in whose version a write matches, None if it does not. StatusError: as Selectors.match.

        ``candidate``: the type in whose version the rules match, whatever the object's name, if it is known.
        """
        if self._excluded and self._excluded.match(kind, registry, name) is not None:
            return None
        if candidate is not None and not self.rules.named:
            matched: ResourceType | None = candidate
        else:
            matched = self.rules.match(kind, registry, name) if self.rules else kind.type
        return matched if matched is not None and self._selectors.match(labels) else None


class PolicyBinding:
    """A binding: the objects that it selects, and its parameters."""

    def __init__(self, obj: ReadOnlyObject) -> None:
        spec = obj["spec"]
        self.name: str = obj["metadata"]["name"]
        self.policy: str = spec.get("policyName") or ""
        self.param_ref: Mapping[str, Any] | None = spec.get("paramRef")
        self.actions: Sequence[str] = spec.get("validationActions") or ()
        match = spec.get("matchResources")
        self.match = None if match is None else MatchResources(match)
        """The writes that it selects; None: all."""
        self.param_selector = selector_from_spec((self.param_ref or {}).get("selector"))

    def matches(self, kind: WriteKind, registry: Registry, name: str, labels: Labels) -> bool:
        """Tell whether the binding selects a write. StatusError: as Selectors.match."""
        return self.match is None or self.match.match(kind, registry, name, labels) is not None


class Policy(Generic[T]):
    """A policy in force. ``evaluator``: its compiled expressions, made at the first use. ``known``: None before."""

    def __init__(self, obj: ReadOnlyObject, make: Callable[[ReadOnlyObject], T]) -> None:
        self._object = obj
        self._make = make
        self.known: T | None = None
        spec = self._object["spec"]
        self.name: str = obj["metadata"]["name"]
        self.ignores = spec.get("failurePolicy") == "Ignore"
        self.param_kind: Mapping[str, str] | None = spec.get("paramKind")
        self.match = MatchResources(spec.get("matchConstraints") or {})
        self.bindings: Sequence[PolicyBinding] = ()

    @property
    def evaluator(self) -> T:
        if self.known is None:
            self.known = self._make(self._object)
            self._object = {}
        return self.known

    def param_type(self, registry: Registry) -> ResourceType | None:
        """Return the type of the policy's parameters, None if it has none. ConfigurationError: nobody serves it."""
        kind = self.param_kind
        if kind is None:
            return None
        version, name = kind.get("apiVersion", ""), kind.get("kind", "")
        rt = registry.by_api_version(version, name)
        if rt is None:
            shown = version if "/" in version else f"/{version}"
            raise ConfigurationError(f"failed to find resource referenced by paramKind: '{shown}, Kind={name}'")
        return rt


def is_exempt(rt: ResourceType) -> bool:
    """Tell whether no policy of the API applies to objects of a type: policies, their bindings, and reviews."""
    return is_review(rt) or (
        rt.group == GROUP and rt.plural.startswith(("validatingadmissionpolic", "mutatingadmissionpolic"))
    )


_REVIEW_GROUPS: Final = ("authentication.k8s.io", "authorization.k8s.io")


def is_review(rt: ResourceType) -> bool:
    """Tell whether objects of a type are questions about rights or users, to which no policy at all applies.

    Source: kube-apiserver's ``pkg/kubeapiserver/admission/exclusion/resources.go``.
    """
    return rt.group in _REVIEW_GROUPS and rt.plural.endswith("reviews")


# -- policy values -----------------------------------------------------------------------------------------------------
#
# The values that expressions of policies read: the request, the objects, and the namespace.
#
# Source: k8s.io/apiserver ``pkg/admission/plugin/cel/condition.go`` (CreateAdmissionRequest, CreateNamespaceObject).


_NAMESPACE_METADATA: Final = (
    "name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp",
    "deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations", "finalizers",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRequest:
    """The request that a policy decides on.

    ``name``: of the object, "" before a name is made from generateName.
    ``namespace``: "" for a cluster-scoped object; a namespace has its own.
    ``user``: username, uid, groups and extra; without empty members.
    ``options``: those of the operation, as an object; None: they are unknown.
    ``decide``: answers the questions of ``authorizer``.
    """

    rt: ResourceType
    subresource: str
    operation: str
    name: str
    namespace: str
    dry_run: bool
    user: Mapping[str, Any]
    decide: Decide
    options: ReadOnlyObject | None = None
    authorizer: Mapping[str, Any] = field(init=False)
    """The variables that ask for rights."""

    def __post_init__(self) -> None:
        check = ResourceCheck(
            self.decide,
            AuthorizerQuestion(
                group=self.rt.group,
                resource=self.rt.plural,
                subresource=self.subresource,
                namespace=self.namespace,
                name=self.name,
            ),
        )
        values = {"authorizer": AuthorizerValue(self.decide), "authorizer.requestResource": check}
        object.__setattr__(self, "authorizer", values)


def request_value(request: PolicyRequest, matched: ResourceType) -> dict[str, Any]:
    """Return the variable ``request``. ``matched``: the type in whose version the policy matches."""
    optional: dict[str, Any] = {
        "subResource": request.subresource,
        "requestSubResource": request.subresource,
        "name": request.name,
        "namespace": request.namespace,
    }
    return {
        "uid": "",
        "kind": _kind(matched, request.subresource),
        "resource": resource_value(matched),
        "requestKind": _kind(request.rt, request.subresource),
        "requestResource": resource_value(request.rt),
        **{name: value for name, value in optional.items() if value},
        "operation": request.operation,
        "userInfo": request.user,
        "object": None,
        "oldObject": None,
        "dryRun": request.dry_run,
        "options": request.options,
    }


def _kind(rt: ResourceType, subresource: str) -> dict[str, str]:
    group, version, kind = kind_of(rt, subresource) or (rt.group, rt.version, rt.kind)
    return {"group": group, "version": version, "kind": kind}


def namespace_value(namespace: ReadOnlyObject) -> dict[str, Any]:
    """Return the variable ``namespaceObject``: a namespace without the fields that expressions do not see."""
    meta = namespace["metadata"]
    return {
        "metadata": {name: meta[name] for name in _NAMESPACE_METADATA if name in meta},
        "spec": namespace.get("spec") or {},
        "status": namespace.get("status") or {},
    }
