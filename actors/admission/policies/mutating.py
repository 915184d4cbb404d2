"""MutatingAdmissionPolicy: changes objects as policies say, before the mutating webhooks.

Source: k8s.io/apiserver ``pkg/admission/plugin/policy/mutating/dispatcher.go``, ``…/generic/policy_dispatcher.go``.

If the object has changed, all mutating plugins run once more. The policies with reinvocationPolicy IfNeeded are then
applied again if the object has changed since they were applied. Policies are applied by name.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from kubechronicle.actors.admission.chain import (
    CONNECT,
    CREATE,
    UPDATE,
    AdmissionPlugin,
    AdmissionState,
    AdmissionSteps,
    Attributes,
)
from kubechronicle.actors.admission.metrics import NO_ERROR
from kubechronicle.actors.admission.policies.sources import Params, Policies, evaluator_of
from kubechronicle.actors.admission.policies.validating import error_type, shown_name
from kubechronicle.actors.admission.versions import Versions, candidates, digest, labels_of, name_of, write_kind
from kubechronicle.actors.evaluation import GROWN, judge, judge_copy, note_growth
from kubechronicle.actors.external_answers import NeedsExternalAnswer, awaiting
from kubechronicle.api.admission.policy_sources import GROUP, ConfigurationError, Policy, PolicyBinding
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import Cause
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.encoding import repeatedly, size_of
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.schema.equality import same_json
from kubechronicle.api.values.objects import Object, ReadOnlyObject

if TYPE_CHECKING:
    from kubechronicle.actors.admission.policies.requests import PolicyReading
    from kubechronicle.api.admission.mutating_policies import Mutator

T = TypeVar("T")

MutationSteps: TypeAlias = Generator[NeedsExternalAnswer | None, None, T]
"""As Steps of admission, with a result."""

Key = tuple[str, str, str, str]
"""One application of a policy: its name, its binding's, and namespace and name of the parameters."""


@dataclass(slots=True)
class AppliedPolicies:
    """The applications of policies to one write.

    ``output``: the digest of the object after the last one.
    ``again``: to be repeated. ``applied``: to be repeated if the object changes.
    """

    output: bytes = b""
    again: set[Key] = field(default_factory=set)
    applied: set[Key] = field(default_factory=set)

    def object_changed(self) -> None:
        self.again |= self.applied
        self.applied = set()


class PolicyProblem(NamedTuple):
    """A policy that could not be applied."""

    policy: str
    binding: str
    message: str
    reason: str = ""

    def text(self) -> str:
        if self.binding:
            return f"policy '{self.policy}' with binding '{self.binding}' denied request: {self.message}"
        return f'policy "{self.policy}" denied request: {self.message}'


class Invocation(NamedTuple):
    """A policy to apply, with one parameter object. ``matched``: the type in whose version it matches."""

    policy: Policy[Mutator]
    binding: PolicyBinding
    matched: ResourceType
    params: Object | None

    @property
    def key(self) -> Key:
        meta = (self.params or {}).get("metadata") or {}
        return self.policy.name, self.binding.name, meta.get("namespace", ""), meta.get("name", "")


class Mutated(NamedTuple):
    """The result of a mutation. It may serve several attempts, each of which changes its object.

    ``object``: returns the object after the mutation. ``changed``: it differs from that before all mutations of the
    policy. ``added``: bytes that it has more.
    """

    object: Callable[[], Object]
    changed: bool
    added: int


class MutatingAdmissionPolicy(AdmissionPlugin):
    """Applies MutatingAdmissionPolicies. Without any, it costs a look at an empty view."""

    name = "MutatingAdmissionPolicy"
    configured_by = f"mutatingadmissionpolicies.{GROUP}"
    gate = "MutatingAdmissionPolicy"
    operations = frozenset({CREATE, UPDATE, CONNECT})

    def __init__(self) -> None:
        self._policies: Policies[Mutator] = Policies("mutatingadmissionpolic", self.name, _compiled)

    def admit(self, attributes: Attributes, state: AdmissionState) -> AdmissionSteps | None:
        index = self._policies.index(state, attributes.rt)
        self.has_compiled = self._policies.has_some
        found = candidates(index, attributes, state)
        if not found or attributes.object is None:
            return None
        return _MutationDispatch(attributes, state).run([policy for policy, _ in found])


def _compiled(policy: ReadOnlyObject) -> Mutator:
    from kubechronicle.api.admission.mutating_policies import Mutator

    return Mutator(policy)


