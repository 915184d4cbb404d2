"""PodOptions: the choices of feature gates in a pod's spec that hooks follow, also in templates.

While a gate is off, an object keeps what it uses already. Source: kube-apiserver's pkg/api/pod/util.go,
``GetValidationOptionsFromPodSpecAndMeta``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from kubechronicle.api.errors.field_errors import Cause
from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.strategy.strategy import Strategy, SubresourceStrategy, ValidateUpdate, Warnings
from kubechronicle.api.values.objects import Object

GATES: Final = {
    "comparing_tolerations": "TaintTolerationComparisonOperators",
    "mounts_with_label": "SELinuxMount",
    "users_on_host_network": "UserNamespacesHostNetworkSupport",
    "files_of_variables": "EnvFiles",
    "restarts_of_all": "RestartAllContainersOnContainerExits",
    "merged_selectors": "MatchLabelKeysInPodTopologySpreadSelectorMerge",
    "resources_of_suspended": "MutablePodResourcesForSuspendedJobs",
    "scheduling_of_suspended": "MutableSchedulingDirectivesForSuspendedJobs",
    "amounts_decide": "PodLevelResourcesFixKubeletQOSClass",
    "completed_resources": "PodLevelResourcesFixDefaulting",
    "deletion_costs": "PodDeletionCost",
    "nominations_end": "ClearingNominatedNodeNameAfterBinding",
    "resized_as_a_whole": "InPlacePodLevelResourcesVerticalScaling",
    "resized_init_containers": "InPlacePodVerticalScalingInitContainers",
    "resized_volumes": "InPlacePodVerticalScalingMemoryBackedVolumes",
    "image_digests": "ImageVolumeWithDigest",
    "strict_addresses": "StrictIPCIDRValidation",
    "git_repositories": "GitRepoVolumeDriver",
}
"""Option -> its gate."""


@dataclass(frozen=True, slots=True)
class PodOptions:
    """The choices; a default is that of v1.37.

    ``comparing_tolerations``: tolerations may have the operators Lt and Gt (KEP-5471).
    ``mounts_with_label``: seLinuxChangePolicy may be MountOption (KEP-1710).
    ``users_on_host_network``: a pod with its own users may be on the host's network (KEP-5607).
    ``files_of_variables``: variables may come from files (KEP-3721).
    ``restarts_of_all``: a restart rule may restart all containers, and sidecars may have rules (KEP-5532).
    ``merged_selectors``: matchLabelKeys of a spread constraint become a part of its selector (KEP-3243).
    ``resources_of_suspended``: the resources of a suspended Job's pods may change (KEP-5440).
    ``scheduling_of_suspended``: so may their scheduling after the Job has run; before, it always may.
    ``amounts_decide``: a pod's own resources decide on its QoS class only if they name an amount (KEP-2837).
    ``completed_resources``: these resources are completed after admission, by those of the containers.
    ``deletion_costs``: the annotation with the cost of a deletion is a number (KEP-2255).
    ``nominations_end``: a bound pod has no new nominated node (KEP-5278).
    ``images_without_reference``: image volumes may lack a reference. No gate allows it, only an object that has one.
    ``resized_as_a_whole``: a resize may change these resources (KEP-5419).
    ``resized_init_containers``: it may change those of init containers that are no sidecars (KEP-1287).
    ``resized_volumes``: it may change the size limits of volumes in memory.
    ``strict_addresses``: addresses have no leading zeros, and are no IPv4-mapped ones (KEP-4858).
    ``git_repositories``: nodes can mount gitRepo volumes, which are deprecated.
    ``image_digests``: the references of mounted image volumes are checked (KEP-5365).
    """

    comparing_tolerations: bool = False
    mounts_with_label: bool = True
    users_on_host_network: bool = False
    files_of_variables: bool = True
    restarts_of_all: bool = True
    merged_selectors: bool = True
    resources_of_suspended: bool = True
    scheduling_of_suspended: bool = True
    amounts_decide: bool = True
    completed_resources: bool = True
    deletion_costs: bool = True
    nominations_end: bool = True
    images_without_reference: bool = False
    resized_as_a_whole: bool = True
    resized_init_containers: bool = True
    resized_volumes: bool = False
    image_digests: bool = False
    strict_addresses: bool = True
    git_repositories: bool = False

    @classmethod
    def of(cls, gates: FeatureGates) -> PodOptions:
        """Return the choices of feature gates."""
        return cls(**{name: gates.enabled(gate) for name, gate in GATES.items()})

    def allowing(self, held: Object) -> PodOptions:
        """Return the choices for an update of the pod spec ``held``: what that uses is allowed."""
        used = {}
        for volume in held.get("volumes") or ():
            if volume.get("image") is not None and not volume["image"].get("reference"):
                used["images_without_reference"] = True
        if not self.comparing_tolerations:
            operators = {each.get("operator") for each in held.get("tolerations") or ()}
            used["comparing_tolerations"] = bool(operators & {"Lt", "Gt"})
        if not self.mounts_with_label:
            context = held.get("securityContext") or {}
            used["mounts_with_label"] = context.get("seLinuxChangePolicy") is not None
        if not self.users_on_host_network:
            used["users_on_host_network"] = bool(held.get("hostNetwork")) and held.get("hostUsers") is False
        if not self.files_of_variables:
            used["files_of_variables"] = any(
                (variable.get("valueFrom") or {}).get("fileKeyRef") is not None
                for container in _containers(held)
                for variable in container.get("env") or ()
            )
        if not self.restarts_of_all:
            used["restarts_of_all"] = any(
                rule.get("action") == "RestartAllContainers"
                for container in _containers(held)
                for rule in container.get("restartPolicyRules") or ()
            )
        return replace(self, **used) if any(used.values()) else self


def _containers(spec: Object) -> list[Object]:
    return [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]


USUAL: Final = PodOptions()
NO_GIT_REPOSITORIES: Final = ", and disabled by default in v1.33+"
"""The end of the warning about a gitRepo volume while nodes cannot mount it."""


# -- hooks ------------------------------------------------------------------------------------------------------------


def follow_options(strategy: Strategy, options: PodOptions) -> Strategy:
    """Return a strategy whose hooks follow these options, for the pod's spec of its objects and for addresses."""
    if not options.strict_addresses:
        strategy = _with_lenient_addresses(strategy)
    if not strategy.pod_spec:
        return strategy
    if options.git_repositories and strategy.warnings is not None:
        strategy = replace(strategy, warnings=_without_suffix(strategy.warnings))
    path = strategy.pod_spec.split(".")
    check: Callable[..., list[Cause]] = strategy.validate
    prepare: Callable[..., None] = strategy.prepare_create
    changed = strategy.validate_changed
    changes: dict[str, Any] = {}
    if _takes(prepare, "options"):
        changes["prepare_create"] = partial(prepare, options=options)
    if _takes(check, "options"):
        changes["validate"] = partial(check, options=options)
        changes["validate_changed"] = _changed(changed, path, options) if changed else _as_new(check, path, options)
    if _takes(strategy.validate_update, "options"):
        changes["validate_update"] = _changed(strategy.validate_update, path, options)
    changes["subresources"] = {
        name: _follow_below(below, path, options) for name, below in strategy.subresources.items()
    }
    return replace(strategy, **changes)


