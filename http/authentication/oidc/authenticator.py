"""The authenticator of all JWT issuers, and the task that reloads their configuration.

A token is decided once: by its issuer's rules, its issuer's keys, and its claims. Its user is cached under the token's
digest until the token expires, the provider withdraws the key, or the configuration is replaced. A token of an unknown
issuer is left to other authenticators; every other token is accepted or rejected here.

As in kube-apiserver, a new configuration becomes effective when all of its providers have been reached. If one can't
be, the former configuration stays.
"""

from __future__ import annotations

import hashlib
import time
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import trio
from prometheus_client.registry import CollectorRegistry

from kubechronicle.actors.external_answers import NeedsExternalAnswer, recall_answer, remember_answer
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.values.caches import kept_in_order
from kubechronicle.http.authentication.oidc import configuration, tokens, validation
from kubechronicle.http.authentication.oidc.claims import Mapper, TokenRejected
from kubechronicle.http.authentication.oidc.configuration import AnonymousAuthConfig
from kubechronicle.http.authentication.oidc.distributed import Resolver
from kubechronicle.http.authentication.oidc.metrics import JwtMetrics, RefusalLog
from kubechronicle.http.authentication.oidc.provider import MAX_ANSWER as MAX_PROVIDER_ANSWER
from kubechronicle.http.authentication.oidc.provider import TIMEOUT, Provider
from kubechronicle.http.authentication.oidc.tokens import IdToken
from kubechronicle.http.authentication.oidc.web_keys import ALGORITHMS, WebKey
from kubechronicle.http.authentication.user import CredentialRejected, Identified, User
from kubechronicle.http.outgoing.client import Outgoing, OutgoingClient
from kubechronicle.http.outgoing.networks import Network
from kubechronicle.http.outgoing.remote_server import RemoteServer
from kubechronicle.http.reloading import NotLoadedYet, ReloadedFile, ReloadMetrics, Unusable

# Cached tokens: one per client process, about 1 KB each.
CACHE_SIZE: Final = 8192
# Seconds for which groups of a distributed claim are cached (kube-apiserver caches every token for so long).
OUTSIDE_TTL: Final = 10.0
# Seconds in which all providers of a new configuration must answer (UpdateAuthenticationConfigTimeout).
UPDATE_TIMEOUT: Final = 60.0
# Answers remembered for a request: whether keys were fetched; a distributed claim; when its token was first seen.
KEYS, CLAIM, BEGAN = "keys", "claim", "began"
# Concurrent connections to a provider.
MAX_CONNECTIONS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtPlan:
    """The configuration at the start.

    ``mappers``: the issuers
    ``algorithms``: allowed signature algorithms
    ``file``: the configuration file, which is reloaded; None without one
    ``content``: the file's content from which ``mappers`` were made
    ``disallowed``: the issuers of this server
    ``egress``: the networks with an egress selection; None without a selector
    ``selects_egress``: issuers may have one
    ``anonymous``: the file's rule for anonymous requests, which must not change
    """

    mappers: tuple[Mapper, ...]
    algorithms: frozenset[str] = frozenset(ALGORITHMS)
    file: Path | None = None
    content: bytes = b""
    disallowed: tuple[str, ...] = ()
    egress: frozenset[str] | None = None
    selects_egress: bool = True
    anonymous: AnonymousAuthConfig | None = None


def check_peers(mappers: Collection[Mapper], egress: frozenset[str] | None = None) -> None:
    """Raise ValueError if a valid configuration needs an egress selection that is missing, or has an unusable URL."""
    for mapper in mappers:
        issuer = mapper.config.issuer
        kind = issuer.egress_selector_type
        if kind and egress is None:
            raise ValueError(f"oidc: egress lookup required with egress selector type {go_quote(kind)}")
        if kind and egress is not None and kind not in egress:
            raise ValueError(f"oidc: egress lookup for {go_quote(kind)} is not configured")
        for url in filter(None, (issuer.url, issuer.discovery_url)):
            RemoteServer(url=url)


@dataclass(slots=True)
class _Issuer:
    """An issuer whose tokens are accepted."""

    mapper: Mapper
    provider: Provider
    client: OutgoingClient
    resolver: Resolver | None


@dataclass(slots=True)
class _CachedToken:
    """An accepted token, its expiry in seconds since the epoch, and the key that verified it."""

    identified: Identified
    ends: float
    provider: Provider
    key: WebKey


