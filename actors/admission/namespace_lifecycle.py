"""NamespaceLifecycle: nothing is created in a namespace that does not exist or is being deleted, and the namespaces
the system stands on are not deleted (k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle)."""

from __future__ import annotations

from kubechronicle.actors.admission.chain import Attributes, State
from kubechronicle.api import status
from kubechronicle.api.field_errors import Cause
from kubechronicle.api.status import StatusError

IMMORTAL = frozenset({"default", "kube-system", "kube-public"})
# Access reviews ask about namespaces that need not exist.
REVIEWS_GROUP = "authorization.k8s.io"


class NamespaceLifecycle:
    name = "NamespaceLifecycle"

    def admit(self, attributes: Attributes, state: State) -> None:
        rt = attributes.rt
        if rt.resource == "namespaces":
            if attributes.operation == "DELETE" and attributes.name in IMMORTAL:
                raise status.forbidden(rt.resource, attributes.name, "this namespace may not be deleted")
            return
        if not rt.namespaced or rt.group == REVIEWS_GROUP or attributes.operation != "CREATE":
            return
        namespace = state.peek("namespaces", "", attributes.namespace)
        if namespace is None:
            raise status.not_found("namespaces", attributes.namespace)
        if namespace.fields.get("status.phase") == "Terminating":
            raise _terminating(attributes, namespace.object()["metadata"].get("deletionTimestamp", ""))


def _terminating(attributes: Attributes, since: str) -> StatusError:
    why = f"unable to create new content in namespace {attributes.namespace} because it is being terminated"
    error = status.forbidden(attributes.rt, attributes.name, why)
    message = f"namespace {attributes.namespace} is being terminated"
    if since:
        message += f" since {since}"
    error.details = {
        **(error.details or {}),
        "causes": [Cause("NamespaceTerminating", message, "metadata.namespace").body()],
    }
    return error
