"""NamespaceLifecycle: reject creations in a missing or terminating namespace, and deletions of system namespaces
(k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle)."""

from __future__ import annotations

from collections.abc import Callable

from kubechronicle.actors.admission.chain import (
    CREATE,
    DELETE,
    UPDATE,
    AdmissionPlugin,
    AdmissionState,
    Attributes,
    forbidden,
)
from kubechronicle.actors.external_answers import NeedsExternalAnswer, recall_answer, remember_answer
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import Cause
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Key, Record

# -- namespaces --------------------------------------------------------------------------------------------------------
#
# NamespaceExists and NamespaceAutoProvision (plugin/pkg/admission/namespace of kube-apiserver). Both are disabled by
# default: NamespaceLifecycle rejects creations in missing namespaces already.


class NamespaceExists(AdmissionPlugin):
    """Rejects every write in a missing namespace, updates and deletions, too."""

    name = "NamespaceExists"
    operations = frozenset({CREATE, UPDATE, DELETE})

    def validate(self, attributes: Attributes, state: AdmissionState) -> None:
        namespace = attributes.namespace
        if _within(attributes) and state.peek("namespaces", "", namespace) is None:
            raise status.not_found("namespaces", namespace)


class NamespaceAutoProvision(AdmissionPlugin):
    """Creates the missing namespace of a new object; it stays when the object is rejected afterwards."""

    name = "NamespaceAutoProvision"
    operations = frozenset({CREATE})

    def admit(self, attributes: Attributes, state: AdmissionState) -> None:
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

    def __init__(self, namespace: str, state: AdmissionState) -> None:
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


# -- namespace lifecycle -----------------------------------------------------------------------------------------------

IMMORTAL = frozenset({"default", "kube-system", "kube-public"})
# Access reviews may name a missing namespace.
REVIEWS_GROUP = "authorization.k8s.io"


class NamespaceLifecycle(AdmissionPlugin):
    name = "NamespaceLifecycle"
    operations = frozenset({CREATE, DELETE})

    def admit(self, attributes: Attributes, state: AdmissionState) -> None:
        rt = attributes.rt
        if rt.resource == "namespaces":
            if attributes.operation == "DELETE" and attributes.name in IMMORTAL:
                raise status.forbidden(rt.resource, attributes.name, "this namespace may not be deleted")
            return
        if not attributes.namespace or rt.group == REVIEWS_GROUP or attributes.operation != "CREATE":
            return
        namespace = state.peek("namespaces", "", attributes.namespace)
        if namespace is None:
            raise status.not_found("namespaces", attributes.namespace)
        if namespace.fields.get("status.phase") == "Terminating":
            raise _terminating(rt, attributes.name, namespace)


def too_late(rt: ResourceType, record: Record, peek: Callable[[str, str, str], Entry | None]) -> StatusError | None:
    """Return the rejection of a created object whose namespace had ended or begun to end before. None: it had not.

    ``peek``: of views that hold everything committed before the object. The namespace controller may have emptied the
    namespace already, so it may miss the object.
    """
    if not rt.namespaced:
        return None
    namespace = peek("namespaces", "", record.key.namespace)
    if namespace is None or namespace.create_revision > record.revision:
        return status.not_found("namespaces", record.key.namespace)
    if namespace.revision < record.revision and namespace.fields.get("status.phase") == "Terminating":
        return _terminating(rt, record.key.name, namespace)
    return None


def changed(rt: ResourceType, key: Key, before: Entry | None, now: Entry | None) -> StatusError | None:
    """Return the rejection of a created object in another log than its namespace. None: that is still the same one.

    ``before``: the namespace before the object was committed. ``now``: after it, read consistently.
    """
    if now is None or (before is not None and now.uid != before.uid):
        return status.not_found("namespaces", key.namespace)
    return _terminating(rt, key.name, now) if now.fields.get("status.phase") == "Terminating" else None


def _terminating(rt: ResourceType, name: str, namespace: Entry) -> StatusError:
    why = f"unable to create new content in namespace {namespace.key.name} because it is being terminated"
    error = status.forbidden(rt, name, why)
    message = f"namespace {namespace.key.name} is being terminated"
    error.details = {
        **(error.details or {}),
        "causes": [Cause("NamespaceTerminating", message, "metadata.namespace").body()],
    }
    return error
