"""Policies replayed on writes of the log: the outcomes that they would have had.

Lives here: the decision on one write, by the same compiled policies as the server's. Not here: the log, the state of
the past, and webhooks, which must be asked (replayed_webhooks.py).

The order is the server's: mutating policies by name, each on the result of the one before, then validating ones.
Mutating policies are applied once; no policy is applied again after others (reinvocationPolicy).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from kubechronicle.api.admission.logged_writes import DELETE, Write, decision_values, labels_in
from kubechronicle.api.admission.matching import NAMESPACES, Index, Labels, WriteKind
from kubechronicle.api.admission.mutating_policies import Mutator, mutated, require_convertible
from kubechronicle.api.admission.policy_programs import EvaluationStage, ExpressionFailed
from kubechronicle.api.admission.policy_sources import (
    FOREIGN_NAMESPACE,
    NO_PARAMS,
    WITHOUT_NAMESPACE,
    ConfigurationError,
    Policy,
    PolicyBinding,
    PolicyRequest,
    is_exempt,
    namespace_value,
    request_value,
)
from kubechronicle.api.admission.replayed_reads import PolicyReads
from kubechronicle.api.admission.validating_policies import Validator
from kubechronicle.api.cel.library.authorization import Decide
from kubechronicle.api.errors import status
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.history.differences import differences, summary
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.pipeline import pipeline
from kubechronicle.api.registry.registry import Registry, ResourceType
from kubechronicle.api.schema.equality import same_json
from kubechronicle.api.values.objects import Object, ReadOnlyObject

REFUSED: Final = "refused"
WARNED: Final = "warned"
AUDITED: Final = "audited"
MUTATED: Final = "mutated"
EFFECTS: Final = (REFUSED, WARNED, AUDITED, MUTATED)
ALL: Final = frozenset(("object", "oldObject", "request", "namespaceObject", "authorizer"))
"""CEL's variables in policies."""
NO_LABELS: Final = Labels(None, None, None)
NOTHING: Final[Mapping[str, Any]] = {}
_ACTIONS: Final = {"Deny": REFUSED, "Warn": WARNED, "Audit": AUDITED}


class ReplayOutcome(NamedTuple):
    """An effect of a policy on a write.

    ``source``: the policy or webhook.
    ``error``: it could not be applied.
    ``annotation``: the key, if the policy only adds an audit annotation.
    """

    effect: str
    source: str
    binding: str
    message: str
    reason: str = ""
    error: bool = False
    annotation: str = ""


class PastState(Protocol):
    """The state of the cluster just before a write. Objects are as stored, and only read."""

    def peek(self, resource: str, namespace: str, name: str) -> Object | None:
        """Return an object."""
        ...

    def entries(self, resource: str, namespace: str) -> Iterable[Object]:
        """Return the objects of a namespace; of all namespaces, if it is ""."""
        ...

    def decide(self, user: Mapping[str, Any]) -> Decide:
        """Return the function that answers questions about a user's rights."""
        ...


