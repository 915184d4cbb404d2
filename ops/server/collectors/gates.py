"""The metric of the feature gates: kubernetes_feature_enabled."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.api.features.gates import FeatureGates


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
