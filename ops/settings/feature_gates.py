"""The feature gates that kube-apiserver v1.36 knows, by their default. A locked gate cannot be set otherwise.

Facts from kube_features.go of Kubernetes and of its libraries, and from kube-apiserver --help.
"""

from __future__ import annotations

from typing import Final

from kubechronicle.ops.settings.conversion import FALSE_WORDS, TRUE_WORDS


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


ON: Final = _names("""
    APIResponseCompression APIServerIdentity AllowParsingUserUIDFromCertAuth AllowServiceExternalIPs AtomicFIFO
    AuthorizePodWebsocketUpgradeCreatePermission CPUManagerPolicyBetaOptions CRDObservedGenerationTracking
    ClearingNominatedNodeNameAfterBinding ClientsAllowCARotation ClientsAllowTLSCacheGC ComponentFlagz
    CustomCPUCFSQuotaPeriod
    ComponentStatusz ConstrainedImpersonation ContainerCheckpoint ContainerRestartRules ContextualLogging
    DRAConsumableCapacity DRADeviceBindingConditions DRADeviceTaints DRAExtendedResource DRAPartitionableDevices
    DRAPrioritizedList DRAResourceClaimDeviceStatus DRAResourceClaimGranularStatusAuthorization
    DRASchedulerFilterTimeout DeclarativeValidationBeta DeploymentReplicaSetTerminatingReplicas
    DetectCacheInconsistency DisableCPUQuotaWithExclusiveCPUs EnvFiles ExtendWebSocketsToKubelet
    GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority HPAConfigurableTolerance HostnameOverride
    InOrderInformersBatchProcess InPlacePodLevelResourcesVerticalScaling InPlacePodVerticalScalingInitContainers
    InformerResourceVersion KubeletCrashLoopBackOffMax KubeletEnsureSecretPulledImages
    KubeletPodResourcesListUseActivePods KubeletSeparateDiskGC KubeletServiceAccountTokenForCredentialProviders
    ListFromCacheSnapshot LoggingBetaOptions MatchLabelKeysInPodTopologySpread
    MatchLabelKeysInPodTopologySpreadSelectorMerge MutablePodResourcesForSuspendedJobs
    MutableSchedulingDirectivesForSuspendedJobs MutatingAdmissionPolicy NodeDeclaredFeatures
    NominatedNodeNameForExpectation OpenAPIEnums OpportunisticBatching PLEGOnDemandRelist PodDeletionCost
    PodLevelResources PodReadyToStartContainersCondition PodTopologyLabelsAdmission PortForwardWebsockets
    PreventStaticPodAPIReferences RelaxedServiceNameValidation ReloadKubeletClientCAFile
    ReloadKubeletServerCertificateFile RemoteRequestHeaderUID ResourceHealthStatus ResourceHealthStatusMessage
    RestartAllContainersOnContainerExits RotateKubeletServerCertificate SchedulerAsyncPreemption
    SchedulerPopFromBackoffQ ServiceAccountNodeAudienceRestriction ServiceCIDRStatusFieldWiping
    SizeBasedListCostEstimate StaleControllerConsistencyDaemonSet StaleControllerConsistencyJob
    StaleControllerConsistencyReplicaSet StaleControllerConsistencyStatefulSet StatefulSetSemanticRevisionComparison
    StorageNamespaceIndex StorageVersionHash StrictIPCIDRValidation
    StructuredAuthenticationConfigurationEgressSelector StructuredAuthenticationConfigurationJWKSMetrics
    TokenRequestServiceAccountUIDValidation TopologyManagerPolicyBetaOptions TranslateStreamCloseWebsocketRequests
    UnauthenticatedHTTP2DOSMitigation UnknownVersionInteroperabilityProxy UnlockWhileProcessingFIFO
    WatchCacheInitializationPostStartHook WatchList WatchListClient WindowsGracefulNodeShutdown
""")
"""On by default."""

