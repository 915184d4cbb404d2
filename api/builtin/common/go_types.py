"""Kubernetes' internal types for pods, volumes and claims; go_shapes.py prints records of them in messages.

Each row lists the members of a type in order: ``Name``, or ``Name=jsonName`` if the JSON name does not follow from the
Go name. A type code follows after a colon:

    nothing      a string                       :i   a number           :b   a truth value
    :n           a pointer to any of these      :l   a list of them     :m   a map
    :q           an amount, 0 if absent         :p   a port by number or name
    :s           a label selector               :*T  a pointer to a T   :[]T a list of T   :T   a T
    ..T          the members of T, in this place
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_SECRET_REF: Final = "SecretRef:*LocalObjectReference"
_PV_SECRET_REF: Final = "SecretRef:*SecretReference"
_DISK: Final = "FSType Partition:i ReadOnly:b"
_RBD: Final = "CephMonitors=monitors:l RBDImage=image FSType RBDPool=pool RadosUser=user Keyring"
_ISCSI: Final = (
    "TargetPortal IQN Lun:i ISCSIInterface FSType ReadOnly:b Portals:l DiscoveryCHAPAuth=chapAuthDiscovery:b "
    "SessionCHAPAuth=chapAuthSession:b"
)
_SCALE_IO: Final = (
    "SSLEnabled:b ProtectionDomain StoragePool StorageMode VolumeName FSType ReadOnly:b"  # after the secret's reference
)
_TERMS: Final = (
    "RequiredDuringSchedulingIgnoredDuringExecution:[]PodAffinityTerm "
    "PreferredDuringSchedulingIgnoredDuringExecution:[]WeightedPodAffinityTerm"
)

_CONTAINER: Final = (
    "Name Image Command:l Args:l WorkingDir Ports:[]ContainerPort EnvFrom:[]EnvFromSource Env:[]EnvVar "
    "Resources:ResourceRequirements ResizePolicy:[]ContainerResizePolicy RestartPolicy:n "
    "RestartPolicyRules:[]ContainerRestartRule VolumeMounts:[]VolumeMount VolumeDevices:[]VolumeDevice "
    "LivenessProbe:*Probe ReadinessProbe:*Probe StartupProbe:*Probe Lifecycle:*Lifecycle TerminationMessagePath "
    "TerminationMessagePolicy ImagePullPolicy SecurityContext:*SecurityContext Stdin:b StdinOnce:b TTY:b"
)

TYPES: Final[Mapping[str, str]] = {
    # -- references
    "LocalObjectReference": "Name",
    "SecretReference": "Name Namespace",
    "ObjectReference": "Kind Namespace Name UID=uid APIVersion ResourceVersion FieldPath",
    "TypedLocalObjectReference": "APIGroup:n Kind Name",
    "TypedObjectReference": "APIGroup:n Kind Name Namespace:n",
    "KeyToPath": "Key Path Mode:n",
    "ObjectFieldSelector": "APIVersion FieldPath",
    "ResourceFieldSelector": "ContainerName Resource Divisor:q",
    # -- volumes of pods
    "Volume": "Name ..VolumeSource",
    "VolumeSource": (
        "HostPath:*HostPathVolumeSource EmptyDir:*EmptyDirVolumeSource "
        "GCEPersistentDisk:*GCEPersistentDiskVolumeSource AWSElasticBlockStore:*AWSElasticBlockStoreVolumeSource "
        "GitRepo:*GitRepoVolumeSource Secret:*SecretVolumeSource NFS:*NFSVolumeSource ISCSI:*ISCSIVolumeSource "
        "Glusterfs:*GlusterfsVolumeSource PersistentVolumeClaim:*PersistentVolumeClaimVolumeSource "
        "RBD:*RBDVolumeSource Quobyte:*QuobyteVolumeSource FlexVolume:*FlexVolumeSource Cinder:*CinderVolumeSource "
        "CephFS=cephfs:*CephFSVolumeSource Flocker:*FlockerVolumeSource DownwardAPI:*DownwardAPIVolumeSource "
        "FC:*FCVolumeSource AzureFile:*AzureFileVolumeSource ConfigMap:*ConfigMapVolumeSource "
        "VsphereVolume:*VsphereVirtualDiskVolumeSource AzureDisk:*AzureDiskVolumeSource "
        "PhotonPersistentDisk:*PhotonPersistentDiskVolumeSource Projected:*ProjectedVolumeSource "
        "PortworxVolume:*PortworxVolumeSource ScaleIO:*ScaleIOVolumeSource StorageOS=storageos:*StorageOSVolumeSource "
        "CSI:*CSIVolumeSource Ephemeral:*EphemeralVolumeSource Image:*ImageVolumeSource"
    ),
    "HostPathVolumeSource": "Path Type:n",
    "EmptyDirVolumeSource": "Medium SizeLimit:n",
    "GCEPersistentDiskVolumeSource": f"PDName {_DISK}",
    "AWSElasticBlockStoreVolumeSource": f"VolumeID {_DISK}",
    "GitRepoVolumeSource": "Repository Revision Directory",
    "SecretVolumeSource": "SecretName Items:[]KeyToPath DefaultMode:n Optional:n",
    "NFSVolumeSource": "Server Path ReadOnly:b",
    "ISCSIVolumeSource": f"{_ISCSI} {_SECRET_REF} InitiatorName:n",
    "GlusterfsVolumeSource": "EndpointsName=endpoints Path ReadOnly:b",
    "PersistentVolumeClaimVolumeSource": "ClaimName ReadOnly:b",
    "RBDVolumeSource": f"{_RBD} {_SECRET_REF} ReadOnly:b",
    "QuobyteVolumeSource": "Registry Volume ReadOnly:b User Group Tenant",
    "FlexVolumeSource": f"Driver FSType {_SECRET_REF} ReadOnly:b Options:m",
    "CinderVolumeSource": f"VolumeID FSType ReadOnly:b {_SECRET_REF}",
    "CephFSVolumeSource": f"Monitors:l Path User SecretFile {_SECRET_REF} ReadOnly:b",
    "FlockerVolumeSource": "DatasetName DatasetUUID",
    "DownwardAPIVolumeSource": "Items:[]DownwardAPIVolumeFile DefaultMode:n",
    "DownwardAPIVolumeFile": ("Path FieldRef:*ObjectFieldSelector ResourceFieldRef:*ResourceFieldSelector Mode:n"),
    "FCVolumeSource": "TargetWWNs:l Lun:n FSType ReadOnly:b WWIDs=wwids:l",
    "AzureFileVolumeSource": "SecretName ShareName ReadOnly:b",
    "ConfigMapVolumeSource": "..LocalObjectReference Items:[]KeyToPath DefaultMode:n Optional:n",
    "VsphereVirtualDiskVolumeSource": "VolumePath FSType StoragePolicyName StoragePolicyID",
    "AzureDiskVolumeSource": "DiskName DataDiskURI=diskURI CachingMode:n FSType:n ReadOnly:n Kind:n",
    "PhotonPersistentDiskVolumeSource": "PdID FSType",
    "ProjectedVolumeSource": "Sources:[]VolumeProjection DefaultMode:n",
    "VolumeProjection": (
        "Secret:*SecretProjection DownwardAPI:*DownwardAPIProjection ConfigMap:*SecretProjection "
        "ServiceAccountToken:*ServiceAccountTokenProjection ClusterTrustBundle:*ClusterTrustBundleProjection "
        "PodCertificate:*PodCertificateProjection"
    ),
    "SecretProjection": "..LocalObjectReference Items:[]KeyToPath Optional:n",
    "DownwardAPIProjection": "Items:[]DownwardAPIVolumeFile",
    "ServiceAccountTokenProjection": "Audience ExpirationSeconds:i Path",
    "ClusterTrustBundleProjection": "Name:n SignerName:n LabelSelector:s Optional:n Path",
    "PodCertificateProjection": (
        "SignerName KeyType MaxExpirationSeconds:n CredentialBundlePath KeyPath CertificateChainPath UserAnnotations:m"
    ),
    "PortworxVolumeSource": "VolumeID FSType ReadOnly:b",
    "ScaleIOVolumeSource": f"Gateway System {_SECRET_REF} {_SCALE_IO}",
    "StorageOSVolumeSource": f"VolumeName VolumeNamespace FSType ReadOnly:b {_SECRET_REF}",
    "CSIVolumeSource": ("Driver ReadOnly:n FSType:n VolumeAttributes:m NodePublishSecretRef:*LocalObjectReference"),
    "EphemeralVolumeSource": "VolumeClaimTemplate:*PersistentVolumeClaimTemplate",
    "PersistentVolumeClaimTemplate": "..ObjectMeta Spec:PersistentVolumeClaimSpec",
    "ImageVolumeSource": "Reference PullPolicy",
    # -- volumes of clusters, and claims to them
    "PersistentVolumeSource": (
        "GCEPersistentDisk:*GCEPersistentDiskVolumeSource AWSElasticBlockStore:*AWSElasticBlockStoreVolumeSource "
        "HostPath:*HostPathVolumeSource Glusterfs:*GlusterfsPersistentVolumeSource NFS:*NFSVolumeSource "
        "RBD:*RBDPersistentVolumeSource Quobyte:*QuobyteVolumeSource ISCSI:*ISCSIPersistentVolumeSource "
        "FlexVolume:*FlexPersistentVolumeSource Cinder:*CinderPersistentVolumeSource "
        "CephFS=cephfs:*CephFSPersistentVolumeSource FC:*FCVolumeSource Flocker:*FlockerVolumeSource "
        "AzureFile:*AzureFilePersistentVolumeSource VsphereVolume:*VsphereVirtualDiskVolumeSource "
        "AzureDisk:*AzureDiskVolumeSource PhotonPersistentDisk:*PhotonPersistentDiskVolumeSource "
        "PortworxVolume:*PortworxVolumeSource ScaleIO:*ScaleIOPersistentVolumeSource Local:*LocalVolumeSource "
        "StorageOS=storageos:*StorageOSPersistentVolumeSource CSI:*CSIPersistentVolumeSource"
    ),
    "GlusterfsPersistentVolumeSource": "..GlusterfsVolumeSource EndpointsNamespace:n",
    "RBDPersistentVolumeSource": f"{_RBD} {_PV_SECRET_REF} ReadOnly:b",
    "ISCSIPersistentVolumeSource": f"{_ISCSI} {_PV_SECRET_REF} InitiatorName:n",
    "FlexPersistentVolumeSource": f"Driver FSType {_PV_SECRET_REF} ReadOnly:b Options:m",
    "CinderPersistentVolumeSource": f"VolumeID FSType ReadOnly:b {_PV_SECRET_REF}",
    "CephFSPersistentVolumeSource": f"Monitors:l Path User SecretFile {_PV_SECRET_REF} ReadOnly:b",
    "AzureFilePersistentVolumeSource": "..AzureFileVolumeSource SecretNamespace:n",
    "ScaleIOPersistentVolumeSource": f"Gateway System {_PV_SECRET_REF} {_SCALE_IO}",
    "LocalVolumeSource": "Path FSType:n",
    "StorageOSPersistentVolumeSource": "VolumeName VolumeNamespace FSType ReadOnly:b SecretRef:*ObjectReference",
    "CSIPersistentVolumeSource": (
        "Driver VolumeHandle ReadOnly:b FSType VolumeAttributes:m ControllerPublishSecretRef:*SecretReference "
        "NodeStageSecretRef:*SecretReference NodePublishSecretRef:*SecretReference "
        "ControllerExpandSecretRef:*SecretReference NodeExpandSecretRef:*SecretReference"
    ),
    "VolumeNodeAffinity": "Required:*NodeSelector",
    "PersistentVolumeSpec": (
        "Capacity:m ..PersistentVolumeSource AccessModes:l ClaimRef:*ObjectReference PersistentVolumeReclaimPolicy "
        "StorageClassName MountOptions:l VolumeMode:n NodeAffinity:*VolumeNodeAffinity VolumeAttributesClassName:n"
    ),
    "VolumeAttachmentSource": "PersistentVolumeName:n InlineVolumeSpec:*PersistentVolumeSpec",
    "VolumeAttachmentSpec": "Attacher Source:VolumeAttachmentSource NodeName",
    "PersistentVolumeClaimSpec": (
        "AccessModes:l Selector:s Resources:VolumeResourceRequirements VolumeName StorageClassName:n VolumeMode:n "
        "DataSource:*TypedLocalObjectReference DataSourceRef:*TypedObjectReference VolumeAttributesClassName:n"
    ),
    "VolumeResourceRequirements": "Limits:m Requests:m",
    # -- containers
    "Container": _CONTAINER,
    "EphemeralContainer": f"{_CONTAINER} TargetContainerName",
    "ContainerPort": "Name HostPort:i ContainerPort:i Protocol HostIP",
    "EnvFromSource": "Prefix ConfigMapRef:*EnvSource SecretRef:*EnvSource",
    "EnvSource": "..LocalObjectReference Optional:n",
    "EnvVar": "Name Value ValueFrom:*EnvVarSource",
    "EnvVarSource": (
        "FieldRef:*ObjectFieldSelector ResourceFieldRef:*ResourceFieldSelector ConfigMapKeyRef:*KeySelector "
        "SecretKeyRef:*KeySelector FileKeyRef:*FileKeySelector"
    ),
    "KeySelector": "..LocalObjectReference Key Optional:n",
    "FileKeySelector": "VolumeName Path Key Optional:n",
    "ResourceRequirements": "Limits:m Requests:m Claims:[]ResourceClaim",
    "ResourceClaim": "Name Request",
    "ContainerResizePolicy": "ResourceName RestartPolicy",
    "ContainerRestartRule": "Action ExitCodes:*ContainerRestartRuleOnExitCodes",
    "ContainerRestartRuleOnExitCodes": "Operator Values:l",
    "VolumeMount": "Name ReadOnly:b RecursiveReadOnly:n MountPath SubPath MountPropagation:n SubPathExpr",
    "VolumeDevice": "Name DevicePath",
    "Probe": (
        "Exec:*ExecAction HTTPGet:*HTTPGetAction TCPSocket:*TCPSocketAction GRPC:*GRPCAction InitialDelaySeconds:i "
        "TimeoutSeconds:i PeriodSeconds:i SuccessThreshold:i FailureThreshold:i TerminationGracePeriodSeconds:n"
    ),
    "Lifecycle": "PostStart:*LifecycleHandler PreStop:*LifecycleHandler StopSignal:n",
    "LifecycleHandler": "Exec:*ExecAction HTTPGet:*HTTPGetAction TCPSocket:*TCPSocketAction Sleep:*SleepAction",
    "ExecAction": "Command:l",
    "HTTPGetAction": "Path Port:p Host Scheme HTTPHeaders:[]HTTPHeader",
    "HTTPHeader": "Name Value",
    "TCPSocketAction": "Port:p Host",
    "GRPCAction": "Port:i Service:n",
    "SleepAction": "Seconds:i",
    "SecurityContext": (
        "Capabilities:*Capabilities Privileged:n SELinuxOptions:*SELinuxOptions WindowsOptions:*WindowsOptions "
        "RunAsUser:n RunAsGroup:n RunAsNonRoot:n ReadOnlyRootFilesystem:n AllowPrivilegeEscalation:n ProcMount:n "
        "SeccompProfile:*SeccompProfile AppArmorProfile:*SeccompProfile"
    ),
    "Capabilities": "Add:l Drop:l",
    "SELinuxOptions": "User Role Type Level",
    "WindowsOptions": "GMSACredentialSpecName:n GMSACredentialSpec:n RunAsUserName:n HostProcess:n",
    "SeccompProfile": "Type LocalhostProfile:n",
    # -- pods
    "PodTemplateSpec": "..ObjectMeta Spec:PodSpec",
    "PodSpec": (
        "Volumes:[]Volume InitContainers:[]Container Containers:[]Container EphemeralContainers:[]EphemeralContainer "
        "RestartPolicy TerminationGracePeriodSeconds:n ActiveDeadlineSeconds:n DNSPolicy NodeSelector:m "
        "ServiceAccountName AutomountServiceAccountToken:n NodeName SecurityContext:*PodSecurityContext "
        "ImagePullSecrets:[]LocalObjectReference Hostname Subdomain SetHostnameAsFQDN:n Affinity:*Affinity "
        "SchedulerName Tolerations:[]Toleration HostAliases:[]HostAlias PriorityClassName Priority:n "
        "PreemptionPolicy:n DNSConfig:*PodDNSConfig ReadinessGates:[]PodReadinessGate RuntimeClassName:n Overhead:m "
        "EnableServiceLinks:n TopologySpreadConstraints:[]TopologySpreadConstraint OS:*PodOS "
        "SchedulingGates:[]PodSchedulingGate ResourceClaims:[]PodResourceClaim Resources:*ResourceRequirements "
        "HostnameOverride:n SchedulingGroup:n"
    ),
    "PodSecurityContext": (
        "HostNetwork:b HostPID:b HostIPC:b ShareProcessNamespace:n HostUsers:n SELinuxOptions:*SELinuxOptions "
        "WindowsOptions:*WindowsOptions RunAsUser:n RunAsGroup:n RunAsNonRoot:n SupplementalGroups:l "
        "SupplementalGroupsPolicy:n FSGroup:n FSGroupChangePolicy:n Sysctls:[]Sysctl SeccompProfile:*SeccompProfile "
        "AppArmorProfile:*SeccompProfile SELinuxChangePolicy:n"
    ),
    "Sysctl": "Name Value",
    "Affinity": "NodeAffinity:*NodeAffinity PodAffinity:*PodAffinity PodAntiAffinity:*PodAffinity",
    "NodeAffinity": (
        "RequiredDuringSchedulingIgnoredDuringExecution:*NodeSelector "
        "PreferredDuringSchedulingIgnoredDuringExecution:[]PreferredSchedulingTerm"
    ),
    "ScopeSelector": "MatchExpressions:[]ScopedResourceSelectorRequirement",
    "ScopedResourceSelectorRequirement": "ScopeName Operator Values:l",
    "NodeSelector": "NodeSelectorTerms:[]NodeSelectorTerm",
    "NodeSelectorTerm": "MatchExpressions:[]NodeSelectorRequirement MatchFields:[]NodeSelectorRequirement",
    "NodeSelectorRequirement": "Key Operator Values:l",
    "PreferredSchedulingTerm": "Weight:i Preference:NodeSelectorTerm",
    "PodAffinity": _TERMS,
    "WeightedPodAffinityTerm": "Weight:i PodAffinityTerm:PodAffinityTerm",
    "PodAffinityTerm": (
        "LabelSelector:s Namespaces:l TopologyKey NamespaceSelector:s MatchLabelKeys:l MismatchLabelKeys:l"
    ),
    "Toleration": "Key Operator Value Effect TolerationSeconds:n",
    "HostAlias": "IP Hostnames:l",
    "PodDNSConfig": "Nameservers:l Searches:l Options:[]PodDNSConfigOption",
    "PodDNSConfigOption": "Name Value:n",
    "PodReadinessGate": "ConditionType",
    "TopologySpreadConstraint": (
        "MaxSkew:i TopologyKey WhenUnsatisfiable LabelSelector:s MinDomains:n NodeAffinityPolicy:n NodeTaintsPolicy:n "
        "MatchLabelKeys:l"
    ),
    "PodOS": "Name",
    "PodSchedulingGate": "Name",
    "PodResourceClaim": "Name ResourceClaimName:n ResourceClaimTemplateName:n",
    # -- jobs
    "PodFailurePolicy": "Rules:[]PodFailurePolicyRule",
    "PodFailurePolicyRule": (
        "Action OnExitCodes:*PodFailurePolicyOnExitCodesRequirement "
        "OnPodConditions:[]PodFailurePolicyOnPodConditionsPattern"
    ),
    "PodFailurePolicyOnExitCodesRequirement": "ContainerName:n Operator Values:l",
    "PodFailurePolicyOnPodConditionsPattern": "Type Status",
    "SuccessPolicy": "Rules:[]SuccessPolicyRule",
    "SuccessPolicyRule": "SucceededIndexes:n SucceededCount:n",
    "UncountedTerminatedPods": "Succeeded:l Failed:l",
}
