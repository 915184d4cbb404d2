"""All admission plugins in their order, kube-apiserver's, and the choice of those that run.

A mutating plugin receives the object as changed by the plugins before it: RuntimeClass, for one, adds its tolerations
after DefaultTolerationSeconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from kubechronicle.actors.admission.certificates import (
    CertificateApproval,
    CertificateSigning,
    CertificateSubjectRestriction,
    ClusterTrustBundleAttest,
)
from kubechronicle.actors.admission.chain import (
    CONNECT,
    CREATE,
    DELETE,
    UPDATE,
    AdmissionPlugin,
    AdmissionState,
    Attributes,
    MinimalPlugin,
    forbidden,
)
from kubechronicle.actors.admission.event_rates import EventRateLimit
from kubechronicle.actors.admission.limit_ranger import LimitRanger
from kubechronicle.actors.admission.namespace_lifecycle import (
    NamespaceAutoProvision,
    NamespaceExists,
    NamespaceLifecycle,
)
from kubechronicle.actors.admission.node_restriction import NodeRestriction
from kubechronicle.actors.admission.nodes import DefaultTolerationSeconds, PodTopologyLabels, TaintNodesByCondition
from kubechronicle.actors.admission.owner_references import OwnerReferencesPermissionEnforcement
from kubechronicle.actors.admission.pod_security.plugin import PodSecurity
from kubechronicle.actors.admission.pods.image_policy import ImagePolicyWebhook
from kubechronicle.actors.admission.pods.tolerations import (
    ExtendedResourceToleration,
    PodNodeSelector,
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
    newest_default,
)
from kubechronicle.actors.admission.webhooks import MutatingAdmissionWebhook, ValidatingAdmissionWebhook
from kubechronicle.api.builtin.core.pod.validation_security import containers_of
from kubechronicle.api.configuration.admission import PluginConfigurations
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import not_supported
from kubechronicle.api.features.gates import FeatureGates

# -- images ------------------------------------------------------------------------------------------------------------
#
# AlwaysPullImages: pull the images of new pods at every start, so that nobody uses an image without its credentials
# (plugin/pkg/admission/alwayspullimages of kube-apiserver). Disabled by default.

ALWAYS: Final = "Always"


class AlwaysPullImages(AdmissionPlugin):
    name = "AlwaysPullImages"
    resources = frozenset({"pods"})

    def admit(self, attributes: Attributes, state: AdmissionState) -> None:
        for holder, member, _ in _pull_policies(attributes):
            holder[member] = ALWAYS

    def validate(self, attributes: Attributes, state: AdmissionState) -> None:
        """Reject another policy, which a later plugin has set. The error is no Status in kube-apiserver: code 500."""
        messages: dict[str, None] = {}
        for holder, member, field in _pull_policies(attributes):
            policy = holder.get(member, "")
            if policy != ALWAYS:
                problem = not_supported(field, policy, [ALWAYS])
                messages[forbidden(attributes, str(problem)).message] = None
        if messages:
            found = list(messages)
            raise status.unknown(found[0] if len(found) == 1 else f"[{', '.join(found)}]")


def _pull_policies(attributes: Attributes) -> Iterator[tuple[Any, str, str]]:
    """Yield the holder, member and field path of each pull policy. An update without new images has none."""
    pod = attributes.object
    if pod is None or attributes.subresource:
        return
    spec = pod.setdefault("spec", {})
    if attributes.old is not None:
        old = attributes.before.get("spec") or {}
        known = {container.get("image", "") for container, _ in containers_of(old, "spec")}
        if all(container.get("image", "") in known for container, _ in containers_of(spec, "spec")):
            return
    for container, field in containers_of(spec, "spec"):
        yield container, "imagePullPolicy", f"{field}.imagePullPolicy"
    for index, volume in enumerate(spec.get("volumes") or ()):
        if volume.get("image") is not None:
            yield volume["image"], "pullPolicy", f"spec.volumes[{index}].image.pullPolicy"


# -- anti affinity -----------------------------------------------------------------------------------------------------
#
# LimitPodHardAntiAffinityTopology: allow required anti-affinity of pods within a node only
# (plugin/pkg/admission/antiaffinity of kube-apiserver). Disabled by default.

HOSTNAME: Final = "kubernetes.io/hostname"


class LimitPodHardAntiAffinityTopology(AdmissionPlugin):
    name = "LimitPodHardAntiAffinityTopology"
    resources = frozenset({"pods"})

    def validate(self, attributes: Attributes, state: AdmissionState) -> None:
        pod = attributes.object
        if pod is None or attributes.subresource:
            return
        affinity = ((pod.get("spec") or {}).get("affinity") or {}).get("podAntiAffinity") or {}
        for term in affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ():
            key = term.get("topologyKey", "")
            if key != HOSTNAME:
                why = (
                    f"affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {HOSTNAME} "
                    "is allowed"
                )
                raise status.forbidden(attributes.rt, pod["metadata"].get("name", ""), why)


# -- ingress -----------------------------------------------------------------------------------------------------------
#
# DefaultIngressClass: set the default class of an Ingress that names none, not even by the old annotation
# (plugin/pkg/admission/network of kube-apiserver).

INGRESS_CLASSES: Final = "ingressclasses.networking.k8s.io"
DEFAULT_ANNOTATION: Final = "ingressclass.kubernetes.io/is-default-class"
OLD_ANNOTATION: Final = "kubernetes.io/ingress.class"


class DefaultIngressClass(AdmissionPlugin):
    name = "DefaultIngressClass"
    resources = frozenset({"ingresses.networking.k8s.io"})
    operations = frozenset({CREATE})

    def admit(self, attributes: Attributes, state: AdmissionState) -> None:
        ingress = attributes.object
        if ingress is None or attributes.subresource:
            return
        spec = ingress.setdefault("spec", {})
        if "ingressClassName" in spec or OLD_ANNOTATION in (ingress["metadata"].get("annotations") or {}):
            return
        name = newest_default(state.entries(INGRESS_CLASSES, ""), (DEFAULT_ANNOTATION,))
        if name:
            spec["ingressClassName"] = name


# -- external ips ------------------------------------------------------------------------------------------------------
#
# DenyServiceExternalIPs: reject new external IPs of Services
# (plugin/pkg/admission/network/denyserviceexternalips of kube-apiserver). Disabled by default.


class DenyServiceExternalIPs(AdmissionPlugin):
    name = "DenyServiceExternalIPs"
    resources = frozenset({"services"})

    def validate(self, attributes: Attributes, state: AdmissionState) -> None:
        service = attributes.object
        if service is None or attributes.subresource:
            return
        wanted = set((service.get("spec") or {}).get("externalIPs") or [])
        held = attributes.before if wanted else {}
        if wanted - set((held.get("spec") or {}).get("externalIPs") or []):
            raise forbidden(attributes, "Use of external IPs is denied by admission control.")


# -- always ------------------------------------------------------------------------------------------------------------
#
# AlwaysAdmit and AlwaysDeny (plugin/pkg/admission/{admit,deny} of kube-apiserver). Both are deprecated there.

EVERYTHING = frozenset({CREATE, UPDATE, DELETE, CONNECT})


class AlwaysAdmit(AdmissionPlugin):
    """Does nothing."""

    name = "AlwaysAdmit"
    operations = EVERYTHING


class AlwaysDenyPlugin(AdmissionPlugin):
    """Rejects every write, after all other plugins that may change its object."""

    name = "AlwaysDeny"
    operations = EVERYTHING

    def admit(self, attributes: Attributes, state: AdmissionState) -> None:
        raise forbidden(attributes, "admission control is denying all modifications")


# -- plugins -----------------------------------------------------------------------------------------------------------

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
    AlwaysDenyPlugin,
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
