"""Providers: the ciphers for one resource, found by the prefix of the stored value.

A value begins with the prefix of its provider, as in kube-apiserver's storage. Providers with several keys have the
name of the key as a second prefix:

    k8s:enc:aesgcm:v1: key2: <nonce, ciphertext, tag>
    k8s:enc:kms:v2:vault: <EncryptedObject>
    {"apiVersion":…                                     the identity provider: no prefix

The first provider of a chain writes. Every provider with the prefix of a value is tried in order, because two of them
may hold different keys under one name. The last error is that of all that were tried.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, runtime_checkable

from kubechronicle.eventlog.encryption.ciphers import Cipher
from kubechronicle.eventlog.encryption.errors import TransformError, joined
from kubechronicle.eventlog.encryption.statistics import FROM_STORAGE, TO_STORAGE, EncryptionStatistics

ENCRYPTED_PREFIX: Final = b"k8s:enc:"
"""Begins every encrypted value, and no other."""

NOT_ENCRYPTED: Final = "identity transformer tried to read encrypted data"
NO_PREFIX: Final = "no matching prefix found"


class Value(NamedTuple):
    """A value as it is stored: the prefix, and the ciphertext."""

    prefix: bytes
    data: bytes


class Plain(NamedTuple):
    """A decrypted value. ``stale``: today it would be encrypted with another key, or by another provider."""

    data: bytes
    stale: bool


class EncryptionProvider(Protocol):
    """Encrypts and decrypts what follows its prefix. NeedsKey: ``decrypt`` waits for a key service."""

    def encrypt(self, resource: str, data: bytes, about: bytes) -> Value: ...

    def decrypt(self, resource: str, data: bytes, about: bytes) -> Plain: ...


@runtime_checkable
class DrawsKeys(Protocol):
    """A provider with a new key for each value: they are drawn before the values are encrypted. TransformError."""

    async def draw_keys(self, count: int) -> None: ...


class Identity:
    """The provider that stores plaintext, and refuses ciphertext."""

    def encrypt(self, resource: str, data: bytes, about: bytes) -> Value:
        return Value(b"", data)

    def decrypt(self, resource: str, data: bytes, about: bytes) -> Plain:
        if data.startswith(ENCRYPTED_PREFIX):
            raise TransformError(NOT_ENCRYPTED)
        return Plain(data, stale=False)


@dataclass(frozen=True, slots=True)
class Sealed:
    """A cipher with one key."""

    cipher: Cipher

    def encrypt(self, resource: str, data: bytes, about: bytes) -> Value:
        return Value(b"", self.cipher.encrypt(data, about))

    def decrypt(self, resource: str, data: bytes, about: bytes) -> Plain:
        return Plain(self.cipher.decrypt(data, about), stale=False)


class ProviderChain:
    """Providers in order, each with its prefix. ``otherwise``: the error for a value with no such prefix."""

    def __init__(
        self,
        links: Sequence[tuple[bytes, EncryptionProvider]],
        *,
        otherwise: str = NO_PREFIX,
        statistics: EncryptionStatistics,
    ) -> None:
        self._links = tuple(links)
        self._otherwise = otherwise
        self._statistics = statistics

    @property
    def draws_keys(self) -> bool:
        """Return whether ``draw`` must be called before new values are encrypted."""
        return isinstance(self._links[0][1], DrawsKeys)

    async def draw(self, resource: str, count: int) -> None:
        """Get the keys of so many new values. TransformError."""
        prefix, provider = self._links[0]
        if isinstance(provider, DrawsKeys):
            started = time.perf_counter()
            try:
                await provider.draw_keys(count)
            except TransformError as error:
                self._statistics.count(resource, TO_STORAGE, prefix.decode(), started, error)
                raise

    def encrypt(self, resource: str, data: bytes, about: bytes) -> Value:
        """Return the value of data. TransformError."""
        started = time.perf_counter()
        prefix, provider = self._links[0]
        label = prefix.decode()
        try:
            inner, stored = provider.encrypt(resource, data, about)
        except TransformError as error:
            self._statistics.count(resource, TO_STORAGE, label, started, error)
            raise
        self._statistics.count(resource, TO_STORAGE, label, started)
        return Value(prefix + inner, stored)

    def decrypt(self, resource: str, data: bytes, about: bytes) -> Plain:
        """Return the data of a value. TransformError, NeedsKey."""
        started = time.perf_counter()
        errors: list[TransformError] = []
        for position, (prefix, provider) in enumerate(self._links):
            if not data.startswith(prefix):
                continue
            label = prefix.decode() or "identity"
            try:
                found = provider.decrypt(resource, data[len(prefix) :] if prefix else data, about)
            except TransformError as error:
                if prefix:  # the plaintext provider refuses ciphertext, and is not to blame
                    self._statistics.count(resource, FROM_STORAGE, label, started, error)
                    errors.append(error)
                continue
            self._statistics.count(resource, FROM_STORAGE, label, started)
            return Plain(found.data, found.stale or position > 0)
        if errors:
            raise joined(errors)
        unmatched = TransformError(self._otherwise)
        self._statistics.count(resource, FROM_STORAGE, "unknown", started, unmatched)
        raise unmatched
