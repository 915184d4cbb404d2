"""Tables of restore_plan.py: fields and objects of the server and of controllers, and the order of kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

Condition = Callable[[Mapping[str, Any]], bool]

SERVERS_METADATA: Final = frozenset(
    {
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
        "selfLink",
    }
)

CONTROLLERS_ANNOTATIONS: Final = frozenset({
    "deployment.kubernetes.io/revision",
    "deployment.kubernetes.io/desired-replicas",
    "deployment.kubernetes.io/max-replicas",
    "deprecated.daemonset.template.generation",
    "control-plane.alpha.kubernetes.io/leader",
    "endpoints.kubernetes.io/last-change-trigger-time",
    "batch.kubernetes.io/job-tracking",
    "csi.volume.kubernetes.io/nodeid",
    "kubernetes.io/service-account.uid",
    "node.alpha.kubernetes.io/ttl",
    "pv.kubernetes.io/bind-completed",
    "pv.kubernetes.io/bound-by-controller",
    "volume.kubernetes.io/selected-node",
    "volume.kubernetes.io/storage-provisioner",
    "volume.beta.kubernetes.io/storage-provisioner",
    "volumes.kubernetes.io/controller-managed-attach-detach",
})  # fmt: skip

SERVERS_FINALIZERS: Final = frozenset(
    {
        "foregroundDeletion",
        "orphan",
        "kubernetes.io/pvc-protection",
        "kubernetes.io/pv-protection",
        "batch.kubernetes.io/job-tracking",
        "service.kubernetes.io/load-balancer-cleanup",
    }
)

# Prefix of the volume with a service account's token in a Pod (plugin/pkg/admission/serviceaccount).
VOLUME_OF_TOKENS: Final = "kube-api-access-"


def _always(_: Mapping[str, Any]) -> bool:
    return True


def _own_selector(job: Mapping[str, Any]) -> bool:
    return not (job.get("spec") or {}).get("manualSelector")


def _account_token(secret: Mapping[str, Any]) -> bool:
    return bool(secret.get("type") == "kubernetes.io/service-account-token")


_TEMPLATE_LABELS: Final = ("spec", "template", "metadata", "labels")
SERVERS_FIELDS: Final[Mapping[tuple[str, str], tuple[tuple[Condition, tuple[str, ...]], ...]]] = {
    ("", "Namespace"): ((_always, ("spec",)),),
    ("", "Service"): (
        (_always, ("spec", "clusterIP")), (_always, ("spec", "clusterIPs")), (_always, ("spec", "healthCheckNodePort")),
    ),
    ("", "Pod"): ((_always, ("spec", "nodeName")),),
    ("", "Node"): (
        (_always, ("spec", "podCIDR")), (_always, ("spec", "podCIDRs")), (_always, ("spec", "providerID")),
    ),
    ("", "PersistentVolume"): (
        (_always, ("spec", "claimRef", "uid")), (_always, ("spec", "claimRef", "resourceVersion")),
    ),
    ("", "Secret"): ((_account_token, ("data",)),),
    ("batch", "Job"): (
        (_own_selector, ("spec", "selector")),
        (_own_selector, ("metadata", "labels", "controller-uid")),
        (_own_selector, ("metadata", "labels", "batch.kubernetes.io/controller-uid")),
        (_own_selector, (*_TEMPLATE_LABELS, "controller-uid")),
        (_own_selector, (*_TEMPLATE_LABELS, "batch.kubernetes.io/controller-uid")),
        (_own_selector, (*_TEMPLATE_LABELS, "job-name")),
        (_own_selector, (*_TEMPLATE_LABELS, "batch.kubernetes.io/job-name")),
    ),
}  # fmt: skip
"""(group, kind) -> (condition, path) of fields set by the server or a controller. ``status`` is theirs always."""

LIVE_FIELDS: Final[Mapping[tuple[str, str], tuple[tuple[str, ...], ...]]] = {
    ("", "PersistentVolumeClaim"): (("spec", "volumeName"),),
}
"""(group, kind) -> paths of fields that are as they were in an object that is created again, and stay in another."""

TOLD_FIELDS: Final[Mapping[tuple[str, str], tuple[tuple[str, ...], ...]]] = {
    ("", "Service"): (("spec", "clusterIP"),),
    ("", "PersistentVolumeClaim"): (("spec", "volumeName"),),
}
"""(group, kind) -> paths of fields that a present object keeps, and whose former value a plan tells."""

CONTROLLERS: Final = frozenset({
    ("", "ReplicationController"), ("apps", "ReplicaSet"), ("apps", "StatefulSet"), ("apps", "Deployment"),
    ("apps", "DaemonSet"), ("batch", "Job"), ("batch", "CronJob"), ("", "Service"),
})  # fmt: skip
"""Kinds whose dependents are made by their controller, which makes them anew for an object that is created again."""

DATA_KINDS: Final[Mapping[tuple[str, str], str]] = {
    ("", "Namespace"): "its objects would be deleted with it",
    ("", "PersistentVolume"): "its data might be deleted with it",
    ("", "PersistentVolumeClaim"): "its data might be deleted with it",
    ("apiextensions.k8s.io", "CustomResourceDefinition"): "all its objects would be deleted with it",
}
"""Kinds that are never deleted to be created again, and the reason."""

LEFT_KINDS: Final[Mapping[tuple[str, str], str]] = {
    ("", "Event"): "it tells of what happened",
    ("events.k8s.io", "Event"): "it tells of what happened",
    ("", "Endpoints"): "its Service's controller makes it",
    ("", "ComponentStatus"): "it is no more than a look",
    ("coordination.k8s.io", "Lease"): "whoever holds it makes it",
    ("coordination.k8s.io", "LeaseCandidate"): "whoever holds it makes it",
    ("storage.k8s.io", "CSINode"): "its kubelet makes it",
    ("storage.k8s.io", "CSIStorageCapacity"): "its driver makes it",
    ("storage.k8s.io", "VolumeAttachment"): "the controller of volumes makes it",
    ("networking.k8s.io", "IPAddress"): "its Service has it",
    ("certificates.k8s.io", "CertificateSigningRequest"): "it was asked once",
    ("resource.k8s.io", "ResourceSlice"): "its driver makes it",
    ("internal.apiserver.k8s.io", "StorageVersion"): "the server makes it",
}
LEFT_MARKS: Final = (
    ("labels", "endpointslice.kubernetes.io/managed-by", "", "its Service's controller makes it"),
    ("labels", "kube-aggregator.kubernetes.io/automanaged", "", "the server makes it"),
    ("annotations", "apf.kubernetes.io/autoupdate-spec", "true", "the server makes it"),
    ("annotations", "kubernetes.io/config.mirror", "", "its kubelet makes it"),
)
"""Marks of objects made by controllers: labels or annotations, name, value ("": any), and the reason."""

NODE: Final = ("", "Node")
MADE_ONCE: Final = ("kubernetes.io/bootstrapping", "rbac-defaults")
"""Label of the default roles and bindings, which the server makes only when it starts."""
CONTROLLERS_TAINTS: Final = "node.kubernetes.io/"
"""Prefix of the taints that kubelets and controllers set; all others are of people."""

LEFT_NAMES: Final = frozenset({
    ("ConfigMap", "*", "kube-root-ca.crt"),
    ("ConfigMap", "kube-system", "extension-apiserver-authentication"),
    ("ConfigMap", "kube-system", "kube-apiserver-legacy-service-account-token-tracking"),
    ("Service", "default", "kubernetes"),
    ("EndpointSlice", "default", "kubernetes"),
    ("ServiceCIDR", "", "kubernetes"),
    ("PriorityClass", "", "system-cluster-critical"),
    ("PriorityClass", "", "system-node-critical"),
})  # fmt: skip
"""Kind, namespace and name of objects made by the server."""

_RBAC: Final = "rbac.authorization.k8s.io"
ORDER: Final[tuple[frozenset[tuple[str, str]], ...]] = (
    frozenset({("", "Namespace")}),
    frozenset({("apiextensions.k8s.io", "CustomResourceDefinition")}),
    frozenset({
        ("scheduling.k8s.io", "PriorityClass"), ("storage.k8s.io", "StorageClass"), ("node.k8s.io", "RuntimeClass"),
        ("networking.k8s.io", "IngressClass"), ("storage.k8s.io", "VolumeAttributesClass"),
        ("storage.k8s.io", "CSIDriver"), ("resource.k8s.io", "DeviceClass"), ("networking.k8s.io", "ServiceCIDR"),
    }),
    frozenset({("", "ServiceAccount"), (_RBAC, "Role"), (_RBAC, "ClusterRole")}),
    frozenset({(_RBAC, "RoleBinding"), (_RBAC, "ClusterRoleBinding")}),
    frozenset({("", "ConfigMap"), ("", "Secret")}),
    frozenset({("", "PersistentVolume")}),
    frozenset({("", "PersistentVolumeClaim")}),
    frozenset({("networking.k8s.io", "NetworkPolicy")}),
    frozenset({("", "Service"), ("discovery.k8s.io", "EndpointSlice")}),
    frozenset({("*", "*")}),
    frozenset({
        ("", "Pod"), ("", "ReplicationController"), ("apps", "ReplicaSet"), ("apps", "StatefulSet"),
        ("apps", "Deployment"), ("apps", "DaemonSet"), ("batch", "Job"), ("batch", "CronJob"),
    }),
    frozenset({
        ("networking.k8s.io", "Ingress"), ("policy", "PodDisruptionBudget"), ("autoscaling", "HorizontalPodAutoscaler"),
    }),
    frozenset({("", "LimitRange"), ("", "ResourceQuota")}),
    frozenset({
        ("apiregistration.k8s.io", "APIService"),
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"),
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"),
    }),
)  # fmt: skip
"""The order of creation: namespaces, definitions, accounts, configuration, storage, services; then custom and other
resources, workloads, their controllers, and last kinds that could reject the rest (quotas, webhooks)."""
