"""Contents: which provider encrypts the objects of which resource, and the bodies of records in both forms.

    *.group and *.*    a resource of its own name first, then its group, then everything; a resource without any: plain

The configuration may be replaced while the server runs: ``use``. Records of this log itself (erasures, allocated ports)
are always plain: SQL and `verify` read them, and they hold no user's data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kubechronicle.eventlog.encryption.errors import NeedsKey, TransformError
from kubechronicle.eventlog.encryption.providers import NOT_ENCRYPTED, Plain, ProviderChain
from kubechronicle.eventlog.encryption.statistics import EncryptionStatistics
from kubechronicle.eventlog.encryption.stored_form import ENCRYPTED_BODY, decode, encode, path_of, stub
from kubechronicle.eventlog.records import ERASED_BODY, Key

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
        self._chosen: dict[str, ProviderChain | None] = {}
        self._changed: list[Callable[[], None]] = []

    @property
    def configured(self) -> bool:
        return bool(self._chains)

    def use(self, chains: Mapping[str, ProviderChain]) -> None:
        """Replace the configuration, for all later reads and writes."""
        self._chains = chains
        self._chosen.clear()
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
