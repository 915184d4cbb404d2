"""The JWT issuers as one authenticator of the chain, and the task that follows their configuration.

A token is judged once: by its issuer's rules, then by its issuer's keys, then by its claims. Its user is remembered by
the token's digest until it expires, for as long as its key is still the provider's and the configuration in force is
the one that let it in. A token whose issuer is not configured is none of ours; all others are accepted or refused here.

A configuration that replaces another counts when every provider in it has been reached, as in kube-apiserver: until
then, or for good if one cannot be, the one before stays.
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
from kubechronicle.http.authentication.interfaces import Identified
from kubechronicle.http.authentication.oidc import configuration, tokens, validation
from kubechronicle.http.authentication.oidc.claims import Mapper, Refused
from kubechronicle.http.authentication.oidc.configuration import AnonymousAuthConfig
from kubechronicle.http.authentication.oidc.distributed import Resolver
from kubechronicle.http.authentication.oidc.metrics import JwtMetrics, RefusalLog
from kubechronicle.http.authentication.oidc.provider import MAX_ANSWER as MAX_PROVIDER_ANSWER
from kubechronicle.http.authentication.oidc.provider import TIMEOUT, Provider
from kubechronicle.http.authentication.oidc.tokens import Token
from kubechronicle.http.authentication.oidc.web_keys import ALGORITHMS, WebKey
from kubechronicle.http.authentication.user import Rejected, User
from kubechronicle.http.outgoing.client import Client, Outgoing
from kubechronicle.http.outgoing.remote_server import RemoteServer
from kubechronicle.http.reloading import NotYet, ReloadedFile, ReloadFigures, Unusable

# Tokens remembered by their digest: one per client process, about 1 KB each.
CACHE_SIZE: Final = 8192
# Seconds for which groups are believed that are kept outside the token (kube-apiserver remembers any token so long).
OUTSIDE_TTL: Final = 10.0
# Seconds in which all providers of a new configuration must answer (UpdateAuthenticationConfigTimeout).
UPDATE_TIMEOUT: Final = 60.0
# What is kept about a token while somebody is asked: whether keys were fetched, a claim, when it was first looked at.
KEYS, CLAIM, BEGAN = "keys", "claim", "began"
# Connections to one provider at once.
MAX_CONNECTIONS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtPlan:
    """Which tokens are believed at the start: ``mappers``, signed with one of ``algorithms``. ``file`` that is read
    again when it changes, with the ``content`` these come from, None: there is none. ``disallowed``: issuers that
    are this server itself; ``anonymous``: what the file said of anonymous requests."""

    mappers: tuple[Mapper, ...]
    algorithms: frozenset[str] = frozenset(ALGORITHMS)
    file: Path | None = None
    content: bytes = b""
    disallowed: tuple[str, ...] = ()
    anonymous: AnonymousAuthConfig | None = None


def check_peers(mappers: Collection[Mapper]) -> None:
    """What a sound configuration may still ask for and not get. ValueError."""
    for mapper in mappers:
        issuer = mapper.config.issuer
        if issuer.egress_selector_type:
            kind = go_quote(issuer.egress_selector_type)
            raise ValueError(f"oidc: egress lookup required with egress selector type {kind}")
        for url in filter(None, (issuer.url, issuer.discovery_url)):
            RemoteServer(url=url)


@dataclass(slots=True)
class _Issuer:
    """One issuer whose tokens are believed."""

    mapper: Mapper
    provider: Provider
    client: Client
    resolver: Resolver | None


@dataclass(slots=True)
class _Remembered:
    """A token that was accepted, until when, and thanks to which key."""

    identified: Identified
    ends: float
    provider: Provider
    key: WebKey


@dataclass(slots=True, eq=False)
class _InForce:
    """A configuration, and what has been found out under it."""

    issuers: dict[str, _Issuer]
    cached: OrderedDict[bytes, _Remembered] = field(default_factory=OrderedDict)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)


@dataclass(frozen=True, slots=True)
class _Asked:
    """Under what an answer about a token is kept for the request that shows it: ``what`` was asked."""

    in_force: _InForce
    digest: bytes
    what: str


class _Question(NeedsExternalAnswer):
    """``asked``: what; ``began``: when the token was first looked at."""

    def __init__(self, asked: _Asked, began: float) -> None:
        super().__init__()
        self._asked, self._began = asked, began

    async def resolve(self) -> None:
        remember_answer(replace(self._asked, what=BEGAN), self._began)
        remember_answer(self._asked, await self._answer())

    @abstractmethod
    async def _answer(self) -> object: ...


class _KeysWanted(_Question):
    """No key known signed the token: perhaps one the provider has now."""

    def __init__(self, asked: _Asked, began: float, provider: Provider) -> None:
        super().__init__(asked, began)
        self._provider = provider

    async def _answer(self) -> object:
        if self._provider.may_refresh():
            await self._provider.refresh()
        return True


class _ClaimWanted(_Question):
    """The token's groups are kept elsewhere."""

    def __init__(self, asked: _Asked, began: float, resolver: Resolver, source: tuple[str, str], now: float) -> None:
        super().__init__(asked, began)
        self._resolver, self._source, self._now = resolver, source, now

    async def _answer(self) -> object:
        """(the claim's value,), or Refused."""
        try:
            return (await self._resolver.resolve(*self._source, now=self._now),)
        except Refused as refused:
            return refused


