"""Metrics of admission under kube-apiserver's names, read at each request for /metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from time import perf_counter
from typing import Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.actors.admission.metrics import AdmissionMetrics, Counts, Histograms
from kubechronicle.api.custom.rule import RuleMeasures
from kubechronicle.eventlog.measures import Histogram, add_to, histogram_family

_STEP = ("type", "operation", "rejected")
_CONDITION = ("name", "kind", "type", "operation")
_CHECK = ("policy", "policy_binding", "error_type")

HISTOGRAMS: Final[tuple[tuple[str, str, tuple[str, ...], str], ...]] = (
    ("steps", "admission_step_admission_duration_seconds", _STEP, "Latency of a whole step of admission."),
    (
        "controllers",
        "admission_controller_admission_duration_seconds",
        ("name", *_STEP),
        "Latency of an admission plugin.",
    ),
    ("webhooks", "admission_webhook_admission_duration_seconds", ("name", *_STEP), "Latency of an admission webhook."),
    (
        "conditions",
        "admission_match_condition_evaluation_seconds",
        _CONDITION,
        "Time of the evaluation of match conditions.",
    ),
    (
        "validations",
        "validating_admission_policy_check_duration_seconds",
        (*_CHECK, "enforcement_action"),
        "Latency of the checks of a ValidatingAdmissionPolicy that failed.",
    ),
    (
        "mutations",
        "mutating_admission_policy_check_duration_seconds",
        _CHECK,
        "Latency of the mutations of a MutatingAdmissionPolicy.",
    ),
)
"""Attribute of AdmissionMetrics, name after "apiserver_", labels, help."""
COUNTERS: Final[tuple[tuple[str, str, tuple[str, ...], str], ...]] = (
    (
        "requested_durations",
        "certificates_registry_csr_requested_duration_total",
        ("signerName",),
        "Certificates issued to requests of a duration.",
    ),
    (
        "honored_durations",
        "certificates_registry_csr_honored_duration_total",
        ("signerName",),
        "Certificates issued with about the duration that was requested.",
    ),
    (
        "webhook_requests",
        "admission_webhook_request_total",
        ("name", "type", "operation", "code", "rejected"),
        "Requests to admission webhooks.",
    ),
    (
        "webhook_rejections",
        "admission_webhook_rejection_count",
        ("name", "type", "operation", "error_type", "rejection_code"),
        "Writes that were rejected because of an admission webhook.",
    ),
    (
        "webhook_fail_opens",
        "admission_webhook_fail_open_count",
        ("name", "type"),
        "Failures of admission webhooks that were ignored.",
    ),
    (
        "condition_errors",
        "admission_match_condition_evaluation_errors_total",
        _CONDITION,
        "Match conditions that could not be evaluated.",
    ),
    (
        "condition_exclusions",
        "admission_match_condition_exclusions_total",
        _CONDITION,
        "Writes that match conditions excluded from a webhook.",
    ),
)
CHECKS: Final = (
    ("validations", "validating_admission_policy_check_total", "Checks of ValidatingAdmissionPolicies that failed."),
    ("mutations", "mutating_admission_policy_check_total", "Mutations by MutatingAdmissionPolicies."),
)
"""Counters with the labels and numbers of a histogram."""


POD_SECURITY: Final = (
    (
        "pod_security",
        "pod_security_evaluations_total",
        ("decision", "policy_level", "policy_version", "mode", "request_operation", "resource", "subresource"),
        "Checks of pods and their templates against the Pod Security Standards.",
    ),
    (
        "pod_security_exemptions",
        "pod_security_exemptions_total",
        ("request_operation", "resource", "subresource"),
        "Writes that are exempt from the Pod Security Standards.",
    ),
)
"""As COUNTERS, with the whole name."""


class AdmissionCollector(Collector):
    def __init__(self, metrics: AdmissionMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        self._metrics.fold()
        labels_of = {}
        for attribute, name, labels, text in HISTOGRAMS:
            labels_of[attribute] = labels
            yield histogram_family(f"apiserver_{name}", text, labels, getattr(self._metrics, attribute).series)
        for attribute, name, labels, text in COUNTERS:
            counts: Counts = getattr(self._metrics, attribute)
            yield _counter(f"apiserver_{name}", text, labels, counts.series.items())
        for attribute, name, labels, text in POD_SECURITY:
            yield _counter(name, text, labels, getattr(self._metrics, attribute).series.items())
        for attribute, name, text in CHECKS:
            histograms: Histograms = getattr(self._metrics, attribute)
            numbers = [(values, series.number) for values, series in histograms.series.items()]
            yield _counter(f"apiserver_{name}", text, labels_of[attribute], numbers)


def _counter(name: str, text: str, labels: Sequence[str], numbers: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
    if name.endswith("_total"):
        family = CounterMetricFamily(name, text, labels=labels)
        for values, number in numbers:
            family.add_metric(values, number)
        return family
    metric = Metric(name, text, "counter")  # a name without _total, as kube-apiserver has it
    for values, number in numbers:
        metric.add_sample(name, dict(zip(labels, values, strict=True)), number)
    return metric


# -- rules -------------------------------------------------------------------------------------------------------------
#
# Metrics of the rules of custom resources (x-kubernetes-validations).


class RuleCollector(Collector):
    """``measures``: for the registry of custom resources. A value that two threads add at the same time may be lost."""

    def __init__(self) -> None:
        self._compilation, self._evaluation = Histogram(), Histogram()
        self.measures = RuleMeasures(perf_counter, self._compilation.add, self._evaluation.add)

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        for name, measured in (("compilation", self._compilation), ("evaluation", self._evaluation)):
            family = HistogramMetricFamily(f"apiserver_cel_{name}_duration_seconds", f"CEL {name} time in seconds.")
            add_to(family, (), measured)
            yield family
