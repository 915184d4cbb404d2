"""Flags of kube-apiserver without a meaning here: accepted with a warning, or refused with a line that names what
stands in their place. They are in no --help; docs/settings.md lists them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kubechronicle.ops.errors import OperatorError


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """A flag without a meaning here.

    ``why``: completes "--flag …": why it means nothing, or what stands in its place.
    ``refused``: the server does not start with it; otherwise it warns.
    ``quiet``: values that mean the same here, which are accepted without a word.
    ``switch``: without a value it means true.
    """

    name: str
    why: str
    refused: bool = False
    quiet: frozenset[str] = field(default_factory=frozenset)
    switch: bool = False


NO_ETCD: Final = "there is no etcd"
NO_CACHE: Final = "all objects are in memory, and watches read the log"
GATED: Final = "it belongs to a feature that is off in v1.37"
ON: Final = frozenset({"true"})
OFF: Final = frozenset({"false"})


def _warned(why: str, *names: str, quiet: frozenset[str] = frozenset(), switch: bool = False) -> tuple[Foreign, ...]:
    return tuple(Foreign(name=name, why=why, quiet=quiet, switch=switch) for name in names)


def _refused(why: str, *names: str, quiet: frozenset[str] = frozenset(), switch: bool = False) -> tuple[Foreign, ...]:
    return tuple(Foreign(name=name, why=why, refused=True, quiet=quiet, switch=switch) for name in names)


FOREIGN: Final[tuple[Foreign, ...]] = (
    *_refused(f"{NO_ETCD}; give the Postgres database of the log by --database-url", "etcd-servers"),
    *_refused(
        f"{NO_ETCD}; put sslrootcert, sslcert and sslkey into the query of --database-url",
        "etcd-cafile", "etcd-certfile", "etcd-keyfile",
    ),
    *_refused(f"{NO_ETCD}; give Events and Leases another database by --database-url-overrides",
              "etcd-servers-overrides"),
    *_refused(f"{NO_ETCD}; give each cluster a database or schema of its own by --database-url", "etcd-prefix",
              quiet=frozenset({"/registry"})),
    *_warned(f"{NO_ETCD}; history is kept as --history-retention says", "etcd-compaction-interval"),
    *_warned(
        NO_ETCD, "etcd-count-metric-poll-period", "etcd-db-metric-poll-interval", "etcd-healthcheck-timeout",
        "etcd-readycheck-timeout", "lease-reuse-duration-seconds",
    ),
    *_refused("the storage is Postgres, see --database-url", "storage-backend", quiet=frozenset({"", "etcd3"})),
    *_warned("objects are stored as JSON, which SQL reads", "storage-media-type"),
    *_warned(NO_CACHE, "watch-cache", quiet=ON, switch=True),
    *_warned(NO_CACHE, "watch-cache-sizes"),
    *_warned("objects are deleted in batches", "delete-collection-workers", quiet=frozenset({"1"})),
    *_warned("it is a profile of the Go runtime", "contention-profiling", quiet=OFF, switch=True),
    *_refused("give /debug/pprof/profile to a user by a ClusterRole instead", "debug-socket-path",
              quiet=frozenset({""})),
    *_warned("addresses are shared always (SO_REUSEADDR)", "permit-address-sharing", quiet=ON, switch=True),
    *_warned(
        GATED, "coordinated-leadership-lease-duration", "coordinated-leadership-renew-deadline",
        "coordinated-leadership-retry-period", "peer-advertise-ip", "peer-advertise-port", "peer-ca-file",
    ),
    *_refused("the finalizers of the garbage collector are always kept; take garbagecollector out of --controllers",
              "enable-garbage-collector", quiet=ON, switch=True),
    *_refused("it is an alpha feature of log formats (LoggingAlphaOptions)", "log-json-split-stream",
              "log-text-split-stream", quiet=OFF, switch=True),
    *_refused("it is an alpha feature of log formats (LoggingAlphaOptions)", "log-json-info-buffer-size",
              "log-text-info-buffer-size", quiet=frozenset({"0"})),
    *_warned("each line of the log is written at once", "log-flush-frequency"),
    *_refused("no metric is hidden; leave it out", "show-hidden-metrics-for-version",
              quiet=frozenset({"", "1.35"})),
    *_refused("there is no insecure port", "insecure-port", quiet=frozenset({"0"})),
    *_warned("it was retired: endpoints are kept by leases", "apiserver-count", quiet=frozenset({"1"})),
    *_warned("it was retired: memory follows from the objects", "target-ram-mb", quiet=frozenset({"0"})),
)  # fmt: skip

BY_NAME: Final = {each.name: each for each in FOREIGN}


def check(given: Mapping[str, Any], *, ephemeral: bool = False) -> list[str]:
    """Return the warnings about these flags and values. Raise OperatorError for one that is refused.

    ``ephemeral``: a server for tests, which envtest and others start with the flags of their etcd.
    """
    warnings = []
    for name, value in given.items():
        flag = BY_NAME.get(name)
        if flag is None or _text(value) in flag.quiet or (ephemeral and flag.why.startswith(NO_ETCD)):
            continue
        if flag.refused:
            raise OperatorError(f"--{name}: {flag.why}")
        warnings.append(f"--{name} has no effect: {flag.why}")
    return warnings


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).strip()
