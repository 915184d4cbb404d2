"""The table of built-in resources: those of Kubernetes v1.37.

registry.py makes ResourceTypes of the rows. The order matters: groups as /apis lists them, versions by preference,
resources and subresources by name.

    GROUPS["apps"]["v1"] -> (Row("controllerrevisions", "ControllerRevision"), Row("daemonsets", "DaemonSet", …), …)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kubechronicle.api.registry.groups import HISTORY

FULL: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
CREATE: Final = ("create",)
READ_LIST: Final = ("get", "list")
CHANGE: Final = ("get", "patch", "update")
CONNECT: Final = ("create", "get")
PROXY: Final = ("create", "delete", "get", "patch", "update")
# A namespace's deletion takes time; deletecollection is not offered.
NO_COLLECTION: Final = ("create", "delete", "get", "list", "patch", "update", "watch")

ALL: Final = ("all",)
EXTENSIONS: Final = ("api-extensions",)


@dataclass(frozen=True, slots=True)
class Sub:
    """A subresource.

    ``kind``: the kind of its bodies, "" for the resource's own.
    ``group_version``: set if that kind belongs to another group.
    """

    name: str
    verbs: tuple[str, ...]
    kind: str = ""
    group_version: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A resource in one version. ``stored`` is False for kinds that are answered, but never stored."""

    plural: str
    kind: str
    subs: tuple[Sub, ...] = ()
    namespaced: bool = True
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = FULL
    stored: bool = True


STATUS: Final = Sub("status", CHANGE)
SCALE: Final = Sub("scale", CHANGE, "Scale", "autoscaling/v1")


def _cluster(
    plural: str,
    kind: str,
    *subs: Sub,
    short: tuple[str, ...] = (),
    categories: tuple[str, ...] = (),
    verbs: tuple[str, ...] = FULL,
) -> Row:
    return Row(plural, kind, subs, namespaced=False, short=short, categories=categories, verbs=verbs)


def _spaced(
    plural: str,
    kind: str,
    *subs: Sub,
    short: tuple[str, ...] = (),
    categories: tuple[str, ...] = (),
) -> Row:
    return Row(plural, kind, subs, short=short, categories=categories)


def _review(plural: str, kind: str, *, namespaced: bool = False) -> Row:
    return Row(plural, kind, namespaced=namespaced, verbs=CREATE, stored=False)


_POD_SUBRESOURCES = (
    Sub("attach", CONNECT, "PodAttachOptions"),
    Sub("binding", CREATE, "Binding"),
    Sub("ephemeralcontainers", CHANGE),
    Sub("eviction", CREATE, "Eviction", "policy/v1"),
    Sub("exec", CONNECT, "PodExecOptions"),
    Sub("log", ("get",)),
    Sub("portforward", CONNECT, "PodPortForwardOptions"),
    Sub("proxy", PROXY, "PodProxyOptions"),
    Sub("resize", CHANGE),
    STATUS,
)

_CORE = (
    _review("bindings", "Binding", namespaced=True),
    Row("componentstatuses", "ComponentStatus", namespaced=False, short=("cs",), verbs=READ_LIST, stored=False),
    _spaced("configmaps", "ConfigMap", short=("cm",)),
    _spaced("endpoints", "Endpoints", short=("ep",)),
    _spaced("events", "Event", short=("ev",)),
    _spaced("limitranges", "LimitRange", short=("limits",)),
    _cluster("namespaces", "Namespace", Sub("finalize", ("update",)), STATUS, short=("ns",), verbs=NO_COLLECTION),
    _cluster("nodes", "Node", Sub("proxy", PROXY, "NodeProxyOptions"), STATUS, short=("no",)),
    _spaced("persistentvolumeclaims", "PersistentVolumeClaim", STATUS, short=("pvc",)),
    _cluster("persistentvolumes", "PersistentVolume", STATUS, short=("pv",)),
    _spaced("pods", "Pod", *_POD_SUBRESOURCES, short=("po",), categories=ALL),
    _spaced("podtemplates", "PodTemplate"),
    _spaced("replicationcontrollers", "ReplicationController", SCALE, STATUS, short=("rc",), categories=ALL),
    _spaced("resourcequotas", "ResourceQuota", STATUS, short=("quota",)),
    _spaced("secrets", "Secret"),
    _spaced(
        "serviceaccounts",
        "ServiceAccount",
        Sub("token", CREATE, "TokenRequest", "authentication.k8s.io/v1"),
        short=("sa",),
    ),
    _spaced("services", "Service", Sub("proxy", PROXY, "ServiceProxyOptions"), STATUS, short=("svc",), categories=ALL),
)

