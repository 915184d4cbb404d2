"""EventRateLimit: limit the creations and updates of core Events by token buckets
(plugin/pkg/admission/eventratelimit of kube-apiserver). Disabled by default; needs a configuration file.

A write may be decided several times, but takes its tokens once: the first attempt raises NeedsExternalAnswer, whose
``resolve`` takes them, and later attempts recall the result.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final

from kubechronicle.actors.admission.chain import AdmissionPlugin, AdmissionState, Attributes
from kubechronicle.actors.external_answers import NeedsExternalAnswer, recall_answer, remember_answer
from kubechronicle.api.configuration.admission import DEFAULT_CACHE_SIZE, SERVER, EventLimit
from kubechronicle.api.errors.status import StatusError

Clock = Callable[[], float]
_SOURCE: Final = ("component", "host")
_INVOLVED: Final = ("kind", "namespace", "name", "uid", "apiVersion")


class EventRateLimit(AdmissionPlugin):
    name = "EventRateLimit"
    resources = frozenset({"events"})

    def __init__(self, limits: Sequence[EventLimit] = (), clock: Clock = time.monotonic) -> None:
        self._limits = [Limiter(limit, clock) for limit in limits]

    def validate(self, attributes: Attributes, state: AdmissionState) -> None:
        """Reject an Event beyond a limit: 429. NeedsExternalAnswer until the tokens are taken."""
        if attributes.rt.group or attributes.subresource or attributes.dry_run or attributes.object is None:
            return  # events.k8s.io is another kind, which kube-apiserver does not limit
        key = (id(self), attributes.namespace, attributes.name, attributes.operation)
        reached = recall_answer(key)
        if reached is None:
            raise _TakeTokens(key, [(limit, _key(limit.type, attributes)) for limit in self._limits])
        if isinstance(reached, list) and reached:
            text = reached[0] if len(reached) == 1 else f"[{', '.join(reached)}]"
            raise StatusError(429, "TooManyRequests", f"Too many requests: {text}")


class _TakeTokens(NeedsExternalAnswer):
    """One token is needed from a bucket of each limit. The answer is the list of limits reached."""

    def __init__(self, key: object, wanted: Sequence[tuple[Limiter, str]]) -> None:
        super().__init__("tokens of event rate limits")
        self._key = key
        self._wanted = wanted

    async def resolve(self) -> None:
        reached = [
            f"limit reached on type {limiter.type} for key {key}"
            for limiter, key in self._wanted
            if not limiter.accept(key)
        ]
        remember_answer(self._key, list(dict.fromkeys(reached)))


class Limiter:
    """A token bucket for each key. The keys used longest ago are forgotten beyond the size of the cache."""

    def __init__(self, limit: EventLimit, clock: Clock) -> None:
        self.type = limit.type
        self._qps, self._burst = limit.qps, limit.burst
        self._size = 1 if limit.type == SERVER else limit.cache_size or DEFAULT_CACHE_SIZE
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # key → (tokens, time)

    def accept(self, key: str) -> bool:
        """Take a token of the key's bucket; return False if it is empty."""
        now = self._clock()
        tokens, before = self._buckets.get(key, (float(self._burst), now))
        tokens = min(float(self._burst), tokens + max(now - before, 0.0) * self._qps)
        accepted = tokens >= 1.0
        self._buckets[key] = (tokens - accepted, now)
        self._buckets.move_to_end(key)
        if len(self._buckets) > self._size:
            self._buckets.popitem(last=False)
        return accepted


def _key(kind: str, attributes: Attributes) -> str:
    if kind == "Namespace":
        return attributes.namespace
    if kind == "User":
        return attributes.who.user
    if kind == SERVER or attributes.object is None:
        return ""
    event: dict[str, Any] = attributes.object
    source, involved = event.get("source") or {}, event.get("involvedObject") or {}
    parts = [source.get(name) or "" for name in _SOURCE] + [involved.get(name) or "" for name in _INVOLVED]
    return "".join(parts)
