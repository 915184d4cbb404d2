"""The file of --admission-control-config-file, and the configurations of single plugins (kube-apiserver's
``pkg/admission/config.go``).

    apiVersion: apiserver.config.k8s.io/v1
    kind: AdmissionConfiguration
    plugins:
    - name: EventRateLimit
      path: event-rates.yaml      # relative to this file
    - name: PodTolerationRestriction
      configuration: {apiVersion: …, kind: Configuration, …}

The outer file is decoded strictly. The files of plugins are not, as in kube-apiserver: unknown fields are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from kubechronicle.api.builtin.common.scheduling import tolerations
from kubechronicle.api.codecs import json as json_codec
from kubechronicle.api.codecs import yaml as yaml_codec
from kubechronicle.api.codecs.errors import CodecError
from kubechronicle.api.configuration.files import ConfigFileError, decode
from kubechronicle.api.configuration.structuring import FieldKey, StructureError, ZeroIsDefault, structure
from kubechronicle.api.configuration.webhook_admission import ImagePolicy
from kubechronicle.api.errors.field_errors import Cause, aggregate, duplicate, go_quote, invalid_value, not_supported
from kubechronicle.api.quota.check import LimitedResource
from kubechronicle.api.values import names

VERSIONS: Final = ("v1",)
FORMER: Final = "apiserver.k8s.io/v1alpha1"
SERVER: Final = "Server"
LIMIT_TYPES: Final = (SERVER, "Namespace", "User", "SourceAndObject")
DEFAULT_CACHE_SIZE: Final = 4096
PRIVILEGED: Final = "privileged"
LATEST: Final = "latest"
_LEVELS: Final = (PRIVILEGED, "baseline", "restricted")
_VERSION: Final = re.compile(r"v1\.(0|[1-9][0-9]*)\Z")
NODE_SELECTORS: Final = "podNodeSelectorPluginConfig"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionPluginConfiguration:
    """``path``: of the plugin's file. ``configuration``: its content instead of a file."""

    name: str = ""
    path: str = ""
    configuration: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionConfiguration:
    plugins: tuple[AdmissionPluginConfiguration, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLimit:
    """A limit on Events: ``qps`` a second, up to ``burst`` at once, for each key of ``type``.

    ``cache_size``: the greatest number of keys to remember.
    """

    type: str = ""
    qps: int = 0
    burst: int = 0
    cache_size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _EventLimits:
    limits: tuple[EventLimit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSecurityDefaults:
    """The standards of namespaces without labels."""

    enforce: Annotated[str, ZeroIsDefault] = PRIVILEGED
    enforce_version: Annotated[str, FieldKey("enforce-version"), ZeroIsDefault] = LATEST
    audit: Annotated[str, ZeroIsDefault] = PRIVILEGED
    audit_version: Annotated[str, FieldKey("audit-version"), ZeroIsDefault] = LATEST
    warn: Annotated[str, ZeroIsDefault] = PRIVILEGED
    warn_version: Annotated[str, FieldKey("warn-version"), ZeroIsDefault] = LATEST


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSecurityExemptions:
    """The users, namespaces and runtime classes to which PodSecurity does not apply."""

    usernames: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    runtime_classes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSecurityConfiguration:
    defaults: PodSecurityDefaults = PodSecurityDefaults()
    exemptions: PodSecurityExemptions = PodSecurityExemptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginConfigurations:
    """The configurations of all plugins.

    ``event_limits``: of EventRateLimit.
    ``node_selectors``: of PodNodeSelector, by namespace.
    ``default_tolerations``, ``toleration_whitelist``: of PodTolerationRestriction.
    ``pod_security``: of PodSecurity.
    ``webhook_kubeconfigs``: the kubeconfigs of MutatingAdmissionWebhook and ValidatingAdmissionWebhook, by plugin.
    ``manifests``: the directories with manifests, by plugin.
    ``image_policy``: of ImagePolicyWebhook.
    ``limited_resources``: of ResourceQuota.
    ``not_ready_seconds``, ``unreachable_seconds``: of DefaultTolerationSeconds.
    """

    event_limits: tuple[EventLimit, ...] = ()
    node_selectors: Mapping[str, str] = field(default_factory=dict)
    default_tolerations: tuple[Mapping[str, Any], ...] = ()
    toleration_whitelist: tuple[Mapping[str, Any], ...] = ()
    pod_security: PodSecurityConfiguration = PodSecurityConfiguration()
    webhook_kubeconfigs: Mapping[str, str] = field(default_factory=dict)
    manifests: Mapping[str, str] = field(default_factory=dict)
    image_policy: ImagePolicy | None = None
    limited_resources: tuple[LimitedResource, ...] = ()
    not_ready_seconds: int = 300
    unreachable_seconds: int = 300


def load(data: bytes) -> AdmissionConfiguration:
    """Return the content of the outer file. Raises ConfigFileError."""
    return decode(data, AdmissionConfiguration, versions=VERSIONS, former=FORMER)


def document_of(data: bytes) -> Any:
    """Return the content of a plugin's file, YAML or JSON. Raises ConfigFileError."""
    codec = json_codec if data.lstrip().startswith(b"{") else yaml_codec
    try:
        return codec.decode(data, strict=False)[0]
    except CodecError as error:
        raise ConfigFileError(str(error)) from None


def event_limits(document: Any) -> tuple[EventLimit, ...]:
    """Return the limits of EventRateLimit. Raises ConfigFileError, also for a missing document."""
    if document is not None:
        _check_kind(document, "eventratelimit.admission.k8s.io/v1alpha1")
    try:
        limits = structure(document or {}, _EventLimits, unknown_allowed=True).limits
    except StructureError as error:
        raise ConfigFileError(str(error)) from None
    causes: list[Cause] = []
    if not limits:
        causes.append(invalid_value("limits", None, "must not be empty"))
    for index, limit in enumerate(limits):
        causes += _problems_of_limit(limit, f"limits[{index}]")
    if causes:
        raise ConfigFileError(aggregate(causes))
    return limits


def _problems_of_limit(limit: EventLimit, path: str) -> list[Cause]:
    causes = []
    if limit.type not in LIMIT_TYPES:
        causes.append(not_supported(f"{path}.type", limit.type, LIMIT_TYPES))
    for name, value in (("burst", limit.burst), ("qps", limit.qps)):
        if value <= 0:
            causes.append(invalid_value(f"{path}.{name}", value, "must be positive"))
    if limit.type != SERVER and limit.cache_size < 0:
        causes.append(invalid_value(f"{path}.cacheSize", limit.cache_size, "must not be negative"))
    return causes


def node_selectors(document: Any) -> Mapping[str, str]:
    """Return the selectors of PodNodeSelector by namespace. Raises ConfigFileError.

    kube-apiserver ignores a file that it cannot read so; here it is an error.
    """
    found = document.get(NODE_SELECTORS) if isinstance(document, Mapping) else None
    if document is None:
        return {}
    if found is None or not isinstance(found, Mapping) or not all(isinstance(text, str) for text in found.values()):
        raise ConfigFileError(f"{NODE_SELECTORS}: must map namespaces to selectors")
    return dict(found)


def pod_tolerations(document: Any) -> tuple[tuple[Mapping[str, Any], ...], tuple[Mapping[str, Any], ...]]:
    """Return the default tolerations and the whitelist of PodTolerationRestriction. Raises ConfigFileError."""
    if document is None:
        return (), ()
    _check_kind(document, "podtolerationrestriction.admission.k8s.io/v1alpha1")
    causes: list[Cause] = []
    found = []
    for name in ("default", "whitelist"):
        listed = document.get(name) or []
        if not isinstance(listed, Sequence) or not all(isinstance(each, Mapping) for each in listed):
            raise ConfigFileError(f"{name}: must be a list of tolerations")
        causes += tolerations(listed, f"podtolerationrestriction.{name}")
        found.append(tuple(listed))
    if causes:
        raise ConfigFileError(f"invalid config: [{' '.join(map(str, causes))}]")
    return found[0], found[1]


def pod_security(document: Any) -> PodSecurityConfiguration:
    """Return the defaults and exemptions of PodSecurity. Raises ConfigFileError."""
    if document is None:
        return PodSecurityConfiguration()
    version = document.get("apiVersion") if isinstance(document, Mapping) else None
    known = version if version in _POD_SECURITY_VERSIONS else _POD_SECURITY_VERSIONS[0]
    _check_kind(document, str(known), ("PodSecurityConfiguration",))
    try:
        found = structure(document, PodSecurityConfiguration, unknown_allowed=True)
    except StructureError as error:
        raise ConfigFileError(str(error)) from None
    causes: list[Cause] = []
    for mode in ("enforce", "warn", "audit"):
        level, version = getattr(found.defaults, mode), getattr(found.defaults, f"{mode}_version")
        if level not in _LEVELS:
            causes.append(invalid_value(f"defaults.{mode}", level, f"must be one of {', '.join(_LEVELS)}"))
        if version != LATEST and not _VERSION.match(version):
            causes.append(invalid_value(f"defaults.{mode}-version", version, 'must be "latest" or "v1.x"'))
    exempt = found.exemptions
    causes += _problems_of_names(exempt.namespaces, "exemptions.namespaces", names.dns_label)
    causes += _problems_of_names(exempt.runtime_classes, "exemptions.runtimeClasses", names.dns_subdomain)
    causes += _problems_of_names(
        exempt.usernames, "exemptions.usernames", lambda name: [] if name else ["username must not be empty"]
    )
    if causes:
        raise ConfigFileError(aggregate(causes))
    return found


_POD_SECURITY_VERSIONS: Final = tuple(
    f"pod-security.admission.config.k8s.io/{v}" for v in ("v1", "v1beta1", "v1alpha1")
)


def _problems_of_names(given: Sequence[str], path: str, check: Callable[[str], list[str]]) -> list[Cause]:
    causes = []
    for index, name in enumerate(given):
        if problems := check(name):
            causes.append(invalid_value(f"{path}[{index}]", name, ", ".join(problems)))
        elif name in given[:index]:
            causes.append(duplicate(f"{path}[{index}]", name))
    return causes


def _check_kind(document: Any, api_version: str, kinds: Collection[str] = ("Configuration",)) -> None:
    if not isinstance(document, Mapping):
        raise ConfigFileError("must be an object")
    version, kind = document.get("apiVersion") or "", document.get("kind") or ""
    if not kind:
        raise ConfigFileError("Object 'Kind' is missing in the file")
    if not version:
        raise ConfigFileError("Object 'apiVersion' is missing in the file")
    if version != api_version or kind not in kinds:
        raise ConfigFileError(f"no kind {go_quote(str(kind))} is registered for version {go_quote(str(version))}")
