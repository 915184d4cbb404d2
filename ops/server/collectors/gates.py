"""The metric of the feature gates: kubernetes_feature_enabled, with v1.36's stages."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.ops.settings.feature_gates import LOCKED_OFF, LOCKED_ON, OFF, ON, stage


class GateCollector(Collector):
    """``on``: the gates that are on although they are off by default. Other features are as v1.36 has them."""

    def __init__(self, on: frozenset[str]) -> None:
        self._on = on

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(
            "kubernetes_feature_enabled",
            "This metric records the data about the stage and enablement of a k8s feature.",
            labels=("name", "stage"),
        )
        for name in sorted(ON | OFF | LOCKED_ON | LOCKED_OFF):
            family.add_metric((name, stage(name)), float(name in ON | LOCKED_ON | self._on))
        yield family
