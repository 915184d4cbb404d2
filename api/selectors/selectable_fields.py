"""The selectable fields of each resource, and their getters on a stored object.

A table: for each storage resource the selectable fields other than ``metadata.name`` and ``metadata.namespace``; for
each served kind the names for clients, and the text of the rejection. Source: each kind's field label conversion, and
its registry strategy's selectable fields in Kubernetes. Parsing and matching: field_selectors.py.

A selector matches the *stored* form. A client of events.k8s.io/v1 uses ``regarding.name``, which is renamed to
``involvedObject.name`` before the match.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kubechronicle.api.values.objects import ReadOnlyObject

# -- revision fields ---------------------------------------------------------------------------------------------------
#
# The selectable fields of revisions, as a table. api/history and the log give them their meaning.
#
# object.kind=Deployment,object.name=web,time.from=2h        changes of the last two hours
# who.actor=jane,noise=hidden                                jane's changes, as herself or as another user
# who.username!=system:admin,changed=spec.replicas           changes of the number of replicas by other users
# cause=4711                                                 changes with this recorded cause, its consequences
# reason=ticket 42                                           changes with this text in their reason, in any case


TEXT_FIELDS: Final[Mapping[str, str]] = {
    "metadata.namespace": "namespace",
    "object.namespace": "namespace",
    "object.name": "name",
    "object.uid": "uid",
    "who.username": "user_name",
    "who.impersonator": "impersonator",
    "who.actor": "actor",
    "who.userAgent": "user_agent",
    "who.sourceAddress": "source_address",
    "who.fieldManager": "field_manager",
    "request.verb": "verb",
    "request.subresource": "subresource",
    "request.auditID": "audit_id",
}
"""Fields that are columns of the log. A value that ends in * is a prefix. The actor is the user or its impersonator."""

KIND_FIELDS: Final = ("object.kind", "object.resource", "object.apiVersion")
"""The kind of objects: Deployment; deployments, deploy or deployments.apps; apps/v1. Upper or lower case."""

BOUNDS: Final = ("revision.from", "revision.after", "revision.to", "time.from", "time.to")
"""The first revision, or the one before it, and the last one; the first and last time, absolute or as an age."""

REASON: Final = "reason"
CAUSE: Final = "cause"

FIELDS: Final = ("metadata.name", *TEXT_FIELDS, *KIND_FIELDS, *BOUNDS, "operation", "changed", "noise", REASON, CAUSE)


Getter = Callable[[ReadOnlyObject], str]

NAME: Final = "metadata.name"
NAMESPACE: Final = "metadata.namespace"


def text(value: Any) -> str:
    """Return a field's value as selectors compare it: Go's formatting of strings, booleans and numbers."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def path(*names: str, default: str = "") -> Getter:
    """Return a getter of a nested field, ``default`` if it is absent."""

    def get(obj: ReadOnlyObject) -> str:
        value: Any = obj
        for name in names:
            value = value.get(name) if isinstance(value, dict) else None
            if value is None:
                return default
        return text(value)

    return get


def dotted(name: str, default: str = "") -> tuple[str, Getter]:
    """Return (name, getter) of a field with its path as its selectable name."""
    return name, path(*name.split("."), default=default)


def _event_source(obj: ReadOnlyObject) -> str:
    return path("source", "component")(obj) or path("reportingComponent")(obj)


SELECTABLE: Final[Mapping[str, tuple[tuple[str, Getter], ...]]] = {
    "pods": (
        dotted("spec.nodeName"),
        dotted("spec.restartPolicy"),
        dotted("spec.schedulerName"),
        dotted("spec.serviceAccountName"),
        dotted("spec.hostNetwork", "false"),
        dotted("status.phase"),
        dotted("status.podIP"),
        dotted("status.nominatedNodeName"),
    ),
    "events": (
        dotted("involvedObject.kind"),
        dotted("involvedObject.namespace"),
        dotted("involvedObject.name"),
        dotted("involvedObject.uid"),
        dotted("involvedObject.apiVersion"),
        dotted("involvedObject.resourceVersion"),
        dotted("involvedObject.fieldPath"),
        dotted("reason"),
        dotted("reportingComponent"),
        ("source", _event_source),
        dotted("type"),
    ),
    "namespaces": (dotted("status.phase"),),
    "nodes": (dotted("spec.unschedulable", "false"),),
    "replicationcontrollers": (dotted("status.replicas", "0"),),
    "secrets": (dotted("type"),),
    "services": (dotted("spec.clusterIP"), dotted("spec.type")),
    "jobs.batch": (("status.successful", path("status", "succeeded", default="0")),),
    "certificatesigningrequests.certificates.k8s.io": (dotted("spec.signerName"),),
    "clustertrustbundles.certificates.k8s.io": (dotted("spec.signerName"),),
    "podcertificaterequests.certificates.k8s.io": (
        dotted("spec.signerName"),
        dotted("spec.podName"),
        dotted("spec.nodeName"),
    ),
    "resourceslices.resource.k8s.io": (dotted("spec.nodeName"), dotted("spec.driver"), dotted("spec.pool.name")),
}
"""Storage resource -> its own selectable fields."""


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary:
    """The labels for clients of one served kind: label -> stored field; and the rejection, with %s for the label."""

    names: Mapping[str, str]
    refusal: str


