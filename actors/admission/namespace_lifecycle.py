"""NamespaceLifecycle: reject creations in a missing or terminating namespace, and deletions of system namespaces
(k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle)."""

from __future__ import annotations

from collections.abc import Callable

from kubechronicle.actors.admission.chain import CREATE, DELETE, AdmissionPlugin, Attributes, State
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import Cause
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Key, Record

IMMORTAL = frozenset({"default", "kube-system", "kube-public"})
# Access reviews may name a missing namespace.
REVIEWS_GROUP = "authorization.k8s.io"


class NamespaceLifecycle(AdmissionPlugin):
    name = "NamespaceLifecycle"
    operations = frozenset({CREATE, DELETE})

    def admit(self, attributes: Attributes, state: State) -> None:
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
