"""EventRateLimit: token buckets, and the answers to Events beyond a limit."""

from __future__ import annotations

from typing import Any

from in_process import open_server
from trio.testing import MockClock

from kubechronicle.actors.admission import plugins
from kubechronicle.actors.admission.event_rates import Limiter
from kubechronicle.api.configuration.admission import EventLimit, PluginConfigurations

RATES = plugins.DEFAULT | {"EventRateLimit"}
EVENTS = "/api/v1/namespaces/default/events"
SLOW = PluginConfigurations(
    event_limits=(
        EventLimit(type="Namespace", qps=1, burst=2),
        EventLimit(type="User", qps=1, burst=2),
    )
)


def event(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "involvedObject": {"namespace": "default"}}


async def test_events_beyond_a_limit_get_429(autojump_clock: MockClock) -> None:
    async with open_server(admission=RATES, other={"admission": SLOW}) as server:
        await server.post(EVENTS, event("a"))
        await server.post(EVENTS, event("b"))
        answer = await server.ask("POST", EVENTS, event("c"))
        assert answer.refused(429)["message"] == (
            "Too many requests: [limit reached on type Namespace for key default, "
            "limit reached on type User for key admin]"
        )
        assert answer.json()["reason"] == "TooManyRequests"
        (await server.ask("POST", EVENTS + "?dryRun=All", event("c"))).ok()
        other = {
            "metadata": {"name": "d"},
            "eventTime": "2020-01-01T00:00:00.000000Z",
            "action": "a",
            "reason": "r",
            "type": "Normal",
            "reportingController": "example.com/c",
            "reportingInstance": "i",
        }
        (await server.ask("POST", "/apis/events.k8s.io/v1/namespaces/default/events", other)).ok()


def test_a_bucket_fills_again_and_the_oldest_is_forgotten() -> None:
    now = [0.0]
    limiter = Limiter(EventLimit(type="User", qps=2, burst=2, cache_size=2), lambda: now[0])
    assert [limiter.accept("a") for _ in range(3)] == [True, True, False]
    now[0] = 0.5
    assert [limiter.accept("a") for _ in range(2)] == [True, False]
    assert limiter.accept("b")
    assert limiter.accept("c")  # a is forgotten
    assert [limiter.accept("a") for _ in range(3)] == [True, True, False]