@dataclass(slots=True, eq=False)
class _KeyGeneration:
    """A configuration with its providers and its cache of tokens."""

    issuers: dict[str, _Issuer]
    cached: OrderedDict[bytes, _CachedToken] = field(default_factory=lambda: kept_in_order("ID tokens"))
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)


@dataclass(frozen=True, slots=True)
class _AnswerKey:
    """The key of an answer about a token. ``question``: KEYS, CLAIM or BEGAN."""

    generation: _KeyGeneration
    digest: bytes
    question: str


class _ProviderQuestion(NeedsExternalAnswer):
    """A question about a token. ``began``: when the token was first seen."""

    def __init__(self, key: _AnswerKey, began: float) -> None:
        super().__init__()
        self._key, self._began = key, began

    async def resolve(self) -> None:
        remember_answer(replace(self._key, question=BEGAN), self._began)
        remember_answer(self._key, await self._answer())

    @abstractmethod
    async def _answer(self) -> object: ...


class _NeedsKeys(_ProviderQuestion):
    """No known key verifies the token: the provider may have a new one."""

    def __init__(self, key: _AnswerKey, began: float, provider: Provider) -> None:
        super().__init__(key, began)
        self._provider = provider

    async def _answer(self) -> object:
        if self._provider.may_refresh():
            await self._provider.refresh()
        return True


class _NeedsClaim(_ProviderQuestion):
    """Another server holds the token's groups."""

    def __init__(self, key: _AnswerKey, began: float, resolver: Resolver, source: tuple[str, str], now: float) -> None:
        super().__init__(key, began)
        self._resolver, self._source, self._now = resolver, source, now

    async def _answer(self) -> object:
        """Return (the claim's value,), or the TokenRejected error."""
        try:
            return (await self._resolver.resolve(*self._source, now=self._now),)
        except TokenRejected as refused:
            return refused


