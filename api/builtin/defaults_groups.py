"""Defaults of the kinds outside the core group, in the same form as defaults.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kubechronicle.api.values.objects import Object

RBAC: Final = "rbac.authorization.k8s.io"
MAX_INT32: Final = 2**31 - 1

_WEBHOOK: Final[Mapping[str, Any]] = {
    "failurePolicy": "Fail",
    "matchPolicy": "Equivalent",
    "namespaceSelector": {},
    "objectSelector": {},
    "timeoutSeconds": 10,
}

VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    "apps.v1.DeploymentSpec": {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600},
    "apps.v1.ReplicaSetSpec": {"replicas": 1},
    "apps.v1.DaemonSetSpec": {"revisionHistoryLimit": 10},
    "apps.v1.StatefulSetSpec": {
        "podManagementPolicy": "OrderedReady",
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "persistentVolumeClaimRetentionPolicy": {},
    },
    "apps.v1.StatefulSetPersistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
    "batch.v1.CronJobSpec": {
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    },
    "batch.v1.PodFailurePolicyOnPodConditionsPattern": {"status": "True"},
    "networking.v1.NetworkPolicyPort": {"protocol": "TCP"},
    "networking.v1.IngressClassParametersReference": {"scope": "Cluster"},
    "rbac.v1.RoleRef": {"apiGroup": RBAC},
    "storage.v1.StorageClass": {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
    "storage.v1.CSIDriverSpec": {
        "attachRequired": True,
        "podInfoOnMount": False,
        "storageCapacity": False,
        "fsGroupPolicy": "ReadWriteOnceWithFSType",
        "volumeLifecycleModes": ["Persistent"],
        "requiresRepublish": False,
        "seLinuxMount": False,
    },
    "scheduling.v1.PriorityClass": {"preemptionPolicy": "PreemptLowerPriority"},
    "discovery.v1.EndpointPort": {"name": "", "protocol": "TCP"},
    "admissionregistration.v1.ValidatingWebhook": _WEBHOOK,
    "admissionregistration.v1.MutatingWebhook": {**_WEBHOOK, "reinvocationPolicy": "Never"},
    "admissionregistration.v1.Rule": {"scope": "*"},
    "admissionregistration.v1.RuleWithOperations": {"scope": "*"},
    "admissionregistration.v1.NamedRuleWithOperations": {"scope": "*"},
    "admissionregistration.v1.ServiceReference": {"port": 443},
    "admissionregistration.v1.MatchResources": {
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
    },
    "admissionregistration.v1.ValidatingAdmissionPolicySpec": {"failurePolicy": "Fail"},
    "admissionregistration.v1.MutatingAdmissionPolicySpec": {"failurePolicy": "Fail"},
    "apiregistration.v1.ServiceReference": {"port": 443},
    "resource.v1.ExactDeviceRequest": {},
    "resource.v1.DeviceToleration": {"operator": "Equal"},
    "autoscaling.v2.HorizontalPodAutoscalerSpec": {"minReplicas": 1},
    "autoscaling.v1.HorizontalPodAutoscalerSpec": {"minReplicas": 1},
}


def deployment(obj: Object) -> None:
    """A rolling update replaces a quarter at a time."""
    strategy = obj["spec"].setdefault("strategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")


TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"
"""Annotation in which old clients find how often the template has changed."""


def daemon_set(obj: Object) -> None:
    """A rolling update replaces one node's pod at a time."""
    strategy = obj["spec"].setdefault("updateStrategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    obj["metadata"].setdefault("annotations", {}).setdefault(TEMPLATE_GENERATION, "0")


def stateful_set(obj: Object) -> None:
    """A rolling update goes over all pods."""
    strategy = obj["spec"].setdefault("updateStrategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        if not strategy.get("rollingUpdate"):
            strategy["rollingUpdate"] = {"partition": 0}
    if strategy["type"] == "RollingUpdate" and strategy.get("rollingUpdate") is not None:
        strategy["rollingUpdate"].setdefault("partition", 0)


def stateful_set_claims(obj: Object) -> None:
    """Claim templates carry their type, as Kubernetes' decoder leaves it there."""
    for claim in obj["spec"].get("volumeClaimTemplates") or ():
        claim.setdefault("apiVersion", "v1")
        claim.setdefault("kind", "PersistentVolumeClaim")


def _stateful_set(obj: Object) -> None:
    stateful_set(obj)
    stateful_set_claims(obj)


def job(obj: Object) -> None:
    """Jobs run one pod once unless told otherwise."""
    spec = obj["spec"]
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    if spec.get("backoffLimit") is None:
        spec["backoffLimit"] = MAX_INT32 if spec.get("backoffLimitPerIndex") is not None else 6
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if labels and not obj["metadata"].get("labels"):
        obj["metadata"]["labels"] = dict(labels)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    if spec.get("podReplacementPolicy") is None:
        spec["podReplacementPolicy"] = "Failed" if spec.get("podFailurePolicy") is not None else "TerminatingOrFailed"
    spec.setdefault("manualSelector", False)


def network_policy(obj: Object) -> None:
    """A policy is about ingress, and about egress if it has rules for it."""
    spec = obj["spec"]
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


def subject(obj: Object) -> None:
    """Users and groups belong to RBAC's API group."""
    if not obj.get("apiGroup") and obj.get("kind") in ("User", "Group"):
        obj["apiGroup"] = RBAC


def autoscaler_v2(obj: Object) -> None:
    """Without metrics, half or more of the requested CPU: 80 %; scaling rules have known steps."""
    spec = obj["spec"]
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    behavior = spec.get("behavior")
    if behavior is None:
        return
    behavior["scaleUp"] = _scaling_rules(
        behavior.get("scaleUp"),
        {
            "stabilizationWindowSeconds": 0,
            "policies": [
                {"type": "Pods", "value": 4, "periodSeconds": 15},
                {"type": "Percent", "value": 100, "periodSeconds": 15},
            ],
        },
    )
    behavior["scaleDown"] = _scaling_rules(
        behavior.get("scaleDown"), {"policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}
    )


def _scaling_rules(given: Object | None, fallback: Object) -> Object:
    rules: Object = {**fallback, "selectPolicy": "Max"}
    for name, value in (given or {}).items():
        if value is not None:
            rules[name] = value
    return rules


def autoscaler_v1(obj: Object) -> None:
    """The same target as in v2, unless metrics stand in the annotation that holds them."""
    notes = obj["metadata"].get("annotations") or {}
    spec = obj["spec"]
    if spec.get("targetCPUUtilizationPercentage") is None and "autoscaling.alpha.kubernetes.io/metrics" not in notes:
        spec["targetCPUUtilizationPercentage"] = 80


def disruption_budget(obj: Object) -> None:
    """The key that policy/v1beta1 says "all pods" with means nothing in a selector that says something else. (This is
    part of the decoding of policy/v1, not of its defaults, but it comes at the same time.)"""
    from kubechronicle.api.builtin.conversions_legacy import strip_pdb_label

    strip_pdb_label(obj["spec"])


def api_service(obj: Object) -> None:
    """A service is reached at the HTTPS port."""
    reference = obj["spec"].get("service")
    if reference is not None and reference.get("port") is None:
        reference["port"] = 443


def custom_resource_definition(obj: Object) -> None:
    """Names that follow from the kind, and where converters are asked."""
    spec = obj["spec"]
    spec_names = spec.setdefault("names", {})
    kind = spec_names.get("kind", "")
    if kind:
        spec_names["singular"] = spec_names.get("singular") or kind.lower()
        spec_names["listKind"] = spec_names.get("listKind") or f"{kind}List"
    if spec.get("conversion") is None:
        spec["conversion"] = {"strategy": "None"}
    service_reference = ((spec["conversion"].get("webhook") or {}).get("clientConfig") or {}).get("service")
    if service_reference is not None and service_reference.get("port") is None:
        service_reference["port"] = 443


def exact_device_request(obj: Object) -> None:
    """One device, counted exactly."""
    if not obj.get("allocationMode"):
        obj["allocationMode"] = "ExactCount"
    if obj["allocationMode"] == "ExactCount" and not obj.get("count"):
        obj["count"] = 1


def flow_schema_spec(obj: Object) -> None:
    """Schemas come late in the matching order unless told otherwise."""
    if not obj.get("matchingPrecedence"):
        obj["matchingPrecedence"] = 1000


def limited_priority_level(obj: Object) -> None:
    """Shares and queues of a limited priority level."""
    if obj.get("nominalConcurrencyShares") is None:
        obj["nominalConcurrencyShares"] = 30
    if obj.get("lendablePercent") is None:
        obj["lendablePercent"] = 0


def queuing(obj: Object) -> None:
    """64 queues of 50 requests; each flow is dealt 8 of them."""
    for name, value in (("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)):
        if not obj.get(name):
            obj[name] = value


def exempt_priority_level(obj: Object) -> None:
    """An exempt level neither is given nor lends seats."""
    if obj.get("nominalConcurrencyShares") is None:
        obj["nominalConcurrencyShares"] = 0
    if obj.get("lendablePercent") is None:
        obj["lendablePercent"] = 0


FUNCTIONS: Final[Mapping[str, Callable[[Object], None]]] = {
    "apps.v1.Deployment": deployment,
    "apps.v1.DaemonSet": daemon_set,
    "apps.v1.StatefulSet": _stateful_set,
    "batch.v1.Job": job,
    "networking.v1.NetworkPolicy": network_policy,
    "rbac.v1.Subject": subject,
    "autoscaling.v2.HorizontalPodAutoscaler": autoscaler_v2,
    "autoscaling.v1.HorizontalPodAutoscaler": autoscaler_v1,
    "policy.v1.PodDisruptionBudget": disruption_budget,
    "apiregistration.v1.APIService": api_service,
    "apiextensions.v1.CustomResourceDefinition": custom_resource_definition,
    "resource.v1.ExactDeviceRequest": exact_device_request,
    "resource.v1.DeviceSubRequest": exact_device_request,
    "flowcontrol.v1.FlowSchemaSpec": flow_schema_spec,
    "flowcontrol.v1.LimitedPriorityLevelConfiguration": limited_priority_level,
    "flowcontrol.v1.ExemptPriorityLevelConfiguration": exempt_priority_level,
    "flowcontrol.v1.QueuingConfiguration": queuing,
}
