"""Distributed claims (OpenID Connect Core 1.0 §5.6.2): groups that are too many for the token.

The token names an endpoint. The endpoint returns a signed token with the claim, perhaps of another issuer, with the
same audience.

    "_claim_names": {"groups": "src1"},
    "_claim_sources": {"src1": {"endpoint": "https://…", "access_token": "…"}}

The first token is verified; still, requests go over HTTPS only, and few other issuers are cached.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import Any, Final

import trio

from kubechronicle.http.authentication.oidc import tokens
from kubechronicle.http.authentication.oidc.claims import TokenRejected
from kubechronicle.http.authentication.oidc.provider import Provider, ProviderError
from kubechronicle.http.outgoing.client import AskError, OutgoingClient

# Other issuers whose keys are cached.
MAX_ISSUERS: Final = 16
# Seconds for all requests about one token.
TIMEOUT: Final = 20.0


class Resolver:
    """Fetches a claim.

    ``own``: the provider of the first token
    ``audiences``, ``algorithms``: those allowed for both tokens
    """

    def __init__(
        self, claim: str, own: Provider, client: OutgoingClient, audiences: Sequence[str], algorithms: Collection[str]
    ) -> None:
        self.claim = claim
        self._own = own
        self._client = client
        self._audiences = audiences
        self._algorithms = algorithms
        self._others: OrderedDict[str, Provider] = OrderedDict()

    async def resolve(self, endpoint: str, access_token: str, *, now: float) -> Any:
        """Return the claim's value. ``now``: seconds since the epoch. Raises TokenRejected."""
        with trio.move_on_after(TIMEOUT):
            return await self._resolve(endpoint, access_token, now)
        raise TokenRejected(f'while getting distributed claim "{self.claim}": no answer within the time-out')

    async def _resolve(self, endpoint: str, access_token: str, now: float) -> Any:
        text = await self._get(endpoint, access_token)
        token = tokens.parse(text)
        if token is None:
            raise TokenRejected(f"getting untrusted issuer from endpoint {endpoint} failed for claim {self.claim!r}")
        provider = await self._provider(token.issuer)
        try:
            tokens.check(token, issuer=provider.issuer, audiences=self._audiences, algorithms=self._algorithms, now=now)
        except TokenRejected as refused:
            raise TokenRejected(f"verify distributed claim token: {refused}") from None
        if provider.key_of(token) is None and provider.may_refresh():
            await provider.refresh()
        if provider.key_of(token) is None:
            raise TokenRejected("verify distributed claim token: failed to verify signature")
        if self.claim not in token.claims:
            raise TokenRejected(
                f'jwt returned by distributed claim endpoint "{endpoint}" did not contain claim: {self.claim}'
            )
        return token.claims[self.claim]

    async def _get(self, endpoint: str, access_token: str) -> str:
        headers = {"accept": "*/*"}
        if access_token:
            if not access_token.isascii() or not access_token.isprintable():
                raise TokenRejected(f'while getting distributed claim "{self.claim}": the access token is none')
            headers["authorization"] = f"Bearer {access_token}"
        try:
            answer = await self._client.ask("GET", endpoint, headers=headers)
        except AskError as error:
            raise TokenRejected(f'while getting distributed claim "{self.claim}": {error}') from None
        if not 200 <= answer.status <= 226:
            why = f"error while getting distributed claim JWT: {answer.status}"
            raise TokenRejected(f'while getting distributed claim "{self.claim}": {why}')
        return answer.body.decode("utf-8", "replace").strip()

    async def _provider(self, issuer: str) -> Provider:
        if issuer == self._own.issuer:
            return self._own
        provider = self._others.get(issuer)
        if provider is None or not provider.fresh:
            provider = Provider(issuer, self._client)
            try:
                await provider.discover()
            except ProviderError as error:
                raise TokenRejected(f"verifying untrusted issuer {issuer[:200]} failed: {error}") from None
            self._others[issuer] = provider
            if len(self._others) > MAX_ISSUERS:
                self._others.popitem(last=False)
        return provider