class ReplayReading:
    """The values of a write that policies read, each made at its first use."""

    def __init__(self, write: Write, state: PastState) -> None:
        self.write = write
        self._state = state
        self._requests: dict[ResourceType, dict[str, Any]] = {}
        self._request: PolicyRequest | None = None
        self._namespace_value: dict[str, Any] | None = None

    def values(
        self, matched: ResourceType, params: Object | None, *, has_params: bool, reads: Container[str] = ALL
    ) -> dict[str, Any]:
        """Return CEL's variables. ``matched``: the type in whose version the policy matches. StatusError.

        ``reads``: the variables in use; the others are left out.
        """
        values: dict[str, Any] = {}
        if "object" in reads:
            values["object"] = self.write.new(matched)
        if "oldObject" in reads:
            values["oldObject"] = self.write.former(matched)
        if "request" in reads:
            values["request"] = self._request_value(matched)
        if "namespaceObject" in reads:
            values["namespaceObject"] = self.namespace
        else:
            self._check_namespace()
        if has_params:
            values["params"] = params
        return values

    def rights(self, reads: Container[str]) -> Mapping[str, Any]:
        """Return the variables that ask for rights, none if they are not in use."""
        return self.request.authorizer if "authorizer" in reads else NOTHING

    def _request_value(self, matched: ResourceType) -> dict[str, Any]:
        found = self._requests.get(matched)
        if found is None:
            found = self._requests[matched] = request_value(self.request, matched)
        return found

    def _check_namespace(self) -> None:
        """Look for the namespace of the object. StatusError 404: it is missing."""
        write = self.write
        if write.namespace and write.rt.resource != NAMESPACES:
            self._namespace(write.namespace)

    @property  # no cached_property, which takes a lock in Python 3.11
    def request(self) -> PolicyRequest:
        """The request itself, and the rights of its user."""
        if self._request is None:
            values = decision_values(self.write)
            self._request = PolicyRequest(decide=self._state.decide(values["user"]), **values)
        return self._request

    @property
    def namespace(self) -> dict[str, Any] | None:
        """The namespace of the object, None for a namespace, and for cluster-scoped objects. StatusError 404."""
        write = self.write
        if not write.namespace or write.rt.resource == NAMESPACES:
            return None
        if self._namespace_value is None:
            self._namespace_value = namespace_value(self._namespace(write.namespace))
        return self._namespace_value

    def namespace_version(self) -> str | None:
        """Return the resourceVersion of the namespace of the request; "": it has none; None: it is missing."""
        name = self.write.request_namespace
        if not name:
            return ""
        found = self._state.peek(NAMESPACES, "", name)
        return None if found is None else found["metadata"].get("resourceVersion")

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """Return the labels of a namespace. StatusError 404."""
        return labels_in(self._namespace(name))

    def _namespace(self, name: str) -> Object:
        found = self._state.peek(NAMESPACES, "", name)
        if found is None:
            raise status.not_found(NAMESPACES, name)
        return found

    def params(self, rt: ResourceType | None, binding: PolicyBinding) -> Sequence[Object | None]:
        """Return the parameters of a binding. ConfigurationError: they cannot be looked up."""
        reference = binding.param_ref
        if rt is None or reference is None:
            return (None,)
        found = list(self._param_objects(rt, reference, binding))
        if not found and reference.get("parameterNotFoundAction") == "Deny":
            raise ConfigurationError(NO_PARAMS)
        return [pipeline.to_request_version(rt, copy_object(obj)) for obj in found]

    def _param_objects(
        self, rt: ResourceType, reference: Mapping[str, Any], binding: PolicyBinding
    ) -> Iterator[Object]:
        namespace = reference.get("namespace") or ""
        if rt.namespaced:
            namespace = namespace or self.write.request_namespace
            if not namespace:
                raise ConfigurationError(WITHOUT_NAMESPACE)
        elif namespace:
            raise ConfigurationError(FOREIGN_NAMESPACE)
        if name := reference.get("name"):
            found = self._state.peek(rt.resource, namespace, name)
            if found is not None:
                yield found
            return
        selector = binding.param_selector
        for obj in self._state.entries(rt.resource, namespace):
            if selector is None or selector.matches(labels_in(obj)):
                yield obj


class Bound(NamedTuple):
    """A policy of the file that applies to a write: its binding, its version, and one parameter object."""

    policy: Policy[Any]
    binding: PolicyBinding
    matched: ResourceType
    params: Object | None

    def values(self, reading: ReplayReading) -> dict[str, Any]:
        """Return CEL's variables. StatusError."""
        reads = self.policy.evaluator.reads
        return reading.values(self.matched, self.params, has_params=self.policy.param_kind is not None, reads=reads)


class PolicyReplay:
    """The policies of one replay. ``registry``: returns the served types."""

    def __init__(
        self, validating: Iterable[Policy[Validator]], mutating: Iterable[Policy[Mutator]], registry: Registry
    ) -> None:
        self._registry = registry
        validating, mutating = list(validating), list(mutating)
        self._validating = _index(validating)
        self._mutating = _index(mutating)
        self.reads = PolicyReads([*validating, *mutating], mutating=bool(mutating))
        self._memory = self.reads.memory()

    def concerns_kind(self, kind: WriteKind) -> bool:
        """Tell whether the rules of some policy match a kind of write."""
        return not is_exempt(kind.type) and bool(
            self._validating.candidates(kind, self._registry)
            or (kind.operation != DELETE and self._mutating.candidates(kind, self._registry))
        )

    def mutate(self, write: Write, reading: ReplayReading) -> list[ReplayOutcome]:
        """Apply the mutating policies to a write, which has the changed object afterwards."""
        candidates = self._mutating.candidates(write.kind, self._registry)
        if not candidates or write.object is None or is_exempt(write.rt):
            return []
        outcomes: list[ReplayOutcome] = []
        for bound in self._bound(candidates, reading, outcomes):
            outcomes += _mutate(bound, reading)
        return outcomes

    def validate(self, write: Write, reading: ReplayReading) -> list[ReplayOutcome]:
        """Return the outcomes of the validating policies."""
        candidates = self._validating.candidates(write.kind, self._registry)
        if not candidates or is_exempt(write.rt):
            return []
        memory = self._memory
        key = None if memory is None else memory.key_of(write, reading.namespace_version())
        if memory is not None and key is not None and (known := memory.get(key)) is not None:
            return list(known)
        outcomes: list[ReplayOutcome] = []
        for bound in self._bound(candidates, reading, outcomes):
            outcomes += _validate(bound, reading)
        if memory is not None and key is not None:
            memory.put(key, tuple(outcomes))
        return outcomes

    def reads_stored_form(self, kind: WriteKind) -> bool:
        """Tell whether all policies read the objects of a kind of write as they are stored today."""
        matched = [
            rt for index in (self._validating, self._mutating) for _, rt in index.candidates(kind, self._registry)
        ]
        return (
            kind.subresource != pipeline.SCALE
            and not self.reads.named
            and all(rt.custom is None and rt.is_storage_version and rt.kind == rt.storage_kind for rt in matched)
        )

    def _bound(
        self,
        candidates: Sequence[tuple[Policy[Any], ResourceType]],
        reading: ReplayReading,
        problems: list[ReplayOutcome],
    ) -> Iterator[Bound]:
        write, registry = reading.write, self._registry
        kind, name = write.kind, write.named
        labels = NO_LABELS
        if self.reads.selects:
            labels = write.labels(reading.namespace_labels, objects=self.reads.of_objects)
        for policy, candidate in candidates:
            try:
                matched = policy.match.match(kind, registry, name, labels, candidate)
                if matched is None:
                    continue
                param_type = policy.param_type(registry)
            except (ConfigurationError, StatusError) as error:
                problems += _problem(policy, "", f"failed to configure policy: {error}")
                continue
            for binding in policy.bindings:
                try:
                    if not binding.matches(kind, registry, name, labels):
                        continue
                    params = reading.params(param_type, binding)
                except (ConfigurationError, StatusError) as error:
                    problems += _problem(policy, binding.name, f"failed to configure binding: {error}")
                    continue
                for each in params:
                    yield Bound(policy, binding, matched, each)


