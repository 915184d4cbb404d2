"""An identity provider: its discovery (OpenID Connect Discovery 1.0 §4) and its keys, over HTTPS.

Discovery is tried every 10 seconds until it succeeds. Before, all tokens of the provider are rejected. Its keys are
fetched for a token that no known key verifies, so for the first one, and then once an hour, so that withdrawn keys are
dropped. Any client can send such tokens. So waiting requests share one fetch, and fetches are rare: REFETCHES at once,
then one every REFETCH_INTERVAL seconds. Keys stay while the provider can't be reached.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import orjson
import trio

from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.http.authentication.oidc import web_keys
from kubechronicle.http.authentication.oidc.tokens import IdToken
from kubechronicle.http.authentication.oidc.web_keys import KeySetError, WebKey
from kubechronicle.http.outgoing.client import Answer, AskError, OutgoingClient

log = logging.getLogger(__name__)

WELL_KNOWN: Final = "/.well-known/openid-configuration"
DISCOVERY_INTERVAL: Final = 10.0
RENEWAL_INTERVAL: Final = 3600.0
REFETCHES: Final = 3
REFETCH_INTERVAL: Final = 5.0
# Seconds for an answer of a provider, and its bytes.
TIMEOUT: Final = 30.0
MAX_ANSWER: Final = 1 << 20

_ACCEPT: Final = {"accept": "application/json, */*;q=0.5"}


class ProviderError(Exception):
    """The provider could not be reached, or its answer is invalid. The text is for the operator."""


class KeyMetrics(Protocol):
    """Metrics of key fetches."""

    def fetched(self, issuer: str, document: bytes | None) -> None:
        """Count a fetch of a key set. ``document`` None: it failed."""
        ...


class Provider:
    """The keys of one issuer.

    ``client``: trusts the issuer's certificate authorities
    ``now``: a monotonic clock, in seconds
    """

    def __init__(
        self,
        issuer: str,
        client: OutgoingClient,
        *,
        discovery_url: str = "",
        metrics: KeyMetrics | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.issuer = issuer
        self.problem = f"oidc: authenticator for issuer {go_quote(issuer)} is not initialized"
        self._client = client
        self._discovery_url = discovery_url or issuer.removesuffix("/") + WELL_KNOWN
        self._metrics = metrics
        self._now = now
        self._keys: tuple[WebKey, ...] = ()
        self._thumbprints: frozenset[str] = frozenset()
        self._keys_url = ""
        self._fetching: trio.Event | None = None
        self._changed = trio.Event()
        self._allowance, self._counted_at = float(REFETCHES), now()
        self._discovered_at = now()

    @property
    def ready(self) -> bool:
        """True once discovery has succeeded."""
        return bool(self._keys_url)

    @property
    def fresh(self) -> bool:
        """True if discovery succeeded within RENEWAL_INTERVAL: for providers without a ``run`` task."""
        return self.ready and self._now() - self._discovered_at < RENEWAL_INTERVAL

    async def run(self) -> None:
        """Discover the provider and renew its keys until cancelled."""
        while True:
            if self._keys:
                await self.refresh()
            elif not self.ready:
                await self._try(self.discover)
            await trio.sleep(RENEWAL_INTERVAL if self.ready else DISCOVERY_INTERVAL)

    async def wait_ready(self) -> None:
        """Wait until discovery has succeeded."""
        while not self.ready:
            await self._changed.wait()

    def key_of(self, token: IdToken) -> WebKey | None:
        """Return the key that verifies the token, None if no known key does."""
        return next((key for key in self._keys if key.verifies(token)), None)

    def knows(self, key: WebKey) -> bool:
        """Return whether the provider still publishes the key."""
        return key.thumbprint in self._thumbprints

    def may_refresh(self) -> bool:
        """Return whether the keys may be fetched for a token, and count the fetch unless one is in flight."""
        if self._fetching is not None:
            return True
        now = self._now()
        self._allowance = min(self._allowance + (now - self._counted_at) / REFETCH_INTERVAL, float(REFETCHES))
        self._counted_at = now
        if self._allowance < 1:
            return False
        self._allowance -= 1
        return True

    async def discover(self) -> None:
        """Fetch the discovery document. Raises ProviderError if it can't be used."""
        answer = await self._get(self._discovery_url)
        document = _object(answer.body)
        if document.get("issuer") != self.issuer:
            got = go_quote(str(document.get("issuer", ""))[:200])
            expected = go_quote(self.issuer)
            raise ProviderError(
                f"oidc: issuer did not match the issuer returned by provider, expected {expected} got {got}"
            )
        keys_url = document.get("jwks_uri")
        if not isinstance(keys_url, str) or not keys_url:
            raise ProviderError("provider did not return JWKS URL")
        if not _is_https(keys_url):
            raise ProviderError(f"provider returned a JWKS URL that is not https: {go_quote(keys_url[:200])}")
        self._keys_url, self._discovered_at = keys_url, self._now()
        self.problem = ""
        self._changed.set()

    async def refresh(self) -> None:
        """Fetch the keys, or wait for the fetch in flight. Errors are logged.

        The fetch has a task of its own: other tasks may wait for it when the first is cancelled.
        """
        nursery = self._client.outgoing.nursery
        if not self._keys_url or nursery is None:
            return
        done = self._fetching
        if done is None:
            done = self._fetching = trio.Event()
            nursery.start_soon(self._fetch_for_all, done)
        await done.wait()

    async def _fetch_for_all(self, done: trio.Event) -> None:
        try:
            await self._try(self._fetch)
        finally:
            self._fetching = None
            done.set()

    async def _fetch(self) -> None:
        document: bytes | None = None
        try:
            answer = await self._get(self._keys_url)
            keys = web_keys.parse(answer.body)
            document = answer.body
        except KeySetError as error:
            raise ProviderError(f"oidc: {error}") from None
        finally:
            if self._metrics is not None:
                self._metrics.fetched(self.issuer, document)
        self._keys = keys
        self._thumbprints = frozenset(key.thumbprint for key in keys)

    async def _try(self, step: Callable[[], Any]) -> bool:
        try:
            await step()
        except ProviderError as error:
            if not self.ready:
                self.problem = f"oidc: authenticator for issuer {go_quote(self.issuer)} is not healthy: {error}"
            log.error("Identity provider did not answer as it should", extra={"issuer": self.issuer, "err": str(error)})
            return False
        return True

    async def _get(self, url: str) -> Answer:
        try:
            answer = await self._client.ask("GET", url, headers=_ACCEPT)
        except AskError as error:
            raise ProviderError(str(error)) from None
        if answer.status != 200:
            raise ProviderError(f'Get "{url}": status {answer.status}')
        return answer


def _is_https(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme == "https" and bool(parts.hostname)
    except ValueError:
        return False


def _object(body: bytes) -> dict[str, Any]:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ProviderError(f"oidc: failed to decode provider discovery object: {error}") from None
    if not isinstance(document, dict):
        raise ProviderError("oidc: failed to decode provider discovery object: it is no object")
    return document
