"""The issuer of service account tokens: its names, lifetimes and keys.

The keys come from files, or belong to an external signer (KEP-740). It signs each token, and tells the public keys.
Those can change at any time; ``generation`` counts the changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import trio
from prometheus_client.registry import Collector

from kubechronicle.actors.external_answers import NeedsExternalAnswer, recall_answer, remember_answer
from kubechronicle.api.subresources.token_request import EXTENDED_SECONDS
from kubechronicle.http.authentication import jws


class SigningFailed(Exception):
    """The external signer has not signed a token. The text is kube-apiserver's."""


class ExternalKeys(Protocol):
    """The keys of an external signer, as it told them last."""

    @property
    def generation(self) -> int:
        """The number of changes of the keys so far."""
        ...

    @property
    def verifying(self) -> Sequence[jws.VerifyingKey]:
        """All keys. Several may have the same id."""
        ...

    @property
    def published(self) -> Sequence[jws.VerifyingKey]:
        """The keys for external verifiers."""
        ...

    @property
    def max_age(self) -> int:
        """The seconds until the keys are fetched again."""
        ...

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Carry calls, and fetch the keys when it is time, until cancelled."""
        ...

    def collectors(self) -> Sequence[Collector]:
        """Return the metrics."""
        ...

    async def refresh(self) -> None:
        """Fetch the keys, within a timeout. If that fails, the old ones stay."""
        ...

    async def sign(self, claims: Mapping[str, Any]) -> str:
        """Return a token with these claims. Raises SigningFailed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccountIssuer:
    """The issuer of this server.

    ``issuers``: accepted issuers; the first is that of new tokens
    ``signing``: the key of new tokens; None with ``external``
    ``verifying``: accepted keys; none with ``external``
    ``audiences``: the names of this server
    ``max_expiration``: longest lifetime in seconds; 0: as requested
    ``extend_expiration``: give ``extended`` seconds to tokens of pods that requested no lifetime
    ``jwks_uri``: published location of the keys, "" for this server
    """

    issuers: tuple[str, ...]
    signing: jws.SigningKey | None
    verifying: tuple[jws.VerifyingKey, ...]
    audiences: tuple[str, ...]
    max_expiration: int = 0
    extend_expiration: bool = True
    extended: int = EXTENDED_SECONDS
    jwks_uri: str = ""
    external: ExternalKeys | None = None

    async def sign(self, claims: Mapping[str, Any]) -> str:
        """Return a token with these claims. Raises SigningFailed."""
        if self.external is not None:
            return await self.external.sign(claims)
        assert self.signing is not None
        return self.signing.sign(claims)

    def accepted(self) -> Sequence[jws.VerifyingKey]:
        """Return the accepted keys of this moment."""
        return self.verifying if self.external is None else self.external.verifying


class KnownKeys:
    """The accepted keys by their ids."""

    def __init__(self, issuer: ServiceAccountIssuer) -> None:
        self._issuer = issuer
        self._generation = -1
        self._keys: dict[str, list[jws.VerifyingKey]] = {}
        self.follow()

    def follow(self) -> bool:
        """Take over changed keys; return whether there were any."""
        external = self._issuer.external
        generation = external.generation if external is not None else 0
        if generation == self._generation:
            return False
        self._generation, self._keys = generation, {}
        for key in self._issuer.accepted():
            self._keys.setdefault(key.key_id, []).append(key)
        return True

    def of(self, key_id: str) -> list[jws.VerifyingKey]:
        """Return the keys that may have signed a token. Raises NeedsExternalAnswer for an id that may be new."""
        if not key_id:
            return [key for keys in self._keys.values() for key in keys]
        found = self._keys.get(key_id, [])
        external = self._issuer.external
        if not found and external is not None and recall_answer(self) is None:
            raise _NewKeys(self, external)
        return found


class _NewKeys(NeedsExternalAnswer):
    """The external signer must be asked for its keys."""

    def __init__(self, owner: KnownKeys, external: ExternalKeys) -> None:
        super().__init__("the keys have to be fetched")
        self._owner, self._external = owner, external

    async def resolve(self) -> None:
        await self._external.refresh()
        remember_answer(self._owner, True)


def external_keys(issuer: ServiceAccountIssuer | None) -> list[ExternalKeys]:
    """Return the external keys of an issuer, if it has any, to run and to measure."""
    return [issuer.external] if issuer is not None and issuer.external is not None else []
