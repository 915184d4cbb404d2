"""Counters of encryption, for metrics: plain numbers, which a collector reads. Bounded, whatever keys are used."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import Final

from kubechronicle.eventlog.encryption.errors import code_of
from kubechronicle.eventlog.measures import Histogram

FROM_STORAGE: Final = "from_storage"
TO_STORAGE: Final = "to_storage"
# Upper bounds in seconds, as kube-apiserver's: of transformations, of new data keys, of calls to a key service,
# and of the time between two values of KMS v1.
TRANSFORMATION_BUCKETS: Final = tuple(5e-6 * 2**power for power in range(25))
GENERATION_BUCKETS: Final = tuple(5e-6 * 2**power for power in range(14))
CALL_BUCKETS: Final = tuple(1e-4 * 2**power for power in range(20))
ARRIVAL_BUCKETS: Final = tuple(60.0 * 2**power for power in range(10))
# Key ids whose use is counted; the one that was used least recently is forgotten first.
KEY_IDS: Final = 100


@dataclass(slots=True)
class KeyUse:
    """The number of uses of a key, and the time of the last one."""

    count: int = 0
    last: float = 0.0


@dataclass(slots=True)
class EncryptionStatistics:
    """
    ``operations``: by resource, type (from_storage, to_storage), prefix of the provider or the key, and status.
    ``seconds``: of successful ones, by type and prefix.
    ``calls``: to key services, by provider, method and status.
    ``key_uses``: by type, provider and key id. ``keys_told``: the time of a provider's last Status with the key id.
    ``bad_key_ids``: by provider and problem. ``cached_keys``: by provider.
    ``arrivals``: the times between values of KMS v1, by type. ``key_cache_fill``: the share of its keys in memory.
    """

    operations: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    seconds: dict[tuple[str, str], Histogram] = field(default_factory=dict)
    calls: dict[tuple[str, str, str], Histogram] = field(default_factory=dict)
    key_uses: OrderedDict[tuple[str, str, str], KeyUse] = field(default_factory=OrderedDict)
    keys_told: OrderedDict[tuple[str, str], float] = field(default_factory=OrderedDict)
    bad_key_ids: Counter[tuple[str, str]] = field(default_factory=Counter)
    cached_keys: dict[str, int] = field(default_factory=dict)
    arrivals: dict[tuple[str], Histogram] = field(default_factory=dict)
    key_cache_fill: float = 0.0
    misses: int = 0
    generations: Histogram = field(default_factory=lambda: Histogram(GENERATION_BUCKETS))
    _last_arrivals: dict[str, float] = field(default_factory=dict)

    def count(self, resource: str, kind: str, prefix: str, started: float, error: Exception | None = None) -> None:
        """Count a transformation that began at ``started`` (time.perf_counter)."""
        self.operations[resource, kind, prefix, code_of(error)] += 1
        if error is None:
            durations = self.seconds.get((kind, prefix))
            if durations is None:
                durations = self.seconds[kind, prefix] = Histogram(TRANSFORMATION_BUCKETS)
            durations.add(time.perf_counter() - started)

    def count_call(self, provider: str, method: str, seconds: float, error: Exception | None) -> None:
        key = (provider, method, code_of(error))
        self.calls.setdefault(key, Histogram(CALL_BUCKETS)).add(seconds)

    def count_key(self, kind: str, provider: str, key_id: str) -> None:
        use = self.key_uses.get((kind, provider, key_id))
        if use is None:
            use = self.key_uses[kind, provider, key_id] = KeyUse()
            if len(self.key_uses) > KEY_IDS:
                self.key_uses.popitem(last=False)
        else:
            self.key_uses.move_to_end((kind, provider, key_id))
        use.count += 1
        use.last = time.time()

    def note_arrival(self, kind: str, now: float) -> None:
        """Note that a value of KMS v1 is transformed."""
        last = self._last_arrivals.get(kind, now)
        self._last_arrivals[kind] = now
        self.arrivals.setdefault((kind,), Histogram(ARRIVAL_BUCKETS)).add(now - last)

    def note_told(self, provider: str, key_id: str) -> None:
        self.keys_told[provider, key_id] = time.time()
        self.keys_told.move_to_end((provider, key_id))
        if len(self.keys_told) > KEY_IDS:
            self.keys_told.popitem(last=False)
