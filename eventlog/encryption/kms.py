"""The provider of keys from a key service (KMS v2, KEP-3299): envelope encryption, as kube-apiserver does it.

A seed encrypts all values until the key service changes its key. The service has encrypted the seed; this ciphertext
stands in each value. A value is decrypted with the seed from memory, or else from the service:

    Status: key 1      seed A, Encrypt(A) -> a        values: a, key 1, ciphertext by A
    Status: key 2      seed B, Encrypt(B) -> b        values: b, key 2, ciphertext by B; those with a are stale
    restart            Decrypt(a) -> A, once

Invariants: a seed encrypts for WRITE_TTL at most after the last Status that confirmed its key. Reads never depend on
Status. Seeds in memory are bounded (SEEDS).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final, NamedTuple, Protocol, TypeVar
from uuid import uuid4

from kubechronicle.eventlog.encryption import protobuf
from kubechronicle.eventlog.encryption.ciphers import AesGcm, Cipher, ExtendedNonceGcm
from kubechronicle.eventlog.encryption.errors import KeyServiceError, NeedsKey, TransformError
from kubechronicle.eventlog.encryption.key_services import KeyCache, KeyServiceHealth
from kubechronicle.eventlog.encryption.providers import Plain, Value
from kubechronicle.eventlog.encryption.statistics import FROM_STORAGE, TO_STORAGE, EncryptionStatistics

# Seconds for which a seed may encrypt without a Status that confirms its key.
WRITE_TTL: Final = 180.0
# Seeds in memory. One is added at each start of a server and each change of a key.
SEEDS: Final = 10_000
# Bounds of the answers of a service, in bytes.
MAX_KEY_ID: Final = 1024
MAX_ENCRYPTED_SEED: Final = 1024
MAX_ANNOTATIONS: Final = 32 * 1024

VERSIONS: Final = ("v2", "v2beta1")
DIRECT, EXTENDED = 0, 1
"""Types of EncryptedObject: the encrypted key is the AES-GCM key, or the seed of one key per value."""
T = TypeVar("T")
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class Status(NamedTuple):
    version: str
    healthz: str
    key_id: str


class EncryptedKey(NamedTuple):
    """A data key, encrypted by the service. ``annotations``: stored with it, in plaintext."""

    data: bytes
    key_id: str
    annotations: dict[str, bytes]


class KeyService(Protocol):
    """A plugin with the protocol of k8s.io/kms/apis/v2. Every call raises KeyServiceError, within its timeout."""

    async def status(self) -> Status: ...

    async def encrypt(self, uid: str, plaintext: bytes) -> EncryptedKey: ...

    async def decrypt(self, uid: str, key: EncryptedKey) -> bytes: ...


@dataclass(frozen=True, slots=True)
class _Seed:
    """The seed that encrypts. ``tail``: the fields of EncryptedObject after the data, the same in every value."""

    cipher: Cipher
    key: EncryptedKey
    cache_key: bytes
    tail: bytes


@dataclass(slots=True, eq=False)
class KmsProvider:
    """The tasks of ``health`` must be running, after a first check. ``clock``: seconds since 1970."""

    name: str
    service: KeyService
    statistics: EncryptionStatistics
    clock: Callable[[], float] = time.time
    _seed: _Seed | None = None
    _expires: float = 0.0
    _version: str = ""
    health: KeyServiceHealth = field(init=False)
    _seeds: KeyCache = field(init=False)

    def __post_init__(self) -> None:
        self.health = KeyServiceHealth(self._problem, self.clock)
        self._seeds = KeyCache(SEEDS, self.clock)

    # -- values -------------------------------------------------------------------------------------------------------

    def encrypt(self, resource: str, data: bytes, about: bytes) -> Value:
        seed = self._seed
        if seed is None:
            raise TransformError("got unexpected nil transformer")
        now = self.clock()
        if now > self._expires:
            raise TransformError(
                f'encryptedDEKSource with keyID hash "{hash_of(seed.key.key_id)}" expired at {_rfc3339(self._expires)} '
                f"(current time is {_rfc3339(now)})"
            )
        ciphertext = seed.cipher.encrypt(data, about)
        self.statistics.count_key(TO_STORAGE, self.name, seed.key.key_id)
        return Value(b"", protobuf.field(1, ciphertext) + seed.tail)

    def decrypt(self, resource: str, data: bytes, about: bytes) -> Plain:
        ciphertext, key, kind = _parse_value(data)
        cache_key = _cache_key(kind, key)
        cipher = self._seeds.get(cache_key)
        if cipher is None:
            self.statistics.misses += 1
            raise NeedsKey(lambda: self._fetch(cache_key, key, kind))
        self.statistics.count_key(FROM_STORAGE, self.name, key.key_id)
        plain = cipher.decrypt(ciphertext, about)
        seed = self._seed
        return Plain(plain, stale=seed is not None and (key.key_id != seed.key.key_id or kind != EXTENDED))

    async def _fetch(self, cache_key: bytes, key: EncryptedKey, kind: int) -> None:
        await self._seeds.fetch(cache_key, lambda: self._cipher(key, kind))
        self._note_cached()

    async def _cipher(self, key: EncryptedKey, kind: int) -> Cipher:
        """Let the service decrypt a seed. TransformError; ValueError: it is no key."""
        try:
            seed = await self._call("Decrypt", lambda: self.service.decrypt(str(uuid4()), key))
        except KeyServiceError as problem:
            raise TransformError(f"failed to decrypt DEK, error: {problem}", code=problem.code) from None
        return ExtendedNonceGcm(seed) if kind == EXTENDED else AesGcm(seed)

    def _note_cached(self) -> None:
        self.statistics.cached_keys[self.name] = len(self._seeds)

    # -- the service --------------------------------------------------------------------------------------------------

    async def _problem(self) -> str:
        try:
            status = await self._call("Status", self.service.status)
        except KeyServiceError as error:
            return f"failed to perform status section of the healthz check for KMS Provider {self.name}, error: {error}"
        problems = []
        if status.healthz != "ok":
            problems.append(f"got unexpected healthz status: {status.healthz}")
        if status.version not in VERSIONS:
            problems.append(f"expected KMSv2 API version v2, got {status.version}")
        elif self._version and status.version != self._version:
            problems.append(
                "KMSv2 API version should not change after the initial status response version "
                f"{self._version}, got {status.version}"
            )
        else:
            self._version = status.version
        if bad := _bad_key_id(status.key_id):
            self.statistics.bad_key_ids[self.name, "too_long" if status.key_id else "empty"] += 1
            problems.append(f'got invalid KMSv2 KeyID hash "{hash_of(status.key_id)}": {bad}')
        else:
            self.statistics.note_told(self.name, status.key_id)
            problems.append(await self._follow_key(status.key_id))
        found = [each for each in problems if each]
        text = found[0] if len(found) == 1 else f"[{', '.join(found)}]"
        return f"kmsv2 Provider {self.name} is not healthy, error: {text}" if found else ""

    async def _follow_key(self, key_id: str) -> str:
        """Extend the life of the seed, or change it if the key has changed. Return the problem, or ""."""
        expires = self.clock() + WRITE_TTL  # from before the call: it is an upper bound
        seed = self._seed
        if seed is not None and seed.key.key_id == key_id:
            self._expires = expires
            return ""
        problem, found = "<nil>", ""
        uid = str(uuid4())
        try:
            new = await self._new_seed(uid)
            found = new.key.key_id
            if found == key_id:
                self._seed, self._expires = new, expires
                self._seeds.keep(new.cache_key, new.cipher)
                self._note_cached()
                return ""
        except (KeyServiceError, TransformError) as error:
            problem = str(error)
        held = hash_of(seed.key.key_id) if seed is not None else ""
        state = "<nil>" if seed is not None else "got unexpected nil transformer"
        return (
            f'failed to rotate DEK uid="{uid}", useSeed=true, errState={state}, errGen={problem}, '
            f'statusKeyIDHash="{hash_of(key_id)}", encryptKeyIDHash="{hash_of(found)}", stateKeyIDHash="{held}", '
            f"expirationTimestamp={_rfc3339(self._expires) if seed is not None else '0001-01-01T00:00:00Z'}"
        )

    async def _new_seed(self, uid: str) -> _Seed:
        """Draw a seed, and let the service encrypt it. KeyServiceError, TransformError."""
        started = time.perf_counter()
        seed = os.urandom(32)
        self.statistics.generations.add(time.perf_counter() - started)
        try:
            key = await self._call("Encrypt", lambda: self.service.encrypt(uid, seed))
        except KeyServiceError as error:
            raise TransformError(f"failed to encrypt DEK, error: {error}", code=error.code) from None
        _check_key(key)
        tail = protobuf.field(2, key.key_id) + protobuf.field(3, key.data) + protobuf.map_field(4, key.annotations)
        return _Seed(ExtendedNonceGcm(seed), key, _cache_key(EXTENDED, key), tail + protobuf.field(5, EXTENDED))

    async def _call(self, method: str, call: Callable[[], Awaitable[T]]) -> T:
        started = time.perf_counter()
        error = None
        try:
            return await call()
        except KeyServiceError as failed:
            error = failed
            raise
        finally:
            name = f"/v2.KeyManagementService/{method}"
            self.statistics.count_call(self.name, name, time.perf_counter() - started, error)


def hash_of(key_id: str) -> str:
    """Return the form in which a key id is shown: its digest; "" for none."""
    return f"sha256:{sha256(key_id.encode()).hexdigest()}" if key_id else ""


def key_id_of(data: bytes) -> str:
    """Return the key id in a value of this provider. TransformError."""
    return _parse_value(data)[1].key_id


def _parse_value(data: bytes) -> tuple[bytes, EncryptedKey, int]:
    """Return the ciphertext, the encrypted key and its type of an EncryptedObject. TransformError."""
    try:
        message = protobuf.parse(data)
        annotations = protobuf.map_of(message, 4)
        key = EncryptedKey(protobuf.bytes_of(message, 3), protobuf.text_of(message, 2), annotations)
        ciphertext, kind = protobuf.bytes_of(message, 1), protobuf.number_of(message, 5)
    except ValueError as error:
        raise TransformError(f"proto: cannot parse invalid wire-format data: {error}") from None
    if kind not in (DIRECT, EXTENDED):
        raise TransformError(f"unknown encryptedDEKSourceType: {kind}")
    if not ciphertext:
        raise TransformError("encrypted data is empty")
    _check_key(key)
    return ciphertext, key, kind


def _check_key(key: EncryptedKey) -> None:
    """Raise TransformError for a key that a service must not return."""
    if not key.data:
        raise TransformError("failed to validate encrypted DEK source: encrypted DEK source is empty")
    if len(key.data) > MAX_ENCRYPTED_SEED:
        raise TransformError(
            f"failed to validate encrypted DEK source: encrypted DEK source is {len(key.data)} bytes, "
            f"which exceeds the max size of {MAX_ENCRYPTED_SEED}"
        )
    if bad := _bad_key_id(key.key_id):
        raise TransformError(f"failed to validate key id: {bad}")
    problems = [text for name in key.annotations if (text := _bad_annotation(name))]
    size = sum(len(name.encode()) + len(value) for name, value in key.annotations.items())
    if size > MAX_ANNOTATIONS:
        problems.append(f"total size of annotations is {size}, which exceeds the max size of {MAX_ANNOTATIONS}")
    if problems:
        text = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        raise TransformError(f"failed to validate annotations: {text}")


def _bad_key_id(key_id: str) -> str:
    size = len(key_id.encode())
    if not size:
        return "keyID is empty"
    return f"keyID is {size} bytes, which exceeds the max size of {MAX_KEY_ID}" if size > MAX_KEY_ID else ""


def _bad_annotation(name: str) -> str:
    """Return why an annotation's name is not a fully qualified domain name, or ""."""
    labels = name.removesuffix(".").split(".")
    if not name:
        return "annotations: Required value"
    if not all(_LABEL.fullmatch(label) for label in labels) or len(name) > 253:
        return (
            f'annotations: Invalid value: "{name}": a lowercase RFC 1123 subdomain must consist of lower case '
            "alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. "
            "'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*"
            "[a-z0-9])?)*')"
        )
    if len(labels) < 2:
        return f'annotations: Invalid value: "{name}": should be a domain with at least two segments separated by dots'
    return ""


def _cache_key(kind: int, key: EncryptedKey) -> bytes:
    """Return a digest over everything that the service needs to decrypt the key."""
    parts = [bytes((kind,)), key.data, key.key_id.encode()]
    for name in sorted(key.annotations):
        parts += name.encode(), key.annotations[name]
    return sha256(b"".join(len(part).to_bytes(4, "big") + part for part in parts)).digest()


def _rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