def _without_suffix(warnings: Warnings) -> Warnings:
    return lambda new, old: [text.removesuffix(NO_GIT_REPOSITORIES) for text in warnings(new, old)]


def _follow_below(strategy: SubresourceStrategy, path: Sequence[str], options: PodOptions) -> SubresourceStrategy:
    changes: dict[str, Any] = {}
    prepare: Callable[..., None] = strategy.prepare
    if _takes(prepare, "options"):
        changes["prepare"] = partial(prepare, options=options)
    if _takes(strategy.validate_update, "options"):
        changes["validate_update"] = _changed(strategy.validate_update, path, options)
    return replace(strategy, **changes) if changes else strategy


def _takes(hook: Callable[..., Any], name: str) -> bool:
    return name in inspect.signature(hook).parameters


def _with_lenient_addresses(strategy: Strategy) -> Strategy:
    """Return a strategy without the rules of StrictIPCIDRValidation: of hooks with a parameter ``strict``."""

    def lenient(holder: Strategy | SubresourceStrategy, *names: str) -> dict[str, Any]:
        hooks: dict[str, Callable[..., list[Cause]] | None] = {name: getattr(holder, name) for name in names}
        return {
            name: partial(hook, strict=False)
            for name, hook in hooks.items()
            if hook is not None and _takes(hook, "strict")
        }

    below = {name: replace(each, **lenient(each, "validate_update")) for name, each in strategy.subresources.items()}
    return replace(strategy, subresources=below, **lenient(strategy, "validate", "validate_changed", "validate_update"))


def _pod_spec(obj: Object, path: Sequence[str]) -> Object:
    for name in path:
        obj = obj.get(name) or {}
    return obj


def _as_new(hook: Callable[..., list[Cause]], path: Sequence[str], options: PodOptions) -> ValidateUpdate:
    return lambda new, old: hook(new, options=options.allowing(_pod_spec(old, path)))


def _changed(hook: Callable[..., list[Cause]], path: Sequence[str], options: PodOptions) -> ValidateUpdate:
    return lambda new, old: hook(new, old, options=options.allowing(_pod_spec(old, path)))
