"""The configuration of MutatingAdmissionWebhook and ValidatingAdmissionWebhook (kube-apiserver's
``pkg/admission/plugin/webhook/config``).

    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: /etc/kubernetes/webhooks.yaml
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from kubechronicle.api.configuration.files import ConfigFileError, decode_document
from kubechronicle.api.errors.field_errors import aggregate, forbidden, invalid_value

KINDS: Final = (("apiserver.config.k8s.io/v1", "WebhookAdmissionConfiguration"),)
NO_MANIFESTS: Final = "staticManifestsDir requires the ManifestBasedAdmissionControlConfig feature gate to be enabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookAdmission:
    kube_config_file: str = ""
    static_manifests_dir: str = ""


def kubeconfig_of(document: Any) -> str:
    """Return the absolute path of the kubeconfig with the credentials for webhooks, "" for none.

    Raises ConfigFileError.
    """
    if document is None:
        return ""
    found = decode_document(document, WebhookAdmission, KINDS)
    path = found.kube_config_file
    if path and not path.startswith("/"):
        raise ConfigFileError(aggregate([invalid_value("kubeConfigFile", path, "must be an absolute file path")]))
    if found.static_manifests_dir:
        raise ConfigFileError(aggregate([forbidden("staticManifestsDir", NO_MANIFESTS)]))
    return path
