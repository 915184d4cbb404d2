"""The cache of costly verdicts: what is kept and for how long, one question for all who ask, bounds, figures."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kubechronicle.http.authentication.chain import AuthenticationChain, Identified
from kubechronicle.http.authentication.token_cache import Answer, Cached, NoAnswer, TokenCache
from kubechronicle.http.authentication.user import NotSeen, Rejected, User

JANE = Identified(User(name="jane"))


class Verifier:
    """A costly authenticator that knows one token."""

    def __init__(self) -> None:
        self.asked = 0
        self.refusal: Rejected | None = None

    def user_of(self, token: str, audiences: Sequence[str]) -> Identified | None:
        self.asked += 1
        if self.refusal is not None:
            raise self.refusal
        return JANE if token == "good" else None


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_successes_are_kept_for_their_time() -> None:
    clock, inner = Clock(), Verifier()
    cached = Cached(inner, TokenCache(clock=clock))
    for _ in range(3):
        assert cached.user_of("good", ("a",)) is JANE
    assert inner.asked == 1
    assert cached.user_of("good", ("a", "b")) is JANE
    assert cached.user_of("good", ("ab",)) is JANE
    assert inner.asked == 3
    clock.now += 9.9
    cached.user_of("good", ("a",))
    assert inner.asked == 3
    clock.now += 0.2
    cached.user_of("good", ("a",))
    assert inner.asked == 4


def test_failures_are_not_kept_unless_asked_for() -> None:
    inner = Verifier()
    cached = Cached(inner, TokenCache())
    for _ in range(2):
        assert cached.user_of("bad", ()) is None
    assert inner.asked == 2
    cached = Cached(inner, TokenCache(failure=10))
    for _ in range(2):
        assert cached.user_of("bad", ()) is None
    inner.refusal = Rejected("expired")
    for _ in range(2):
        with pytest.raises(Rejected, match="expired"):
            cached.user_of("worse", ())
    assert inner.asked == 4
    inner.refusal = NotSeen("may come yet")
    for _ in range(2):
        with pytest.raises(NotSeen):
            cached.user_of("other", ())
    assert inner.asked == 6


def test_the_cache_is_bounded_and_holds_no_tokens() -> None:
    inner = Verifier()
    cache = TokenCache(failure=10, size=2)
    cached = Cached(inner, cache)
    for token in ("one", "two", "one", "three"):
        cached.user_of(token, ())
    assert inner.asked == 3
    cached.user_of("one", ())  # used last but one
    assert inner.asked == 3
    cached.user_of("two", ())
    assert inner.asked == 4
    assert len(cache._kept) == 2
    assert not any(b"one" in key for key in cache._kept)
    assert cache.key("a", ("b",)) == cache.key("a", ("b",)) != TokenCache().key("a", ("b",))
    assert len({cache.key(*each) for each in (("a", ("b",)), ("ab", ()), ("a", ("b", "")), ("a\ud800", ()))}) == 4


async def asked(cache: TokenCache, answers: list[Answer], *, tasks: int = 3, wait: float = 1) -> tuple[int, list[str]]:
    """How often is asked while several tasks want to know the same, and what each of them finds."""
    key, count, found = cache.key("t", ()), 0, []

    async def question() -> Answer:
        nonlocal count
        count += 1
        await trio.sleep(wait)
        return answers[min(count, len(answers)) - 1]

    async def one() -> None:
        while (known := cache.look(key)) is None:
            await cache.ask(key, question)
        found.append(type(known[0]).__name__)

    async with trio.open_nursery() as nursery:
        for _ in range(tasks):
            nursery.start_soon(one)
    return count, found


@pytest.mark.parametrize("answer", [JANE, None, Rejected("no"), NoAnswer("nobody there"), NotSeen("late")])
async def test_all_who_ask_at_once_share_one_question(autojump_clock: MockClock, answer: Answer) -> None:
    for cache in (TokenCache(), TokenCache(success=0), TokenCache(success=5, failure=5)):
        assert await asked(cache, [answer]) == (1, [type(answer).__name__] * 3)
        keeps = cache._success if isinstance(answer, Identified) else cache._failure
        if not keeps or isinstance(answer, NoAnswer | NotSeen):
            assert cache._kept == {}
            assert await asked(cache, [answer], tasks=1) == (1, [type(answer).__name__])
        else:
            assert await asked(cache, [answer], tasks=1) == (0, [type(answer).__name__])
        assert cache.figures.in_flight == cache.figures.blocked == 0


async def test_who_is_cancelled_leaves_the_question_to_the_next(autojump_clock: MockClock) -> None:
    cache = TokenCache()
    key, asking = cache.key("t", ()), []

    async def question() -> Answer:
        asking.append(trio.current_time())
        await trio.sleep(5)
        return JANE

    async def one(scope: trio.CancelScope) -> None:
        with scope:
            while cache.look(key) is None:
                await cache.ask(key, question)

    first, second = trio.CancelScope(), trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one, first)
        await wait_all_tasks_blocked()
        nursery.start_soon(one, second)
        await wait_all_tasks_blocked()
        assert (cache.figures.in_flight, cache.figures.blocked) == (1, 1)
        first.cancel()
    assert len(asking) == 2
    assert cache.look(key) == (JANE,)
    assert cache.figures.fetches == {"ok": 1, "error": 1}


def test_figures_of_all_caches_are_told_together() -> None:
    caches = [Cached(Verifier(), TokenCache()) for _ in range(2)]
    chain = AuthenticationChain(tokens=caches)
    for _ in range(3):
        chain.authenticate_token("good")
    told = {
        (sample.name, *sample.labels.values()): sample.value
        for metric in chain.figures.collect()
        for sample in metric.samples
    }
    assert told["authentication_token_cache_request_total", "hit"] == 2
    assert told["authentication_token_cache_request_total", "miss"] == 1
    assert told["authentication_token_cache_fetch_total", "ok"] == 1
    assert told["authentication_token_cache_active_fetch_count", "in_flight"] == 0
    assert told["authentication_token_cache_request_duration_seconds_count", "hit"] == 2
