"""Contents: which provider encrypts the objects of which resource, and the bodies of records in both forms.

    *.group and *.*    a resource of its own name first, then its group, then everything; a resource without any: plain

The configuration may be replaced while the server runs: ``use``. Records of this log itself (erasures, allocated ports)
are always plain: SQL and `verify` read them, and they hold no user's data.
"""

from __future__ import annotations

import binascii
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import orjson

from kubechronicle.eventlog.encryption.errors import NeedsKey, TransformError
from kubechronicle.eventlog.encryption.providers import NOT_ENCRYPTED, Plain, ProviderChain, Value
from kubechronicle.eventlog.encryption.statistics import EncryptionStatistics
from kubechronicle.eventlog.records import ERASED_BODY, Key

# -- stored form -------------------------------------------------------------------------------------------------------
#
# The stored form of an encrypted object: a JSON object in the place of the object's own.
#
#     {"encrypted":"k8s:enc:aesgcm:v1:key2:","apiVersion":"v1","kind":"Secret","data":"<base64 of the ciphertext>"}
#
# The column has JSON, so rows, archives and copies hold ciphertext as they hold objects, and digests cover it. The
# value that kube-apiserver would store is ``encrypted`` followed by the bytes of ``data``. apiVersion and kind stay
# readable, for SQL and for tombstones of erasures. They are copies: the decrypted object has its own.
#
# Pure: no keys and no I/O.


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


EVERYTHING: Final = "*.*"
OWN_GROUP: Final = ".kubechronicle.dev"
ALIASES: Final[Mapping[str, str]] = {"events.events.k8s.io": "events"}
"""Resources that kube-apiserver stores as another one, and so encrypts as that."""

# Times that a value is tried after its key service was asked. Each chain has few of them.
ATTEMPTS: Final = 20


class EncryptedContents:
    """``chains``: by resource ("secrets", "*.apps", "*." for the core group, "*.*"); empty: nothing is encrypted."""

    def __init__(self, chains: Mapping[str, ProviderChain] | None = None) -> None:
        self.statistics = EncryptionStatistics()
        self._chains: Mapping[str, ProviderChain] = chains or {}
        self.configured = bool(chains)
        self._chosen: dict[str, ProviderChain | None] = {}
        self._draws_keys = any(chain.draws_keys for chain in self._chains.values())
        self._changed: list[Callable[[], None]] = []

    def use(self, chains: Mapping[str, ProviderChain]) -> None:
        """Replace the configuration, for all later reads and writes."""
        self._chains, self.configured = chains, bool(chains)
        self._chosen.clear()
        self._draws_keys = any(chain.draws_keys for chain in chains.values())
        self.notice_change()

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` whenever values may have become readable. It must not wait."""
        self._changed.append(changed)

    def notice_change(self) -> None:
        for changed in self._changed:
            changed()

    def chain_for(self, resource: str) -> ProviderChain | None:
        """Return the providers of a resource; None: it is not configured."""
        try:
            return self._chosen[resource]
        except KeyError:
            pass
        name = ALIASES.get(resource, resource)
        found = None
        if not resource.endswith(OWN_GROUP):
            group = name.partition(".")[2]
            candidates = (self._chains.get(each) for each in (name, f"*.{group}", EVERYTHING))
            found = next((each for each in candidates if each is not None), None)
        self._chosen[resource] = found
        return found

    async def draw_keys(self, resources: Iterable[str]) -> None:
        """Get the keys that new values of these resources need from a key service. TransformError.

        Call it before ``encrypted``, once for each value.
        """
        if not self._draws_keys:
            return
        counts, chains = Counter(resources), None
        while chains is not self._chains:  # they may be replaced meanwhile
            chains = self._chains
            for resource, count in counts.items():
                chain = self.chain_for(resource)
                if chain is not None and chain.draws_keys:
                    await chain.draw(resource, count)

    def encrypted(self, key: Key, body: bytes) -> bytes:
        """Return the body as it is stored. TransformError."""
        chain = self.chain_for(key.resource)
        if chain is None:
            return body
        value = chain.encrypt(key.resource, body, path_of(key).encode())
        return encode(body, value) if value.prefix else body

    def decrypted_nowait(self, key: Key, body: bytes) -> Plain:
        """Return a stored body in plaintext. TransformError, NeedsKey."""
        is_encrypted = body.startswith(ENCRYPTED_BODY)
        chain = self.chain_for(key.resource)
        if chain is None:
            if is_encrypted:
                raise TransformError(NOT_ENCRYPTED)
            return Plain(body, stale=False)
        if not is_encrypted and body.startswith(ERASED_BODY):
            return Plain(body, stale=False)
        return chain.decrypt(key.resource, decode(body) if is_encrypted else body, path_of(key).encode())

    async def decrypted(self, key: Key, body: bytes) -> Plain:
        """As ``decrypted_nowait``, waiting for key services. TransformError."""
        for _ in range(ATTEMPTS):
            try:
                return self.decrypted_nowait(key, body)
            except NeedsKey as needed:
                await needed.fetch()
        raise TransformError("the data keys of the value were dropped again before it was read")

    def placeholder(self, key: Key, uid: str, body: bytes) -> bytes:
        """Return an object in the place of a stored body that cannot be decrypted, without contents."""
        return stub(key, uid, body)
