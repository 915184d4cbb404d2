"""The configuration of ImagePolicyWebhook (kube-apiserver's ``plugin/pkg/admission/imagepolicy/config.go``).

imagePolicy:
  kubeConfigFile: /etc/kubernetes/images.yaml
  allowTTL: 50        # seconds; 0: 300, -1: none
  denyTTL: 50         # seconds; 0: 30, -1: none
  retryBackoff: 500   # milliseconds; 0: 500, -1: none
  defaultAllow: true
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

from kubechronicle.api.configuration.files import ConfigFileError
from kubechronicle.api.configuration.structuring import FieldKey, StructureError, structure

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
