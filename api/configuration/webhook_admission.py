"""The configuration of the plugins for webhooks and policies (kube-apiserver's
``pkg/admission/plugin/webhook/config``, ``…/policy/config``).

    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: /etc/kubernetes/webhooks.yaml
    staticManifestsDir: /etc/kubernetes/webhooks      # KEP-5793, with the gate
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from kubechronicle.api.configuration.files import ConfigFileError, decode_document
from kubechronicle.api.errors.field_errors import aggregate, forbidden, invalid_value

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
