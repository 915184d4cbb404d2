"""All admission plugins in their order, kube-apiserver's, and the choice of those that run.

A mutating plugin receives the object as changed by the plugins before it: RuntimeClass, for one, adds its tolerations
after DefaultTolerationSeconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from kubechronicle.actors.admission.always import AlwaysAdmit, AlwaysDeny
from kubechronicle.actors.admission.certificates import (
    CertificateApproval,
    CertificateSigning,
    CertificateSubjectRestriction,
    ClusterTrustBundleAttest,
)
from kubechronicle.actors.admission.chain import MinimalPlugin
from kubechronicle.actors.admission.event_rates import EventRateLimit
from kubechronicle.actors.admission.external_ips import DenyServiceExternalIPs
from kubechronicle.actors.admission.ingress import DefaultIngressClass
from kubechronicle.actors.admission.limit_ranger import LimitRanger
from kubechronicle.actors.admission.namespace_lifecycle import NamespaceLifecycle
from kubechronicle.actors.admission.namespaces import NamespaceAutoProvision, NamespaceExists
from kubechronicle.actors.admission.node_restriction import NodeRestriction
from kubechronicle.actors.admission.nodes import DefaultTolerationSeconds, PodTopologyLabels, TaintNodesByCondition
from kubechronicle.actors.admission.owner_references import OwnerReferencesPermissionEnforcement
from kubechronicle.actors.admission.pod_security.plugin import PodSecurity
from kubechronicle.actors.admission.pods.anti_affinity import LimitPodHardAntiAffinityTopology
from kubechronicle.actors.admission.pods.image_policy import ImagePolicyWebhook
from kubechronicle.actors.admission.pods.images import AlwaysPullImages
from kubechronicle.actors.admission.pods.node_selector import PodNodeSelector
from kubechronicle.actors.admission.pods.tolerations import (
    ExtendedResourceToleration,
    PodTolerationRestriction,
    Tolerations,
)
from kubechronicle.actors.admission.pods.updates import NodeDeclaredFeatureValidator, PodResizeValidator
from kubechronicle.actors.admission.policies.mutating import MutatingAdmissionPolicy
from kubechronicle.actors.admission.policies.validating import ValidatingAdmissionPolicy
from kubechronicle.actors.admission.priority import GROUP_POLICIES, Priority
from kubechronicle.actors.admission.resource_quota import ResourceQuota
from kubechronicle.actors.admission.runtime_class import RuntimeClass
from kubechronicle.actors.admission.service_account import ServiceAccount
from kubechronicle.actors.admission.storage import (
    DefaultStorageClass,
    PersistentVolumeClaimResize,
    PodGroupProtection,
    StorageObjectInUseProtection,
)
from kubechronicle.actors.admission.webhooks.mutating import MutatingAdmissionWebhook
from kubechronicle.actors.admission.webhooks.validating import ValidatingAdmissionWebhook
from kubechronicle.api.configuration.admission import PluginConfigurations
from kubechronicle.api.features.gates import FeatureGates

PLUGINS: Final[tuple[Callable[[], MinimalPlugin], ...]] = (
    AlwaysAdmit,
    NamespaceAutoProvision,
    NamespaceLifecycle,
    NamespaceExists,
    LimitPodHardAntiAffinityTopology,
    LimitRanger,
    ServiceAccount,
    NodeRestriction,
    TaintNodesByCondition,
    AlwaysPullImages,
    ImagePolicyWebhook,
    PodSecurity,
    PodNodeSelector,
    Priority,
    DefaultTolerationSeconds,
    PodTolerationRestriction,
    EventRateLimit,
    ExtendedResourceToleration,
    DefaultStorageClass,
    StorageObjectInUseProtection,
    PodGroupProtection,
    OwnerReferencesPermissionEnforcement,
    PersistentVolumeClaimResize,
    RuntimeClass,
    CertificateApproval,
    CertificateSigning,
    ClusterTrustBundleAttest,
    CertificateSubjectRestriction,
    DefaultIngressClass,
    DenyServiceExternalIPs,
    PodTopologyLabels,
    NodeDeclaredFeatureValidator,
    PodResizeValidator,
    MutatingAdmissionPolicy,
    MutatingAdmissionWebhook,
    ValidatingAdmissionPolicy,
    ValidatingAdmissionWebhook,
    ResourceQuota,
    AlwaysDeny,
)
NAMES: Final = tuple(plugin().name for plugin in PLUGINS)
OPTIONAL: Final = frozenset(
    {
        "AlwaysAdmit",
        "AlwaysDeny",
        "AlwaysPullImages",
        "DenyServiceExternalIPs",
        "EventRateLimit",
        "ExtendedResourceToleration",
        "ImagePolicyWebhook",
        "LimitPodHardAntiAffinityTopology",
        "NamespaceAutoProvision",
        "NamespaceExists",
        "OwnerReferencesPermissionEnforcement",
        "PodNodeSelector",
        "PodTolerationRestriction",
    }
)
DEFAULT: Final = frozenset(NAMES) - OPTIONAL
"""The plugins enabled by default."""


GATES: Final = {plugin().name: gate for plugin in PLUGINS if (gate := getattr(plugin, "gate", ""))}
"""Plugin -> the feature gate without which it does nothing."""


def with_gates(enabled: Collection[str], gates: FeatureGates) -> frozenset[str]:
    """Return the names of the enabled plugins that do something under feature gates."""
    return frozenset(name for name in enabled if name not in GATES or gates.enabled(GATES[name]))


def plugins_in_order(
    enabled: Collection[str],
    configurations: PluginConfigurations | None = None,
    features: FeatureGates | None = None,
) -> list[MinimalPlugin]:
    """Return new plugins of these names, in order. ``features``: the gates, with the emulated version."""
    configured = _configured(configurations or PluginConfigurations(), features or FeatureGates())
    made = ((configured.get(name) or make)() for name, make in zip(NAMES, PLUGINS, strict=True) if name in enabled)
    return list(made)


def _configured(given: PluginConfigurations, features: FeatureGates) -> Mapping[str, Callable[[], MinimalPlugin]]:
    """Return the makers of the plugins that have a configuration, or follow gates."""
    tolerations = Tolerations(default=given.default_tolerations, whitelist=given.toleration_whitelist)
    seconds = given.not_ready_seconds, given.unreachable_seconds
    reviews = not features.enabled("ExcludeAdmissionWebhookVirtualResources")
    newest_standard = features.versions.emulation.minor
    return {
        "DefaultTolerationSeconds": lambda: DefaultTolerationSeconds(*seconds),
        "MutatingAdmissionWebhook": lambda: MutatingAdmissionWebhook(review_reviews=reviews),
        "ValidatingAdmissionWebhook": lambda: ValidatingAdmissionWebhook(review_reviews=reviews),
        "EventRateLimit": lambda: EventRateLimit(given.event_limits),
        "NodeRestriction": lambda: NodeRestriction(features),
        "PodNodeSelector": lambda: PodNodeSelector(given.node_selectors),
        "PodSecurity": lambda: PodSecurity(given.pod_security, newest_standard),
        "PodTolerationRestriction": lambda: PodTolerationRestriction(tolerations),
        "Priority": lambda: Priority(group_policies=features.enabled(GROUP_POLICIES)),
        "ResourceQuota": lambda: ResourceQuota(given.limited_resources),
    }
