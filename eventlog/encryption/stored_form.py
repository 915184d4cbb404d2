"""The stored form of an encrypted object: a JSON object in the place of the object's own.

    {"encrypted":"k8s:enc:aesgcm:v1:key2:","apiVersion":"v1","kind":"Secret","data":"<base64 of the ciphertext>"}

The column has JSON, so rows, archives and copies hold ciphertext as they hold objects, and digests cover it. The value
that kube-apiserver would store is ``encrypted`` followed by the bytes of ``data``. apiVersion and kind stay readable,
for SQL and for tombstones of erasures. They are copies: the decrypted object has its own.

Pure: no keys and no I/O.
"""

from __future__ import annotations

import binascii
from typing import Final

import orjson

from kubechronicle.eventlog.encryption.errors import TransformError
from kubechronicle.eventlog.encryption.providers import Value
from kubechronicle.eventlog.records import Key

ENCRYPTED_BODY: Final = b'{"encrypted":'
"""First bytes of the body of an encrypted object; no other body has them."""

_METADATA: Final = b',"metadata":'
_BAD_FORM: Final = "the stored data is not an encrypted object"


def path_of(key: Key) -> str:
    """Return the name of an object in storage, for errors. It is authenticated together with the contents."""
    return "/registry/" + "/".join(part for part in key if part)


def encode(body: bytes, value: Value) -> bytes:
    """Return the stored form. ``body``: the plaintext, which begins with apiVersion, kind and metadata."""
    end = body.index(_METADATA)
    prefix = orjson.dumps(value.prefix.decode())
    data = binascii.b2a_base64(value.data, newline=False)
    return b'%b%b,%b,"data":"%b"}' % (ENCRYPTED_BODY, prefix, body[1:end], data)


def decode(body: bytes) -> bytes:
    """Return the prefixed value in a stored form. TransformError."""
    try:
        form = orjson.loads(body)
        return bytes(form["encrypted"].encode() + binascii.a2b_base64(form["data"], strict_mode=True))
    except (AttributeError, KeyError, TypeError, ValueError):
        raise TransformError(_BAD_FORM) from None


def stub(key: Key, uid: str, body: bytes) -> bytes:
    """Return an object in the place of one that cannot be decrypted: its apiVersion, kind, name, namespace and uid."""
    try:
        obj = orjson.loads(body)
        versions = {name: str(obj[name]) for name in ("apiVersion", "kind")}
    except (KeyError, TypeError, ValueError):
        versions = {"apiVersion": "", "kind": ""}
    about = {"name": key.name, "namespace": key.namespace, "uid": uid}
    return orjson.dumps({**versions, "metadata": {name: text for name, text in about.items() if text}})
