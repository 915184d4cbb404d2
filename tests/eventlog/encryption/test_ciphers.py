"""Ciphers: what one encrypts, the same key decrypts; everything else fails with kube-apiserver's text."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from hypothesis import given
from hypothesis import strategies as st

from kubechronicle.eventlog.encryption.ciphers import AesCbc, AesGcm, Cipher, ExtendedNonceGcm, Secretbox
from kubechronicle.eventlog.encryption.errors import TransformError
from tests.support.encryption.providers import cipher

ALL: list[Cipher] = [
    *(cipher(kind, "a") for kind in ("aesgcm", "aescbc", "secretbox")),
    *(AesGcm(bytes(size)) for size in (16, 24)),
    *(AesCbc(bytes(size)) for size in (16, 24)),
    ExtendedNonceGcm(bytes(32)),
]
AUTHENTICATED = [each for each in ALL if not isinstance(each, AesCbc)]
ABOUT = b"/registry/secrets/default/a"


@pytest.mark.parametrize("one", ALL)
@given(data=st.binary(max_size=100))
def test_a_cipher_decrypts_its_own(one: Cipher, data: bytes) -> None:
    first, second = one.encrypt(data, ABOUT), one.encrypt(data, ABOUT)
    assert first != second
    assert one.decrypt(first, ABOUT) == one.decrypt(second, ABOUT) == data


@pytest.mark.parametrize("one", AUTHENTICATED)
def test_a_changed_bit_anywhere_is_noticed(one: Cipher) -> None:
    value = one.encrypt(b"secret", ABOUT)
    for position in range(len(value)):
        changed = bytearray(value)
        changed[position] ^= 1
        with pytest.raises(TransformError):
            one.decrypt(bytes(changed), ABOUT)


@pytest.mark.parametrize("one", [AesGcm(bytes(32)), ExtendedNonceGcm(bytes(32))])
def test_the_key_of_the_object_is_authenticated(one: Cipher) -> None:
    value = one.encrypt(b"secret", ABOUT)
    with pytest.raises(TransformError, match="cipher: message authentication failed"):
        one.decrypt(value, b"/registry/secrets/default/b")


@pytest.mark.parametrize(
    ("one", "data", "text"),
    [
        (AesGcm(bytes(32)), b"short", "the stored data was shorter than the required size"),
        (AesGcm(bytes(32)), bytes(20), "cipher: message authentication failed"),
        (AesGcm(bytes(32)), bytes(40), "cipher: message authentication failed"),
        (ExtendedNonceGcm(bytes(32)), bytes(43), "the stored data was shorter than the required size"),
        (ExtendedNonceGcm(bytes(32)), bytes(60), "cipher: message authentication failed"),
        (Secretbox(bytes(32)), bytes(39), "the stored data was shorter than the required size"),
        (Secretbox(bytes(32)), bytes(60), "output array was not large enough for encryption"),
        (AesCbc(bytes(32)), bytes(15), "the stored data was shorter than the required size"),
        (AesCbc(bytes(32)), bytes(33), "the stored data is not a multiple of the block size"),
        (AesCbc(bytes(32)), bytes(16), "invalid PKCS7 data (empty or not padded)"),
        (AesCbc(bytes(32)), bytes(32), "invalid PKCS7 data (empty or not padded)"),
    ],
)
def test_failures_have_the_texts_of_kube_apiserver(one: Cipher, data: bytes, text: str) -> None:
    with pytest.raises(TransformError) as raised:
        one.decrypt(data, ABOUT)
    assert str(raised.value) == text


def test_the_key_of_a_value_is_derived_by_hkdf_expand() -> None:
    seed = bytes(range(32))
    value = ExtendedNonceGcm(seed).encrypt(b"secret", ABOUT)
    key = HKDFExpand(SHA256(), 32, info=value[:32]).derive(seed)
    assert AesGcm(key).decrypt(value[32:], ABOUT) == b"secret"


def test_a_short_seed_is_rejected() -> None:
    with pytest.raises(TransformError, match="invalid seed length 31 used for key generation"):
        ExtendedNonceGcm(bytes(31))
