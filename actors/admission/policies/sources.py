"""The policies in force with their bindings, from the views, and those that apply to a write.

Sources: k8s.io/apiserver ``pkg/admission/plugin/policy/generic`` (policy_source.go, policy_matcher.go, CollectParams).

A policy counts from the next request after its write: each look-up first sees whether the views have changed. The
programs of an unchanged policy are kept. They are compiled once, at the first write that it applies to.

Policies from files (KEP-5793) come first. They alone apply to policies and bindings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

from kubechronicle.actors.admission.chain import CREATE, AdmissionState, Attributes
from kubechronicle.actors.admission.versions import namespace_of, read
from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.actors.evaluation import judge
from kubechronicle.actors.external_answers import NeedsExternalAnswer, awaiting, in_steps
from kubechronicle.api.admission.matching import EXEMPT_GROUP, EXEMPT_KINDS, Index
from kubechronicle.api.admission.policy_sources import (
    FOREIGN_NAMESPACE,
    GROUP,
    NO_PARAMS,
    WITHOUT_NAMESPACE,
    ConfigurationError,
    Policy,
    PolicyBinding,
    is_exempt,
    is_review,
)
from kubechronicle.api.builtin.admissionregistration.webhooks import STATIC_RESERVED, STATIC_SUFFIX
from kubechronicle.api.configuration.admission_manifests import Manifests
from kubechronicle.api.errors.field_errors import invalid_value
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.objects import Object, ReadOnlyObject
from kubechronicle.api.values.steps import Steps
from kubechronicle.eventlog.entries import Entry

T = TypeVar("T")


class Policies(Generic[T]):
    """The policies of one kind that have bindings."""

    def __init__(self, kind: str, plugin: str, make: Callable[[ReadOnlyObject], T]) -> None:
        """``kind``: the plural of the policies without its ending: "validatingadmissionpolic"."""
        self._plugin = plugin
        self._static: Manifests | None = None
        self._static_policies: Sequence[Policy[T]] = ()
        self._static_index: Index[Policy[T]] = Index(())
        self._resources = (f"{kind}ies.{GROUP}", f"{kind}ybindings.{GROUP}")
        self._make = make
        self._seen: tuple[Sequence[Entry], Sequence[Entry]] = ((), ())
        self._index: Index[Policy[T]] = Index(())
        self._policies: dict[Entry, Policy[T]] = {}
        self._bindings: dict[Entry, PolicyBinding] = {}

    def index(self, state: AdmissionState, rt: ResourceType) -> Index[Policy[T]]:
        """Return the policies in force for objects of a type: those of files, then those of the API, by name."""
        if state.manifests and (manifests := state.manifests.get(self._plugin)) is not None:
            self._take(manifests.current)
        if is_exempt(rt):
            return _NO_POLICIES if is_review(rt) else self._static_index
        policies = state.held[self._resources[0]]
        if not policies and not self._seen[0]:
            return self._index
        bindings = state.held[self._resources[1]]
        if policies is not self._seen[0] or bindings is not self._seen[1]:
            in_steps(("policies", self._plugin, id(policies), id(bindings)), self._read(policies, bindings))
        return self._index

    @property
    def has_some(self) -> bool:
        """True while policies of the API are compiled."""
        return bool(self._policies)

    def _take(self, manifests: Manifests) -> None:
        """Take policies from files, unless they are in force already."""
        if manifests is self._static:
            return
        self._static = manifests
        bound: defaultdict[str, list[PolicyBinding]] = defaultdict(list)
        for binding in map(PolicyBinding, manifests.bindings):
            bound[binding.policy].append(binding)
        self._static_policies = [Policy(each, self._make) for each in manifests.configurations]
        for policy in self._static_policies:
            policy.bindings = bound[policy.name]
        self._static_index = _index(self._static_policies)
        self._index = _index([*self._static_policies, *self._policies.values()])

    def _read(self, policies: Sequence[Entry], bindings: Sequence[Entry]) -> Steps[None]:
        present: dict[Entry, PolicyBinding] = {}
        bound: defaultdict[str, list[PolicyBinding]] = defaultdict(list)
        for entry in bindings:
            present[entry] = binding = self._bindings.get(entry) or PolicyBinding(entry.object())
            bound[binding.policy].append(binding)
            yield
        found: dict[Entry, Policy[T]] = {}
        for entry in policies:
            if entry.key.name in bound:
                found[entry] = self._policies.get(entry) or Policy(entry.object(), self._make)
                yield
        for policy in found.values():
            policy.bindings = bound[policy.name]
        self._policies, self._bindings, self._seen = found, present, (policies, bindings)
        self._index = _index([*self._static_policies, *self._policies.values()])


def evaluator_of(policy: Policy[T]) -> T:
    """Return the compiled expressions of a policy. NeedsThread: they are many, and compiled in the thread first."""
    return policy.known or judge(("compile", policy.name, id(policy)), None, lambda: policy.evaluator)


_NO_POLICIES: Final[Index[Any]] = Index(())


def _index(policies: Sequence[Policy[T]]) -> Index[Policy[T]]:
    return Index((policy, policy.match.rules.match) for policy in policies)


@dataclass(frozen=True, slots=True)
class Params:
    """The objects with the parameters of a policy: ``[None]`` if it has none."""

    state: AdmissionState
    attributes: Attributes

    def of(
        self, rt: ResourceType | None, binding: PolicyBinding
    ) -> Generator[NeedsExternalAnswer | None, None, Sequence[Object | None]]:
        """Return the parameters of a binding. ``rt``: their type. ConfigurationError: they cannot be looked up."""
        reference = binding.param_ref
        if rt is None or reference is None:
            return (None,)
        entries = self._entries(rt, reference, binding)
        if not entries and reference.get("parameterNotFoundAction") == "Deny":
            raise ConfigurationError(NO_PARAMS)
        params = []
        for entry in entries:
            params.append((yield from awaiting(partial(read, rt, entry))))
            yield None
        return params

    def _entries(self, rt: ResourceType, reference: Mapping[str, Any], binding: PolicyBinding) -> Sequence[Entry]:
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


# -- static names ------------------------------------------------------------------------------------------------------
#
# Admission configurations from files (KEP-5793), beside those of the API.
#
# Those of files come first, and apply to all objects: to policies, bindings and webhook configurations, too, which
# those of the API leave out so that nobody can lock themselves out. The API refuses their names.


class StaticNames:
    """A StorageHook that refuses new configurations with the names of those from files."""

    resources = frozenset(
        f"{plural}.{EXEMPT_GROUP}"
        for plural in (
            "validatingwebhookconfigurations",
            "mutatingwebhookconfigurations",
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
            "mutatingadmissionpolicies",
            "mutatingadmissionpolicybindings",
        )
    )

    def release(self, entry: Entry, state: AdmissionState) -> Sequence[CompanionChange]:
        """Return nothing: a check holds nothing."""
        return ()

    def begin_write(self, attributes: Attributes, state: AdmissionState) -> None:
        """Note the problem of a creation: 422."""
        obj, rt = attributes.object, attributes.rt
        if attributes.operation != CREATE or obj is None or rt.kind not in EXEMPT_KINDS:
            return
        name = obj["metadata"].get("name") or ""
        if name.endswith(STATIC_SUFFIX):
            attributes.causes.append(invalid_value("metadata.name", name, STATIC_RESERVED))
