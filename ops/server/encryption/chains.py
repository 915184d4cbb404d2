"""From a checked EncryptionConfiguration to providers in order, by resource."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kubechronicle.api.configuration.encryption import (
    DEFAULT_TIMEOUT,
    EncryptionConfiguration,
    EncryptionKey,
    KMSConfiguration,
    ProviderConfiguration,
    secret_of,
)
from kubechronicle.api.values.durations import SECOND
from kubechronicle.eventlog.encryption.ciphers import AesCbc, AesGcm, Cipher, Secretbox
from kubechronicle.eventlog.encryption.kms import KmsProvider
from kubechronicle.eventlog.encryption.providers import Chain, Identity, Provider, Sealed
from kubechronicle.eventlog.encryption.statistics import EncryptionStatistics
from kubechronicle.ops.server.encryption.kms_plugin import KmsPlugin

PREFIX: Final = "k8s:enc:"
NO_AES_KEY: Final = "no matching key was found for the provided AES transformer"
NO_SECRETBOX_KEY: Final = "no matching key was found for the provided Secretbox transformer"


@dataclass(frozen=True, slots=True)
class Plugin:
    """A key service of the configuration. ``timeout``: seconds for each call."""

    provider: KmsProvider
    service: KmsPlugin
    timeout: float


@dataclass(frozen=True, slots=True)
class Built:
    """The chains by resource, and the key services they use, which must run."""

    chains: Mapping[str, Chain]
    plugins: Sequence[Plugin]


def build(configuration: EncryptionConfiguration, statistics: EncryptionStatistics) -> Built:
    """Return the providers. A resource that several entries name has the providers of all, in order."""
    links: dict[str, list[tuple[bytes, Provider]]] = {}
    plugins: list[Plugin] = []
    for entry in configuration.resources:
        own = [_link(provider, statistics, plugins) for provider in entry.providers]
        for resource in entry.resources:
            links.setdefault(resource, []).extend(own)
    chains = {resource: Chain(each, statistics=statistics) for resource, each in links.items()}
    return Built(chains, plugins)


def _link(
    provider: ProviderConfiguration, statistics: EncryptionStatistics, plugins: list[Plugin]
) -> tuple[bytes, Provider]:
    """Return the prefix of a provider and the provider; add its key service to ``plugins``."""
    if provider.kms is not None:
        plugin = _plugin(provider.kms, statistics)
        plugins.append(plugin)
        return f"{PREFIX}kms:v2:{provider.kms.name}:".encode(), plugin.provider
    if provider.aesgcm is not None:
        return b"k8s:enc:aesgcm:v1:", _keys(provider.aesgcm.keys, AesGcm, NO_AES_KEY, statistics)
    if provider.aescbc is not None:
        return b"k8s:enc:aescbc:v1:", _keys(provider.aescbc.keys, AesCbc, NO_AES_KEY, statistics)
    if provider.secretbox is not None:
        return b"k8s:enc:secretbox:v1:", _keys(provider.secretbox.keys, Secretbox, NO_SECRETBOX_KEY, statistics)
    return b"", Identity()


def _keys(
    keys: Sequence[EncryptionKey], cipher: Callable[[bytes], Cipher], otherwise: str, statistics: EncryptionStatistics
) -> Chain:
    links = [(f"{key.name}:".encode(), Sealed(cipher(secret_of(key)))) for key in keys]
    return Chain(links, otherwise=otherwise, statistics=statistics)


def _plugin(kms: KMSConfiguration, statistics: EncryptionStatistics) -> Plugin:
    timeout = (DEFAULT_TIMEOUT if kms.timeout is None else kms.timeout) / SECOND
    service = KmsPlugin(kms.endpoint, timeout)
    return Plugin(KmsProvider(kms.name, service, statistics), service, timeout)
