"""The fields of built-in kinds that a feature gate switches. strategy/gated_fields.py says what happens to them.

A field whose gate is locked in every version that can be emulated does not stand here: it is always there. The table
holds for several releases: a gate that a release does not know has no fields there, or always.
Source: the ``dropDisabledFields`` of kube-apiserver's pkg/api and pkg/registry.
"""

from __future__ import annotations

from typing import Final

from kubechronicle.api.features.versions import PROGRAM, Release
from kubechronicle.api.strategy.gated_fields import GatedField, Table, below
from kubechronicle.api.values.objects import Object

_CONTAINERS: Final = "(containers|initContainers|ephemeralContainers)[]"
_PROBES: Final = "(livenessProbe|readinessProbe|startupProbe)"
_STATUSES: Final = "status.(containerStatuses|initContainerStatuses|ephemeralContainerStatuses)[]"


def _keep_list(holder: Object, name: str, items: list[Object]) -> None:
    """Set a list, or remove it if it has no items."""
    if items:
        holder[name] = items
    else:
        holder.pop(name, None)


def _drop_image_volumes(spec: Object) -> None:
    """Remove the image volumes of a pod, and their mounts."""
    gone = {volume.get("name") for volume in spec["volumes"] if volume.get("image") is not None}
    kept = [volume for volume in spec["volumes"] if volume.get("image") is None]
    _keep_list(spec, "volumes", kept)
    for group in ("containers", "initContainers", "ephemeralContainers"):
        for container in spec.get(group) or ():
            kept = [mount for mount in container.get("volumeMounts") or () if mount.get("name") not in gone]
            _keep_list(container, "volumeMounts", kept)


def _drop_foreign_source(claim: Object) -> None:
    """Remove the data source of a claim if it is in another namespace."""
    if claim["dataSourceRef"].get("namespace"):
        del claim["dataSourceRef"]


POD_SPEC: Final = (
    GatedField(gate="UserNamespacesSupport", fields=("hostUsers",)),
    GatedField(gate="SupplementalGroupsPolicy", fields=("securityContext.supplementalGroupsPolicy",)),
    GatedField(gate="PodLevelResources", fields=("resources",), used_by=("resources.(requests|limits)",)),
    GatedField(gate="ProcMountType", fields=(f"{_CONTAINERS}.securityContext.procMount",), instead="Default"),
    GatedField(gate="MatchLabelKeysInPodTopologySpread", fields=("topologySpreadConstraints[].matchLabelKeys",)),
    GatedField(
        gate="DynamicResourceAllocation",
        fields=(f"{_CONTAINERS}.resources.claims", "resourceClaims"),
        used_by=("resourceClaims",),
    ),
    GatedField(gate="ClusterTrustBundleProjection", fields=("volumes[].projected.sources[].clusterTrustBundle",)),
    GatedField(gate="PodCertificateRequest", fields=("volumes[].projected.sources[].podCertificate",)),
    GatedField(gate="GenericWorkload", fields=("schedulingGroup",)),
    GatedField(
        gate="InPlacePodVerticalScaling",
        fields=(f"{_CONTAINERS}.resizePolicy",),
        used_by=("(containers|initContainers)[].resizePolicy",),
    ),
    GatedField(
        gate="ContainerRestartRules",
        fields=(f"{_CONTAINERS}.restartPolicyRules", "(containers|ephemeralContainers)[].restartPolicy"),
        used_by=("initContainers[].restartPolicyRules", "containers[].restartPolicy"),
    ),
    GatedField(gate="ContainerRestartRules", fields=("initContainers[].restartPolicy",), unless="Always"),
    GatedField(gate="HostnameOverride", fields=("hostnameOverride",)),
    GatedField(gate="EnvFiles", fields=(f"{_CONTAINERS}.env[].valueFrom.fileKeyRef",)),
    GatedField(gate="PodLifecycleSleepAction", fields=(f"{_CONTAINERS}.lifecycle!.(preStop|postStart)!.sleep",)),
    GatedField(gate="ImageVolume", fields=("volumes[].image",), drop=_drop_image_volumes),
    GatedField(gate="SELinuxChangePolicy", fields=("securityContext.seLinuxChangePolicy",)),
    GatedField(
        gate="AtomicWriteVolumeUserFields",
        fields=(
            "volumes[].(secret|configMap|downwardAPI|projected).defaultUser",
            "volumes[].(secret|configMap|downwardAPI).items[].user",
            "volumes[].projected.sources[].(secret|configMap|downwardAPI).items[].user",
            "volumes[].projected.sources[].(clusterTrustBundle|podCertificate|serviceAccountToken).user",
        ),
    ),
    GatedField(gate="EmptyDirVolumeMode", fields=("volumes[].emptyDir.mode",)),
    GatedField(gate="VolumeBindMountOptions", fields=(f"{_CONTAINERS}.volumeMounts[].bindMountOptions",)),
    GatedField(gate="GRPCContainerProbeTLS", fields=(f"{_CONTAINERS}.{_PROBES}.grpc.mode",)),
    GatedField(
        gate="H2CContainerProbe",
        fields=(
            f"{_CONTAINERS}.{_PROBES}.httpGet.protocol",
            f"{_CONTAINERS}.lifecycle.(postStart|preStop).httpGet.protocol",
        ),
    ),
    GatedField(gate="EvictionRequestAPI", fields=("evictionResponders",)),
    GatedField(gate="ContainerStopSignals", fields=(f"{_CONTAINERS}.lifecycle!.stopSignal",)),
)
"""Of a pod's spec, also in templates."""

