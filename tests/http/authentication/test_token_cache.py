"""The token cache: TTLs, one question for concurrent requests, bounds, metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kubechronicle.http.authentication.chain import AuthenticationChain
from kubechronicle.http.authentication.user import CredentialRejected, Identified, NotSeen, User
from kubechronicle.http.authentication.webhook import CachedAnswer, NoAnswer, TokenCache

JANE = Identified(User(name="jane"))


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def cache_of(success: float = 10, failure: float = 0, **options: Any) -> TokenCache:
    return TokenCache(success=success, failure=failure, **options)


def test_answers_are_cached_for_the_ttl_of_their_kind() -> None:
    clock = Clock()
    cache = cache_of(10, 5, clock=clock)
    answers: list[CachedAnswer] = [
        JANE,
        None,
        CredentialRejected("no"),
        NoAnswer("nobody there"),
        NotSeen("may come yet"),
    ]
    keys = [cache.key(f"token{number}", ("a",)) for number in range(len(answers))]
    for key, answer in zip(keys, answers, strict=True):
        assert cache.look(key) is None
        cache.keep(key, answer)
    assert [cache.look(key) for key in keys] == [(JANE,), (None,), (answers[2],), None, None]
    clock.now += 5.1
    assert [cache.look(key) for key in keys] == [(JANE,), None, None, None, None]
    clock.now += 5
    assert [cache.look(key) for key in keys] == [None] * 5


def test_without_a_ttl_nothing_is_cached() -> None:
    cache = cache_of(0)
    cache.keep(cache.key("t", ()), JANE)
    assert cache.look(cache.key("t", ())) is None
    assert cache._kept == {}


def test_the_cache_is_bounded_and_holds_no_tokens() -> None:
    cache = cache_of(size=2)
    one, two, three = (cache.key(token, ()) for token in ("one", "two", "three"))
    for key in (one, two):
        cache.keep(key, JANE)
    assert cache.look(one)
    cache.keep(three, JANE)
    assert (cache.look(one), cache.look(two), cache.look(three)) == ((JANE,), None, (JANE,))
    assert len(cache._kept) == 2
    assert not any(b"one" in key for key in cache._kept)


def test_keys_differ_by_token_audiences_and_process() -> None:
    cache = cache_of()
    assert cache.key("a", ("b",)) == cache.key("a", ["b"]) != cache_of().key("a", ("b",))
    pairs = [("a", ("b",)), ("ab", ()), ("a", ("b", "")), ("a\ud800", ()), ("b", ("a",)), ("1:a", ()), ("", ("a",))]
    assert len({cache.key(*each) for each in pairs}) == len(pairs)
    for number in range(1000):
        cache.key("a", (str(number),))
    assert len(cache._begun) <= 64
    for many in (("a" * 100_000,), ("a",) * 100_000):
        assert cache.key("a", many) == cache.key("a", many)
        assert many not in cache._begun


async def concurrent_asks(
    cache: TokenCache, answers: list[CachedAnswer], *, tasks: int = 3, wait: float = 1
) -> tuple[int, list[str]]:
    """Return the number of questions of concurrent equal requests, and the type of each answer."""
    key, count, types = cache.key("t", ()), 0, []

    async def question() -> CachedAnswer:
        nonlocal count
        count += 1
        await trio.sleep(wait)
        return answers[min(count, len(answers)) - 1]

    async def one() -> None:
        known = cache.look(key)
        answer = known[0] if known is not None else await cache.ask(key, question)
        types.append(type(answer).__name__)

    async with trio.open_nursery() as nursery:
        for _ in range(tasks):
            nursery.start_soon(one)
    return count, types


@pytest.mark.parametrize("answer", [JANE, None, CredentialRejected("no"), NoAnswer("nobody there"), NotSeen("late")])
async def test_concurrent_requests_share_one_question(autojump_clock: MockClock, answer: CachedAnswer) -> None:
    for cache in (cache_of(), cache_of(0), cache_of(5, 5)):
        assert await concurrent_asks(cache, [answer]) == (1, [type(answer).__name__] * 3)
        keeps = cache._success if isinstance(answer, Identified) else cache._failure
        if not keeps or isinstance(answer, NoAnswer | NotSeen):
            assert cache._kept == {}
            assert await concurrent_asks(cache, [answer], tasks=1) == (1, [type(answer).__name__])
        else:
            assert await concurrent_asks(cache, [answer], tasks=1) == (0, [type(answer).__name__])
        assert cache.metrics.in_flight == cache.metrics.blocked == 0


async def test_after_a_cancellation_a_waiting_task_asks(autojump_clock: MockClock) -> None:
    cache = cache_of()
    key, asking = cache.key("t", ()), []

    async def question() -> CachedAnswer:
        asking.append(trio.current_time())
        await trio.sleep(5)
        return JANE

    async def one(scope: trio.CancelScope) -> None:
        with scope:
            assert await cache.ask(key, question) == JANE

    first, second = trio.CancelScope(), trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one, first)
        await wait_all_tasks_blocked()
        nursery.start_soon(one, second)
        await wait_all_tasks_blocked()
        assert (cache.metrics.in_flight, cache.metrics.blocked) == (1, 1)
        first.cancel()
    assert len(asking) == 2
    assert cache.look(key) == (JANE,)
    assert cache.metrics.fetches == {"ok": 1, "error": 1}


class CachingAuthenticator:
    """A token authenticator with a cache. Every token is valid."""

    def __init__(self) -> None:
        self.cache = cache_of()

    def user_of(self, token: str, audiences: Sequence[str]) -> Identified | None:
        key = self.cache.key(token, audiences)
        known = self.cache.look(key)
        if known is None:
            self.cache.keep(key, JANE)
        return JANE


def test_metrics_of_all_caches_are_summed() -> None:
    chain = AuthenticationChain(tokens=[CachingAuthenticator()])
    other = CachingAuthenticator()
    chain.metrics.caches.append(other.cache.metrics)
    for _ in range(3):
        chain.authenticate_token("good")
        other.user_of("good", ())
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for metric in chain.metrics.collect()
        for sample in metric.samples
    }
    assert samples["authentication_token_cache_request_total", "hit"] == 4
    assert samples["authentication_token_cache_request_total", "miss"] == 2
    assert samples["authentication_token_cache_fetch_total", "ok"] == 0
    assert samples["authentication_token_cache_active_fetch_count", "in_flight"] == 0
    assert samples["authentication_token_cache_request_duration_seconds_count", "hit"] == 4