OFF: Final = _names("""
    APIServingWithRoutine AllAlpha AllBeta AllowDNSOnlyNodeCSR AllowInsecureKubeletCertificateSigningRequests
    AllowUnsafeMalformedObjectDeletion CBORServingAndStorage CPUManagerPolicyAlphaOptions CRIListStreaming
    CSIVolumeHealth ChangeContainerStatusOnKubeletRestart ClientsAllowCBOR ClientsPreferCBOR
    CloudControllerManagerWatchBasedRoutesReconciliation CloudControllerManagerWebhook ClusterTrustBundle
    ClusterTrustBundleProjection ConcurrentWatchObjectDecode ContainerStopSignals
    ControllerManagerReleaseLeaderElectionLockOnExit CoordinatedLeaderElection CrossNamespaceVolumeDataSource
    DRADeviceTaintRules DRAListTypeAttributes DRANodeAllocatableResources DRAResourcePoolStatus
    DRAWorkloadResourceClaims DeclarativeValidationTakeover EventedPLEG GangScheduling GenericWorkload
    HPAScaleToZero ImageVolumeWithDigest InPlacePodVerticalScalingExclusiveCPUs
    InPlacePodVerticalScalingExclusiveMemory KMSv1 KubeletInUserNamespace KubeletRegistrationGetOnExistsOnly
    LocalStorageCapacityIsolationFSQuotaMonitoring LoggingAlphaOptions ManifestBasedAdmissionControlConfig
    MaxUnavailableStatefulSet MemoryQoS MutablePVNodeAffinity NativeHistograms PersistentVolumeClaimUnusedSinceTime
    PodAndContainerStatsFromCRI PodCertificateRequest PodLevelResourceManagers PodLogsQuerySplitStreams PodsAPI
    QOSReserved ReduceDefaultCrashLoopBackOffDecay RuntimeClassInImageCriApi SELinuxMount SchedulerAsyncAPICalls
    ShardedListAndWatch StorageCapacityScoring StorageVersionAPI StorageVersionMigrator
    TaintTolerationComparisonOperators TopologyAwareWorkloadScheduling TopologyManagerPolicyAlphaOptions
    UserNamespacesHostNetworkSupport VolumeLimitScaling WindowsCPUAndMemoryAffinity WindowsHostNetwork
    WorkloadAwarePreemption WorkloadWithJob
""")
"""Off by default: alpha features, and beta ones that are off."""

LOCKED_ON: Final = _names("""
    APIServerTracing AggregatedDiscoveryRemoveBetaType AnonymousAuthConfigurableEndpoints AnyVolumeDataSource
    AuthorizeNodeWithSelectors AuthorizeWithSelectors BtreeWatchCache CPUManagerPolicyOptions
    CRDValidationRatcheting CSIServiceAccountTokenSecrets ConsistentListFromCache CustomResourceFieldSelectors
    DRAAdminAccess DeclarativeValidation DisableAllocatorDualWrite DisableNodeKubeProxyVersion
    DynamicResourceAllocation ExecProbeTimeout
    ExternalServiceAccountTokenSigner ImageMaximumGCAge ImageVolume InOrderInformers InPlacePodVerticalScaling
    JobBackoffLimitPerIndex JobManagedBy JobPodReplacementPolicy JobSuccessPolicy KubeletCgroupDriverFromCRI
    KubeletFineGrainedAuthz KubeletPSI KubeletPodResourcesDynamicResources KubeletPodResourcesGet KubeletTracing
    LogarithmicScaleDown MatchLabelKeysInPodAffinity MultiCIDRServiceAllocator MutableCSINodeAllocatableCount
    NFTablesProxyMode NodeInclusionPolicyInPodTopologySpread NodeLogQuery NodeSwap OrderedNamespaceDeletion
    PodLifecycleSleepAction PodLifecycleSleepActionAllowZero PodObservedGenerationTracking PodSchedulingReadiness
    PreferSameTrafficDistribution ProcMountType RecoverVolumeExpansionFailure RecursiveReadOnlyMounts
    RelaxedDNSSearchValidation RelaxedEnvironmentVariableValidation ResilientWatchCacheInitialization
    RetryGenerateName SELinuxChangePolicy SELinuxMountReadWriteOncePod SchedulerQueueingHints
    SeparateTaintEvictionController ServiceAccountTokenJTI ServiceAccountTokenNodeBinding
    ServiceAccountTokenNodeBindingValidation ServiceAccountTokenPodNodeInfo SidecarContainers
    StreamingCollectionEncodingToJSON StreamingCollectionEncodingToProtobuf StructuredAuthenticationConfiguration
    SupplementalGroupsPolicy SystemdWatchdog TopologyManagerPolicyOptions UserNamespacesSupport
    VolumeAttributesClass WinDSR WinOverlay
""")
"""Always on."""

