"""An issuer's provider: what it says of itself (OpenID Connect Discovery 1.0 §4) and its keys, fetched over HTTPS.

A provider is asked for itself at the start, and again each 10 seconds until it has answered; before, none of its tokens
is believed. Its keys are fetched then, once an hour, so that one it has withdrawn is forgotten, and when a token is not
signed with any key known here. Such tokens anybody can make, so the last happens once for all that wait, and rarely:
REFETCHES at once, then one every REFETCH_INTERVAL seconds. Keys stay when a provider can't be reached.
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
from kubechronicle.http.authentication.oidc.tokens import Token
from kubechronicle.http.authentication.oidc.web_keys import KeySetError, WebKey
from kubechronicle.http.outgoing.client import Answer, AskError, Client

log = logging.getLogger(__name__)

WELL_KNOWN: Final = "/.well-known/openid-configuration"
DISCOVERY_INTERVAL: Final = 10.0
RENEWAL_INTERVAL: Final = 3600.0
REFETCHES: Final = 3
REFETCH_INTERVAL: Final = 5.0
# Seconds a provider may take, and bytes it may say.
TIMEOUT: Final = 30.0
MAX_ANSWER: Final = 1 << 20

_ACCEPT: Final = {"accept": "application/json, */*;q=0.5"}


class ProviderError(Exception):
    """The provider could not be asked, or said something else than it should. The text is for the operator."""


class KeyMetrics(Protocol):
    """Who counts the fetching of keys."""

    def fetched(self, issuer: str, document: bytes | None) -> None:
        """A key set has been fetched; None: it could not be."""
        ...


class Provider:
    """The keys of one issuer. ``client`` believes the issuer's certificate authorities. ``now``: seconds of a clock
    that never goes back."""

    def __init__(
        self,
        issuer: str,
        client: Client,
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
        """Whether the provider has said where its keys are."""
        return bool(self._keys_url)

    @property
    def fresh(self) -> bool:
        """Whether that was not long ago: of a provider that nobody looks after (``run``)."""
        return self.ready and self._now() - self._discovered_at < RENEWAL_INTERVAL

    async def run(self) -> None:
        """Discover the provider and renew its keys until cancelled."""
        while True:
            if self.ready:
                await self.refresh()
            else:
                await self._try(self.discover)
            await trio.sleep(RENEWAL_INTERVAL if self.ready else DISCOVERY_INTERVAL)

    async def wait_ready(self) -> None:
        """Return when the provider has said where its keys are."""
        while not self.ready:
            await self._changed.wait()

    def key_of(self, token: Token) -> WebKey | None:
        """The key that signed the token; None: none of those known."""
        return next((key for key in self._keys if key.verifies(token)), None)

    def knows(self, key: WebKey) -> bool:
        """Whether the provider still has the key."""
        return key.thumbprint in self._thumbprints

    def may_refresh(self) -> bool:
        """Whether the keys may be fetched because of a token; counts as doing so, unless they are being fetched."""
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
        """Ask the provider about itself, and for its keys. ProviderError: it said nothing that could be used; what keys
        there are is not part of that."""
        answer = await self._get(self._discovery_url)
        found = _object(answer.body)
        if found.get("issuer") != self.issuer:
            got = go_quote(str(found.get("issuer", ""))[:200])
            expected = go_quote(self.issuer)
            raise ProviderError(
                f"oidc: issuer did not match the issuer returned by provider, expected {expected} got {got}"
            )
        keys_url = found.get("jwks_uri")
        if not isinstance(keys_url, str) or not keys_url:
            raise ProviderError("provider did not return JWKS URL")
        if not _is_https(keys_url):
            raise ProviderError(f"provider returned a JWKS URL that is not https: {go_quote(keys_url[:200])}")
        self._keys_url, self._discovered_at = keys_url, self._now()
        self.problem = ""
        await self.refresh()
        self._changed.set()

    async def refresh(self) -> None:
        """Fetch the keys, or wait for it if that is being done: in a task of its own, because others may wait when who
        began is gone. What goes wrong is told in the log."""
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
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ProviderError(f"oidc: failed to decode provider discovery object: {error}") from None
    if not isinstance(found, dict):
        raise ProviderError("oidc: failed to decode provider discovery object: it is no object")
    return found