class _MutationDispatch:
    """One write on its way through the policies."""

    def __init__(self, attributes: Attributes, state: AdmissionState) -> None:
        from kubechronicle.actors.admission.policies.requests import PolicyReading

        self._attributes = attributes
        self._state = state
        self._versions = Versions(attributes, stored=False)
        self._reading: PolicyReading = PolicyReading(attributes, state, self._versions)
        memory = attributes.reinvocation.memory.setdefault(MutatingAdmissionPolicy.name, AppliedPolicies())
        assert isinstance(memory, AppliedPolicies)
        self._memory = memory
        self._problems: list[PolicyProblem] = []

    def run(self, policies: Sequence[Policy[Mutator]]) -> AdmissionSteps:
        """Apply the policies. StatusError: some cannot be applied, and may not be ignored."""
        invocations = yield from self._invocations(policies)
        if invocations:
            yield from self._apply_all(invocations)
        if self._problems:
            raise _refusal(self._attributes, self._problems)

    def _invocations(self, policies: Sequence[Policy[Mutator]]) -> MutationSteps[list[Invocation]]:
        attributes, registry = self._attributes, self._state.registry()
        kind, name, labels = write_kind(attributes), name_of(attributes), labels_of(attributes, self._state)
        params = Params(self._state, attributes)
        invocations: list[Invocation] = []
        for policy in policies:
            yield None
            try:
                matched = policy.match.match(kind, registry, name, labels)
                if matched is None:
                    continue
                param_type = policy.param_type(registry)
            except (ConfigurationError, StatusError) as error:
                self._note(policy, "", f"failed to configure policy: {error}")
                continue
            for binding in policy.bindings:
                yield None
                try:
                    if not binding.matches(kind, registry, name, labels):
                        continue
                    found = yield from params.of(param_type, binding)
                except (ConfigurationError, StatusError) as error:
                    self._note(policy, binding.name, f"failed to configure binding: {error}")
                    continue
                invocations += [Invocation(policy, binding, matched, param) for param in found]
        return invocations

    def _note(self, policy: Policy[Mutator], binding: str, message: str, reason: str = "") -> None:
        if not policy.ignores:
            self._problems.append(PolicyProblem(policy.name, binding, message, reason))

    def _apply_all(self, invocations: Sequence[Invocation]) -> AdmissionSteps:
        attributes, memory, reinvocation = self._attributes, self._memory, self._attributes.reinvocation
        assert attributes.object is not None
        if reinvocation.second and memory.applied and memory.output != digest(attributes.object, any_order=True):
            memory.object_changed()
            yield None
        for invocation in invocations:
            yield from self._apply(invocation)
            yield None
        if memory.applied and not reinvocation.second:
            memory.output = digest(attributes.object, any_order=True)
            yield None

    def _apply(self, invocation: Invocation) -> AdmissionSteps:
        from kubechronicle.api.admission.policy_programs import ExpressionFailed

        policy, key, reinvocation = invocation.policy, invocation.key, self._attributes.reinvocation
        evaluator = yield from awaiting(partial(evaluator_of, policy))
        if evaluator.conditions:
            values = yield from awaiting(partial(self._values, invocation))
            try:
                matches = yield from awaiting(
                    partial(
                        judge,
                        ("match", *key, reinvocation.second),
                        values,
                        evaluator.conditions.match,
                        {**values, **self._reading.authorizer},
                    )
                )
            except ExpressionFailed as error:
                self._note(policy, invocation.binding.name, str(error), "Invalid")
                return
            if not matches:
                return
        if reinvocation.second and key not in self._memory.again:
            return
        if (yield from self._mutate(invocation)):
            self._memory.object_changed()
            reinvocation.wanted = True
        if evaluator.reinvocable:
            self._memory.applied.add(key)

    def _mutate(self, invocation: Invocation) -> MutationSteps[bool]:
        """Apply the mutations of a policy in order. Return whether the object has changed."""
        from kubechronicle.api.admission.mutating_policies import require_convertible
        from kubechronicle.api.admission.policy_programs import ExpressionFailed

        policy, matched = invocation.policy, invocation.matched
        before = yield from awaiting(partial(self._versions.new, matched))
        if before is None:
            return False
        obj, changed = before, False
        for index, mutation in enumerate(policy.evaluator.mutations):
            begun, problem = perf_counter(), NO_ERROR
            try:
                result = yield from self._mutated(invocation, index, mutation, obj, before)
                require_convertible(self._attributes.rt, matched, self._attributes.subresource)
                obj, changed = result.object(), result.changed
                note_growth(result.added)
            except ExpressionFailed as error:
                problem = error_type(str(error))
                self._note(policy, invocation.binding.name, str(error), "Invalid")
            labels = (policy.name, invocation.binding.name, problem)
            count = partial(self._state.metrics.mutations.add, labels)
            self._attributes.measured.append((count, perf_counter() - begun))
        if not changed:
            return False
        reinvocation = self._attributes.reinvocation
        if reinvocation.original is None and self._attributes.object is not None:
            # The values of the members are left as they are: ``obj`` shares none of them.
            reinvocation.original = dict(self._attributes.object)
        yield from awaiting(partial(self._versions.replace, matched, obj))
        return True

    def _mutated(
        self, invocation: Invocation, index: int, mutation: Any, obj: Object, before: Object
    ) -> MutationSteps[Mutated]:
        """Return the object after one mutation, compared with the one before all. Raises ExpressionFailed."""
        values = yield from awaiting(partial(self._values, invocation))
        values["object"] = obj
        return (
            yield from awaiting(
                partial(
                    judge_copy,
                    ("mutate", *invocation.key, index, self._attributes.reinvocation.second),
                    values,
                    _mutated,
                    mutation,
                    obj,
                    before,
                    {**values, **self._reading.authorizer},
                    invocation.policy.evaluator.variables,
                    self._versions.type_of(invocation.matched),
                )
            )
        )

    def _values(self, invocation: Invocation) -> dict[str, Any]:
        has_params = invocation.policy.param_kind is not None
        return self._reading.values(invocation.matched, invocation.params, has_params=has_params)


def _mutated(
    mutation: Any,
    obj: Object,
    before: Object,
    values: dict[str, Any],
    variables: Mapping[str, Any],
    decoded_as: ResourceType,
) -> Mutated:
    from kubechronicle.api.admission.mutating_policies import mutated
    from kubechronicle.api.admission.policy_programs import EvaluationStage

    after = mutated(mutation, obj, EvaluationStage(values, variables), decoded_as)
    size = size_of(after)
    added = size - size_of(before) if size > GROWN else 0
    return Mutated(repeatedly(after), not same_json(after, before), added)


def _refusal(attributes: Attributes, problems: Sequence[PolicyProblem]) -> StatusError:
    texts = [problem.text() for problem in problems]
    name = shown_name(attributes)
    details = status.details_of(attributes.rt.group_resource, name, causes=[Cause("", text) for text in texts])
    return StatusError(403, problems[0].reason or "Forbidden", texts[0], details=details)
