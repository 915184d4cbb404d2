"""What somebody outside said of tokens, remembered for a while (k8s.io/apiserver, authentication/token/cache).

kube-apiserver wraps all that know tokens in one cache of 10 seconds. Here only what has to be asked for outside is
cached, the webhook's answers (--authentication-token-webhook-cache-ttl). A service account's token, a bootstrap token,
and one of the file are looked up in full for each request: that costs a few microseconds, and so a deleted account,
Pod, Secret or Node counts from the next request on, as no cache could promise. (What never changes of a JWT, its
signature, is remembered by those that verify it, for as long as its key is believed.)

Keys are authentication codes (BLAKE2b's) of the audiences asked for and the token, with a random secret of this
process: the cache holds no tokens, and nobody outside can find two tokens of one key.
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

from kubechronicle.http.authentication.interfaces import Identified
from kubechronicle.http.authentication.metrics import CacheMetrics
from kubechronicle.http.authentication.user import NotSeen, Rejected

# Answers kept: 5,000 nodes' and 10,000 namespaces' twice over, as in kube-apiserver.
SIZE: Final = 32 * 1024
# Lists of audiences whose part of a key is remembered, and their items: mostly one of one, but reviews ask about any.
MAX_BEGUN: Final = 64
MAX_AUDIENCES: Final = 16

Answer = Identified | Rejected | None
"""Whose the token is; that it is wrong; that it is nobody's here."""


class NoAnswer(Rejected):
    """Nobody could be asked. Told to those who waited, and not remembered."""


@dataclass(slots=True)
class _Flight:
    """A question under way; ``answers``: what has come of it, nothing if whoever asked was cancelled."""

    done: trio.Event = field(default_factory=trio.Event)
    answers: list[Answer] = field(default_factory=list)


@runtime_checkable
class HasCache(Protocol):
    """A token authenticator with a cache. The chain reports the metrics of all caches together."""

    @property
    def cache(self) -> TokenCache: ...


class TokenCache:
    """Of one authenticator. ``success``, ``failure``: seconds for which answers of the kind are remembered, 0: not at
    all; ``clock``: seconds, never going back."""

    def __init__(
        self, *, success: float, failure: float, clock: Callable[[], float] = time.monotonic, size: int = SIZE
    ) -> None:
        self.metrics = CacheMetrics()
        self._success, self._failure = success, failure
        self._clock, self._size = clock, size
        self._secret = os.urandom(32)
        self._begun: dict[tuple[str, ...], hashlib.blake2b] = {}
        self._kept: OrderedDict[bytes, tuple[Answer, float]] = OrderedDict()
        self._flights: dict[bytes, _Flight] = {}

    def key(self, token: str, audiences: Sequence[str]) -> bytes:
        asked = tuple(audiences)
        begun = self._begun.get(asked)
        if begun is None:
            parts = [audience.encode("utf-8", "surrogatepass") for audience in asked]
            begun = hashlib.blake2b(b"%d;" % len(parts), key=self._secret, digest_size=32)
            begun.update(b"".join(b"%d:%b" % (len(part), part) for part in parts))
            if len(self._begun) >= MAX_BEGUN:
                self._begun.clear()
            if len(asked) <= MAX_AUDIENCES and sum(map(len, parts)) <= MAX_AUDIENCES * 256:
                self._begun[asked] = begun
        code = begun.copy()
        code.update(token.encode("utf-8", "surrogatepass"))
        return code.digest()

    def look(self, key: bytes) -> tuple[Answer] | None:
        """The answer that is remembered (in a tuple, since it may be None), or None."""
        began = time.perf_counter()
        kept = self._kept.get(key)
        hit = kept is not None and kept[1] > self._clock()
        if hit:
            self._kept.move_to_end(key)
        self.metrics.looked(hit, time.perf_counter() - began)
        return (kept[0],) if kept is not None and hit else None

    def keep(self, key: bytes, answer: Answer) -> None:
        """Remember it, for as long as its kind is, which may be not at all."""
        seconds = self._success if isinstance(answer, Identified) else self._failure
        if seconds <= 0 or isinstance(answer, NoAnswer | NotSeen):
            return
        self._kept[key] = (answer, self._clock() + seconds)
        self._kept.move_to_end(key)
        if len(self._kept) > self._size:
            self._kept.popitem(last=False)

    async def ask(self, key: bytes, question: Callable[[], Awaitable[Answer]]) -> Answer:
        """Ask, and remember the answer; or wait for whoever asks the same already, and ask if that one is cancelled.
        ``question`` raises nothing but trio.Cancelled; NoAnswer says that there is no answer."""
        while (flight := self._flights.get(key)) is not None:
            self.metrics.blocked += 1
            try:
                await flight.done.wait()
            finally:
                self.metrics.blocked -= 1
            if flight.answers:
                return flight.answers[0]
        flight = self._flights[key] = _Flight()
        self.metrics.in_flight += 1
        good = False
        try:
            answer = await question()
            good = not isinstance(answer, NoAnswer)
            flight.answers.append(answer)
            self.keep(key, answer)
            return answer
        finally:
            self.metrics.in_flight -= 1
            self.metrics.fetched(good)
            del self._flights[key]
            flight.done.set()
