"""The steps that mutating and validating webhooks share: the match of a write, the review, failures and denials.

Source: k8s.io/apiserver ``pkg/admission/plugin/webhook/generic``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from time import perf_counter
from typing import Final

from kubechronicle.actors.admission.chain import Attributes, State
from kubechronicle.actors.admission.metrics import ADMIT, VALIDATE, WEBHOOK
from kubechronicle.actors.admission.policies.requests import Reading
from kubechronicle.actors.admission.versions import (
    Versions,
    labels_of,
    name_of,
    namespace_of,
    requested_kind,
    user_of,
)
from kubechronicle.actors.admission.versions import candidates as candidates_of
from kubechronicle.actors.admission.webhooks.configurations import Configurations, Placed, Webhook
from kubechronicle.actors.admission.webhooks.questions import Question
from kubechronicle.actors.evaluation import judge
from kubechronicle.api.admission import rejections, reviews
from kubechronicle.api.admission.conditions import ConditionsFailed
from kubechronicle.api.admission.reviews import Answer
from kubechronicle.api.errors import status
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.names import qualified_name

ANNOTATIONS: Final = "webhook.admission.k8s.io"


def candidates(
    configurations: Configurations, attributes: Attributes, state: State
) -> Sequence[tuple[Placed, ResourceType]]:
    """Return the webhooks whose rules match a write, each with the type in whose version."""
    index = configurations.index(state, attributes.rt)
    return () if index is None else candidates_of(index, attributes, state)


class Dispatch:
    """The webhooks for one write. ``versions``: its objects."""

    def __init__(self, attributes: Attributes, state: State, versions: Versions, *, mutating: bool) -> None:
        self.attributes = attributes
        self.state = state
        self.versions = versions
        self._mutating = mutating

    @cached_property
    def _reading(self) -> Reading:
        return Reading(self.attributes, self.state, self.versions)

    def matches(self, webhook: Webhook, rt: ResourceType) -> bool:
        """Tell whether selectors and conditions match. StatusError: 404 without the namespace; 403 for a condition."""
        if not webhook.selectors.match(labels_of(self.attributes, self.state)):
            return False
        if not webhook.has_conditions:
            return True
        attributes = self.attributes
        reading = self._reading
        values = reading.values(rt, None, has_params=False) | {"namespaceObject": None}
        metrics, measured = self.state.metrics, attributes.measured
        labels = (webhook.name, WEBHOOK, ADMIT if self._mutating else VALIDATE, attributes.operation)
        begun = perf_counter()
        try:
            key = ("conditions", webhook.uid, rt.api_version, self._mutating)
            matches = judge(key, values, webhook.matches, {**values, **reading.authorizer})
            measured.append((partial(metrics.conditions.add, labels), perf_counter() - begun))
            if not matches:
                measured.append((partial(metrics.condition_exclusions.add, labels), 0.0))
            return matches
        except ConditionsFailed as error:
            measured.append((partial(metrics.conditions.add, labels), perf_counter() - begun))
            measured.append((partial(metrics.condition_errors.add, labels), 0.0))
            if webhook.ignores:
                return False
            raise status.forbidden(attributes.rt, name_of(attributes), str(error)) from None

    def question(self, webhook: Webhook, rt: ResourceType) -> Question:
        """Return the question to a webhook. CallFailed; StatusError 400: it takes no dry run."""
        attributes = self.attributes
        dry_run = attributes.dry_run or self.state.only_dry_runs
        if dry_run and not webhook.dry_runs:
            raise rejections.no_dry_run(webhook.name)
        kind = requested_kind(attributes, rt)
        request = reviews.request_of(
            rt=rt,
            kind=kind,
            requested=attributes.rt,
            requested_kind=kind if rt is attributes.rt else requested_kind(attributes, attributes.rt),
            subresource=attributes.subresource,
            name=name_of(attributes),
            namespace=namespace_of(attributes),
            operation=attributes.operation,
            user=user_of(attributes.who),
            options=attributes.options,
            dry_run=dry_run,
            obj=self.versions.new(rt),
            old=self.versions.old(rt),
        )
        second = self._mutating and attributes.reinvocation.second
        return Question(webhook, request, attributes.operation, mutating=self._mutating, second=second)

    def take(self, webhook: Webhook, answer: Answer) -> None:
        """Keep warnings and annotations of an answer. StatusError: the webhook denies the write."""
        if answer is reviews.ALLOWED:
            return
        for key, value in answer.annotations.items():
            name = f"{webhook.name}/{key}"
            if not qualified_name(name):  # others are dropped, as in kube-apiserver
                self.attributes.annotations[name] = value
        self.attributes.warnings.extend(filter(reviews.is_warning, answer.warnings))
        if not answer.allowed:
            raise rejections.denial(webhook.name, answer.result)
