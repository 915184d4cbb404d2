"""The values that expressions of policies read: the request, the objects, and the namespace.

Source: k8s.io/apiserver ``pkg/admission/plugin/cel/condition.go`` (CreateAdmissionRequest, CreateNamespaceObject).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kubechronicle.api.admission.matching import kind_of
from kubechronicle.api.cel.library.authorization import AuthorizerQuestion, AuthorizerValue, Decide, ResourceCheck
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.objects import ReadOnlyObject

_NAMESPACE_METADATA: Final = (
    "name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp",
    "deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations", "finalizers",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRequest:
    """The request that a policy decides on.

    ``name``: of the object, "" before a name is made from generateName.
    ``namespace``: "" for a cluster-scoped object; a namespace has its own.
    ``user``: username, uid, groups and extra; without empty members.
    ``options``: those of the operation, as an object; None: they are unknown.
    ``decide``: answers the questions of ``authorizer``.
    """

    rt: ResourceType
    subresource: str
    operation: str
    name: str
    namespace: str
    dry_run: bool
    user: Mapping[str, Any]
    decide: Decide
    options: ReadOnlyObject | None = None
    authorizer: Mapping[str, Any] = field(init=False)
    """The variables that ask for rights."""

    def __post_init__(self) -> None:
        check = ResourceCheck(
            self.decide,
            AuthorizerQuestion(
                group=self.rt.group,
                resource=self.rt.plural,
                subresource=self.subresource,
                namespace=self.namespace,
                name=self.name,
            ),
        )
        values = {"authorizer": AuthorizerValue(self.decide), "authorizer.requestResource": check}
        object.__setattr__(self, "authorizer", values)


def request_value(request: PolicyRequest, matched: ResourceType) -> dict[str, Any]:
    """Return the variable ``request``. ``matched``: the type in whose version the policy matches."""
    optional: dict[str, Any] = {
        "subResource": request.subresource,
        "requestSubResource": request.subresource,
        "name": request.name,
        "namespace": request.namespace,
    }
    return {
        "uid": "",
        "kind": _kind(matched, request.subresource),
        "resource": _resource(matched),
        "requestKind": _kind(request.rt, request.subresource),
        "requestResource": _resource(request.rt),
        **{name: value for name, value in optional.items() if value},
        "operation": request.operation,
        "userInfo": request.user,
        "object": None,
        "oldObject": None,
        "dryRun": request.dry_run,
        "options": request.options,
    }


def _kind(rt: ResourceType, subresource: str) -> dict[str, str]:
    group, version, kind = kind_of(rt, subresource) or (rt.group, rt.version, rt.kind)
    return {"group": group, "version": version, "kind": kind}


def _resource(rt: ResourceType) -> dict[str, str]:
    return {"group": rt.group, "version": rt.version, "resource": rt.plural}


def namespace_value(namespace: ReadOnlyObject) -> dict[str, Any]:
    """Return the variable ``namespaceObject``: a namespace without the fields that expressions do not see."""
    meta = namespace["metadata"]
    return {
        "metadata": {name: meta[name] for name in _NAMESPACE_METADATA if name in meta},
        "spec": namespace.get("spec") or {},
        "status": namespace.get("status") or {},
    }
