"""Metrics of the process and of the program: ``process_*``, ``kubernetes_build_info``, and ``version_info``."""

from __future__ import annotations

import platform
import resource
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.values.caches import CACHES

# -- gates -------------------------------------------------------------------------------------------------------------
#
# The metric of the feature gates: kubernetes_feature_enabled.


class GateCollector(Collector):
    """Shows the gates of the emulated version with their stages."""

    def __init__(self, gates: FeatureGates) -> None:
        self._gates = gates

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(
            "kubernetes_feature_enabled",
            "This metric records the data about the stage and enablement of a k8s feature.",
            labels=("name", "stage"),
        )
        for name, stage, on in self._gates.shown():
            family.add_metric((name, stage), float(on))
        yield family


_TRAFFIC: Final = Path("/proc/self/net/dev")


def register(registry: CollectorRegistry, version: Mapping[str, str], gates: FeatureGates) -> None:
    """Register the collectors. ``version``: as /version shows it."""
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    registry.register(_Program(version))
    registry.register(_ProcessEntries())
    registry.register(GateCollector(gates))


class _ProcessEntries(Collector):
    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "kubechronicle_cache_entries", "Entries of the caches that an erasure empties.", labels=["cache"]
        )
        for name, entries in sorted(CACHES.entries().items()):
            family.add_metric([name], entries)
        yield family


class _Program(Collector):
    def __init__(self, version: Mapping[str, str]) -> None:
        self._version = version

    def collect(self) -> Iterator[Metric]:
        version = self._version
        names = {
            "major": "major", "minor": "minor", "git_version": "gitVersion", "git_commit": "gitCommit",
            "git_tree_state": "gitTreeState", "build_date": "buildDate", "go_version": "goVersion",
            "compiler": "compiler", "platform": "platform",
        }  # fmt: skip
        build = GaugeMetricFamily("kubernetes_build_info", "The served version of Kubernetes.", labels=list(names))
        build.add_metric([version.get(name, "") for name in names.values()], 1)
        yield build
        python = GaugeMetricFamily(
            "python_info", "The Python that runs the server.", labels=["version", "implementation"]
        )
        python.add_metric([platform.python_version(), platform.python_implementation()], 1)
        yield python
        served = version.get("gitVersion", "").removeprefix("v").partition("+")[0]
        info = GaugeMetricFamily(
            "version_info", "The version that the server is compatible with.",
            labels=["binary", "component", "emulation", "min_compat"],
        )  # fmt: skip
        minor = version.get("emulationMinor", version.get("minor", ""))
        least = version.get("minCompatibilityMinor", minor)
        info.add_metric([served, "kube", f"{version.get('major')}.{minor}", f"{version.get('major')}.{least}"], 1)
        yield info
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        most = GaugeMetricFamily("process_virtual_memory_max_bytes", "Most virtual memory of the process.")
        most.add_metric([], -1 if limit == resource.RLIM_INFINITY else limit)
        yield most
        yield from _traffic()


def _traffic() -> Iterator[Metric]:
    """Yield the bytes of all network devices that the process sees; nothing where /proc has none."""
    try:
        lines = _TRAFFIC.read_text().splitlines()[2:]
    except OSError:
        return
    fields = [line.partition(":")[2].split() for line in lines]
    for name, index in (("process_network_receive_bytes", 0), ("process_network_transmit_bytes", 8)):
        total = sum(int(one[index]) for one in fields if len(one) > index)
        yield CounterMetricFamily(name, "Bytes on all network devices.", value=total)
