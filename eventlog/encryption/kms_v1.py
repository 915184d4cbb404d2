"""The provider of keys from a key service by its first protocol (KMS v1, deprecated): a new key for each value.

    length of a (2 bytes) || a || ciphertext by A          A: the key, a: A encrypted by the service

So each write needs a call of the service before it can be encrypted: ``draw_keys`` asks for the keys of a batch, a
bounded number at once, and ``encrypt`` takes one of them. Keys of values are kept in memory, as many as the
configuration says. Values of Kubernetes before 1.25 are AES-CBC; they are read, and are stale.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

import trio

from kubechronicle.eventlog.encryption.ciphers import AesCbc, AesGcm
from kubechronicle.eventlog.encryption.errors import KeyServiceError, NeedsKey, TransformError, joined
from kubechronicle.eventlog.encryption.key_services import KeyCache, KeyServiceHealth
from kubechronicle.eventlog.encryption.providers import Plain, Value
from kubechronicle.eventlog.encryption.statistics import FROM_STORAGE, TO_STORAGE, EncryptionStatistics

KEY_BYTES: Final = 32
PARALLEL: Final = 16
"""Calls of the service at once for the keys of one batch."""
DRAWN: Final = 10_000
"""Keys that wait for their values at the most: those of several batches."""
CUT_OFF: Final = "invalid data encountered by envelope transformer: failed to read uint16 length prefixed data"


class KeyServiceV1(Protocol):
    """A plugin with the protocol of k8s.io/kms/apis/v1beta1. Every call raises KeyServiceError, within its timeout."""

    async def encrypt(self, plain: bytes) -> bytes: ...

    async def decrypt(self, cipher: bytes) -> bytes: ...


@dataclass(frozen=True, slots=True)
class _ValueCipher:
    """The ciphers of one data key: AES-GCM, and AES-CBC for old values."""

    gcm: AesGcm
    cbc: AesCbc

    def encrypt(self, data: bytes, about: bytes) -> bytes:
        return self.gcm.encrypt(data, about)

    def decrypt(self, data: bytes, about: bytes) -> bytes:
        return self.gcm.decrypt(data, about)


class _Drawn(NamedTuple):
    """A key that no value has yet: its ciphertext, and its cipher."""

    encrypted: bytes
    cipher: _ValueCipher


@dataclass(slots=True, eq=False)
class KmsV1Provider:
    """``cache_size``: keys in memory; below 1, none is kept. ``clock``: seconds since 1970."""

    name: str
    service: KeyServiceV1
    statistics: EncryptionStatistics
    cache_size: int
    clock: Callable[[], float] = time.time
    health: KeyServiceHealth = field(init=False)
    _keys: KeyCache = field(init=False)
    _drawn: deque[_Drawn] = field(default_factory=lambda: deque(maxlen=DRAWN))

    def __post_init__(self) -> None:
        self.health = KeyServiceHealth(self._problem, self.clock, polls=False)
        self._keys = KeyCache(max(self.cache_size, 0), self.clock)

    # -- values -------------------------------------------------------------------------------------------------------

    async def draw_keys(self, count: int) -> None:
        """Get the keys of so many values. TransformError: the service does not encrypt."""
        found: list[_Drawn] = []
        failures: list[TransformError] = []
        turns = trio.Semaphore(PARALLEL)

        async def draw_one() -> None:
            async with turns:
                if not failures:
                    try:
                        found.append(await self._new_key())
                    except TransformError as error:
                        failures.append(error)

        if count == 1:
            await draw_one()
        else:
            async with trio.open_nursery() as nursery:
                for _ in range(count):
                    nursery.start_soon(draw_one)
        if failures:
            raise failures[0]
        self._drawn.extend(found)

    async def _new_key(self) -> _Drawn:
        started = time.perf_counter()
        key = os.urandom(KEY_BYTES)
        self.statistics.generations.add(time.perf_counter() - started)
        return _Drawn(await _answer(self.service.encrypt(key)), _cipher_of(key))

    def encrypt(self, resource: str, data: bytes, about: bytes) -> Value:
        self.statistics.note_arrival(TO_STORAGE, self.clock())
        if not self._drawn:
            raise TransformError("no data key was drawn for the value")
        encrypted, cipher = self._drawn.popleft()
        if len(encrypted) > 0xFFFF:
            raise TransformError(f"pending child length {len(encrypted)} exceeds 2-byte length prefix")
        if self.cache_size > 0:
            self._keys.keep(encrypted, cipher)
            self._note_fill()
        return Value(b"", len(encrypted).to_bytes(2, "big") + encrypted + cipher.encrypt(data, about))

    def decrypt(self, resource: str, data: bytes, about: bytes) -> Plain:
        self.statistics.note_arrival(FROM_STORAGE, self.clock())
        end = 2 + int.from_bytes(data[:2], "big")
        if len(data) < max(end, 2):
            raise TransformError(CUT_OFF)
        encrypted, ciphertext = data[2:end], data[end:]
        cipher = self._keys.get(encrypted)
        if cipher is None:
            if self.cache_size > 0:
                self.statistics.misses += 1
            raise NeedsKey(lambda: self._fetch(encrypted))
        assert isinstance(cipher, _ValueCipher)
        try:
            return Plain(cipher.gcm.decrypt(ciphertext, about), stale=False)
        except TransformError as error:
            first = error
        try:
            return Plain(cipher.cbc.decrypt(ciphertext, about), stale=True)
        except TransformError as error:
            raise joined([first, error]) from None

    async def _fetch(self, encrypted: bytes) -> None:
        async def ask() -> _ValueCipher:
            return _cipher_of(await _answer(self.service.decrypt(encrypted)))

        await self._keys.fetch(encrypted, ask)
        if self.cache_size > 0:
            self._note_fill()

    def _note_fill(self) -> None:
        self.statistics.key_cache_fill = len(self._keys) / self.cache_size

    # -- the service --------------------------------------------------------------------------------------------------

    async def _problem(self) -> str:
        """Let the service encrypt and decrypt, as kube-apiserver's check does."""
        part = "encrypt"
        try:
            encrypted = await self.service.encrypt(b"ping")
            part = "decrypt"
            await self.service.decrypt(encrypted)
        except KeyServiceError as error:
            return f"failed to perform {part} section of the healthz check for KMS Provider {self.name}, error: {error}"
        return ""


def _cipher_of(key: bytes) -> _ValueCipher:
    """Return the ciphers of a key. TransformError."""
    if len(key) not in (16, 24, 32):
        raise TransformError(f"crypto/aes: invalid key size {len(key)}")
    return _ValueCipher(AesGcm(key), AesCbc(key))


async def _answer(call: Awaitable[bytes]) -> bytes:
    """Return what the service answers. TransformError in its words."""
    try:
        return await call
    except KeyServiceError as error:
        raise TransformError(str(error), code=error.code) from None
