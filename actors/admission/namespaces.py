"""NamespaceExists and NamespaceAutoProvision (plugin/pkg/admission/namespace of kube-apiserver). Both are disabled by
default: NamespaceLifecycle rejects creations in missing namespaces already."""

from __future__ import annotations

from kubechronicle.actors.admission.chain import CREATE, DELETE, UPDATE, AdmissionPlugin, Attributes, State, forbidden
from kubechronicle.actors.external_answers import NeedsExternalAnswer, recall_answer, remember_answer
from kubechronicle.api.errors import status
from kubechronicle.api.errors.status import StatusError


class NamespaceExists(AdmissionPlugin):
    """Rejects every write in a missing namespace, updates and deletions, too."""

    name = "NamespaceExists"
    operations = frozenset({CREATE, UPDATE, DELETE})

    def validate(self, attributes: Attributes, state: State) -> None:
        namespace = attributes.namespace
        if _within(attributes) and state.peek("namespaces", "", namespace) is None:
            raise status.not_found("namespaces", namespace)


class NamespaceAutoProvision(AdmissionPlugin):
    """Creates the missing namespace of a new object; it stays when the object is rejected afterwards."""

    name = "NamespaceAutoProvision"
    operations = frozenset({CREATE})

    def admit(self, attributes: Attributes, state: State) -> None:
        """Raise NeedsExternalAnswer until the namespace is created, or StatusError if it cannot be."""
        namespace = attributes.namespace
        if attributes.dry_run or not _within(attributes) or state.peek("namespaces", "", namespace) is not None:
            return
        needed = _Provision(namespace, state)
        problem = recall_answer(needed.key)
        if problem is None:
            raise needed
        if problem:
            raise forbidden(attributes, str(problem))


class _Provision(NeedsExternalAnswer):
    """A namespace must be created. The answer is the error's message, "" if there was none."""

    def __init__(self, namespace: str, state: State) -> None:
        super().__init__(f"namespace {namespace}")
        self.key = ("namespace to provision", namespace)
        self._namespace = namespace
        self._provide = state.provide_namespace

    async def resolve(self) -> None:
        problem = ""
        try:
            await self._provide(self._namespace)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                problem = error.message
        remember_answer(self.key, problem)


def _within(attributes: Attributes) -> bool:
    return bool(attributes.namespace) and attributes.rt.resource != "namespaces"