def _index(policies: Iterable[Policy[Any]]) -> Index[Policy[Any]]:
    ordered = sorted(policies, key=lambda policy: policy.name)
    return Index((policy, policy.match.rules.match) for policy in ordered)


def _problem(policy: Policy[Any], binding: str, message: str, reason: str = "") -> list[ReplayOutcome]:
    return [] if policy.ignores else [ReplayOutcome(REFUSED, policy.name, binding, message, reason, error=True)]


def _validate(bound: Bound, reading: ReplayReading) -> list[ReplayOutcome]:
    policy, binding = bound.policy, bound.binding
    try:
        values = bound.values(reading)
    except StatusError as error:
        why = f"failed to configure binding: failed to convert object version: {error}"
        return _problem(policy, binding.name, why)
    verdict = policy.evaluator.decide(values, reading.rights(policy.evaluator.reads))
    outcomes = [
        ReplayOutcome(_ACTIONS[action], policy.name, binding.name, failure.message, failure.reason, failure.error)
        for failure in verdict.failures
        for action in binding.actions
        if action in _ACTIONS
    ]
    for annotation in verdict.annotations:
        if annotation.error:
            outcomes.append(ReplayOutcome(REFUSED, policy.name, binding.name, annotation.error, error=True))
        else:
            message = f"{annotation.key}: {annotation.value}"
            outcomes.append(ReplayOutcome(AUDITED, policy.name, binding.name, message, annotation=annotation.key))
    return outcomes


def _mutate(bound: Bound, reading: ReplayReading) -> list[ReplayOutcome]:
    policy, binding, write = bound.policy, bound.binding, reading.write
    evaluator: Mutator = policy.evaluator
    try:
        before = write.new(bound.matched)
        if before is None:
            return []
        values = {**bound.values(reading), **reading.rights(evaluator.reads)}
        if evaluator.conditions and not evaluator.conditions.match(values):
            return []
        obj, decoded_as = before, write.decoded_as(bound.matched)
        problems: list[ReplayOutcome] = []
        for mutation in evaluator.mutations:
            stage = EvaluationStage({**values, "object": obj}, evaluator.variables)
            try:
                result = mutated(mutation, obj, stage, decoded_as)
                require_convertible(write.rt, bound.matched, write.kind.subresource)
                obj = result
            except ExpressionFailed as error:  # the mutations after it are applied nevertheless
                problems += _problem(policy, binding.name, str(error), "Invalid")
        if obj is before or same_json(obj, before):
            return problems
        write.replace(bound.matched, obj)
    except (ExpressionFailed, StatusError) as error:
        return _problem(policy, binding.name, str(error), "Invalid")
    return [*problems, ReplayOutcome(MUTATED, policy.name, binding.name, change_text(before, obj))]


def change_text(before: ReadOnlyObject, after: ReadOnlyObject) -> str:
    """Return the difference of an object in one line: ``spec.replicas: 3 → 5``."""
    return summary(differences(before, after)) or "fields that only servers read"
