"""The match of a write with the rules and selectors of webhooks and policies.

Sources: k8s.io/apiserver ``pkg/admission/plugin/webhook/predicates``, ``…/webhook/generic``, ``…/policy/matching``.

    rules of a webhook                     Rules(webhook["rules"], match_policy)
    resourceRules of matchConstraints      Rules(constraints["resourceRules"], match_policy)
    namespaceSelector, objectSelector      Selectors(spec)

Most writes match none of many webhooks. ``Index`` finds those whose rules match, once for each kind of write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from kubechronicle.api.admission.policy_programs import (
    CONDITIONS_BUDGET,
    Compiler,
    EvaluationStage,
    ExpressionFailed,
    OutOfBudget,
)
from kubechronicle.api.cel.admission import CONDITION
from kubechronicle.api.registry.registry import Registry, ResourceType
from kubechronicle.api.selectors.label_selectors import LabelSelector, selector_from_spec
from kubechronicle.api.values.steps import Steps, finish

T = TypeVar("T")

NAMESPACES: Final = "namespaces"
EXEMPT_GROUP: Final = "admissionregistration.k8s.io"
EXEMPT_KINDS: Final = frozenset(
    (
        "ValidatingWebhookConfiguration",
        "MutatingWebhookConfiguration",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
    )
)
"""Kinds that no webhook is asked about."""

KINDS_KEPT: Final = 4096
"""Kinds of writes whose matches an index keeps."""


class GroupVersionKind(NamedTuple):
    """A group, version and kind, in the order of Kubernetes' own type."""

    group: str
    version: str
    kind: str

    @property
    def api_version(self) -> str:
        """The apiVersion of such an object."""
        return f"{self.group}/{self.version}" if self.group else self.version


def resource_value(rt: ResourceType) -> dict[str, str]:
    """Return the GroupVersionResource of a type, as reviews and expressions have it."""
    return {"group": rt.group, "version": rt.version, "resource": rt.plural}


class WriteKind(msgspec.Struct, frozen=True):
    """The part of a request that rules look at, but for the object's name.

    ``type``: the resource, in the version of the request.
    ``operation``: CREATE, UPDATE, DELETE or CONNECT.
    ``namespaced``: the request has a namespace; a request for a namespace has its own.
    """

    type: ResourceType
    subresource: str
    operation: str
    namespaced: bool


def kind_of(rt: ResourceType, subresource: str) -> GroupVersionKind | None:
    """Return the kind of the objects that a request for a resource or subresource carries; None: there is none."""
    if not subresource:
        return GroupVersionKind(rt.group, rt.version, rt.kind)
    found = rt.subresources.get(subresource)
    return None if found is None else GroupVersionKind(found.group, found.version, found.kind)


def equivalents(registry: Registry, rt: ResourceType, subresource: str) -> list[ResourceType]:
    """Return the other served types of the same stored objects that have the subresource."""
    return [
        other
        for other in registry.served_as(rt.resource)
        if other is not rt and (not subresource or subresource in other.subresources)
    ]


def _matches(rule: Mapping[str, Any], rt: ResourceType, kind: WriteKind) -> bool:
    """Tell whether a rule matches a write, as one of the type ``rt``, whatever the object's name."""
    return (
        _lists(rule.get("operations"), kind.operation)
        and _lists(rule.get("apiGroups"), rt.group)
        and _lists(rule.get("apiVersions"), rt.version)
        and any(_names(each, rt, kind) for each in rule.get("resources") or ())
        and _in_scope(rule.get("scope") or "*", rt, kind)
    )


def _lists(values: Sequence[str] | None, value: str) -> bool:
    return values is not None and ("*" in values or value in values)


def _names(resource: str, rt: ResourceType, kind: WriteKind) -> bool:
    """Tell whether ``pods``, ``pods/log``, ``pods/*``, ``*/scale`` or ``*`` names the resource and subresource."""
    first, _, sub = resource.partition("/")
    return first in ("*", rt.plural) and sub in ("*", kind.subresource)


def _in_scope(scope: str, rt: ResourceType, kind: WriteKind) -> bool:
    if scope == "*":
        return True
    cluster = not kind.namespaced or (rt.plural == NAMESPACES and rt.api_version == "v1")
    return scope == ("Cluster" if cluster else "Namespaced")


class Rules:
    """The rules of one webhook or policy; the first that matches decides.

    ``match_policy``: Exact, or Equivalent: other versions of the same objects match, too.
    """

    __slots__ = ("_equivalent", "_rules", "named")

    def __init__(self, rules: Iterable[Mapping[str, Any]] | None, match_policy: str | None) -> None:
        self._rules = list(rules or ())
        self._equivalent = match_policy == "Equivalent"
        self.named = any(rule.get("resourceNames") for rule in self._rules)
        """Some rule is limited to names."""

    def __bool__(self) -> bool:
        return bool(self._rules)

    def match(self, kind: WriteKind, registry: Registry, name: str | None = None) -> ResourceType | None:
        """Return the type in whose version the write matches, None if it does not.

        ``name``: the object's; None: rules that are limited to names match as well.
        """
        for rule in self._rules:
            if _matches(rule, kind.type, kind) and _is_of(rule, name):
                return kind.type
        if not self._equivalent:
            return None
        others = equivalents(registry, kind.type, kind.subresource)
        for rule in self._rules:
            for other in others:
                if _matches(rule, other, kind) and _is_of(rule, name):
                    return other
        return None


