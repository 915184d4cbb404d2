"""A TTL cache of the webhook's answers about tokens (k8s.io/apiserver, authentication/token/cache).

kube-apiserver wraps all token authenticators in one cache of 10 seconds. Here only answers of the webhook are cached
(--authentication-token-webhook-cache-ttl). Tokens of service accounts, bootstrap tokens and those of the static file
are checked in full for each request, which takes a few microseconds. So the deletion of an account, Pod, Secret or Node
has effect from the next request on. The signature of a JWT never changes; its verifiers cache it while they trust the
key.

Cache key: a BLAKE2b authentication code of the requested audiences and the token, with a random secret of this process.
So the cache holds no tokens, and a client cannot construct two tokens with the same key.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, runtime_checkable

import trio

from kubechronicle.api.values.caches import kept_in_order
from kubechronicle.http.authentication.interfaces import Identified
from kubechronicle.http.authentication.metrics import CacheMetrics
from kubechronicle.http.authentication.user import CredentialRejected, NotSeen

# Cached answers: twice 5,000 nodes and 10,000 namespaces, as in kube-apiserver.
SIZE: Final = 32 * 1024
# Lists of audiences whose part of the key is cached, and items in such a list. Mostly there is one list with one item,
# but TokenReviews may name any.
MAX_BEGUN: Final = 64
MAX_AUDIENCES: Final = 16

Answer = Identified | CredentialRejected | None
"""The token's user, the error of a wrong token, or None for an unknown token."""


class NoAnswer(CredentialRejected):
    """The webhook gave no answer. Raised for the requests that waited, and not cached."""


@dataclass(slots=True)
class _CachedQuestion:
    """A request to the webhook in flight. ``answers`` stays empty if the task that sent it was cancelled."""

    done: trio.Event = field(default_factory=trio.Event)
    answers: list[Answer] = field(default_factory=list)


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
        self._kept: OrderedDict[bytes, tuple[Answer, float]] = kept_in_order("answers about tokens")
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

    def look(self, key: bytes) -> tuple[Answer] | None:
        """Return the cached answer in a tuple, since it may be None; or None for a miss."""
        began = time.perf_counter()
        kept = self._kept.get(key)
        hit = kept is not None and kept[1] > self._clock()
        if hit:
            self._kept.move_to_end(key)
        self.metrics.looked(hit, time.perf_counter() - began)
        return (kept[0],) if kept is not None and hit else None

    def keep(self, key: bytes, answer: Answer) -> None:
        """Cache the answer for the time its kind has. NoAnswer and NotSeen are not cached."""
        seconds = self._success if isinstance(answer, Identified) else self._failure
        if seconds <= 0 or isinstance(answer, NoAnswer | NotSeen):
            return
        self._kept[key] = (answer, self._clock() + seconds)
        self._kept.move_to_end(key)
        if len(self._kept) > self._size:
            self._kept.popitem(last=False)

    async def ask(self, key: bytes, question: Callable[[], Awaitable[Answer]]) -> Answer:
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