LOCKED_OFF: Final = _names("""
    AllowOverwriteTerminationGracePeriodSeconds GitRepoVolumeDriver SeparateCacheWatchRPC
""")
"""Always off."""

GENERAL: Final = LOCKED_ON | _names("""
    AllowServiceExternalIPs CustomCPUCFSQuotaPeriod DRAPrioritizedList InformerResourceVersion MutatingAdmissionPolicy
""")
BETA_OFF: Final = _names("""
    AllBeta ClusterTrustBundle ClusterTrustBundleProjection ConcurrentWatchObjectDecode CoordinatedLeaderElection
    DRADeviceTaintRules LocalStorageCapacityIsolationFSQuotaMonitoring MaxUnavailableStatefulSet PodCertificateRequest
    SELinuxMount SchedulerAsyncAPICalls StorageVersionMigrator
""")
DEPRECATED: Final = LOCKED_OFF | _names("""
    AggregatedDiscoveryRemoveBetaType AllowDNSOnlyNodeCSR AllowInsecureKubeletCertificateSigningRequests
    ChangeContainerStatusOnKubeletRestart DeclarativeValidationTakeover DisableCPUQuotaWithExclusiveCPUs
    DisableNodeKubeProxyVersion KMSv1 KubeletPodResourcesListUseActivePods KubeletRegistrationGetOnExistsOnly
    ServiceCIDRStatusFieldWiping StorageNamespaceIndex WindowsHostNetwork
""")
"""Stages, as far as the default does not tell them: other gates are BETA if they are on, and ALPHA if off."""

BUILT: Final = frozenset({"ManifestBasedAdmissionControlConfig"})
"""Gates that switch a feature of this server."""


def stage(name: str) -> str:
    """Return the stage of a gate as metrics show it; "" for one that is generally available."""
    if name in DEPRECATED:
        return "DEPRECATED"
    if name in GENERAL:
        return ""
    return "BETA" if name in ON | BETA_OFF else "ALPHA"


def enabled(pairs: tuple[tuple[str, str], ...]) -> tuple[frozenset[str], list[str]]:
    """Return the gates of BUILT that are on, and warnings about gates that change nothing here.

    ValueError, with kube-apiserver's message: an unknown gate or value, or a locked gate.
    """
    on: set[str] = set()
    warnings = []
    for given, text in pairs:
        name = given.removeprefix("kube:")
        if name not in ON | OFF | LOCKED_ON | LOCKED_OFF:
            raise ValueError(f"unrecognized feature gate: {name}")
        if text not in TRUE_WORDS | FALSE_WORDS:
            raise ValueError(
                f'invalid value of {name}={text}, err: strconv.ParseBool: parsing "{text}": invalid syntax'
            )
        value, default = text in TRUE_WORDS, name in ON | LOCKED_ON
        if value != default and name in LOCKED_ON | LOCKED_OFF:
            shown = str(default).lower()
            raise ValueError(f"cannot set feature gate {name} to {str(value).lower()}, feature is locked to {shown}")
        if name in BUILT:
            (on.add if value else on.discard)(name)
        elif value != default:
            state = "on" if default else "off"
            warnings.append(f"--feature-gates: {name} has no switch here; the feature is {state}, as v1.36 has it")
    return frozenset(on), warnings