def _is_of(rule: Mapping[str, Any], name: str | None) -> bool:
    names = rule.get("resourceNames")
    return name is None or not names or name in names


class Labels(msgspec.Struct, frozen=True):
    """The labels that selectors look at.

    ``new``, ``old``: those of the new and the old object; None: there is none, or one without metadata.
    ``namespace``: returns the labels of the namespace (as it will be, for a write of itself); may raise StatusError.
    None: the write has no namespace, and every namespaceSelector matches.
    """

    new: Mapping[str, str] | None
    old: Mapping[str, str] | None
    namespace: Callable[[], Mapping[str, str]] | None


class Selectors:
    """The namespaceSelector and objectSelector of a webhook, a policy or a binding. An absent one selects all."""

    __slots__ = ("_namespace", "_object")

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._namespace = _selector(spec.get("namespaceSelector"))
        self._object = _selector(spec.get("objectSelector"))

    @property
    def of_namespaces(self) -> bool:
        """True if one looks at the labels of namespaces."""
        return self._namespace is not None

    @property
    def of_objects(self) -> bool:
        """True if one looks at the labels of objects."""
        return self._object is not None

    def match(self, labels: Labels) -> bool:
        """Tell whether both match. StatusError: the namespace is missing, and the object matches."""
        selector = self._object
        if selector is not None and not any(
            each is not None and selector.matches(each) for each in (labels.new, labels.old)
        ):
            return False
        if self._namespace is None or labels.namespace is None:
            return True
        return self._namespace.matches(labels.namespace())


def _selector(spec: Mapping[str, Any] | None) -> LabelSelector | None:
    selector = selector_from_spec(spec)
    return None if selector is None or selector.empty else selector


class Index(Generic[T]):
    """The webhooks or policies whose rules match a kind of write, in their order.

    ``items``: each with a function that returns the type in whose version it matches a kind of write. It is called once
    for each kind. So a write costs by the items that match, and not by all.
    """

    def __init__(self, items: Iterable[tuple[T, Callable[[WriteKind, Registry], ResourceType | None]]]) -> None:
        self._items = tuple(items)
        self._registry: Registry | None = None
        self._found: dict[WriteKind, Sequence[tuple[T, ResourceType]]] = {}

    def __len__(self) -> int:
        return len(self._items)

    def candidates(self, kind: WriteKind, registry: Registry) -> Sequence[tuple[T, ResourceType]]:
        """Return the items whose rules match, each with the type in whose version."""
        return finish(self.search(kind, registry))

    def known(self, kind: WriteKind, registry: Registry) -> Sequence[tuple[T, ResourceType]] | None:
        """Return the items whose rules match, None if this kind must be searched for."""
        return self._found.get(kind) if registry is self._registry else None

    def search(self, kind: WriteKind, registry: Registry) -> Steps[Sequence[tuple[T, ResourceType]]]:
        """Do the same in steps, one for each item. There is none if the kind is known."""
        if not self._items:
            return ()
        if registry is not self._registry or len(self._found) > KINDS_KEPT:
            self._found.clear()
            self._registry = registry
        found = self._found.get(kind)
        if found is None:
            matching = []
            for item, match in self._items:
                rt = match(kind, registry)
                if rt is not None:
                    matching.append((item, rt))
                yield
            found = tuple(matching)
            if registry is self._registry:
                self._found[kind] = found
        return found


# -- conditions --------------------------------------------------------------------------------------------------------
#
# Match conditions of webhooks: CEL expressions that must all be true for a write to be sent.
#
# Source: k8s.io/apiserver ``pkg/admission/plugin/webhook/matchconditions``.


class ConditionsFailed(Exception):
    """Some conditions fail on a write, and none is false."""


class Conditions:
    """The match conditions of one webhook, compiled at the first write that its rules match."""

    def __init__(self, specs: Sequence[Mapping[str, Any]]) -> None:
        compiler = Compiler({})
        self._expressions = [compiler.compile(each.get("expression", ""), CONDITION) for each in specs]

    def match(self, values: Mapping[str, Any]) -> bool:
        """Tell whether all are true. One that is false outweighs those that fail. Raises ConditionsFailed."""
        stage = EvaluationStage(values, {}, CONDITIONS_BUDGET)
        failures: list[str] = []
        for expression in self._expressions:
            try:
                if stage.evaluate(expression) is False:
                    return False
            except ExpressionFailed as error:
                failures.append(str(error))
            except OutOfBudget as error:
                raise ConditionsFailed(str(error)) from None
        if failures:
            raise ConditionsFailed(failures[0] if len(failures) == 1 else f"[{', '.join(dict.fromkeys(failures))}]")
        return True


# -- annotations -------------------------------------------------------------------------------------------------------
#
# Annotations for the audit events of writes, or for none.


class _Unwanted(dict[str, str]):
    """Annotations that nobody reads: it stays empty."""

    def __setitem__(self, key: str, value: str) -> None:
        return None

    def setdefault(self, key: str, default: str = "") -> str:
        return default


UNWANTED: Final[dict[str, str]] = _Unwanted()
"""The annotations of a write that is not audited. Those that cost much to make are not made for it."""