POD_STATUS: Final = (
    GatedField(
        gate="InPlacePodLevelResourcesVerticalScaling", fields=("status.resources", "status.allocatedResources")
    ),
    GatedField(
        gate="InPlacePodVerticalScaling",
        fields=(f"{_STATUSES}.(resources|allocatedResources)",),
        used_by=("spec.(containers|initContainers)[].resizePolicy",),
    ),
    GatedField(
        gate="DynamicResourceAllocation",
        fields=("status.resourceClaimStatuses",),
        used_by=("spec.resourceClaims",),
    ),
    GatedField(gate="DRAExtendedResource", fields=("status.extendedResourceClaimStatus",)),
    GatedField(gate="ResourceHealthStatus", fields=(f"{_STATUSES}.allocatedResourcesStatus",)),
    GatedField(
        gate="ResourceHealthStatusMessage", fields=(f"{_STATUSES}.allocatedResourcesStatus[].resources[].message",)
    ),
    GatedField(
        gate="SupplementalGroupsPolicy",
        fields=(f"{_STATUSES}.user",),
        used_by=("spec.securityContext.supplementalGroupsPolicy",),
    ),
    GatedField(
        gate="PodObservedGenerationTracking",
        fields=("status.observedGeneration", "status.conditions[].observedGeneration"),
    ),
    GatedField(gate="ImageVolumeWithDigest", fields=(f"{_STATUSES}.volumeMounts[].volumeStatus",)),
    GatedField(gate="DRANodeAllocatableResources", fields=("status.nodeAllocatableResourceClaimStatuses",)),
    GatedField(gate="CSIVolumeHealth", since=37, fields=("status.volumeHealth",)),
)

_CLAIM_SPEC: Final = (
    GatedField(gate="DRAPrioritizedList", fields=("devices.requests[].firstAvailable",)),
    GatedField(
        gate="DRADeviceTaints",
        fields=("devices.requests[].exactly.tolerations", "devices.requests[].firstAvailable[].tolerations"),
    ),
    GatedField(gate="DRAAdminAccess", fields=("devices.requests[].exactly.adminAccess",)),
    GatedField(
        gate="DRAConsumableCapacity",
        fields=(
            "devices.constraints[].distinctAttribute",
            "devices.requests[].exactly.capacity",
            "devices.requests[].firstAvailable[].capacity",
        ),
    ),
    GatedField(
        gate="DRADerivedAttributes",
        fields=(
            "devices.requests[].exactly.derivedAttributes",
            "devices.requests[].firstAvailable[].derivedAttributes",
        ),
    ),
)
"""Of a ResourceClaim's spec, also in templates."""