class JwtAuthenticators:
    """A token authenticator. ``run`` is a child of the supervision tree.

    ``clock``: seconds since the epoch
    ``server``: the name of this server in the cluster
    ``tells_keys``: metrics tell of the keys of issuers
    """

    def __init__(
        self,
        plan: JwtPlan,
        outgoing: Outgoing,
        *,
        server: str = "",
        tells_keys: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.metrics = JwtMetrics(server, tells_keys=tells_keys)
        self.reloads = ReloadMetrics(
            prefix="apiserver_authentication_config_controller", subject="authentication configuration", server=server
        )
        self._plan = plan
        self._outgoing = outgoing
        self._clock = clock
        self._refusals = RefusalLog()
        self._nursery: trio.Nursery | None = None
        self._generation = self._make_generation(plan.mappers)
        self._file: ReloadedFile | None = None
        if plan.file is not None:
            self._file = ReloadedFile(plan.file, self._replace, applied=plan.content, metrics=self.reloads)

    def register(self, registry: CollectorRegistry) -> None:
        """Register the metrics."""
        self.metrics.register(registry)
        if self._file is not None:
            registry.register(self.reloads)

    # -- the authenticator --------------------------------------------------------------------------------------------

    def user_of(self, token: str, audiences: Sequence[str]) -> Identified | None:
        """Implement TokenAuthenticator. The audiences of an ID token name a client of the provider, not this server."""
        generation = self._generation
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        known = generation.cached.get(digest)
        if known is not None:
            if self._clock() <= known.ends and known.provider.knows(known.key):
                return known.identified
            del generation.cached[digest]
        parsed = tokens.parse(token)
        issuer = generation.issuers.get(parsed.issuer) if parsed is not None else None
        if parsed is None or issuer is None:
            return None
        url = issuer.provider.issuer
        began = recall_answer(_AnswerKey(generation, digest, BEGAN))
        began = began if isinstance(began, float) else time.perf_counter()
        try:
            accepted = self._decide(generation, issuer, parsed, digest, began)
        except TokenRejected as refused:
            self.metrics.authenticated(url, time.perf_counter() - began, success=False)
            self._refusals.refused(url, str(refused))
            raise CredentialRejected(str(refused)) from None
        self.metrics.authenticated(url, time.perf_counter() - began, success=True)
        generation.cached[digest] = accepted
        if len(generation.cached) > CACHE_SIZE:
            generation.cached.popitem(last=False)
        return accepted.identified

    def _decide(
        self, generation: _KeyGeneration, issuer: _Issuer, token: IdToken, digest: bytes, began: float
    ) -> _CachedToken:
        """Verify a token. Raises TokenRejected and NeedsExternalAnswer."""
        provider = issuer.provider
        if not provider.ready:
            raise TokenRejected("oidc: authenticator not initialized")
        now = self._clock()
        try:
            tokens.check(
                token,
                issuer=provider.issuer,
                audiences=issuer.mapper.config.issuer.audiences,
                algorithms=self._plan.algorithms,
                now=now,
            )
        except TokenRejected as refused:
            raise TokenRejected(f"oidc: verify token: {refused}") from None
        signed_with = provider.key_of(token)
        if signed_with is None:
            key = _AnswerKey(generation, digest, KEYS)
            if recall_answer(key) is None:
                raise _NeedsKeys(key, began, provider)
            raise TokenRejected("oidc: verify token: failed to verify signature: failed to verify id token signature")
        claims, ends = token.claims, token.ends
        source = tokens.source_of(claims, issuer.resolver.claim) if issuer.resolver is not None else None
        if issuer.resolver is not None and source is not None:
            key = _AnswerKey(generation, digest, CLAIM)
            answer = recall_answer(key)
            if answer is None:
                raise _NeedsClaim(key, began, issuer.resolver, source, now)
            if isinstance(answer, TokenRejected):
                raise TokenRejected(f"oidc: could not expand distributed claims: {answer}")
            assert isinstance(answer, tuple)
            claims, ends = {**claims, issuer.resolver.claim: answer[0]}, min(ends, now + OUTSIDE_TTL)
        user: User = issuer.mapper.user_of(claims)
        return _CachedToken(Identified(user), ends, provider, signed_with)

    # -- the configuration --------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Discover the providers, and reload the file, until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._generation.scope = trio.CancelScope()
                nursery.start_soon(self._run_providers, self._generation)
                if self._file is not None:
                    nursery.start_soon(self._file.run)
                task_status.started()
        finally:
            self._nursery = None

    async def wait_ready(self) -> None:
        """Wait until all providers of the current configuration have been reached."""
        for issuer in self._generation.issuers.values():
            await issuer.provider.wait_ready()

    def _make_generation(self, mappers: Collection[Mapper]) -> _KeyGeneration:
        issuers: dict[str, _Issuer] = {}
        for mapper in mappers:
            config = mapper.config.issuer
            peer = RemoteServer(url=config.url, ca=config.certificate_authority.encode() or None)
            client = self._outgoing.client(
                peer,
                timeout=TIMEOUT,
                max_answer=MAX_PROVIDER_ANSWER,
                max_connections=MAX_CONNECTIONS,
                network=Network(config.egress_selector_type),
            )
            provider = Provider(config.url, client, discovery_url=config.discovery_url, metrics=self.metrics)
            resolver = None
            if claim := mapper.config.claim_mappings.groups.claim:
                resolver = Resolver(claim, provider, client, config.audiences, self._plan.algorithms)
            issuers[config.url] = _Issuer(mapper, provider, client, resolver)
        return _KeyGeneration(issuers)

    async def _run_providers(self, generation: _KeyGeneration) -> None:
        """Run the providers until the configuration is replaced."""
        with generation.scope:
            async with trio.open_nursery() as nursery:
                for issuer in generation.issuers.values():
                    nursery.start_soon(issuer.provider.run)
                await trio.sleep_forever()
        for issuer in generation.issuers.values():
            self._outgoing.forget(issuer.client)

    async def _replace(self, data: bytes) -> None:
        """Apply a new content of the file, as ReloadedFile asks."""
        plan = self._plan
        try:
            config = configuration.parse(data)
            mappers = validation.compile_configuration(
                config, disallowed=plan.disallowed, anonymous=plan.anonymous, selects_egress=plan.selects_egress
            )
            check_peers(mappers, self._plan.egress)
            replacement = self._make_generation(mappers)
        except ValueError as error:  # ConfigFileError, Invalid
            raise Unusable(" ".join(str(error).split())) from None
        assert self._nursery is not None
        self._nursery.start_soon(self._run_providers, replacement)
        reached = False
        try:
            with trio.move_on_after(UPDATE_TIMEOUT):
                for issuer in replacement.issuers.values():
                    await issuer.provider.wait_ready()
                reached = True
        finally:
            if not reached:
                replacement.scope.cancel()
        if not reached:
            problems = (issuer.provider.problem for issuer in replacement.issuers.values())
            raise NotLoadedYet(next(filter(None, problems), "a provider did not answer"))
        former, self._generation = self._generation, replacement
        former.scope.cancel()
        self.metrics.keep_only(replacement.issuers)
