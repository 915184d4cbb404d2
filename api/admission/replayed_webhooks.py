"""Webhooks replayed on writes of the log: which are asked, the review, and the outcome of the answer.

The caller sends the reviews: ``Ask`` may block. Webhooks are asked one after the other, in the order of their
configurations' names, mutating ones each on the result of the one before. No webhook is asked again after others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kubechronicle.api.admission import patches, rejections, reviews
from kubechronicle.api.admission.logged_writes import Write
from kubechronicle.api.admission.matching import (
    EXEMPT_GROUP,
    EXEMPT_KINDS,
    Conditions,
    ConditionsFailed,
    GroupVersionKind,
    Index,
    Rules,
    Selectors,
    WriteKind,
    kind_of,
)
from kubechronicle.api.admission.replays import MUTATED, REFUSED, WARNED, ReplayOutcome, ReplayReading, change_text
from kubechronicle.api.admission.reviews import CallFailed, WebhookAnswer
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.registry.registry import Registry, ResourceType
from kubechronicle.api.schema.equality import same_json
from kubechronicle.api.values.objects import ReadOnlyObject

Ask = Callable[[str, bytes, float], Any]
"""(webhook's name, JSON of the review, seconds) -> decoded answer. Raises CallFailed."""

TIMEOUT: Final = 10
"""Seconds, where a configuration has none."""
MUTATING: Final = "MutatingWebhookConfiguration"


class ReplayedWebhook:
    """One webhook of a configuration. ``source``: its name in the report."""

    def __init__(self, spec: Mapping[str, Any], configuration: ReadOnlyObject) -> None:
        self.name: str = spec["name"]
        self.source = f"{configuration['metadata']['name']}/{self.name}"
        self.mutating = configuration["kind"] == MUTATING
        self.ignores = spec.get("failurePolicy") == "Ignore"
        self.timeout: float = spec.get("timeoutSeconds") or TIMEOUT
        self.rules = Rules(spec.get("rules"), spec.get("matchPolicy"))
        self._review_versions = spec.get("admissionReviewVersions") or ()
        self._selectors = Selectors(spec)
        conditions = spec.get("matchConditions")
        self._conditions = Conditions(conditions) if conditions else None

    def outcomes(self, rt: ResourceType, reading: ReplayReading, ask: Ask) -> list[ReplayOutcome]:
        """Return the effects on a write. ``rt``: the type in whose version it matches."""
        try:
            if not self._matches(rt, reading):
                return []
            answer = self._asked(rt, reading.write, ask)
        except CallFailed as error:
            return [] if self.ignores else [self._refused(rejections.calling_failed(self.name, error))]
        except ConditionsFailed as error:
            return [] if self.ignores else [ReplayOutcome(REFUSED, self.source, "", str(error), error=True)]
        except StatusError as error:
            return [self._refused(error)]
        found = [ReplayOutcome(WARNED, self.source, "", text) for text in filter(reviews.is_warning, answer.warnings)]
        if not answer.allowed:
            denial = rejections.denial(self.name, answer.result)
            return [*found, ReplayOutcome(REFUSED, self.source, "", denial.message, denial.reason)]
        return found + self._patched(rt, reading.write, answer)

    def _refused(self, error: StatusError) -> ReplayOutcome:
        return ReplayOutcome(REFUSED, self.source, "", error.message, error.reason, error=True)

    def _matches(self, rt: ResourceType, reading: ReplayReading) -> bool:
        write = reading.write
        if not self._selectors.match(write.labels(reading.namespace_labels)):
            return False
        if self._conditions is None:
            return True
        values = reading.values(rt, None, has_params=False) | {"namespaceObject": None}
        return self._conditions.match({**values, **reading.request.authorizer})

    def _asked(self, rt: ResourceType, write: Write, ask: Ask) -> WebhookAnswer:
        version = reviews.version_of(self._review_versions)
        request = reviews.request_of(
            rt=rt,
            kind=_kind(rt, write.subresource),
            requested=write.rt,
            requested_kind=_kind(write.rt, write.subresource),
            subresource=write.subresource,
            name=write.named,
            namespace=write.request_namespace,
            operation=write.operation,
            user=write.user(),
            options=write.options,
            dry_run=True,  # so that a webhook with side effects has none
            obj=write.new(rt),
            old=write.former(rt),
        )
        uid = f"00000000-0000-4000-8000-{write.revision:012x}"
        value = ask(self.name, reviews.encoded(request, uid=uid, version=version), self.timeout)
        return reviews.answer_of(value, uid=uid, version=version, mutating=self.mutating)

    def _patched(self, rt: ResourceType, write: Write, answer: WebhookAnswer) -> list[ReplayOutcome]:
        if not answer.patch:
            return []
        try:
            before = write.new(rt)
            operations = patches.operations(answer.patch)
            if not operations:
                return []
            if before is None:
                raise rejections.not_modifiable(self.name)
            after = patches.patched(write.decoded_as(rt), before, operations)
            if same_json(before, after):
                return []
            write.replace(rt, after)
        except CallFailed as error:
            return [] if self.ignores else [self._refused(rejections.calling_failed(self.name, error))]
        except StatusError as error:
            return [self._refused(error)]
        return [ReplayOutcome(MUTATED, self.source, "", change_text(before, after))]


def _kind(rt: ResourceType, subresource: str) -> GroupVersionKind:
    return kind_of(rt, subresource) or GroupVersionKind(rt.group, rt.version, rt.kind)


class WebhookReplay:
    """The webhooks of one replay, mutating or validating ones."""

    def __init__(self, configurations: Iterable[ReadOnlyObject], registry: Registry, ask: Ask) -> None:
        ordered = sorted(configurations, key=lambda each: str(each["metadata"]["name"]))
        self.webhooks = [ReplayedWebhook(spec, each) for each in ordered for spec in each.get("webhooks") or ()]
        self._index = Index((webhook, webhook.rules.match) for webhook in self.webhooks)
        self._registry = registry
        self._ask = ask

    def concerns_kind(self, kind: WriteKind) -> bool:
        """Tell whether the rules of some webhook match a kind of write."""
        exempt = kind.type.group == EXEMPT_GROUP and kind.type.kind in EXEMPT_KINDS
        return not exempt and bool(self._index.candidates(kind, self._registry))

    def outcomes(self, write: Write, reading: ReplayReading) -> list[ReplayOutcome]:
        """Return the effects of the webhooks on a write."""
        if not self.concerns_kind(write.kind):
            return []
        candidates = self._index.candidates(write.kind, self._registry)
        return [each for webhook, rt in candidates for each in webhook.outcomes(rt, reading, self._ask)]
