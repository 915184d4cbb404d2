"""The webhook token authenticator: another server authenticates bearer tokens, asked with TokenReviews
(plugin/pkg/authenticator/token/webhook of k8s.io/apiserver).

A token is decided from the cache, or NeedsExternalAnswer is raised. Answers are cached for ``ttl`` seconds. Concurrent
requests with the same token share one TokenReview. With a ``ttl`` of 0, or after an error, the answer is used only for
the requests that waited for it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable

import trio

from kubechronicle.actors.external_answers import NeedsExternalAnswer, recall_answer, remember_answer
from kubechronicle.api.values.caches import kept_in_order
from kubechronicle.http.authentication.metrics import CacheMetrics
from kubechronicle.http.authentication.user import CredentialRejected, Identified, NotSeen, User
from kubechronicle.http.outgoing import reviews
from kubechronicle.http.outgoing.backoff import BACKOFF, Backoff, RateLimitedLog, ask_patiently
from kubechronicle.http.outgoing.client import Answer, AskError, Outgoing, OutgoingClient
from kubechronicle.http.outgoing.networks import Network
from kubechronicle.http.outgoing.remote_server import RemoteServer

# -- token cache -------------------------------------------------------------------------------------------------------
#
# A TTL cache of the webhook's answers about tokens (k8s.io/apiserver, authentication/token/cache).
#
# kube-apiserver wraps all token authenticators in one cache of 10 seconds. Here only answers of the webhook are cached
# (--authentication-token-webhook-cache-ttl). Tokens of service accounts, bootstrap tokens and those of the static file
# are checked in full for each request, which takes a few microseconds. So the deletion of an account, Pod, Secret or
# Node has effect from the next request on. The signature of a JWT never changes; its verifiers cache it while they
# trust the key.
#
# Cache key: a BLAKE2b authentication code of the requested audiences and the token, with a random secret of this
# process. So the cache holds no tokens, and a client cannot construct two tokens with the same key.


# Cached answers: twice 5,000 nodes and 10,000 namespaces, as in kube-apiserver.
SIZE: Final = 32 * 1024
# Lists of audiences whose part of the key is cached, and items in such a list. Mostly there is one list with one item,
# but TokenReviews may name any.
MAX_BEGUN: Final = 64
MAX_AUDIENCES: Final = 16

CachedAnswer = Identified | CredentialRejected | None
"""The token's user, the error of a wrong token, or None for an unknown token."""


class NoAnswer(CredentialRejected):
    """The webhook gave no answer. Raised for the requests that waited, and not cached."""


@dataclass(slots=True)
class _CachedQuestion:
    """A request to the webhook in flight. ``answers`` stays empty if the task that sent it was cancelled."""

    done: trio.Event = field(default_factory=trio.Event)
    answers: list[CachedAnswer] = field(default_factory=list)


@runtime_checkable
class HasCache(Protocol):
    """A token authenticator with a cache. The chain reports the metrics of all caches together."""

    @property
    def cache(self) -> TokenCache: ...


class TokenCache:
    """The cache of one authenticator.

    ``success``, ``failure``: seconds for which positive and negative answers are cached; 0: never
    ``clock``: monotonic, in seconds
    """

    def __init__(
        self, *, success: float, failure: float, clock: Callable[[], float] = time.monotonic, size: int = SIZE
    ) -> None:
        self.metrics = CacheMetrics()
        self._success, self._failure = success, failure
        self._clock, self._size = clock, size
        self._secret = os.urandom(32)
        self._begun: dict[tuple[str, ...], hashlib.blake2b] = {}
        self._kept: OrderedDict[bytes, tuple[CachedAnswer, float]] = kept_in_order("answers about tokens")
        self._questions: dict[bytes, _CachedQuestion] = {}

    def key(self, token: str, audiences: Sequence[str]) -> bytes:
        wanted = tuple(audiences)
        begun = self._begun.get(wanted)
        if begun is None:
            parts = [audience.encode("utf-8", "surrogatepass") for audience in wanted]
            begun = hashlib.blake2b(b"%d;" % len(parts), key=self._secret, digest_size=32)
            begun.update(b"".join(b"%d:%b" % (len(part), part) for part in parts))
            if len(self._begun) >= MAX_BEGUN:
                self._begun.clear()
            if len(wanted) <= MAX_AUDIENCES and sum(map(len, parts)) <= MAX_AUDIENCES * 256:
                self._begun[wanted] = begun
        code = begun.copy()
        code.update(token.encode("utf-8", "surrogatepass"))
        return code.digest()

    def look(self, key: bytes) -> tuple[CachedAnswer] | None:
        """Return the cached answer in a tuple, since it may be None; or None for a miss."""
        began = time.perf_counter()
        kept = self._kept.get(key)
        hit = kept is not None and kept[1] > self._clock()
        if hit:
            self._kept.move_to_end(key)
        self.metrics.looked(hit, time.perf_counter() - began)
        return (kept[0],) if kept is not None and hit else None

    def keep(self, key: bytes, answer: CachedAnswer) -> None:
        """Cache the answer for the time its kind has. NoAnswer and NotSeen are not cached."""
        seconds = self._success if isinstance(answer, Identified) else self._failure
        if seconds <= 0 or isinstance(answer, NoAnswer | NotSeen):
            return
        self._kept[key] = (answer, self._clock() + seconds)
        self._kept.move_to_end(key)
        if len(self._kept) > self._size:
            self._kept.popitem(last=False)

    async def ask(self, key: bytes, question: Callable[[], Awaitable[CachedAnswer]]) -> CachedAnswer:
        """Call ``question`` and cache its answer. If the same question is in flight, wait for that answer.

        If the task that asked is cancelled, one of the waiting tasks asks. ``question`` raises nothing but
        trio.Cancelled; it returns NoAnswer for a failure.
        """
        while (pending := self._questions.get(key)) is not None:
            self.metrics.blocked += 1
            try:
                await pending.done.wait()
            finally:
                self.metrics.blocked -= 1
            if pending.answers:
                return pending.answers[0]
        pending = self._questions[key] = _CachedQuestion()
        self.metrics.in_flight += 1
        good = False
        try:
            answer = await question()
            good = not isinstance(answer, NoAnswer)
            pending.answers.append(answer)
            self.keep(key, answer)
            return answer
        finally:
            self.metrics.in_flight -= 1
            self.metrics.fetched(good)
            del self._questions[key]
            pending.done.set()


