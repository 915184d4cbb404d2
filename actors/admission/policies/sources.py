"""The policies in force with their bindings, from the views, and those that apply to a write.

Sources: k8s.io/apiserver ``pkg/admission/plugin/policy/generic`` (policy_source.go, policy_matcher.go, CollectParams).

A policy counts from the next request after its write: each look-up first sees whether the views have changed. The
programs of an unchanged policy are kept. They are compiled once, at the first write that it applies to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from kubechronicle.actors.admission.chain import Attributes, State
from kubechronicle.actors.admission.versions import namespace_of
from kubechronicle.api.admission.matching import Index, Labels, Rules, Selectors, WriteKind
from kubechronicle.api.pipeline import pipeline
from kubechronicle.api.registry.registry import Registry, ResourceType
from kubechronicle.api.selectors.label_selectors import selector_from_spec
from kubechronicle.api.values.objects import Object, ReadOnlyObject
from kubechronicle.eventlog.entries import Entry

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

    def match(self, kind: WriteKind, registry: Registry, name: str, labels: Labels) -> ResourceType | None:
        """Return the type in whose version a write matches, None if it does not. StatusError: as Selectors.match."""
        if self._excluded and self._excluded.match(kind, registry, name) is not None:
            return None
        matched = self.rules.match(kind, registry, name) if self.rules else kind.type
        return matched if matched is not None and self._selectors.match(labels) else None


class Binding:
    """A binding: the objects that it selects, and its parameters."""

    def __init__(self, entry: Entry) -> None:
        spec = entry.object()["spec"]
        self.name = entry.key.name
        self.policy: str = spec.get("policyName") or ""
        self.param_ref: Mapping[str, Any] | None = spec.get("paramRef")
        self.actions: Sequence[str] = spec.get("validationActions") or ()
        match = spec.get("matchResources")
        self._match = None if match is None else MatchResources(match)
        self.param_selector = selector_from_spec((self.param_ref or {}).get("selector"))

    def matches(self, kind: WriteKind, registry: Registry, name: str, labels: Labels) -> bool:
        """Tell whether the binding selects a write. StatusError: as Selectors.match."""
        return self._match is None or self._match.match(kind, registry, name, labels) is not None


class Policy(Generic[T]):
    """A policy in force. ``evaluator``: its compiled expressions, made at the first use."""

    def __init__(self, entry: Entry, make: Callable[[ReadOnlyObject], T]) -> None:
        self._object = entry.object()
        self._make = make
        self._evaluator: T | None = None
        spec = self._object["spec"]
        self.name = entry.key.name
        self.ignores = spec.get("failurePolicy") == "Ignore"
        self.param_kind: Mapping[str, str] | None = spec.get("paramKind")
        self.match = MatchResources(spec.get("matchConstraints") or {})
        self.bindings: Sequence[Binding] = ()

    @property
    def evaluator(self) -> T:
        if self._evaluator is None:
            self._evaluator = self._make(self._object)
            self._object = {}
        return self._evaluator

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


class Policies(Generic[T]):
    """The policies of one kind that have bindings."""

    def __init__(self, kind: str, make: Callable[[ReadOnlyObject], T]) -> None:
        """``kind``: the plural of the policies without its ending: "validatingadmissionpolic"."""
        self._resources = (f"{kind}ies.{GROUP}", f"{kind}ybindings.{GROUP}")
        self._make = make
        self._seen: tuple[Sequence[Entry], Sequence[Entry]] = ((), ())
        self._index: Index[Policy[T]] = Index(())
        self._policies: dict[Entry, Policy[T]] = {}
        self._bindings: dict[Entry, Binding] = {}

    def index(self, state: State) -> Index[Policy[T]]:
        """Return the policies in force, by name."""
        policies = state.entries(self._resources[0], "")
        if not policies and not self._seen[0]:
            return self._index
        bindings = state.entries(self._resources[1], "")
        if policies is not self._seen[0] or bindings is not self._seen[1]:
            self._read(policies, bindings)
            self._seen = (policies, bindings)
        return self._index

    def _read(self, policies: Sequence[Entry], bindings: Sequence[Entry]) -> None:
        before = self._policies, self._bindings
        self._bindings = {entry: before[1].get(entry) or Binding(entry) for entry in bindings}
        bound: defaultdict[str, list[Binding]] = defaultdict(list)
        for binding in self._bindings.values():
            bound[binding.policy].append(binding)
        self._policies = {
            entry: before[0].get(entry) or Policy(entry, self._make) for entry in policies if entry.key.name in bound
        }
        for policy in self._policies.values():
            policy.bindings = bound[policy.name]
        self._index = Index((policy, policy.match.rules.match) for policy in self._policies.values())


@dataclass(frozen=True, slots=True)
class Params:
    """The objects with the parameters of a policy: ``[None]`` if it has none."""

    state: State
    attributes: Attributes

    def of(self, rt: ResourceType | None, binding: Binding) -> Sequence[Object | None]:
        """Return the parameters of a binding. ``rt``: their type. ConfigurationError: they cannot be looked up."""
        reference = binding.param_ref
        if rt is None or reference is None:
            return (None,)
        entries = self._entries(rt, reference, binding)
        if not entries and reference.get("parameterNotFoundAction") == "Deny":
            raise ConfigurationError(NO_PARAMS)
        return [pipeline.to_request_version(rt, entry.object()) for entry in entries]

    def _entries(self, rt: ResourceType, reference: Mapping[str, Any], binding: Binding) -> Sequence[Entry]:
        namespace = reference.get("namespace") or ""
        if rt.namespaced:
            namespace = namespace or namespace_of(self.attributes)
            if not namespace:
                raise ConfigurationError(WITHOUT_NAMESPACE)
        elif namespace:
            raise ConfigurationError(FOREIGN_NAMESPACE)
        if name := reference.get("name"):
            entry = self.state.peek(rt.resource, namespace, name)
            return () if entry is None else (entry,)
        selector = binding.param_selector
        found = self.state.entries(rt.resource, namespace)
        return [entry for entry in found if selector is None or selector.matches(entry.labels)]


def is_exempt(rt: ResourceType) -> bool:
    """Tell whether no policy applies to objects of a type: policies and their bindings."""
    return rt.group == GROUP and rt.plural.startswith(("validatingadmissionpolic", "mutatingadmissionpolic"))
