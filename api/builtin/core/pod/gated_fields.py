"""The fields of a pod that a feature gate switches. strategy/gated_fields.py says what happens to them.

A field whose gate is locked in every version that can be emulated does not stand here: it is always there.
Source: ``dropDisabledFields`` of kube-apiserver's pkg/api/pod.
"""

from __future__ import annotations

from typing import Final

from kubechronicle.api.strategy.gated_fields import GatedField
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
