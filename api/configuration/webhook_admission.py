"""The configuration of the plugins for webhooks and policies (kube-apiserver's
``pkg/admission/plugin/webhook/config``, ``…/policy/config``).

    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: /etc/kubernetes/webhooks.yaml
    staticManifestsDir: /etc/kubernetes/webhooks      # KEP-5793, with the gate
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

from kubechronicle.api.configuration.files import ConfigFileError, decode_document
from kubechronicle.api.configuration.structuring import FieldKey, StructureError, structure
from kubechronicle.api.errors.field_errors import aggregate, forbidden, invalid_value, required
from kubechronicle.api.quota.check import LimitedResource
from kubechronicle.api.quota.scopes import Selector

VERSION: Final = "apiserver.config.k8s.io/v1"
GATE: Final = "ManifestBasedAdmissionControlConfig"
"""The feature gate of staticManifestsDir: alpha, off by default in v1.36."""
NO_MANIFESTS: Final = f"staticManifestsDir requires the {GATE} feature gate to be enabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookAdmission:
    """``static_manifests_dir``: the directory with the plugin's manifests, "" for none."""

    kube_config_file: str = ""
    static_manifests_dir: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyAdmission:
    static_manifests_dir: str = ""


def webhook_admission(document: Any, *, manifests: bool) -> WebhookAdmission:
    """Return the configuration of a plugin for webhooks: absolute paths, or "". ConfigFileError.

    ``manifests``: the feature gate is on.
    """
    if document is None:
        return WebhookAdmission()
    found = decode_document(document, WebhookAdmission, ((VERSION, "WebhookAdmissionConfiguration"),))
    path = found.kube_config_file
    if path and not path.startswith("/"):
        raise ConfigFileError(aggregate([invalid_value("kubeConfigFile", path, "must be an absolute file path")]))
    _check_directory(found.static_manifests_dir, manifests=manifests)
    return found


def policy_manifests(document: Any, kind: str, *, manifests: bool) -> str:
    """Return the directory with the manifests of a plugin for policies, "" for none. ConfigFileError.

    ``kind``: ValidatingAdmissionPolicyConfiguration or MutatingAdmissionPolicyConfiguration.
    """
    if document is None:
        return ""
    found = decode_document(document, PolicyAdmission, ((VERSION, kind),))
    _check_directory(found.static_manifests_dir, manifests=manifests)
    return found.static_manifests_dir


def _check_directory(path: str, *, manifests: bool) -> None:
    if not path:
        return
    if not manifests:
        raise ConfigFileError(aggregate([forbidden("staticManifestsDir", NO_MANIFESTS)]))
    if not path.startswith("/"):
        raise ConfigFileError(aggregate([invalid_value("staticManifestsDir", path, "must be an absolute file path")]))


# -- resource quota ----------------------------------------------------------------------------------------------------
#
# The configuration of ResourceQuota (kube-apiserver's ``pkg/admission/plugin/resourcequota/config.go``).
#
# apiVersion: apiserver.config.k8s.io/v1
# kind: ResourceQuotaConfiguration
# limitedResources:
# - resource: pods
#   matchScopes: [{scopeName: PriorityClass, operator: In, values: [high]}]


KINDS: Final = (
    ("apiserver.config.k8s.io/v1", "ResourceQuotaConfiguration"),
    ("resourcequota.admission.k8s.io/v1beta1", "Configuration"),
    ("resourcequota.admission.k8s.io/v1alpha1", "Configuration"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _MatchScope:
    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _LimitedResource:
    api_group: str = ""
    resource: str = ""
    match_contains: tuple[str, ...] = ()
    match_scopes: tuple[_MatchScope, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    limited_resources: tuple[_LimitedResource, ...] = ()


def limited_resources(document: Any) -> tuple[LimitedResource, ...]:
    """Return what may be consumed only where a quota covers it. Raises ConfigFileError."""
    if document is None:
        return ()
    given = decode_document(document, Configuration, KINDS).limited_resources
    causes = [required(f"limitedResources[{i}].resource") for i, each in enumerate(given) if not each.resource]
    if causes:
        raise ConfigFileError(aggregate(causes))
    return tuple(
        LimitedResource(
            resource=f"{each.resource}.{each.api_group}" if each.api_group else each.resource,
            contains=each.match_contains,
            scopes=tuple(Selector(scope.scope_name, scope.operator, scope.values) for scope in each.match_scopes),
        )
        for each in given
    )


# -- image policy ------------------------------------------------------------------------------------------------------
#
# The configuration of ImagePolicyWebhook (kube-apiserver's ``plugin/pkg/admission/imagepolicy/config.go``).
#
# imagePolicy:
#   kubeConfigFile: /etc/kubernetes/images.yaml
#   allowTTL: 50        # seconds; 0: 300, -1: none
#   denyTTL: 50         # seconds; 0: 30, -1: none
#   retryBackoff: 500   # milliseconds; 0: 500, -1: none
#   defaultAllow: true


_LIMIT: Final = 1800
_BACKOFF_LIMIT: Final = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePolicy:
    """The numbers are as in the file, with defaults for 0 and 0 for -1."""

    kubeconfig: Annotated[str, FieldKey("kubeConfigFile")] = ""
    allow_ttl: Annotated[int, FieldKey("allowTTL")] = 0
    deny_ttl: Annotated[int, FieldKey("denyTTL")] = 0
    retry_backoff: int = 0
    default_allow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Document:
    image_policy: ImagePolicy = ImagePolicy()


def image_policy(document: Any) -> ImagePolicy:
    """Return the configuration. Raises ConfigFileError, also for a missing document."""
    if document is None:
        raise ConfigFileError("no config specified")
    try:
        given = structure(document, _Document, unknown_allowed=True).image_policy
    except StructureError as error:
        raise ConfigFileError(str(error)) from None
    if not given.kubeconfig:
        raise ConfigFileError("imagePolicy.kubeConfigFile: must be set")
    return ImagePolicy(
        kubeconfig=given.kubeconfig,
        retry_backoff=_checked(given.retry_backoff, 500, _BACKOFF_LIMIT, "1ns and 5m0s", "ms"),
        allow_ttl=_checked(given.allow_ttl, 300, _LIMIT, "1s and 30m0s", "s"),
        deny_ttl=_checked(given.deny_ttl, 30, _LIMIT, "1s and 30m0s", "s"),
        default_allow=given.default_allow,
    )


def _checked(value: int, default: int, limit: int, shown: str, unit: str) -> int:
    if value == -1:
        return 0
    if value == 0:
        return default
    if not 0 < value <= limit:
        raise ConfigFileError(f"valid value is between {shown}, got {value}{unit}")
    return value