_RESULTS: Final = "status.allocation.devices.results[]"
_CLAIM_STATUS: Final = (
    GatedField(gate="DRAResourceClaimDeviceStatus", fields=("status.devices",)),
    GatedField(
        gate="DRAAdminAccess",
        fields=(f"{_RESULTS}.adminAccess",),
        used_by=("spec.devices.requests[].exactly.adminAccess", f"{_RESULTS}.adminAccess"),
    ),
    GatedField(
        gate="DRAConsumableCapacity",
        fields=(f"{_RESULTS}.(shareID|consumedCapacity)", "status.devices[].shareID"),
        used_by=(
            "spec.devices.constraints[].distinctAttribute",
            "spec.devices.requests[].exactly.capacity",
            "spec.devices.requests[].firstAvailable[].capacity",
            f"{_RESULTS}.(shareID|consumedCapacity)",
            "status.devices[].shareID",
        ),
    ),
    GatedField(gate="DRADeviceBindingConditions", fields=(f"{_RESULTS}.(bindingConditions|bindingFailureConditions)",)),
    GatedField(gate="DRAOptionalNodeOperations", fields=(f"{_RESULTS}.skipNodeOperations",)),
)

_SLICE: Final = (
    GatedField(gate="DRADeviceCompatibilityGroups", fields=("spec.devices[].consumesCounters[].compatibilityGroups",)),
    GatedField(gate="DRAOptionalNodeOperations", fields=("spec.skipNodeOperations",)),
    GatedField(gate="DRAPartitionableDevicesType", fields=("spec.partitionTypeAttribute",)),
    GatedField(gate="DRADeviceTaints", fields=("spec.devices[].taints",)),
    GatedField(
        gate="DRAPartitionableDevices",
        fields=(
            "spec.(sharedCounters|perDeviceNodeSelection)",
            "spec.devices[].(consumesCounters|nodeName|nodeSelector|allNodes)",
        ),
    ),
    GatedField(
        gate="DRADeviceBindingConditions",
        gates=("DRAResourceClaimDeviceStatus",),
        fields=("spec.devices[].(bindingConditions|bindingFailureConditions|bindsToNode)",),
    ),
    GatedField(
        gate="DRAConsumableCapacity",
        fields=("spec.devices[].allowMultipleAllocations", "spec.devices[].capacity{}.requestPolicy"),
    ),
    GatedField(
        gate="DRANodeAllocatableResources",
        fields=("spec.devices[].(nodeAllocatableResourceMappings|nodeAllocatableResources)",),
    ),
    GatedField(gate="DRAListTypeAttributes", fields=("spec.devices[].attributes{}.(ints|bools|strings|versions)",)),
)

_REPLICAS: Final = (GatedField(gate="DeploymentReplicaSetTerminatingReplicas", fields=("status.terminatingReplicas",)),)
_NODE_HEALTH: Final = (GatedField(gate="CSIVolumeHealth", since=37, fields=("status.storageHealth",)),)
_TEMPLATE: Final = below("spec.template.spec", POD_SPEC)
_POD: Final = below("spec", POD_SPEC)