_CERTIFICATES = (
    _cluster("clustertrustbundles", "ClusterTrustBundle"),
    _spaced("podcertificaterequests", "PodCertificateRequest", STATUS),
)
_TAINT_RULES = _cluster("devicetaintrules", "DeviceTaintRule", STATUS)
_DEVICES = (
    _cluster("deviceclasses", "DeviceClass"),
    _TAINT_RULES,
    _spaced("resourceclaims", "ResourceClaim", STATUS),
    _spaced("resourceclaimtemplates", "ResourceClaimTemplate"),
    _cluster("resourceslices", "ResourceSlice"),
)
_DEVICES_OF_V1BETA1 = tuple(row for row in _DEVICES if row is not _TAINT_RULES)
_MUTATING_POLICIES = (
    _cluster("mutatingadmissionpolicies", "MutatingAdmissionPolicy", categories=EXTENSIONS),
    _cluster("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", categories=EXTENSIONS),
)
_CANDIDATES = (_spaced("leasecandidates", "LeaseCandidate"),)
_IP_ADDRESSES = _cluster("ipaddresses", "IPAddress", short=("ip",))
_SERVICE_CIDRS = _cluster("servicecidrs", "ServiceCIDR", STATUS)
_ATTRIBUTES = _cluster("volumeattributesclasses", "VolumeAttributesClass", short=("vac",))
_POD_GROUPS = (_spaced("podgroups", "PodGroup", STATUS), _spaced("workloads", "Workload"))
_MIGRATIONS = (_cluster("storageversionmigrations", "StorageVersionMigration", STATUS),)
_HPA = _spaced("horizontalpodautoscalers", "HorizontalPodAutoscaler", STATUS, short=("hpa",), categories=ALL)