class JwtAuthenticators:
    """A token authenticator; ``run`` is a child of the supervision tree. ``clock``: seconds since the epoch;
    ``server``: the name of this server among those that share the cluster."""

    def __init__(
        self, plan: JwtPlan, outgoing: Outgoing, *, server: str = "", clock: Callable[[], float] = time.time
    ) -> None:
        self.metrics = JwtMetrics(server)
        self.reloads = ReloadFigures(
            prefix="apiserver_authentication_config_controller", what="authentication configuration", server=server
        )
        self._plan = plan
        self._outgoing = outgoing
        self._clock = clock
        self._refusals = RefusalLog()
        self._nursery: trio.Nursery | None = None
        self._in_force = self._made(plan.mappers)
        self._file: ReloadedFile | None = None
        if plan.file is not None:
            self._file = ReloadedFile(plan.file, self._replace, applied=plan.content, figures=self.reloads)

    def register(self, registry: CollectorRegistry) -> None:
        """Show the metrics with the server's others."""
        self.metrics.register(registry)
        if self._file is not None:
            registry.register(self.reloads)

    # -- the authenticator --------------------------------------------------------------------------------------------

    def user_of(self, token: str, audiences: Sequence[str]) -> Identified | None:
        """As of TokenAuthenticator. Such a token is for whoever this server is: its own audiences say for which client
        of the provider it was made."""
        in_force = self._in_force
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        known = in_force.cached.get(digest)
        if known is not None:
            if self._clock() <= known.ends and known.provider.knows(known.key):
                return known.identified
            del in_force.cached[digest]
        parsed = tokens.parse(token)
        issuer = in_force.issuers.get(parsed.issuer) if parsed is not None else None
        if parsed is None or issuer is None:
            return None
        url = issuer.provider.issuer
        began = recall_answer(_Asked(in_force, digest, BEGAN))
        began = began if isinstance(began, float) else time.perf_counter()
        try:
            found = self._judge(in_force, issuer, parsed, digest, began)
        except Refused as refused:
            self.metrics.authenticated(url, time.perf_counter() - began, success=False)
            self._refusals.refused(url, str(refused))
            raise Rejected(str(refused)) from None
        self.metrics.authenticated(url, time.perf_counter() - began, success=True)
        in_force.cached[digest] = found
        if len(in_force.cached) > CACHE_SIZE:
            in_force.cached.popitem(last=False)
        return found.identified

    def _judge(self, in_force: _InForce, issuer: _Issuer, token: Token, digest: bytes, began: float) -> _Remembered:
        """Refused, NeedsExternalAnswer."""
        provider = issuer.provider
        if not provider.ready:
            raise Refused("oidc: authenticator not initialized")
        now = self._clock()
        try:
            tokens.check(
                token,
                issuer=provider.issuer,
                audiences=issuer.mapper.config.issuer.audiences,
                algorithms=self._plan.algorithms,
                now=now,
            )
        except Refused as refused:
            raise Refused(f"oidc: verify token: {refused}") from None
        signed_with = provider.key_of(token)
        if signed_with is None:
            asked = _Asked(in_force, digest, KEYS)
            if recall_answer(asked) is None:
                raise _KeysWanted(asked, began, provider)
            raise Refused("oidc: verify token: failed to verify signature: failed to verify id token signature")
        claims, ends = token.claims, token.ends
        source = tokens.source_of(claims, issuer.resolver.claim) if issuer.resolver is not None else None
        if issuer.resolver is not None and source is not None:
            asked = _Asked(in_force, digest, CLAIM)
            answer = recall_answer(asked)
            if answer is None:
                raise _ClaimWanted(asked, began, issuer.resolver, source, now)
            if isinstance(answer, Refused):
                raise Refused(f"oidc: could not expand distributed claims: {answer}")
            assert isinstance(answer, tuple)
            claims, ends = {**claims, issuer.resolver.claim: answer[0]}, min(ends, now + OUTSIDE_TTL)
        user: User = issuer.mapper.user_of(claims)
        return _Remembered(Identified(user), ends, provider, signed_with)

    # -- the configuration --------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Discover the providers, and follow the file, until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._in_force.scope = trio.CancelScope()
                nursery.start_soon(self._look_after, self._in_force)
                if self._file is not None:
                    nursery.start_soon(self._file.run)
                task_status.started()
        finally:
            self._nursery = None

    async def wait_ready(self) -> None:
        """Return when all providers of the configuration in force have been reached."""
        for issuer in self._in_force.issuers.values():
            await issuer.provider.wait_ready()

    def _made(self, mappers: Collection[Mapper]) -> _InForce:
        issuers: dict[str, _Issuer] = {}
        for mapper in mappers:
            config = mapper.config.issuer
            peer = RemoteServer(url=config.url, ca=config.certificate_authority.encode() or None)
            client = self._outgoing.client(
                peer, timeout=TIMEOUT, max_answer=MAX_PROVIDER_ANSWER, max_connections=MAX_CONNECTIONS
            )
            provider = Provider(config.url, client, discovery_url=config.discovery_url, metrics=self.metrics)
            resolver = None
            if claim := mapper.config.claim_mappings.groups.claim:
                resolver = Resolver(claim, provider, client, config.audiences, self._plan.algorithms)
            issuers[config.url] = _Issuer(mapper, provider, client, resolver)
        return _InForce(issuers)

    async def _look_after(self, in_force: _InForce) -> None:
        """Run the providers until another configuration is in force."""
        with in_force.scope:
            async with trio.open_nursery() as nursery:
                for issuer in in_force.issuers.values():
                    nursery.start_soon(issuer.provider.run)
                await trio.sleep_forever()
        with trio.CancelScope(shield=True):
            for issuer in in_force.issuers.values():
                await self._outgoing.forget(issuer.client)

    async def _replace(self, data: bytes) -> None:
        """As of ReloadedFile."""
        plan = self._plan
        try:
            config = configuration.parse(data)
            mappers = validation.compile_configuration(config, disallowed=plan.disallowed, anonymous=plan.anonymous)
            check_peers(mappers)
            replacement = self._made(mappers)
        except ValueError as error:  # ConfigFileError, Invalid
            raise Unusable(" ".join(str(error).split())) from None
        assert self._nursery is not None
        self._nursery.start_soon(self._look_after, replacement)
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
            raise NotYet(next(filter(None, problems), "a provider did not answer"))
        former, self._in_force = self._in_force, replacement
        former.scope.cancel()
        self.metrics.keep_only(replacement.issuers)