RELEASES: Final[Table] = {
    ("pods", ""): _POD,
    ("pods", "ephemeralcontainers"): _POD,
    ("pods", "resize"): _POD,
    ("pods", "status"): POD_STATUS,
    ("podtemplates", ""): below("template.spec", POD_SPEC),
    ("replicationcontrollers", ""): _TEMPLATE,
    ("deployments.apps", ""): _TEMPLATE,
    ("deployments.apps", "status"): _REPLICAS,
    ("replicasets.apps", ""): _TEMPLATE,
    ("replicasets.apps", "status"): _REPLICAS,
    ("daemonsets.apps", ""): _TEMPLATE,
    ("statefulsets.apps", ""): (
        *_TEMPLATE,
        GatedField(
            gate="MaxUnavailableStatefulSet", fields=("spec.updateStrategy.rollingUpdate.maxUnavailable",)
        ),
    ),
    ("jobs.batch", ""): (
        *_TEMPLATE,
        GatedField(gate="JobManagedBy", fields=("spec.managedBy",), on_create=True),
        GatedField(gate="JobPodReplacementPolicy", fields=("spec.podReplacementPolicy",)),
        GatedField(gate="WorkloadWithJob", since=37, fields=("spec.scheduling",)),
    ),
    ("cronjobs.batch", ""): (
        *below("spec.jobTemplate.spec.template.spec", POD_SPEC),
        GatedField(gate="WorkloadWithJob", since=37, fields=("spec.jobTemplate.spec.scheduling",)),
    ),
    ("nodes", ""): (
        GatedField(gate="SupplementalGroupsPolicy", fields=("status.features",)),
        GatedField(gate="NodeDeclaredFeatures", fields=("status.declaredFeatures",)),
        GatedField(gate="InPlacePodVerticalScalingSchedulerPreemption", fields=("spec.podPreemptionPolicy",)),
    ),
    ("nodes", "status"): (
        GatedField(gate="KubeletInUserNamespace", since=37, fields=("status.nodeInfo.runningInUserNamespace",)),
    ),
    ("persistentvolumes", ""): (
        GatedField(gate="VolumeAttributesClass", fields=("spec.volumeAttributesClassName",)),
    ),
    ("persistentvolumeclaims", ""): (
        GatedField(gate="VolumeAttributesClass", fields=("spec.volumeAttributesClassName",)),
        GatedField(
            gate="CrossNamespaceVolumeDataSource", base="spec", fields=("dataSourceRef",), drop=_drop_foreign_source
        ),
    ),
    ("persistentvolumeclaims", "status"): (
        GatedField(gate="VolumeAttributesClass", fields=("status.currentVolumeAttributesClassName",)),
        GatedField(gate="VolumeAttributesClass", fields=("status.modifyVolumeStatus",)),
        GatedField(gate="RecoverVolumeExpansionFailure", fields=("status.allocatedResources",)),
        GatedField(gate="RecoverVolumeExpansionFailure", fields=("status.allocatedResourceStatuses",)),
        GatedField(gate="CSIVolumeHealth", since=37, fields=("status.healthStatus",)),
    ),
    ("leases.coordination.k8s.io", ""): (
        GatedField(gate="CoordinatedLeaderElection", fields=("spec.strategy",)),
        GatedField(gate="CoordinatedLeaderElection", fields=("spec.preferredHolder",)),
    ),
    ("endpointslices.discovery.k8s.io", ""): (
        GatedField(gate="PreferSameTrafficDistribution", fields=("endpoints[].hints.forNodes",)),
    ),
    ("horizontalpodautoscalers.autoscaling", ""): (
        GatedField(gate="HPAConfigurableTolerance", fields=("spec.behavior.(scaleUp|scaleDown).tolerance",)),
    ),
    ("csidrivers.storage.k8s.io", ""): (
        GatedField(gate="SELinuxMountReadWriteOncePod", fields=("spec.seLinuxMount",)),
        GatedField(gate="MutableCSINodeAllocatableCount", fields=("spec.nodeAllocatableUpdatePeriodSeconds",)),
        GatedField(gate="CSIServiceAccountTokenSecrets", fields=("spec.serviceAccountTokenInSecrets",)),
        GatedField(gate="VolumeLimitScaling", fields=("spec.preventPodSchedulingIfMissing",)),
    ),
    ("volumeattachments.storage.k8s.io", "status"): (
        GatedField(gate="MutableCSINodeAllocatableCount", fields=("status.attachError.errorCode",)),
        GatedField(gate="MutableCSINodeAllocatableCount", fields=("status.detachError.errorCode",)),
    ),
    ("csinodes.storage.k8s.io", ""): _NODE_HEALTH,
    ("csinodes.storage.k8s.io", "status"): _NODE_HEALTH,
    ("deviceclasses.resource.k8s.io", ""): (
        GatedField(gate="DRAExtendedResource", fields=("spec.extendedResourceName",)),
    ),
    ("resourceclaims.resource.k8s.io", ""): below("spec", _CLAIM_SPEC),
    ("resourceclaims.resource.k8s.io", "status"): _CLAIM_STATUS,
    ("resourceclaimtemplates.resource.k8s.io", ""): below("spec.spec", _CLAIM_SPEC),
    ("resourceslices.resource.k8s.io", ""): _SLICE,
    ("resourcepoolstatusrequests.resource.k8s.io", ""): (
        GatedField(gate="DRAPartitionableDevicesType", since=37, fields=("spec.defaultPartitionTypeAttribute",)),
    ),
}  # fmt: skip
"""The fields of all releases that the table has been written for: 1.36 and 1.37."""


def table(release: Release) -> Table:
    """Return the fields that the types of a release have."""
    return {key: tuple(each for each in fields if each.since <= release.minor) for key, fields in RELEASES.items()}


TABLE: Final = table(PROGRAM)
