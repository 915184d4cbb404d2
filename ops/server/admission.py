"""The admission plugins of a server and their configuration files, from the settings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from kubechronicle.actors.admission import plugins
from kubechronicle.actors.loops.edits import create_unless_exists
from kubechronicle.actors.store import Store
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.configuration import admission, webhook_admission
from kubechronicle.api.configuration.admission import AdmissionPluginConfiguration, PluginConfigurations
from kubechronicle.api.configuration.admission_manifests import Manifests
from kubechronicle.api.configuration.files import ConfigFileError
from kubechronicle.api.configuration.webhook_admission import WebhookAdmission
from kubechronicle.http.authorization.current_authorizers import AuthorizationPlan
from kubechronicle.http.outgoing.image_reviews import ImageWebhook
from kubechronicle.http.outgoing.kubeconfig import KubeconfigError, WebhookUsers, read_kubeconfig, read_webhook_users
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.server.admission_manifests import load_directory
from kubechronicle.ops.settings.feature_gates import feature_gates
from kubechronicle.ops.settings.settings import Settings

# -- provision ---------------------------------------------------------------------------------------------------------
#
# The creation of namespaces on behalf of admission (NamespaceAutoProvision).

COMPONENT: Final = "kube-apiserver"


async def create_namespace(store: Store, name: str) -> None:
    """Create a namespace unless it exists. StatusError."""
    rt = store.registry.builtin("", "v1", "namespaces")
    target = Target(rt=rt, name=name, manager=COMPONENT)
    await create_unless_exists(store, COMPONENT, target, {"metadata": {"name": name}})


# -- admission ---------------------------------------------------------------------------------------------------------

FLAG: Final = "--admission-control-config-file"
NODE: Final = "Node"
WEBHOOKS: Final = ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")
POLICIES: Final = ("MutatingAdmissionPolicy", "ValidatingAdmissionPolicy")
log = logging.getLogger(__name__)


def chosen_plugins(settings: Settings, authorization: AuthorizationPlan) -> frozenset[str]:
    """Return the names of the plugins to run. NodeRestriction is a default where the Node authorizer runs.

    Raises OperatorError.
    """
    flags = {
        "enable-admission-plugins": settings.enable_admission_plugins,
        "disable-admission-plugins": settings.disable_admission_plugins,
        "admission-control": settings.admission_control,
    }
    chosen = {flag: frozenset(names or ()) for flag, names in flags.items()}
    for flag, names in chosen.items():
        if unknown := sorted(names - set(plugins.NAMES)):
            known = ", ".join(plugins.NAMES)
            raise OperatorError(f"--{flag}: there is no admission plugin {unknown[0]!r}, only {known}")
    enabled, disabled, only = chosen.values()
    if only and (enabled or disabled):
        raise OperatorError("--admission-control: cannot be given with --enable- or --disable-admission-plugins")
    if only:
        return only
    if both := sorted(enabled & disabled):
        raise OperatorError(f"--enable-admission-plugins and --disable-admission-plugins: {both[0]} is in both")
    default = plugins.DEFAULT
    if all(each.type != NODE for each in authorization.configured):
        default = default - {"NodeRestriction"}
    return (default | enabled) - disabled


def plugin_configurations(settings: Settings, enabled: frozenset[str]) -> PluginConfigurations:
    """Return the configurations of the enabled plugins, from the file and those it names. Raises OperatorError."""
    file = settings.admission_control_config_file
    listed: dict[str, AdmissionPluginConfiguration] = {}
    if file is not None:
        try:
            for each in admission.load(_read(file)).plugins:
                listed.setdefault(each.name, each)
        except ConfigFileError as error:
            raise OperatorError(f"{FLAG}: {file}: {error}") from None
    for name, each in listed.items():
        given = each.configuration is not None or each.path
        if given and name in enabled and name not in (*_READERS, *WEBHOOKS, *POLICIES):
            raise OperatorError(f"{FLAG}: {file}: this server has no configuration for the plugin {name}; remove it")
    values: dict[str, Any] = {}
    for name, read in _readers(manifests=feature_gates(settings).enabled(webhook_admission.GATE)).items():
        if name in enabled:
            values |= _configured(name, read, listed.get(name), file)
    asked: dict[str, WebhookAdmission] = {name: values.pop(name) for name in WEBHOOKS if name in values}
    directories: dict[str, str] = {name: values.pop(name) for name in POLICIES if name in values}
    directories |= {name: each.static_manifests_dir for name, each in asked.items()}
    return PluginConfigurations(
        **values,
        webhook_kubeconfigs={name: each.kube_config_file for name, each in asked.items() if each.kube_config_file},
        manifests={name: path for name, path in directories.items() if path},
        not_ready_seconds=settings.default_not_ready_toleration_seconds,
        unreachable_seconds=settings.default_unreachable_toleration_seconds,
    )


def manifests(configurations: PluginConfigurations) -> Mapping[str, tuple[Path, Manifests]]:
    """Return the directories with manifests and their objects, by plugin. Raises OperatorError."""
    found = {}
    for name, path in configurations.manifests.items():
        try:
            if not Path(path).is_dir():
                why = "must be a directory" if Path(path).exists() else "unable to read: no such file or directory"
                raise ConfigFileError(f'staticManifestsDir: Invalid value: "{path}": {why}')
            found[name] = (Path(path), load_directory(name, Path(path)))
        except ConfigFileError as error:
            kind = "webhook" if name in WEBHOOKS else "policy"
            why = f'failed to load static {kind} manifests from "{path}": {error}'
            raise OperatorError(f"{FLAG}: couldn't init admission plugin {name}: {why}") from None
    return found


def webhook_users(configurations: PluginConfigurations) -> Mapping[str, WebhookUsers]:
    """Return the credentials for webhooks by the plugin that asks them. Raises OperatorError."""
    try:
        return {name: read_webhook_users(Path(path)) for name, path in configurations.webhook_kubeconfigs.items()}
    except KubeconfigError as error:
        raise OperatorError(f"{FLAG}: kubeConfigFile: {error}") from None


def image_webhook(configurations: PluginConfigurations) -> ImageWebhook | None:
    """Return the webhook of ImagePolicyWebhook, None if the plugin is not enabled. Raises OperatorError."""
    given = configurations.image_policy
    if given is None:
        return None
    try:
        peer = read_kubeconfig(Path(given.kubeconfig))
    except KubeconfigError as error:
        raise OperatorError(f"{FLAG}: kubeConfigFile: {error}") from None
    return ImageWebhook(
        peer=peer,
        allow_ttl=given.allow_ttl,
        deny_ttl=given.deny_ttl,
        retry_backoff=given.retry_backoff / 1000,
        default_allow=given.default_allow,
    )


def _configured(
    name: str, read: Callable[[Any], Mapping[str, Any]], listed: AdmissionPluginConfiguration | None, file: Path | None
) -> Mapping[str, Any]:
    where = f" {file}:" if file is not None else ""
    try:
        document: Any = None
        if listed is not None and listed.configuration is not None:
            document = listed.configuration
        elif listed is not None and listed.path and file is not None:
            path = file.parent / listed.path
            where = f" {path}:"
            document = admission.document_of(_read(path))
        return read(document)
    except ConfigFileError as error:
        raise OperatorError(f"{FLAG}:{where} couldn't init admission plugin {name}: {error}") from None


def _event_limits(document: Any) -> Mapping[str, Any]:
    return {"event_limits": admission.event_limits(document)}


def _node_selectors(document: Any) -> Mapping[str, Any]:
    return {"node_selectors": admission.node_selectors(document)}


def _pod_tolerations(document: Any) -> Mapping[str, Any]:
    default, whitelist = admission.pod_tolerations(document)
    return {"default_tolerations": default, "toleration_whitelist": whitelist}


def _pod_security(document: Any) -> Mapping[str, Any]:
    return {"pod_security": admission.pod_security(document)}


def _image_policy(document: Any) -> Mapping[str, Any]:
    return {"image_policy": webhook_admission.image_policy(document)}


def _limited_resources(document: Any) -> Mapping[str, Any]:
    return {"limited_resources": webhook_admission.limited_resources(document)}


_Reader = Callable[[Any], Mapping[str, Any]]


def _readers(*, manifests: bool) -> Mapping[str, _Reader]:
    """Return the functions that read configurations. ``manifests``: those may name directories with manifests."""

    def of_webhooks(name: str) -> _Reader:
        return lambda document: {name: webhook_admission.webhook_admission(document, manifests=manifests)}

    def of_policies(name: str) -> _Reader:
        kind = f"{name}Configuration"
        return lambda document: {name: webhook_admission.policy_manifests(document, kind, manifests=manifests)}

    return {
        **_READERS,
        **{name: of_webhooks(name) for name in WEBHOOKS},
        **{name: of_policies(name) for name in POLICIES},
    }


_READERS: Final[Mapping[str, _Reader]] = {
    "EventRateLimit": _event_limits,
    "ImagePolicyWebhook": _image_policy,
    "PodNodeSelector": _node_selectors,
    "PodSecurity": _pod_security,
    "PodTolerationRestriction": _pod_tolerations,
    "ResourceQuota": _limited_resources,
}
"""The plugins with a configuration, but for those of webhooks and policies."""


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise OperatorError(f"{FLAG}: cannot read {file}: {error.strerror}") from None
