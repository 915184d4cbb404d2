"""Counts and durations of admission, by the labels of kube-apiserver's metrics. ops/server collects them.

A write may be decided several times, with answers from outside. So its steps are noted in ``Attributes.measured``, and
counted when an attempt ends without asking for another answer (``Measured``). A call of a webhook is counted when it
has ended.

Sources: k8s.io/apiserver ``pkg/admission/metrics``, ``pkg/admission/plugin/policy/*/metrics``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

from kubechronicle.actors.external_answers import NeedsExternalAnswer

Labels = tuple[str, ...]

STEPS: Final = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5)
WEBHOOKS: Final = (*STEPS, 10.0, 25.0)
CONDITIONS: Final = (0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25)
CHECKS: Final = (0.0000005, 0.001, 0.01, 0.1, 1.0)
"""Upper bounds in seconds."""
ADMIT: Final = "admit"
VALIDATE: Final = "validate"
VALIDATING: Final = "validating"
"""Types of steps. Validating webhooks have a word of their own."""
WEBHOOK: Final = "webhook"
POLICY: Final = "policy"
"""Kinds of objects with match conditions."""
CALL_ERROR: Final = "calling_webhook_error"
SERVER_ERROR: Final = "apiserver_internal_error"
NO_ERROR: Final = "no_error"
COMPILE_ERROR: Final = "compile_error"
INVALID_ERROR: Final = "invalid_error"
OUT_OF_BUDGET: Final = "out_of_budget"
MOST_CODE: Final = 600
MOST_SERIES: Final = 10_000
"""Combinations of labels per metric; further ones are not counted, since names of webhooks come from clients."""


Count = Callable[[float], None]
"""Count one more, which took so many seconds."""


class Histograms:
    """Durations by labels. Each has the numbers of its buckets, of which the last has no bound, and a sum."""

    __slots__ = ("bounds", "series")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.series: dict[Labels, list[float]] = {}

    def add(self, labels: Labels, seconds: float) -> None:
        series = self.series.get(labels) or self._new(labels)
        series[bisect_left(self.bounds, seconds)] += 1
        series[-1] += seconds

    def of(self, labels: Labels) -> Count:
        """Return the function that adds to the durations with these labels: faster than ``add`` if it is kept."""
        bounds, series = self.bounds, self.series.get(labels) or self._new(labels)

        def add(seconds: float) -> None:
            series[bisect_left(bounds, seconds)] += 1
            series[-1] += seconds

        return add

    def _new(self, labels: Labels) -> list[float]:
        series = [0] * (len(self.bounds) + 1) + [0.0]
        if len(self.series) < MOST_SERIES:
            self.series[labels] = series
        return series


class Counts:
    """Counters by labels."""

    __slots__ = ("series",)

    def __init__(self) -> None:
        self.series: dict[Labels, int] = {}

    def add(self, labels: Labels, seconds: float = 0.0) -> None:
        """Count one more. ``seconds`` is for Histograms only."""
        number = self.series.get(labels, 0)
        if number or len(self.series) < MOST_SERIES:
            self.series[labels] = number + 1


Measurement = tuple[Count, float]
"""The function that counts, and seconds for it."""


@dataclass(slots=True)
class AdmissionMetrics:
    """All metrics of admission.

    ``waited``: seconds that the present plugin has waited for answers in earlier attempts of the write. The chain sets
    it to 0 before each plugin, and adds it to the time of the plugin.
    """

    steps: Histograms = field(default_factory=lambda: Histograms(STEPS))
    controllers: Histograms = field(default_factory=lambda: Histograms(STEPS))
    webhooks: Histograms = field(default_factory=lambda: Histograms(WEBHOOKS))
    webhook_requests: Counts = field(default_factory=Counts)
    webhook_rejections: Counts = field(default_factory=Counts)
    webhook_fail_opens: Counts = field(default_factory=Counts)
    condition_errors: Counts = field(default_factory=Counts)
    condition_exclusions: Counts = field(default_factory=Counts)
    conditions: Histograms = field(default_factory=lambda: Histograms(CONDITIONS))
    validations: Histograms = field(default_factory=lambda: Histograms(CHECKS))
    mutations: Histograms = field(default_factory=lambda: Histograms(CHECKS))
    pod_security: Counts = field(default_factory=Counts)
    pod_security_exemptions: Counts = field(default_factory=Counts)
    waited: float = 0.0

    def call_ended(self, name: str, step: str, operation: str, seconds: float, *, rejection: int = 0) -> None:
        """Count a call of a webhook that gave an answer. ``rejection``: the code of its denial; 0: it allows."""
        code = str(min(rejection, MOST_CODE) or 200)
        if rejection:
            self.webhook_rejections.add((name, step, operation, NO_ERROR, code))
        self._request(name, step, operation, seconds, code, rejected=bool(rejection))

    def call_failed(self, name: str, step: str, operation: str, seconds: float, *, code: int, ignored: bool) -> None:
        """Count a call of a webhook that gave no usable answer. ``code``: of its HTTP answer, or the error's."""
        shown = str(min(code, MOST_CODE))
        if ignored:
            self.webhook_fail_opens.add((name, step))
        else:
            self.webhook_rejections.add((name, step, operation, CALL_ERROR, shown))
        self._request(name, step, operation, seconds, shown, rejected=not ignored)

    def _request(self, name: str, step: str, operation: str, seconds: float, code: str, *, rejected: bool) -> None:
        shown = "true" if rejected else "false"
        self.webhook_requests.add((name, step, operation, code, shown))
        self.webhooks.add((name, step, operation, shown), seconds)


class Measured:
    """Counts the measurements within the block, unless it asks for an answer from outside."""

    __slots__ = ("_measurements",)

    def __init__(self, measurements: list[Measurement]) -> None:
        self._measurements = measurements

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not isinstance(error, NeedsExternalAnswer):
            for count, seconds in self._measurements:
                count(seconds)
