"""Counts and durations of admission, by the labels of kube-apiserver's metrics. ops/server collects them.

A write may be decided several times. So its steps are noted in ``Attributes.measured``, and counted when a decision
ends without asking for an answer from outside (``Measured``). A call of a webhook is counted when it
has ended.

Sources: k8s.io/apiserver ``pkg/admission/metrics``, ``pkg/admission/plugin/policy/*/metrics``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Final

from kubechronicle.actors.external_answers import NeedsExternalAnswer
from kubechronicle.eventlog.measures import Histogram

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
NO_ERROR: Final = "no_error"
COMPILE_ERROR: Final = "compile_error"
INVALID_ERROR: Final = "invalid_error"
OUT_OF_BUDGET: Final = "out_of_budget"
MOST_CODE: Final = 600
REJECTED, ADMITTED = "true", "false"
"""Values of the label ``rejected``."""
MOST_SERIES: Final = 10_000
"""Combinations of labels per metric; further ones are not counted, since names of webhooks come from clients."""
MOST_NOTED: Final = 1024
"""Durations that wait to be counted."""


Count = Callable[[float], None]
"""Count one more, which took so many seconds."""


class Histograms:
    """Durations by labels, first noted and later counted: a write only appends its own to lists.

    ``series``: by labels.
    """

    __slots__ = ("bounds", "series")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.series: dict[Labels, Histogram] = {}

    def add(self, labels: Labels, seconds: float) -> None:
        found = self._of(labels)
        if found is not None:
            found.add(seconds)

    def of(self, labels: Labels) -> Count:
        """Return the function that adds to the durations with these labels: faster than ``add`` if it is kept.

        The caller calls ``fold`` at least each time that it has added MOST_NOTED durations.
        """
        found = self._of(labels)
        return _uncounted if found is None else found.note

    def _of(self, labels: Labels) -> Histogram | None:
        found = self.series.get(labels)
        if found is None and len(self.series) < MOST_SERIES:
            found = self.series[labels] = Histogram(self.bounds)
        return found

    def fold(self) -> None:
        """Count the durations that were noted."""
        for histogram in self.series.values():
            histogram.fold()

    def take(self) -> dict[Labels, Histogram]:
        """Return the series, and begin anew. Functions that ``of`` has returned must not be used any more."""
        found, self.series = self.series, {}
        return found

    def merge(self, labels: Labels, other: Histogram) -> None:
        """Add the durations of another series with the same bounds."""
        found = self._of(labels)
        if found is not None:
            found.merge(other)


def _uncounted(seconds: float) -> None:
    """Count nothing, as there are too many combinations of labels."""


class Counts:
    """Counters by labels. ``shown``: those that are there before anything is counted."""

    __slots__ = ("series",)

    def __init__(self, *shown: Labels) -> None:
        self.series: dict[Labels, int] = dict.fromkeys(shown, 0)

    def add(self, labels: Labels, seconds: float = 0.0, *, number: int = 1) -> None:
        """Count some more. ``seconds`` is for Histograms only."""
        before = self.series.get(labels, 0)
        if before or labels in self.series or len(self.series) < MOST_SERIES:
            self.series[labels] = before + number


Measurement = tuple[Count, float]
"""The function that counts, and seconds for it."""


ALLOWED: Final = tuple(
    ("allow", "privileged", "latest", "enforce", operation, "pod", "") for operation in ("create", "update")
)
EXEMPTED: Final = tuple(
    (operation, resource, "") for resource in ("pod", "controller") for operation in ("create", "update")
)
"""The series of Pod Security that kube-apiserver shows from its start (pod-security-admission ``metrics``)."""


@dataclass(slots=True)
class AdmissionMetrics:
    """All metrics of admission.

    ``allowing``: calls of webhooks that allowed the write, by name, step and operation; ``fold`` adds them to
    ``webhooks`` and ``webhook_requests``.
    """

    steps: Histograms = field(default_factory=lambda: Histograms(STEPS))
    controllers: Histograms = field(default_factory=lambda: Histograms(STEPS))
    webhooks: Histograms = field(default_factory=lambda: Histograms(WEBHOOKS))
    allowing: Histograms = field(default_factory=lambda: Histograms(WEBHOOKS))
    webhook_requests: Counts = field(default_factory=Counts)
    webhook_rejections: Counts = field(default_factory=Counts)
    webhook_fail_opens: Counts = field(default_factory=Counts)
    condition_errors: Counts = field(default_factory=Counts)
    condition_exclusions: Counts = field(default_factory=Counts)
    conditions: Histograms = field(default_factory=lambda: Histograms(CONDITIONS))
    validations: Histograms = field(default_factory=lambda: Histograms(CHECKS))
    mutations: Histograms = field(default_factory=lambda: Histograms(CHECKS))
    pod_security: Counts = field(default_factory=partial(Counts, *ALLOWED))
    pod_security_exemptions: Counts = field(default_factory=partial(Counts, *EXEMPTED))
    requested_durations: Counts = field(default_factory=Counts)
    honored_durations: Counts = field(default_factory=Counts)
    _noted: int = 0

    def count(self, measurements: Sequence[Measurement]) -> None:
        """Count what was measured for one write."""
        for count, seconds in measurements:
            count(seconds)
        self._noted += len(measurements)
        if self._noted >= MOST_NOTED:
            self.fold()

    def fold(self) -> None:
        """Complete the series of all histograms, and of the counters that come with them."""
        self._noted = 0
        all_histograms = (
            self.steps, self.controllers, self.webhooks, self.conditions, self.validations, self.mutations,
        )  # fmt: skip
        for histograms in all_histograms:
            histograms.fold()
        for call, series in self.allowing.take().items():
            self.webhooks.merge((*call, ADMITTED), series)
            self.webhook_requests.add((*call, "200", ADMITTED), number=int(series.number))

    def call_denied(self, name: str, step: str, operation: str, seconds: float, *, code: int) -> None:
        """Count a call of a webhook that denied the write. One that allows it is added to ``allowing``."""
        shown = str(min(code, MOST_CODE))
        self.webhook_rejections.add((name, step, operation, NO_ERROR, shown))
        self._request(name, step, operation, seconds, shown, rejected=True)

    def call_failed(self, name: str, step: str, operation: str, seconds: float, *, code: int, ignored: bool) -> None:
        """Count a call of a webhook that gave no usable answer. ``code``: of its HTTP answer, or the error's."""
        shown = str(min(code, MOST_CODE))
        if ignored:
            self.webhook_fail_opens.add((name, step))
        else:
            self.webhook_rejections.add((name, step, operation, CALL_ERROR, shown))
        self._request(name, step, operation, seconds, shown, rejected=not ignored)

    def _request(self, name: str, step: str, operation: str, seconds: float, code: str, *, rejected: bool) -> None:
        shown = REJECTED if rejected else ADMITTED
        self.webhook_requests.add((name, step, operation, code, shown))
        self.webhooks.add((name, step, operation, shown), seconds)


class Measured:
    """Counts the measurements within the block, unless it asks for an answer from outside.

    ``achieved``: counts what the write achieves, if nothing in the block rejects it.
    """

    __slots__ = ("_achieved", "_measurements", "_metrics")

    def __init__(
        self, metrics: AdmissionMetrics, measurements: Sequence[Measurement], achieved: Sequence[Callable[[], None]]
    ) -> None:
        self._metrics = metrics
        self._measurements = measurements
        self._achieved = achieved

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not isinstance(error, NeedsExternalAnswer):
            self._metrics.count(self._measurements)
        if error is None:
            for count in self._achieved:
                count()
