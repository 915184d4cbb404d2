"""Files with policies to try: policies, bindings, webhook configurations, and objects with parameters.

Every document is decoded, defaulted and validated by the rules of the server. A policy without a binding in the file
uses the bindings of the cluster to a policy of its name (``unbound``).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kubechronicle.api.admission.mutating_policies import Mutator
from kubechronicle.api.admission.policy_sources import GROUP, Policy, PolicyBinding
from kubechronicle.api.admission.validating_policies import Validator
from kubechronicle.api.builtin.kinds import strategy_of
from kubechronicle.api.codecs import yaml
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.pipeline import pipeline
from kubechronicle.api.pipeline.pipeline import WriteContext
from kubechronicle.api.registry.registry import known_registry
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.errors import OperatorError

POLICIES: Final = ("ValidatingAdmissionPolicy", "MutatingAdmissionPolicy")
BINDINGS: Final = ("ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicyBinding")
WEBHOOKS: Final = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
EVERYTHING: Final = "(everything)"
"""The name of the binding that a policy has if there is no other."""
_ANY_TIME: Final = "2000-01-01T00:00:00Z"
"""The creation time of the documents, which no policy sees."""
_ANY_UID: Final = "00000000-0000-0000-0000-000000000000"


@dataclass(slots=True)
class PolicyFile:
    """The documents of a file by their use, each as stored. ``params``: objects that policies may refer to."""

    policies: list[Object] = field(default_factory=list)
    bindings: list[Object] = field(default_factory=list)
    webhooks: list[Object] = field(default_factory=list)
    params: list[Object] = field(default_factory=list)

    def unbound(self) -> list[Object]:
        """Return the policies without a binding in the file."""
        bound = {(each["kind"], each["spec"].get("policyName")) for each in self.bindings}
        return [each for each in self.policies if (f"{each['kind']}Binding", name_of(each)) not in bound]

    def validating(self) -> list[Policy[Validator]]:
        """Return the validating policies with their bindings."""
        return [self._bound(Policy(each, Validator), each) for each in self._of(POLICIES[0])]

    def mutating(self) -> list[Policy[Mutator]]:
        """Return the mutating policies with their bindings."""
        mutating: list[Policy[Mutator]] = [Policy(each, Mutator) for each in self._of(POLICIES[1])]
        for policy, obj in zip(mutating, self._of(POLICIES[1]), strict=True):
            policy.bindings = self._bindings_of(obj)
        return mutating

    def _of(self, kind: str) -> list[Object]:
        return [each for each in self.policies if each["kind"] == kind]

    def _bound(self, policy: Policy[Validator], obj: Object) -> Policy[Validator]:
        policy.bindings = self._bindings_of(obj)
        return policy

    def _bindings_of(self, policy: Object) -> list[PolicyBinding]:
        kind, name = f"{policy['kind']}Binding", name_of(policy)
        found = [each for each in self.bindings if (each["kind"], each["spec"].get("policyName")) == (kind, name)]
        return [PolicyBinding(each) for each in sorted(found, key=name_of)]


def name_of(obj: Object) -> str:
    """Return the name of an object."""
    name: str = obj["metadata"]["name"]
    return name


def everything(policy: Object) -> Object:
    """Return a binding of a policy to everything that it matches, with the action Deny."""
    spec: Object = {"policyName": name_of(policy)}
    if policy["kind"] == POLICIES[0]:
        spec["validationActions"] = ["Deny"]
    return {
        "apiVersion": policy["apiVersion"],
        "kind": f"{policy['kind']}Binding",
        "metadata": {"name": EVERYTHING},
        "spec": spec,
    }


def read(paths: Sequence[str]) -> PolicyFile:
    """Read the documents of files; ``-``: of the standard input. OperatorError."""
    found = PolicyFile()
    for path in paths:
        for obj in _documents(path):
            _add(found, obj, path)
    if not found.policies and not found.webhooks:
        raise OperatorError(
            f"{', '.join(paths)}: no policy in it; a ValidatingAdmissionPolicy, MutatingAdmissionPolicy, "
            "ValidatingWebhookConfiguration or MutatingWebhookConfiguration is needed"
        )
    return found


def audited(client: Client) -> PolicyFile:
    """Return the validating policies of the cluster that are bound with Audit alone, as if they denied.

    Raises OperatorError, ApiError.
    """
    path = f"/apis/{GROUP}/v1/"
    bindings = [each for each in client.items(f"{path}{BINDINGS[0].lower()}s") if _only_audits(each)]
    named = {each["spec"].get("policyName") for each in bindings}
    policies = [each for each in client.items(f"{path}validatingadmissionpolicies") if name_of(each) in named]
    if not policies:
        raise OperatorError("no policy of the cluster is bound with validationActions: [Audit] alone")
    known = set(map(name_of, policies))
    for binding in bindings:
        binding["spec"]["validationActions"] = ["Deny"]
    return PolicyFile(policies, [each for each in bindings if each["spec"].get("policyName") in known])


def _only_audits(binding: Object) -> bool:
    return set(binding["spec"].get("validationActions") or ()) == {"Audit"}


def _documents(path: str) -> list[Object]:
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise OperatorError(f"{path}: {error.strerror}") from None
    try:
        values = yaml.decode_all(data)
    except ValueError as error:
        raise OperatorError(f"{path}: {error}") from None
    found: list[Object] = []
    for value in values:
        if value is None:
            continue
        if not isinstance(value, dict):
            raise OperatorError(f"{path}: a document is no object")
        found.extend(value.get("items") or [] if value.get("kind") == "List" else [value])
    return found


def _add(found: PolicyFile, obj: Object, path: str) -> None:
    kind, api_version = obj.get("kind"), obj.get("apiVersion")
    meta = obj.get("metadata")
    if not isinstance(kind, str) or not isinstance(api_version, str) or not isinstance(meta, dict):
        raise OperatorError(f"{path}: a document has no apiVersion, kind or metadata")
    if not isinstance(meta.get("name"), str) or not meta["name"]:
        raise OperatorError(f"{path}: a {kind} has no metadata.name")
    if not api_version.startswith(f"{GROUP}/"):
        found.params.append(obj)
        return
    stored = _accepted(obj, path)
    for kinds, place in ((POLICIES, found.policies), (BINDINGS, found.bindings), (WEBHOOKS, found.webhooks)):
        if kind in kinds:
            if any((each["kind"], name_of(each)) == (kind, name_of(stored)) for each in place):
                raise OperatorError(f"{path}: {kind} {name_of(stored)} is there twice")
            place.append(stored)
            return
    raise OperatorError(f"{path}: {kind} is no policy")


def _accepted(obj: Object, path: str) -> Object:
    """Return a document of the group as the server would store it. OperatorError: the server would reject it."""
    rt = known_registry().by_api_version(obj["apiVersion"], obj["kind"])
    if rt is None:
        raise OperatorError(f"{path}: the server has no kind {obj['kind']} in {obj['apiVersion']}")
    strategy_of(rt.resource)  # loads the rules of the kind
    context = WriteContext(now=_ANY_TIME, uid=_ANY_UID, field_validation="Strict")
    try:
        decoded, _ = pipeline.decode_object(rt, obj, context, create=True)
        return pipeline.prepare_create(rt, decoded, context).object
    except StatusError as error:
        raise OperatorError(f"{path}: {error.message}") from None
