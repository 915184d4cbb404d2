"""ValidatingAdmissionPolicy: refuses, warns of or notes writes that policies do not allow.

Source: k8s.io/apiserver ``pkg/admission/plugin/policy/validating/dispatcher.go``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from kubechronicle.actors.admission.chain import (
    CONNECT,
    CREATE,
    DELETE,
    UPDATE,
    AdmissionPlugin,
    AdmissionState,
    AdmissionSteps,
    Attributes,
)
from kubechronicle.actors.admission.metrics import COMPILE_ERROR, INVALID_ERROR, NO_ERROR, OUT_OF_BUDGET
from kubechronicle.actors.admission.policies.sources import Params, Policies, evaluator_of
from kubechronicle.actors.admission.versions import Versions, candidates, labels_of, name_of, write_kind
from kubechronicle.actors.evaluation import judge
from kubechronicle.actors.external_answers import awaiting
from kubechronicle.api.admission.policy_sources import GROUP, ConfigurationError, Policy, PolicyBinding
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import Cause
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.objects import ReadOnlyObject

if TYPE_CHECKING:
    from kubechronicle.actors.admission.policies.requests import PolicyReading
    from kubechronicle.api.admission.validating_policies import Failure, PolicyVerdict, Validator

CODES: Final = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413, "Invalid": 422}
FAILURES: Final = "validation.policy.admission.k8s.io/validation_failure"
MAX_ANNOTATION: Final = 10 * 1024
"""Bytes of an audit annotation's value."""


class Denial(NamedTuple):
    """A reason to refuse a write. ``binding``: "" if the policy itself cannot be applied."""

    policy: str
    binding: str
    message: str
    reason: str = ""


class ValidatingAdmissionPolicy(AdmissionPlugin):
    """Applies ValidatingAdmissionPolicies. Without any, it costs a look at an empty view."""

    name = "ValidatingAdmissionPolicy"
    configured_by = f"validatingadmissionpolicies.{GROUP}"
    operations = frozenset({CREATE, UPDATE, DELETE, CONNECT})

    def __init__(self) -> None:
        self._policies: Policies[Validator] = Policies("validatingadmissionpolic", self.name, _compiled)

    def validate(self, attributes: Attributes, state: AdmissionState) -> AdmissionSteps | None:
        index = self._policies.index(state, attributes.rt)
        self.has_compiled = self._policies.has_some
        found = candidates(index, attributes, state)
        if not found:
            return None
        return _Dispatch(attributes, state).judge_all([policy for policy, _ in found])


def _compiled(policy: ReadOnlyObject) -> Validator:
    from kubechronicle.api.admission.validating_policies import Validator

    return Validator(policy)


