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
from typing import Final

import trio

from kubechronicle.http.authentication.chain import Identified
from kubechronicle.http.authentication.figures import CacheFigures
from kubechronicle.http.authentication.user import NotSeen, Rejected

# Answers kept: 5,000 nodes' and 10,000 namespaces' twice over, as in kube-apiserver.
SIZE: Final = 32 * 1024
# Seconds until an answer that is not to be kept is forgotten if nobody who waited for it comes for it.
ABANDONED: Final = 30.0

# Lists of audiences whose part of a key is remembered: mostly one, but reviews may ask about any.
MAX_BEGUN: Final = 64

Answer = Identified | Rejected | None
"""Whose the token is; that it is wrong; that it is nobody's here."""


class NoAnswer(Rejected):
    """Nobody could be asked. Told to those who waited, and not remembered."""


@dataclass(slots=True)
class _Kept:
    """``takes``: how often it may still be taken, None: until it ``ends``."""

    answer: Answer
    ends: float
    takes: int | None


@dataclass(slots=True)
class _Flight:
    done: trio.Event = field(default_factory=trio.Event)
    waiting: int = 0


class TokenCache:
    """Of one authenticator. ``success``, ``failure``: seconds for which answers of the kind are remembered, 0: not at
    all; ``clock``: seconds, never going back."""

    def __init__(
        self, *, success: float, failure: float, clock: Callable[[], float] = time.monotonic, size: int = SIZE
    ) -> None:
        self.figures = CacheFigures()
        self._success, self._failure = success, failure
        self._clock, self._size = clock, size
        self._secret = os.urandom(32)
        self._begun: dict[tuple[str, ...], hashlib.blake2b] = {}
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
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
            self._begun[asked] = begun
        code = begun.copy()
        code.update(token.encode("utf-8", "surrogatepass"))
        return code.digest()

    def look(self, key: bytes) -> tuple[Answer] | None:
        """The answer that is remembered (in a tuple, since it may be None), or None."""
        began = time.perf_counter()
        kept = self._kept.get(key)
        if kept is not None and kept.ends > self._clock():
            if kept.takes is None:
                self._kept.move_to_end(key)
            else:
                kept.takes -= 1
                if not kept.takes:
                    del self._kept[key]
            self.figures.looked(True, time.perf_counter() - began)
            return (kept.answer,)
        self.figures.looked(False, time.perf_counter() - began)
        return None

    def keep(self, key: bytes, answer: Answer, *, takers: int = 0) -> None:
        """Remember it, for as long as its kind is; if that is not at all, until ``takers`` have taken it."""
        seconds = self._success if isinstance(answer, Identified) else self._failure
        if isinstance(answer, NoAnswer | NotSeen):
            seconds = 0.0
        if seconds <= 0 and not takers:
            return
        kept = _Kept(answer, self._clock() + (seconds or ABANDONED), None if seconds > 0 else takers)
        self._kept[key] = kept
        self._kept.move_to_end(key)
        if len(self._kept) > self._size:
            self._kept.popitem(last=False)

    async def ask(self, key: bytes, question: Callable[[], Awaitable[Answer]]) -> None:
        """Ask, and keep the answer; or wait for whoever asks the same already. Afterwards ``look`` finds the answer,
        unless the one who asked was cancelled: then it is asked again. ``question`` raises nothing but
        trio.Cancelled; NoAnswer says that there is no answer."""
        flight = self._flights.get(key)
        if flight is not None:
            flight.waiting += 1
            self.figures.blocked += 1
            try:
                await flight.done.wait()
            finally:
                self.figures.blocked -= 1
            return
        flight = self._flights[key] = _Flight()
        self.figures.in_flight += 1
        good = False
        try:
            answer = await question()
            good = not isinstance(answer, NoAnswer)
            self.keep(key, answer, takers=flight.waiting + 1)
        finally:
            self.figures.in_flight -= 1
            self.figures.fetched(good)
            del self._flights[key]
            flight.done.set()