log = logging.getLogger(__name__)

KIND: Final = "TokenReview"
GROUP: Final = "authentication.k8s.io"
VERSIONS: Final = ("v1", "v1beta1")
TTL: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenWebhook:
    """Configuration of the webhook. ``ttl`` in seconds."""

    peer: RemoteServer
    version: str = "v1"
    ttl: float = TTL

    def authenticator(self, outgoing: Outgoing, audiences: Sequence[str]) -> WebhookTokens:
        """Return the authenticator. ``audiences``: those of this server."""
        client = outgoing.client(self.peer, network=Network.CONTROL_PLANE)
        return WebhookTokens(client, version=self.version, audiences=audiences, ttl=self.ttl)


class WebhookTokens:
    """The authenticator.

    ``version``: the API version of the reviews it posts
    ``audiences``: those of this server, used where the webhook's answer names none
    ``ttl``: seconds for which answers are cached
    ``clock``: monotonic, in seconds
    """

    def __init__(
        self,
        client: OutgoingClient,
        *,
        version: str = "v1",
        audiences: Sequence[str] = (),
        ttl: float = TTL,
        backoff: Backoff = BACKOFF,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cache = TokenCache(success=ttl, failure=ttl, clock=clock)
        self._client = client
        self._api_version = f"{GROUP}/{version}"
        self._audiences = tuple(audiences)
        self._backoff = backoff
        self._error_log = RateLimitedLog(log, "Failed to make webhook authenticator request")

    def user_of(self, token: str, audiences: Sequence[str]) -> Identified | None:
        """Implement TokenAuthenticator."""
        key = self.cache.key(token, audiences)
        recalled = recall_answer((self, key))
        if isinstance(recalled, _TokenAnswer):
            answer = recalled.answer
        else:
            known = self.cache.look(key)
            if known is None:
                raise _ReviewQuestion(self, key, token, tuple(audiences))
            answer = known[0]
        if isinstance(answer, CredentialRejected):
            raise CredentialRejected(answer.why)
        return answer

    async def ask(self, token: str, audiences: Sequence[str]) -> CachedAnswer:
        """Ask the webhook about a token. Returns None for an unknown token and NoAnswer for an error."""
        spec: dict[str, Any] = {"token": token, **({"audiences": list(audiences)} if audiences else {})}
        body = reviews.review(KIND, self._api_version, spec, {"user": {}})
        try:
            return await ask_patiently(
                self._client, body, lambda answer: self._read(answer, audiences), backoff=self._backoff
            )
        except AskError as error:
            self._error_log.error(str(error))
            return NoAnswer(str(error))

    def _read(self, answer: Answer, audiences: Sequence[str]) -> CachedAnswer:
        """Return the answer in a TokenReview. Raises AskError."""
        status = reviews.status_of(answer, KIND, self._api_version)
        info = reviews.mapping(status, "user")
        extra = reviews.mapping(info, "extra")
        user = User(
            name=reviews.text(info, "username"),
            uid=reviews.text(info, "uid"),
            groups=reviews.texts(info, "groups"),
            extra={key: reviews.texts(extra, key) for key in extra},
        )
        known, error = reviews.flag(status, "authenticated"), reviews.text(status, "error")
        meant = reviews.texts(status, "audiences") or self._audiences
        both = tuple(audience for audience in audiences if audience in meant)
        if audiences and not both:
            return None
        if not known:
            return NoAnswer(error) if error else None
        if not user.name:
            raise AskError("the answer says that the token is authenticated, and names no user")
        return Identified(user, both)


@dataclass(frozen=True, slots=True)
class _TokenAnswer:
    """The answer to a TokenReview, remembered for the request that asked."""

    answer: CachedAnswer


class _ReviewQuestion(NeedsExternalAnswer):
    def __init__(self, webhook: WebhookTokens, key: bytes, token: str, audiences: tuple[str, ...]) -> None:
        super().__init__("a webhook has to be asked")
        self._webhook, self._key, self._token, self._audiences = webhook, key, token, audiences

    async def resolve(self) -> None:
        async def question() -> CachedAnswer:
            return await self._webhook.ask(self._token, self._audiences)

        remember_answer((self._webhook, self._key), _TokenAnswer(await self._webhook.cache.ask(self._key, question)))
