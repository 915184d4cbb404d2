"""From a checked EncryptionConfiguration to providers in order, by resource."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import unquote, urlsplit

import trio

from kubechronicle.api.configuration import encryption
from kubechronicle.api.configuration.encryption import (
    DEFAULT_CACHE_SIZE,
    DEFAULT_TIMEOUT,
    KMS_V1_GATE,
    V1,
    EncryptionConfiguration,
    EncryptionKey,
    KMSConfiguration,
    ProviderConfiguration,
    secret_of,
    version_of,
)
from kubechronicle.api.configuration.files import ConfigFileError
from kubechronicle.api.values.durations import SECOND
from kubechronicle.eventlog.encryption import protobuf
from kubechronicle.eventlog.encryption.ciphers import AesCbc, AesGcm, Cipher, Secretbox
from kubechronicle.eventlog.encryption.errors import KeyServiceError
from kubechronicle.eventlog.encryption.kms import EncryptedKey, KmsProvider, Status
from kubechronicle.eventlog.encryption.kms_v1 import KmsV1Provider
from kubechronicle.eventlog.encryption.providers import EncryptionProvider, Identity, ProviderChain, Sealed
from kubechronicle.eventlog.encryption.statistics import EncryptionStatistics
from kubechronicle.http.outgoing.grpc_channel import GrpcChannel, GrpcError, unix_socket
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.settings.settings import Settings

log = logging.getLogger(__name__)

# -- kms plugin --------------------------------------------------------------------------------------------------------
#
# A key service behind a Unix socket: the gRPC protocol of KMS plugins (k8s.io/kms/apis/v2/api.proto).
#
# Status   {}                                                 -> version 1, healthz 2, key_id 3
# Encrypt  plaintext 1, uid 2                                 -> ciphertext 1, key_id 2, annotations 3
# Decrypt  ciphertext 1, uid 2, key_id 3, annotations 4       -> plaintext 1
#
# The first protocol (k8s.io/kms/apis/v1beta1/api.proto). Each request has its version, and so must the plugin.
#
# Version  version 1                                          -> version 1, runtime_name 2, runtime_version 3
# Encrypt  version 1, plain 2                                 -> cipher 1
# Decrypt  version 1, cipher 2                                -> plain 1

T = TypeVar("T")
SERVICE: Final = "/v2.KeyManagementService/"
SERVICE_V1: Final = "/v1beta1.KeyManagementService/"
VERSION_V1: Final = "v1beta1"


class _Plugin:
    """``endpoint``: unix:///path, or unix:///@name for an abstract socket. ``timeout``: seconds for each call.

    A plugin that is not there yet is waited for within the timeout, as kube-apiserver does.
    """

    def __init__(self, endpoint: str, timeout: float) -> None:
        path = unquote(urlsplit(endpoint).path)
        self._timeout = timeout
        self.channel = GrpcChannel(unix_socket(path[1:] if path.startswith("/@") else path))

    async def call(self, method: str, request: bytes, read: Callable[[protobuf.Message], T]) -> T:
        """Return what ``read`` finds in the answer; it raises ValueError for a wrong one. KeyServiceError."""
        try:
            answer = await self.channel.unary(method, request, timeout=self._timeout, wait_for_ready=True)
            return read(protobuf.parse(answer))
        except GrpcError as error:
            raise KeyServiceError(error.code, str(error)) from None
        except ValueError as error:
            raise KeyServiceError("Internal", f"rpc error: code = Internal desc = {error}") from None


class KmsPlugin(_Plugin):
    """A plugin with the protocol of KMS v2."""

    async def status(self) -> Status:
        return await self.call(SERVICE + "Status", b"", _status)

    async def encrypt(self, uid: str, plaintext: bytes) -> EncryptedKey:
        request = protobuf.field(1, plaintext) + protobuf.field(2, uid)
        return await self.call(SERVICE + "Encrypt", request, _encrypted_key)

    async def decrypt(self, uid: str, key: EncryptedKey) -> bytes:
        request = protobuf.field(1, key.data) + protobuf.field(2, uid) + protobuf.field(3, key.key_id)
        return await self.call(SERVICE + "Decrypt", request + protobuf.map_field(4, key.annotations), _first_bytes)


def _status(answer: protobuf.Message) -> Status:
    return Status(protobuf.text_of(answer, 1), protobuf.text_of(answer, 2), protobuf.text_of(answer, 3))


def _encrypted_key(answer: protobuf.Message) -> EncryptedKey:
    return EncryptedKey(protobuf.bytes_of(answer, 1), protobuf.text_of(answer, 2), protobuf.map_of(answer, 3))


def _first_bytes(answer: protobuf.Message) -> bytes:
    return protobuf.bytes_of(answer, 1)


class KmsV1Plugin(_Plugin):
    """A plugin with the protocol of KMS v1, whose version is checked before the first call."""

    def __init__(self, endpoint: str, timeout: float) -> None:
        super().__init__(endpoint, timeout)
        self._checking = trio.Lock()
        self._checked = False

    async def encrypt(self, plain: bytes) -> bytes:
        return await self._ask("Encrypt", plain)

    async def decrypt(self, cipher: bytes) -> bytes:
        return await self._ask("Decrypt", cipher)

    async def _ask(self, method: str, data: bytes) -> bytes:
        version = protobuf.field(1, VERSION_V1)
        async with self._checking:
            if not self._checked:
                await self._check(version)
        return await self.call(SERVICE_V1 + method, version + protobuf.field(2, data), _first_bytes)

    async def _check(self, request: bytes) -> None:
        try:
            found = await self.call(SERVICE_V1 + "Version", request, lambda answer: protobuf.text_of(answer, 1))
        except KeyServiceError as error:
            raise KeyServiceError(error.code, f"failed get version from remote KMS provider: {error}") from None
        if found != VERSION_V1:
            text = f"KMS provider api version {found} is not supported, only {VERSION_V1} is supported now"
            raise KeyServiceError("", text)
        self._checked = True


# -- chains ------------------------------------------------------------------------------------------------------------

PREFIX: Final = "k8s:enc:"
NO_AES_KEY: Final = "no matching key was found for the provided AES transformer"
NO_SECRETBOX_KEY: Final = "no matching key was found for the provided Secretbox transformer"


@dataclass(frozen=True, slots=True)
class Plugin:
    """A key service of the configuration. ``timeout``: seconds for each call, and for both of a check of KMS v1."""

    provider: KmsProvider | KmsV1Provider
    service: KmsPlugin | KmsV1Plugin
    timeout: float

    @property
    def is_v1(self) -> bool:
        return isinstance(self.provider, KmsV1Provider)


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
        return f"{PREFIX}kms:{version_of(provider.kms)}:{provider.kms.name}:".encode(), plugin.provider
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
    if version_of(kms) == V1:
        first = KmsV1Plugin(kms.endpoint, timeout)
        size = DEFAULT_CACHE_SIZE if kms.cachesize is None else kms.cachesize
        return Plugin(KmsV1Provider(kms.name, first, statistics, size), first, 2 * timeout)
    service = KmsPlugin(kms.endpoint, timeout)
    return Plugin(KmsProvider(kms.name, service, statistics), service, timeout)


# -- plan --------------------------------------------------------------------------------------------------------------
#
# The settings of encryption at rest, and the file they name.


FLAG = "encryption-provider-config"


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionPlan:
    """The configuration, its file and content. ``reload``: follow the file while the server runs.

    ``kms_v1``: key services of KMS v1 are allowed.
    """

    configuration: EncryptionConfiguration
    file: Path
    content: bytes
    reload: bool = False
    kms_v1: bool = False


def encryption_plan(settings: Settings) -> EncryptionPlan | None:
    """Return the plan; None: contents are stored as plaintext. Raise OperatorError."""
    file, reload = settings.encryption_provider_config, settings.encryption_provider_config_automatic_reload
    if file is None:
        if reload:
            raise OperatorError(f"--{FLAG}-automatic-reload must be set with --{FLAG}")
        return None
    try:
        content = file.read_bytes()
        kms_v1 = _allows_kms_v1(settings)
        configuration = encryption.load(content, kms_v1=kms_v1)
    except OSError as error:
        raise OperatorError(f"--{FLAG}: cannot read {file}: {error.strerror}") from None
    except ConfigFileError as error:
        raise OperatorError(f"--{FLAG}: {file}: {error}") from None
    if kms_v1 and any(version_of(kms) == V1 for kms in encryption.key_services(configuration)):
        log.warning(encryption.KMS_V1)
    return EncryptionPlan(configuration=configuration, file=file, content=content, reload=reload, kms_v1=kms_v1)


def _allows_kms_v1(settings: Settings) -> bool:
    """Tell whether the gate of KMS v1 is on. OperatorError: the gates are wrong."""
    if settings.feature_gates is None:
        return False
    from kubechronicle.ops.settings.feature_gates import feature_gates  # commands start faster without it

    return feature_gates(settings).enabled(KMS_V1_GATE)
