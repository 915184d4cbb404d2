"""Providers for tests of encryption: chains with keys that are told by a letter, and a key service in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import trio

from kubechronicle.eventlog.encryption.ciphers import AesCbc, AesGcm, Cipher, Secretbox
from kubechronicle.eventlog.encryption.contents import EncryptedContents
from kubechronicle.eventlog.encryption.errors import KeyServiceError
from kubechronicle.eventlog.encryption.kms import EncryptedKey, Status
from kubechronicle.eventlog.encryption.providers import EncryptionProvider, Identity, ProviderChain, Sealed
from kubechronicle.eventlog.encryption.statistics import EncryptionStatistics

CIPHERS: Final[Mapping[str, type[AesGcm] | type[AesCbc] | type[Secretbox]]] = {
    "aesgcm": AesGcm,
    "aescbc": AesCbc,
    "secretbox": Secretbox,
}


def chain(*providers: str, statistics: EncryptionStatistics | None = None) -> ProviderChain:
    """Return a chain of providers such as "aesgcm:ab" (two keys, named a and b) and "identity"."""
    counted = statistics or EncryptionStatistics()
    links: list[tuple[bytes, EncryptionProvider]] = []
    for each in providers:
        kind, _, keys = each.partition(":")
        if kind == "identity":
            links.append((b"", Identity()))
            continue
        sealed = [(f"{name}:".encode(), Sealed(cipher(kind, name))) for name in keys]
        otherwise = "no matching key was found for the provided AES transformer"
        links.append((f"k8s:enc:{kind}:v1:".encode(), ProviderChain(sealed, otherwise=otherwise, statistics=counted)))
    return ProviderChain(links, statistics=counted)


def cipher(kind: str, name: str) -> Cipher:
    return CIPHERS[kind](name.encode() * 32)


def contents(*providers: str, resource: str = "*.*") -> EncryptedContents:
    return EncryptedContents({resource: chain(*providers)})


class MemoryKeyService:
    """A key service whose key is ``key``. ``fails``: calls that fail. ``calls``: those made so far."""

    def __init__(self) -> None:
        self.key = "1"
        self.healthz = "ok"
        self.version = "v2"
        self.fails: dict[str, KeyServiceError] = {}
        self.calls: list[str] = []
        self.encrypts_with: str | None = None
        self.annotations: dict[str, bytes] = {}

    async def status(self) -> Status:
        await self._called("status")
        return Status(self.version, self.healthz, self.key)

    async def encrypt(self, uid: str, plaintext: bytes) -> EncryptedKey:
        await self._called("encrypt")
        key = self.encrypts_with if self.encrypts_with is not None else self.key
        return EncryptedKey(plaintext[::-1], key, self.annotations)

    async def decrypt(self, uid: str, key: EncryptedKey) -> bytes:
        await self._called("decrypt")
        assert key.annotations == self.annotations
        return key.data[::-1]

    async def _called(self, name: str) -> None:
        self.calls.append(name)
        await trio.lowlevel.checkpoint()
        if name in self.fails:
            raise self.fails[name]
