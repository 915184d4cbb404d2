"""Enums and defaults of the published v1.36 document that are missing from the kubernetes-validate package.

Names are definition and field, as in ``core.v1.Pod.kind``; ``[]`` behind a name means the items of a list. The tables
omit zero values (``""``, ``{}``) that schemas.py derives from the types.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.certificates.validation import USAGES

# The real-time signals, sorted as text: RTMAX-1, RTMAX-10, RTMAX-11, …
_REAL_TIME: Final = (
    "RTMAX",
    *sorted(f"RTMAX-{number}" for number in range(1, 15)),
    "RTMIN",
    *sorted(f"RTMIN+{number}" for number in range(1, 16)),
)
_SIGNALS: Final = tuple(
    f"SIG{name}"
    for name in (
        *("ABRT", "ALRM", "BUS", "CHLD", "CLD", "CONT", "FPE", "HUP", "ILL", "INT", "IO", "IOT", "KILL", "PIPE"),
        *("POLL", "PROF", "PWR", "QUIT", *_REAL_TIME, "SEGV", "STKFLT"),
        *("STOP", "SYS", "TERM", "TRAP", "TSTP", "TTIN", "TTOU", "URG", "USR1", "USR2", "VTALRM", "WINCH"),
        *("XCPU", "XFSZ"),
    )
)

_ENUMS: Final = (
    (
        ("Equivalent", "Exact"),
        "admissionregistration.v1.MatchResources.matchPolicy admissionregistration.v1.MutatingWebhook.matchPolicy "
        "admissionregistration.v1.ValidatingWebhook.matchPolicy",
    ),
    (
        ("Fail", "Ignore"),
        "admissionregistration.v1.MutatingAdmissionPolicySpec.failurePolicy "
        "admissionregistration.v1.MutatingWebhook.failurePolicy "
        "admissionregistration.v1.ValidatingAdmissionPolicySpec.failurePolicy "
        "admissionregistration.v1.ValidatingWebhook.failurePolicy",
    ),
    (
        ("IfNeeded", "Never"),
        "admissionregistration.v1.MutatingAdmissionPolicySpec.reinvocationPolicy "
        "admissionregistration.v1.MutatingWebhook.reinvocationPolicy",
    ),
    (
        ("None", "NoneOnDryRun", "Some", "Unknown"),
        "admissionregistration.v1.MutatingWebhook.sideEffects admissionregistration.v1.ValidatingWebhook.sideEffects",
    ),
    (("ApplyConfiguration", "JSONPatch"), "admissionregistration.v1.Mutation.patchType"),
    (
        ("*", "CONNECT", "CREATE", "DELETE", "UPDATE"),
        "admissionregistration.v1.NamedRuleWithOperations.operations[] "
        "admissionregistration.v1.RuleWithOperations.operations[]",
    ),
    (
        ("*", "Cluster", "Namespaced"),
        "admissionregistration.v1.NamedRuleWithOperations.scope admissionregistration.v1.RuleWithOperations.scope",
    ),
    (("Audit", "Deny", "Warn"), "admissionregistration.v1.ValidatingAdmissionPolicyBindingSpec.validationActions[]"),
    (
        ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"),
        "apiextensions.v1.ValidationRule.reason",
    ),
    (("OnDelete", "RollingUpdate"), "apps.v1.DaemonSetUpdateStrategy.type apps.v1.StatefulSetUpdateStrategy.type"),
    (("Recreate", "RollingUpdate"), "apps.v1.DeploymentStrategy.type"),
    (("OrderedReady", "Parallel"), "apps.v1.StatefulSetSpec.podManagementPolicy"),
    (("Allow", "Forbid", "Replace"), "batch.v1.CronJobSpec.concurrencyPolicy"),
    (("Indexed", "NonIndexed"), "batch.v1.JobSpec.completionMode"),
    (("Failed", "TerminatingOrFailed"), "batch.v1.JobSpec.podReplacementPolicy"),
    (("In", "NotIn"), "batch.v1.PodFailurePolicyOnExitCodesRequirement.operator"),
    (("Count", "FailIndex", "FailJob", "Ignore"), "batch.v1.PodFailurePolicyRule.action"),
    (
        USAGES,
        "certificates.v1.CertificateSigningRequestSpec.usages[]",
    ),
    (("Localhost", "RuntimeDefault", "Unconfined"), "core.v1.AppArmorProfile.type core.v1.SeccompProfile.type"),
    (("None", "ReadOnly", "ReadWrite"), "core.v1.AzureDiskVolumeSource.cachingMode"),
    (("Dedicated", "Managed", "Shared"), "core.v1.AzureDiskVolumeSource.kind"),
    (
        ("Always", "IfNotPresent", "Never"),
        "core.v1.Container.imagePullPolicy core.v1.EphemeralContainer.imagePullPolicy "
        "core.v1.ImageVolumeSource.pullPolicy",
    ),
    (
        ("FallbackToLogsOnError", "File"),
        "core.v1.Container.terminationMessagePolicy core.v1.EphemeralContainer.terminationMessagePolicy",
    ),
    (
        ("SCTP", "TCP", "UDP"),
        "core.v1.ContainerPort.protocol core.v1.EndpointPort.protocol core.v1.PortStatus.protocol "
        "core.v1.ServicePort.protocol discovery.v1.EndpointPort.protocol networking.v1.IngressPortStatus.protocol "
        "networking.v1.NetworkPolicyPort.protocol",
    ),
    (_SIGNALS, "core.v1.ContainerStatus.stopSignal core.v1.Lifecycle.stopSignal"),
    (("HTTP", "HTTPS"), "core.v1.HTTPGetAction.scheme"),
    (
        ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"),
        "core.v1.HostPathVolumeSource.type",
    ),
    (("InProgress", "Infeasible", "Pending"), "core.v1.ModifyVolumeStatus.status"),
    (("Active", "Terminating"), "core.v1.NamespaceStatus.phase"),
    (("DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn"), "core.v1.NodeSelectorRequirement.operator"),
    (("Pending", "Running", "Terminated"), "core.v1.NodeStatus.phase"),
    (
        ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"),
        "core.v1.PersistentVolumeClaimSpec.accessModes[] core.v1.PersistentVolumeClaimStatus.accessModes[] "
        "core.v1.PersistentVolumeSpec.accessModes[]",
    ),
    (("Block", "Filesystem"), "core.v1.PersistentVolumeClaimSpec.volumeMode core.v1.PersistentVolumeSpec.volumeMode"),
    (("Bound", "Lost", "Pending"), "core.v1.PersistentVolumeClaimStatus.phase"),
    (
        ("Delete", "Recycle", "Retain"),
        "core.v1.PersistentVolumeSpec.persistentVolumeReclaimPolicy storage.v1.StorageClass.reclaimPolicy",
    ),
    (("Available", "Bound", "Failed", "Pending", "Released"), "core.v1.PersistentVolumeStatus.phase"),
    (("Always", "OnRootMismatch"), "core.v1.PodSecurityContext.fsGroupChangePolicy"),
    (("Merge", "Strict"), "core.v1.PodSecurityContext.supplementalGroupsPolicy"),
    (("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"), "core.v1.PodSpec.dnsPolicy"),
    (
        ("Never", "PreemptLowerPriority"),
        "core.v1.PodSpec.preemptionPolicy scheduling.v1.PriorityClass.preemptionPolicy",
    ),
    (("Always", "Never", "OnFailure"), "core.v1.PodSpec.restartPolicy"),
    (("Failed", "Pending", "Running", "Succeeded", "Unknown"), "core.v1.PodStatus.phase"),
    (("BestEffort", "Burstable", "Guaranteed"), "core.v1.PodStatus.qosClass"),
    (
        (
            "BestEffort",
            "CrossNamespacePodAffinity",
            "NotBestEffort",
            "NotTerminating",
            "PriorityClass",
            "Terminating",
            "VolumeAttributesClass",
        ),
        "core.v1.ResourceQuotaSpec.scopes[] core.v1.ScopedResourceSelectorRequirement.scopeName",
    ),
    (("DoesNotExist", "Exists", "In", "NotIn"), "core.v1.ScopedResourceSelectorRequirement.operator"),
    (("Default", "Unmasked"), "core.v1.SecurityContext.procMount"),
    (("Cluster", "Local"), "core.v1.ServiceSpec.externalTrafficPolicy core.v1.ServiceSpec.internalTrafficPolicy"),
    (("", "IPv4", "IPv6"), "core.v1.ServiceSpec.ipFamilies[]"),
    (("PreferDualStack", "RequireDualStack", "SingleStack"), "core.v1.ServiceSpec.ipFamilyPolicy"),
    (("ClientIP", "None"), "core.v1.ServiceSpec.sessionAffinity"),
    (("ClusterIP", "ExternalName", "LoadBalancer", "NodePort"), "core.v1.ServiceSpec.type"),
    (("NoExecute", "NoSchedule", "PreferNoSchedule"), "core.v1.Taint.effect core.v1.Toleration.effect"),
    (("Equal", "Exists", "Gt", "Lt"), "core.v1.Toleration.operator"),
    (
        ("Honor", "Ignore"),
        "core.v1.TopologySpreadConstraint.nodeAffinityPolicy core.v1.TopologySpreadConstraint.nodeTaintsPolicy",
    ),
    (("DoNotSchedule", "ScheduleAnyway"), "core.v1.TopologySpreadConstraint.whenUnsatisfiable"),
    (("Bidirectional", "HostToContainer", "None"), "core.v1.VolumeMount.mountPropagation"),
    (("FQDN", "IPv4", "IPv6"), "discovery.v1.EndpointSlice.addressType"),
    (("Exact", "ImplementationSpecific", "Prefix"), "networking.v1.HTTPIngressPath.pathType"),
    (("Egress", "Ingress"), "networking.v1.NetworkPolicySpec.policyTypes[]"),
    (("AlwaysAllow", "IfHealthyBudget"), "policy.v1.PodDisruptionBudgetSpec.unhealthyPodEvictionPolicy"),
    (("FromClaim", "FromClass"), "resource.v1.DeviceAllocationConfiguration.source"),
    (
        ("All", "ExactCount"),
        "resource.v1.DeviceSubRequest.allocationMode resource.v1.ExactDeviceRequest.allocationMode",
    ),
    (("NoExecute", "NoSchedule", "None"), "resource.v1.DeviceTaint.effect resource.v1.DeviceToleration.effect"),
    (("Equal", "Exists"), "resource.v1.DeviceToleration.operator"),
    (("Immediate", "WaitForFirstConsumer"), "storage.v1.StorageClass.volumeBindingMode"),
)
"""(values, the fields with this enum)"""

_DEFAULTS: Final = (
    (
        "",
        "core.v1.ConfigMapEnvSource.name core.v1.ConfigMapKeySelector.name core.v1.ConfigMapProjection.name "
        "core.v1.ConfigMapVolumeSource.name core.v1.GRPCAction.service core.v1.LocalObjectReference.name "
        "core.v1.SecretEnvSource.name core.v1.SecretKeySelector.name core.v1.SecretProjection.name",
    ),
    (False, "core.v1.AzureDiskVolumeSource.readOnly core.v1.FileKeySelector.optional"),
    (0, "autoscaling.v1.ScaleSpec.replicas core.v1.ReplicationControllerSpec.minReadySeconds"),
    (1, "core.v1.ReplicationControllerSpec.replicas"),
    (86400, "certificates.v1beta1.PodCertificateRequestSpec.maxExpirationSeconds"),
    ("/etc/ceph/keyring", "core.v1.RBDPersistentVolumeSource.keyring core.v1.RBDVolumeSource.keyring"),
    ("Equal", "resource.v1.DeviceToleration.operator"),
    ("ReadWrite", "core.v1.AzureDiskVolumeSource.cachingMode"),
    ("Shared", "core.v1.AzureDiskVolumeSource.kind"),
    ("TCP", "core.v1.ContainerPort.protocol core.v1.ServicePort.protocol"),
    ("ThinProvisioned", "core.v1.ScaleIOPersistentVolumeSource.storageMode core.v1.ScaleIOVolumeSource.storageMode"),
    ("admin", "core.v1.RBDPersistentVolumeSource.user core.v1.RBDVolumeSource.user"),
    ("default", "core.v1.ISCSIPersistentVolumeSource.iscsiInterface core.v1.ISCSIVolumeSource.iscsiInterface"),
    ("ext4", "core.v1.AzureDiskVolumeSource.fsType"),
    ("rbd", "core.v1.RBDPersistentVolumeSource.pool core.v1.RBDVolumeSource.pool"),
    ("xfs", "core.v1.ScaleIOPersistentVolumeSource.fsType core.v1.ScaleIOVolumeSource.fsType"),
)
"""(default, the fields with this default)"""


@functools.cache
def _by_field(table: tuple[tuple[Any, str], ...]) -> Mapping[str, Any]:
    return {name: value for value, names in table for name in names.split()}


def enum(definition: str, field: str) -> tuple[str, ...] | None:
    """Return the enum of a field of ``core.v1.Pod`` (``field[]`` for a list's items), None if there is none."""
    values: tuple[str, ...] | None = _look_up(_ENUMS, definition, field)
    return values


def default(definition: str, field: str) -> Any:
    """Return the default of a field, None if there is none."""
    return _look_up(_DEFAULTS, definition, field)


def _look_up(table: tuple[tuple[Any, str], ...], definition: str, field: str) -> Any:
    """Return the definition's row. A beta or alpha version without one has that of the stable version."""
    rows = _by_field(table)
    found = rows.get(f"{definition}.{field}")
    if found is not None:
        return found
    group, version, kind = definition.rsplit(".", 2) if definition.count(".") > 1 else ("", "", "")
    stable = version.partition("alpha")[0].partition("beta")[0]
    return rows.get(f"{group}.{stable}.{kind}.{field}") if stable != version else None