class _Dispatch:
    """One write on its way through the policies."""

    def __init__(self, attributes: Attributes, state: AdmissionState) -> None:
        from kubechronicle.actors.admission.policies.requests import PolicyReading

        self._attributes = attributes
        self._metrics = state.metrics
        self._registry = state.registry()
        self._kind = write_kind(attributes)
        self._name = name_of(attributes)
        self._labels = labels_of(attributes, state)
        self._reading: PolicyReading = PolicyReading(attributes, state, Versions(attributes, stored=True))
        self._params = Params(state, attributes)
        self._denials: list[Denial] = []

    def judge_all(self, policies: list[Policy[Validator]]) -> AdmissionSteps:
        """Reject the write with the first reason against it. Warnings and annotations go into its attributes."""
        for policy in policies:
            yield None
            try:
                matched = policy.match.match(self._kind, self._registry, self._name, self._labels)
                if matched is None:
                    continue
                param_type = policy.param_type(self._registry)
            except (ConfigurationError, StatusError) as error:
                if not policy.ignores:
                    self._denials.append(Denial(policy.name, "", f"failed to configure policy: {error}"))
                continue
            annotations: defaultdict[str, dict[str, None]] = defaultdict(dict)
            for binding in policy.bindings:
                yield from self._bound(policy, binding, matched, param_type, annotations)
            for key, values in annotations.items():
                self._attributes.annotations[f"{policy.name}/{key}"] = ", ".join(values)
        if self._denials:
            raise _refusal(self._attributes, self._denials[0])

    def _bound(
        self,
        policy: Policy[Validator],
        binding: PolicyBinding,
        matched: ResourceType,
        param_type: ResourceType | None,
        annotations: defaultdict[str, dict[str, None]],
    ) -> AdmissionSteps:
        yield None
        try:
            if not binding.matches(self._kind, self._registry, self._name, self._labels):
                return
            params = yield from self._params.of(param_type, binding)
        except (ConfigurationError, StatusError) as error:
            if not policy.ignores:
                why = f"failed to configure binding: {error}"
                self._denials.append(Denial(policy.name, binding.name, why))
            return
        has_params = policy.param_kind is not None
        for index, param in enumerate(params):
            try:
                values = yield from awaiting(partial(self._reading.values, matched, param, has_params=has_params))
            except StatusError as error:
                if not policy.ignores:
                    why = f"failed to configure binding: failed to convert object version: {error}"
                    self._denials.append(Denial(policy.name, binding.name, why))
                return
            begun = perf_counter()
            key = ("validate", policy.name, binding.name, index)
            verdict = yield from awaiting(partial(self._judge, policy, key, values))
            self._measure(policy.name, binding, verdict, perf_counter() - begun)
            self._denials += self._judged(policy, binding, verdict, annotations)
            yield None

    def _judge(self, policy: Policy[Validator], key: Hashable, values: dict[str, Any]) -> PolicyVerdict:
        return judge(key, values, evaluator_of(policy).decide, values, self._reading.authorizer)

    def _measure(self, policy: str, binding: PolicyBinding, verdict: PolicyVerdict, seconds: float) -> None:
        """Note each failed validation by the actions of the binding. ``seconds``: of the whole policy."""
        for failure in verdict.failures:
            problem = error_type(failure.message) if failure.error else NO_ERROR
            for action in binding.actions:
                labels = (policy, binding.name, problem, action.lower())
                self._attributes.measured.append((partial(self._metrics.validations.add, labels), seconds))

    def _judged(
        self,
        policy: Policy[Validator],
        binding: PolicyBinding,
        verdict: PolicyVerdict,
        annotations: defaultdict[str, dict[str, None]],
    ) -> Iterator[Denial]:
        for failure in verdict.failures:
            for action in binding.actions:
                if action == "Deny":
                    yield Denial(policy.name, binding.name, failure.message, failure.reason)
                elif action == "Warn":
                    self._attributes.warnings.append(
                        f"Validation failed for ValidatingAdmissionPolicy '{policy.name}' with binding "
                        f"'{binding.name}': {failure.message}"
                    )
                elif action == "Audit":
                    self._attributes.annotations.setdefault(FAILURES, _noted(policy.name, binding, failure))
        for key, value, error in verdict.annotations:
            if error:
                yield Denial(policy.name, binding.name, error)
            else:
                annotations[key][value.encode()[:MAX_ANNOTATION].decode(errors="ignore")] = None


def _noted(policy: str, binding: PolicyBinding, failure: Failure) -> str:
    """Return the audit annotation of a failed validation. The first of a request is kept."""
    value = {
        "message": failure.message,
        "policy": policy,
        "binding": binding.name,
        "expressionIndex": failure.position,
        "validationActions": list(binding.actions),
    }
    return orjson.dumps([value]).decode()


def _refusal(attributes: Attributes, denial: Denial) -> StatusError:
    with_binding = f" with binding '{denial.binding}'" if denial.binding else ""
    message = f"ValidatingAdmissionPolicy '{denial.policy}'{with_binding} denied request: {denial.message}"
    reason = denial.reason or "Invalid"
    refused = status.forbidden(attributes.rt.group_resource, shown_name(attributes), message)
    details = status.details_of(attributes.rt.group_resource, shown_name(attributes), causes=[Cause("", message)])
    return StatusError(CODES.get(reason, 422), reason, refused.message, details=details)


def error_type(text: str) -> str:
    """Return the label of metrics for the error of an expression."""
    if text.startswith("compilation error"):
        return COMPILE_ERROR
    return OUT_OF_BUDGET if "budget" in text else INVALID_ERROR


def shown_name(attributes: Attributes) -> str:
    """Return the name of the object in a rejection."""
    meta = (attributes.object or {}).get("metadata")
    generated = meta.get("generateName") if isinstance(meta, dict) else ""
    return name_of(attributes) or generated or "Unknown"