GROUPS: Final[Mapping[str, Mapping[str, tuple[Row, ...]]]] = {
    "": {"v1": _CORE},
    "apiregistration.k8s.io": {"v1": (_cluster("apiservices", "APIService", STATUS, categories=EXTENSIONS),)},
    "apps": {
        "v1": (
            _spaced("controllerrevisions", "ControllerRevision"),
            _spaced("daemonsets", "DaemonSet", STATUS, short=("ds",), categories=ALL),
            _spaced("deployments", "Deployment", SCALE, STATUS, short=("deploy",), categories=ALL),
            _spaced("replicasets", "ReplicaSet", SCALE, STATUS, short=("rs",), categories=ALL),
            _spaced("statefulsets", "StatefulSet", SCALE, STATUS, short=("sts",), categories=ALL),
        )
    },
    "events.k8s.io": {"v1": (_spaced("events", "Event", short=("ev",)),)},
    "authentication.k8s.io": {
        "v1": (
            _review("selfsubjectreviews", "SelfSubjectReview"),
            _review("tokenreviews", "TokenReview"),
        )
    },
    "authorization.k8s.io": {
        "v1": (
            _review("localsubjectaccessreviews", "LocalSubjectAccessReview", namespaced=True),
            _review("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
            _review("selfsubjectrulesreviews", "SelfSubjectRulesReview"),
            _review("subjectaccessreviews", "SubjectAccessReview"),
        )
    },
    "autoscaling": {"v2": (_HPA,), "v1": (_HPA,)},
    "batch": {
        "v1": (
            _spaced("cronjobs", "CronJob", STATUS, short=("cj",), categories=ALL),
            _spaced("jobs", "Job", STATUS, categories=ALL),
        )
    },
    "certificates.k8s.io": {
        "v1": (
            _cluster(
                "certificatesigningrequests",
                "CertificateSigningRequest",
                Sub("approval", CHANGE),
                STATUS,
                short=("csr",),
            ),
            *_CERTIFICATES,
        ),
        "v1beta1": _CERTIFICATES,
        "v1alpha1": _CERTIFICATES[:1],
    },
    "networking.k8s.io": {
        "v1": (
            _cluster("ingressclasses", "IngressClass"),
            _spaced("ingresses", "Ingress", STATUS, short=("ing",)),
            _IP_ADDRESSES,
            _spaced("networkpolicies", "NetworkPolicy", short=("netpol",)),
            _SERVICE_CIDRS,
        ),
        "v1beta1": (_IP_ADDRESSES, _SERVICE_CIDRS),
    },
    "policy": {"v1": (_spaced("poddisruptionbudgets", "PodDisruptionBudget", STATUS, short=("pdb",)),)},
    "rbac.authorization.k8s.io": {
        "v1": (
            _cluster("clusterrolebindings", "ClusterRoleBinding"),
            _cluster("clusterroles", "ClusterRole"),
            _spaced("rolebindings", "RoleBinding"),
            _spaced("roles", "Role"),
        )
    },
    "storage.k8s.io": {
        "v1": (
            _cluster("csidrivers", "CSIDriver"),
            _cluster("csinodes", "CSINode", STATUS),
            _spaced("csistoragecapacities", "CSIStorageCapacity"),
            _cluster("storageclasses", "StorageClass", short=("sc",)),
            _cluster("volumeattachments", "VolumeAttachment", STATUS),
            _ATTRIBUTES,
        ),
        "v1beta1": (_ATTRIBUTES,),
    },
    "admissionregistration.k8s.io": {
        "v1": (
            *_MUTATING_POLICIES,
            _cluster("mutatingwebhookconfigurations", "MutatingWebhookConfiguration", categories=EXTENSIONS),
            _cluster("validatingadmissionpolicies", "ValidatingAdmissionPolicy", STATUS, categories=EXTENSIONS),
            _cluster("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", categories=EXTENSIONS),
            _cluster("validatingwebhookconfigurations", "ValidatingWebhookConfiguration", categories=EXTENSIONS),
        ),
        "v1beta1": _MUTATING_POLICIES,
        "v1alpha1": _MUTATING_POLICIES,
    },
    "apiextensions.k8s.io": {
        "v1": (
            _cluster(
                "customresourcedefinitions",
                "CustomResourceDefinition",
                STATUS,
                short=("crd", "crds"),
                categories=EXTENSIONS,
            ),
        )
    },
    "scheduling.k8s.io": {
        "v1": (_cluster("priorityclasses", "PriorityClass", short=("pc",)),),
        "v1beta1": _POD_GROUPS,
        "v1alpha3": (_spaced("compositepodgroups", "CompositePodGroup", STATUS), *_POD_GROUPS),
    },
    "coordination.k8s.io": {"v1": (_spaced("leases", "Lease"),), "v1beta1": _CANDIDATES, "v1alpha2": _CANDIDATES},
    "node.k8s.io": {"v1": (_cluster("runtimeclasses", "RuntimeClass"),)},
    "discovery.k8s.io": {"v1": (_spaced("endpointslices", "EndpointSlice"),)},
    "resource.k8s.io": {
        "v1": _DEVICES,
        "v1beta2": _DEVICES,
        "v1beta1": _DEVICES_OF_V1BETA1,
        "v1alpha3": (
            _TAINT_RULES,
            _cluster("resourcepoolstatusrequests", "ResourcePoolStatusRequest", STATUS),
        ),
    },
    "flowcontrol.apiserver.k8s.io": {
        "v1": (
            _cluster("flowschemas", "FlowSchema", STATUS),
            _cluster("prioritylevelconfigurations", "PriorityLevelConfiguration", STATUS),
        )
    },
    "internal.apiserver.k8s.io": {"v1alpha1": (_cluster("storageversions", "StorageVersion", STATUS),)},
    "storagemigration.k8s.io": {"v1": _MIGRATIONS, "v1beta1": _MIGRATIONS},
    "lifecycle.k8s.io": {
        "v1alpha1": (
            _spaced("evictionrequests", "EvictionRequest", STATUS),
            _spaced("evictions", "Eviction", STATUS),
        )
    },
}

READ_WATCH: Final = ("get", "list", "watch")
LISTED: Final = ("list",)

OWN_GROUPS: Final[Mapping[str, Mapping[str, tuple[Row, ...]]]] = {
    HISTORY: {
        "v1": (
            Row("accessrecords", "AccessRecord", namespaced=False, verbs=READ_WATCH),
            Row("branches", "Branch", namespaced=False),
            Row("branchchanges", "BranchChange", namespaced=False, verbs=LISTED, stored=False),
            Row(
                "clusterrevisions", "ClusterRevision", namespaced=False, short=("crev",), verbs=READ_WATCH, stored=False
            ),
            Row("revisions", "Revision", short=("rev",), verbs=READ_WATCH, stored=False),
            Row("clusterreads", "ClusterRead", namespaced=False, verbs=LISTED, stored=False),
            Row("readrecordings", "ReadRecording", namespaced=False, verbs=LISTED, stored=False),
            Row("reads", "Read", verbs=LISTED, stored=False),
            _cluster("tags", "Tag"),
            _review("transactions", "Transaction"),
        )
    },
}
"""The groups of kubechronicle's own kinds, in the form of GROUPS; they have no protobuf form."""

STORED_AS: Final[Mapping[tuple[str, str], tuple[str, str]]] = {
    # The two Event APIs serve one stored resource, in the form of the older one.
    ("events.k8s.io", "events"): ("", "v1"),
    # In the newest version that a server of the minor before has, too: both work on one database (KEP-4330).
    ("certificates.k8s.io", "clustertrustbundles"): ("certificates.k8s.io", "v1beta1"),
    ("certificates.k8s.io", "podcertificaterequests"): ("certificates.k8s.io", "v1beta1"),
    ("coordination.k8s.io", "leasecandidates"): ("coordination.k8s.io", "v1beta1"),
    ("resource.k8s.io", "devicetaintrules"): ("resource.k8s.io", "v1beta2"),
    ("resource.k8s.io", "resourcepoolstatusrequests"): ("resource.k8s.io", "v1alpha3"),
    ("scheduling.k8s.io", "compositepodgroups"): ("scheduling.k8s.io", "v1alpha3"),
    ("scheduling.k8s.io", "podgroups"): ("scheduling.k8s.io", "v1beta1"),
    ("scheduling.k8s.io", "workloads"): ("scheduling.k8s.io", "v1beta1"),
    ("storagemigration.k8s.io", "storageversionmigrations"): ("storagemigration.k8s.io", "v1beta1"),
}
"""(group, plural) -> stored (group, version), if it is not the group's preferred version."""

GATES: Final[Mapping[tuple[str, str], str]] = {
    ("certificates.k8s.io", "clustertrustbundles"): "ClusterTrustBundle",
    ("certificates.k8s.io", "podcertificaterequests"): "PodCertificateRequest",
    ("lifecycle.k8s.io", "evictionrequests"): "EvictionRequestAPI",
    ("lifecycle.k8s.io", "evictions"): "EvictionRequestAPI",
    ("scheduling.k8s.io", "compositepodgroups"): "CompositePodGroup",
    ("scheduling.k8s.io", "podgroups"): "GenericWorkload",
    ("scheduling.k8s.io", "workloads"): "GenericWorkload",
    ("storagemigration.k8s.io", "storageversionmigrations"): "StorageVersionMigrator",
}
"""(group, plural) -> the feature gate without which no version of it is served."""

OF_BRANCHES: Final = frozenset({"branchchanges"})
"""Resources of our own group that are neither stored nor made of the log."""