_UNSUPPORTED: Final = "field label not supported: %s"


def _vocabulary(*names: str, refusal: str = _UNSUPPORTED, **renamed: str) -> Vocabulary:
    return Vocabulary({name: name for name in names} | renamed, refusal)


_INVOLVED: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")

_REVISION: Final = _vocabulary(
    *FIELDS,
    refusal=f'"%s" is not a known field selector of revisions: there are {", ".join(FIELDS)}',
)

READ_FIELDS: Final = (
    NAMESPACE, "object.resource", "object.name", "who.username", "request.verb", "time.from", "time.to",
)  # fmt: skip
"""The selectable fields of recorded reads. ``object.name`` selects lists and watches of all objects, too."""

_READ: Final = _vocabulary(
    *READ_FIELDS, refusal=f'"%s" is not a known field selector of reads: there are {", ".join(READ_FIELDS)}'
)

VOCABULARIES: Final[Mapping[tuple[str, str, str], Vocabulary]] = {
    ("", "v1", "Pod"): Vocabulary(
        {name: name for name in (NAME, NAMESPACE, "status.podIPs", *(field for field, _ in SELECTABLE["pods"]))}
        # Sent by v1 clients of Kubernetes 1.0.
        | {"spec.host": "spec.nodeName"},
        _UNSUPPORTED,
    ),
    ("", "v1", "Node"): _vocabulary(NAME, "spec.unschedulable"),
    ("", "v1", "ReplicationController"): _vocabulary(NAME, NAMESPACE, "status.replicas"),
    ("", "v1", "Event"): _vocabulary(NAME, NAMESPACE, *(field for field, _ in SELECTABLE["events"])),
    ("", "v1", "Namespace"): _vocabulary(NAME, "status.phase"),
    ("", "v1", "Secret"): _vocabulary(NAME, NAMESPACE, "type"),
    ("", "v1", "Service"): _vocabulary(NAME, NAMESPACE, "spec.clusterIP", "spec.type"),
    ("events.k8s.io", "v1", "Event"): Vocabulary(
        {name: name for name in (NAME, NAMESPACE, "reason", "type")}
        | {f"regarding.{name}": f"involvedObject.{name}" for name in _INVOLVED}
        | {"reportingController": "reportingComponent"},
        _UNSUPPORTED,
    ),
    ("batch", "v1", "Job"): _vocabulary(
        NAME, NAMESPACE, "status.successful", refusal='field label "%s" not supported for Job'
    ),
    ("certificates.k8s.io", "v1", "CertificateSigningRequest"): _vocabulary(NAME, "spec.signerName"),
    **{
        ("certificates.k8s.io", version, kind): _vocabulary(NAME, "spec.signerName", *more)
        for version in ("v1", "v1beta1", "v1alpha1")
        for kind, more in (("ClusterTrustBundle", ()), ("PodCertificateRequest", ("spec.podName", "spec.nodeName")))
    },
    **{
        ("resource.k8s.io", version, "ResourceSlice"): _vocabulary(
            NAME,
            "spec.nodeName",
            "spec.driver",
            "spec.pool.name",
            refusal=f"field label not supported for resource.k8s.io/{version}, Kind=ResourceSlice: %s",
        )
        for version in ("v1", "v1beta2", "v1beta1")
    },
    ("history.kubechronicle.dev", "v1", "Revision"): _REVISION,
    ("history.kubechronicle.dev", "v1", "ClusterRevision"): _REVISION,
    ("history.kubechronicle.dev", "v1", "Read"): _READ,
    ("history.kubechronicle.dev", "v1", "ClusterRead"): _READ,
}
"""(group, version, kind) -> vocabulary, for kinds with their own."""

DEFAULT: Final = Vocabulary(
    {NAME: NAME, NAMESPACE: NAMESPACE},
    f'"%s" is not a known field selector: only "{NAME}", "{NAMESPACE}"',
)
"""The vocabulary of all other built-in kinds."""


def custom_vocabulary(selectable: tuple[str, ...], *, namespaced: bool) -> Vocabulary:
    """Return a custom resource's vocabulary. ``selectable`` are paths without the leading dot."""
    return _vocabulary(NAME, *((NAMESPACE,) if namespaced else ()), *selectable)
