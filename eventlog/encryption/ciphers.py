"""The ciphers of encryption at rest. Their outputs are those of k8s.io/apiserver/pkg/storage/value/encrypt.

    aesgcm      nonce (12) || ciphertext || tag (16)             authenticates the object's key as well
    aescbc      initialization vector (16) || padded ciphertext  authenticates nothing
    secretbox   nonce (24) || tag (16) || ciphertext             authenticates the contents alone
    extended    info (32) || nonce (12) || ciphertext || tag     aesgcm, the key of each value: HKDF-Expand(seed, info)

Pure but for random numbers. Every failure is a TransformError with the text of kube-apiserver.
"""

from __future__ import annotations

import hmac
import os
from typing import TYPE_CHECKING, Final, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher as BlockCipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC

from kubechronicle.eventlog.encryption.errors import TransformError

if TYPE_CHECKING:
    import nacl.secret

NONCE: Final = 12
TAG: Final = 16
BLOCK: Final = 16
INFO: Final = 32
BOX_NONCE: Final = 24

TOO_SHORT: Final = "the stored data was shorter than the required size"
FORGED: Final = "cipher: message authentication failed"


class Cipher(Protocol):
    """``about``: bytes that are authenticated with the data: the key of the object."""

    def encrypt(self, data: bytes, about: bytes) -> bytes: ...

    def decrypt(self, data: bytes, about: bytes) -> bytes:
        """Raise TransformError if the data were not encrypted by this key, or not for this object."""
        ...


class AesGcm:
    """``key``: 16, 24 or 32 bytes."""

    def __init__(self, key: bytes) -> None:
        self._aead = AESGCM(key)

    def encrypt(self, data: bytes, about: bytes) -> bytes:
        nonce = os.urandom(NONCE)
        return nonce + self._aead.encrypt(nonce, data, about)

    def decrypt(self, data: bytes, about: bytes) -> bytes:
        if len(data) < NONCE:
            raise TransformError(TOO_SHORT)
        try:
            return self._aead.decrypt(data[:NONCE], data[NONCE:], about)
        except (InvalidTag, ValueError):
            raise TransformError(FORGED) from None


class AesCbc:
    """AES-CBC with PKCS#7 padding. ``key``: 16, 24 or 32 bytes."""

    def __init__(self, key: bytes) -> None:
        self._algorithm = AES(key)

    def encrypt(self, data: bytes, about: bytes) -> bytes:
        vector = os.urandom(BLOCK)
        missing = BLOCK - len(data) % BLOCK
        encryptor = BlockCipher(self._algorithm, CBC(vector)).encryptor()
        return vector + encryptor.update(data + bytes((missing,)) * missing) + encryptor.finalize()

    def decrypt(self, data: bytes, about: bytes) -> bytes:
        if len(data) < BLOCK:
            raise TransformError(TOO_SHORT)
        if len(data) % BLOCK:
            raise TransformError("the stored data is not a multiple of the block size")
        decryptor = BlockCipher(self._algorithm, CBC(data[:BLOCK])).decryptor()
        padded = decryptor.update(data[BLOCK:]) + decryptor.finalize()
        missing = padded[-1] if padded else 0
        if not 0 < missing <= len(padded):
            raise TransformError("invalid PKCS7 data (empty or not padded)")
        if padded[-missing:] != bytes((missing,)) * missing:
            raise TransformError("invalid padding on input")
        return padded[:-missing]


class Secretbox:
    """XSalsa20 and Poly1305, as NaCl's secretbox. ``key``: 32 bytes."""

    def __init__(self, key: bytes) -> None:
        import nacl.secret  # a shared library, which other providers do without

        self._box: nacl.secret.SecretBox = nacl.secret.SecretBox(key)

    def encrypt(self, data: bytes, about: bytes) -> bytes:
        return bytes(self._box.encrypt(data, os.urandom(BOX_NONCE)))

    def decrypt(self, data: bytes, about: bytes) -> bytes:
        from nacl.exceptions import CryptoError

        if len(data) < BOX_NONCE + TAG:
            raise TransformError(TOO_SHORT)
        try:
            return self._box.decrypt(data[BOX_NONCE:], data[:BOX_NONCE])
        except CryptoError:
            raise TransformError("output array was not large enough for encryption") from None


class ExtendedNonceGcm:
    """AES-GCM with a new key for each value, so that one ``seed`` (at least 32 bytes) serves without limit.

    The key is the first block of HKDF-Expand (RFC 5869, section 2.3) with SHA-256: HMAC(seed, info || 0x01).
    """

    def __init__(self, seed: bytes) -> None:
        if len(seed) < INFO:
            raise TransformError(f"invalid seed length {len(seed)} used for key generation")
        self._seed = seed

    def encrypt(self, data: bytes, about: bytes) -> bytes:
        random = os.urandom(INFO + NONCE)
        return random + self._key(random[:INFO]).encrypt(random[INFO:], data, about)

    def decrypt(self, data: bytes, about: bytes) -> bytes:
        if len(data) < INFO + NONCE:
            raise TransformError(TOO_SHORT)
        try:
            return self._key(data[:INFO]).decrypt(data[INFO : INFO + NONCE], data[INFO + NONCE :], about)
        except (InvalidTag, ValueError):
            raise TransformError(FORGED) from None

    def _key(self, info: bytes) -> AESGCM:
        return AESGCM(hmac.digest(self._seed, info + b"\x01", "sha256"))
