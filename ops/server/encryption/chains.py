"""From a checked EncryptionConfiguration to providers in order, by resource."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from kubechronicle.api.configuration import encryption
from kubechronicle.api.configuration.encryption import (
    DEFAULT_TIMEOUT,
    EncryptionConfiguration,
    EncryptionKey,
    KMSConfiguration,
    ProviderConfiguration,
    secret_of,
)
from kubechronicle.api.configuration.files import ConfigFileError
from kubechronicle.api.values.durations import SECOND
from kubechronicle.eventlog.encryption import protobuf
from kubechronicle.eventlog.encryption.ciphers import AesCbc, AesGcm, Cipher, Secretbox
from kubechronicle.eventlog.encryption.errors import KeyServiceError
from kubechronicle.eventlog.encryption.kms import EncryptedKey, KmsProvider, Status
from kubechronicle.eventlog.encryption.providers import EncryptionProvider, Identity, ProviderChain, Sealed
from kubechronicle.eventlog.encryption.statistics import EncryptionStatistics
from kubechronicle.http.outgoing.grpc.channel import GrpcChannel, GrpcError, unix_socket
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.settings.settings import Settings

# -- kms plugin --------------------------------------------------------------------------------------------------------
#
# A key service behind a Unix socket: the gRPC protocol of KMS plugins (k8s.io/kms/apis/v2/api.proto).
#
# Status   {}                                                 -> version 1, healthz 2, key_id 3
# Encrypt  plaintext 1, uid 2                                 -> ciphertext 1, key_id 2, annotations 3
# Decrypt  ciphertext 1, uid 2, key_id 3, annotations 4       -> plaintext 1

SERVICE: Final = "/v2.KeyManagementService/"


class KmsPlugin:
    """``endpoint``: unix:///path, or unix:///@name for an abstract socket. ``timeout``: seconds for each call.

    A plugin that is not there yet is waited for within the timeout, as kube-apiserver does.
    """

    def __init__(self, endpoint: str, timeout: float) -> None:
        path = unquote(urlsplit(endpoint).path)
        self._timeout = timeout
        self.channel = GrpcChannel(unix_socket(path[1:] if path.startswith("/@") else path))

    async def status(self) -> Status:
        answer = await self._call("Status", b"")
        return Status(protobuf.text_of(answer, 1), protobuf.text_of(answer, 2), protobuf.text_of(answer, 3))

    async def encrypt(self, uid: str, plaintext: bytes) -> EncryptedKey:
        answer = await self._call("Encrypt", protobuf.field(1, plaintext) + protobuf.field(2, uid))
        return EncryptedKey(protobuf.bytes_of(answer, 1), protobuf.text_of(answer, 2), protobuf.map_of(answer, 3))

    async def decrypt(self, uid: str, key: EncryptedKey) -> bytes:
        request = protobuf.field(1, key.data) + protobuf.field(2, uid) + protobuf.field(3, key.key_id)
        return protobuf.bytes_of(await self._call("Decrypt", request + protobuf.map_field(4, key.annotations)), 1)

    async def _call(self, method: str, request: bytes) -> protobuf.Message:
        try:
            answer = await self.channel.unary(SERVICE + method, request, timeout=self._timeout, wait_for_ready=True)
            return protobuf.parse(answer)
        except GrpcError as error:
            raise KeyServiceError(error.code, str(error)) from None
        except ValueError as error:
            raise KeyServiceError("Internal", f"rpc error: code = Internal desc = {error}") from None


# -- chains ------------------------------------------------------------------------------------------------------------

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

    chains: Mapping[str, ProviderChain]
    plugins: Sequence[Plugin]


def build(configuration: EncryptionConfiguration, statistics: EncryptionStatistics) -> Built:
    """Return the providers. A resource that several entries name has the providers of all, in order."""
    links: dict[str, list[tuple[bytes, EncryptionProvider]]] = {}
    plugins: list[Plugin] = []
    for entry in configuration.resources:
        own = [_link(provider, statistics, plugins) for provider in entry.providers]
        for resource in entry.resources:
            links.setdefault(resource, []).extend(own)
    chains = {resource: ProviderChain(each, statistics=statistics) for resource, each in links.items()}
    return Built(chains, plugins)


def _link(
    provider: ProviderConfiguration, statistics: EncryptionStatistics, plugins: list[Plugin]
) -> tuple[bytes, EncryptionProvider]:
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
) -> ProviderChain:
    links = [(f"{key.name}:".encode(), Sealed(cipher(secret_of(key)))) for key in keys]
    return ProviderChain(links, otherwise=otherwise, statistics=statistics)


def _plugin(kms: KMSConfiguration, statistics: EncryptionStatistics) -> Plugin:
    timeout = (DEFAULT_TIMEOUT if kms.timeout is None else kms.timeout) / SECOND
    service = KmsPlugin(kms.endpoint, timeout)
    return Plugin(KmsProvider(kms.name, service, statistics), service, timeout)


# -- plan --------------------------------------------------------------------------------------------------------------
#
# The settings of encryption at rest, and the file they name.


FLAG = "encryption-provider-config"


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionPlan:
    """The configuration, its file and content. ``reload``: follow the file while the server runs."""

    configuration: EncryptionConfiguration
    file: Path
    content: bytes
    reload: bool = False


def encryption_plan(settings: Settings) -> EncryptionPlan | None:
    """Return the plan; None: contents are stored as plaintext. Raise OperatorError."""
    file, reload = settings.encryption_provider_config, settings.encryption_provider_config_automatic_reload
    if file is None:
        if reload:
            raise OperatorError(f"--{FLAG}-automatic-reload must be set with --{FLAG}")
        return None
    try:
        content = file.read_bytes()
        configuration = encryption.load(content)
    except OSError as error:
        raise OperatorError(f"--{FLAG}: cannot read {file}: {error.strerror}") from None
    except ConfigFileError as error:
        raise OperatorError(f"--{FLAG}: {file}: {error}") from None
    return EncryptionPlan(configuration=configuration, file=file, content=content, reload=reload)
