"""The steps that mutating and validating webhooks share: the match of a write, the review, failures and denials.

Source: k8s.io/apiserver ``pkg/admission/plugin/webhook/generic``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from time import perf_counter
from typing import Final

import trio

from kubechronicle.actors.admission.chain import AdmissionState, Attributes
from kubechronicle.actors.admission.metrics import ADMIT, VALIDATE, VALIDATING, WEBHOOK, AdmissionMetrics
from kubechronicle.actors.admission.policies.requests import PolicyReading
from kubechronicle.actors.admission.versions import (
    Versions,
    labels_of,
    name_of,
    namespace_of,
    requested_kind,
    user_of,
)
from kubechronicle.actors.admission.versions import candidates as candidates_of
from kubechronicle.actors.admission.webhook_configurations import Configurations, Placed, Webhook
from kubechronicle.actors.evaluation import judge
from kubechronicle.actors.external_answers import (
    NeedsExternalAnswer,
    decision_deadline,
    recall_answer,
    remember_answer,
)
from kubechronicle.actors.random_names import new_uid
from kubechronicle.actors.reading.conversions import AskWebhook, WebhookError
from kubechronicle.api.admission import rejections, reviews
from kubechronicle.api.admission.matching import ConditionsFailed
from kubechronicle.api.admission.reviews import CallFailed, WebhookAnswer
from kubechronicle.api.errors import status
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.names import qualified_name
from kubechronicle.eventlog import request_parts
from kubechronicle.eventlog.appender import Siblings
from kubechronicle.eventlog.request_parts import CURRENT

# -- questions ---------------------------------------------------------------------------------------------------------
#
# Questions to webhooks: reviews whose answers serve the decision that asks, and no other.

PARTS: Final = {
    True: (request_parts.MUTATING, "Call mutating webhook"),
    False: (request_parts.VALIDATING, "Call validating webhook"),
}
"""Name and span of the part of a request that the question is, by ``mutating``."""


class WebhookQuestion:
    """A review for one webhook. Raises CallFailed if the webhook accepts no known version of reviews.

    ``request``: the JSON of the request without a uid. The same request to the same webhook in the same round is the
    same question, whichever attempt of the write asks it. ``operation``: that of the request.
    """

    __slots__ = ("_end", "_request", "key", "mutating", "operation", "version", "webhook")

    def __init__(
        self,
        webhook: Webhook,
        request: bytes,
        operation: str,
        *,
        mutating: bool,
        second: bool = False,
    ) -> None:
        self.operation = operation
        self.webhook = webhook
        self.version = reviews.version_of(webhook.review_versions)
        self.mutating = mutating
        self._request = request
        self.key = (webhook.uid, webhook.version, mutating, second, self.version, request)
        found = recall_answer(self.key)
        self._end = found if isinstance(found, WebhookAnswer | CallFailed) else None

    def answer(self) -> WebhookAnswer | None:
        """Return the answer, None if it is not there yet. Raises CallFailed."""
        if isinstance(self._end, CallFailed):
            raise self._end
        return self._end

    def end(self) -> WebhookAnswer | CallFailed | None:
        """Return the end of the call; None: the webhook has neither answered nor failed for this decision."""
        return self._end

    async def ask(self, ask: AskWebhook | None, metrics: AdmissionMetrics, siblings: Siblings, deadline: float) -> None:
        """Ask the webhook, and keep its answer or its failure. ``deadline``: trio time."""
        webhook, parts, begun = self.webhook, CURRENT.get(), perf_counter()
        call = (webhook.name, ADMIT if self.mutating else VALIDATING, self.operation)
        kind, title = PARTS[self.mutating]
        span = None if parts is None or parts.spans is None else parts.spans.begin(title, self._shown())
        answer: WebhookAnswer | CallFailed
        siblings.count += 1
        try:
            if ask is None:
                raise CallFailed("failed to call webhook: this server sends no requests to others")
            uid, now, timeout = new_uid(), trio.current_time(), webhook.timeout
            body = reviews.encoded(self._request, uid=uid, version=self.version)
            if now + timeout > deadline:
                timeout = max(deadline - now, 0.0)
            value = await ask(webhook.client, body, timeout=timeout, deadline=now + timeout)
            answer = reviews.answer_of(value, uid=uid, version=self.version, mutating=self.mutating)
        except CallFailed as error:
            answer = error
        except WebhookError as error:
            answer = CallFailed(f"failed to call webhook: {error}", code=error.code)
        finally:
            siblings.count -= 1
            # As ``timed`` does it, without its calls.
            seconds = perf_counter() - begun
            if parts is not None:
                parts.add(kind, seconds, longest=not self.mutating)
            if span is not None:
                span.end()
        self._end = answer
        if isinstance(answer, CallFailed):
            metrics.call_failed(*call, seconds, code=answer.code, ignored=webhook.ignores)
        elif answer.allowed:
            metrics.allowing.add(call, seconds)
        else:
            metrics.call_denied(*call, seconds, code=rejections.denial(webhook.name, answer.result).code)

    def _shown(self) -> Mapping[str, str]:
        """Return the attributes of the span."""
        webhook = self.webhook
        return {"configuration": webhook.configuration, "webhook": webhook.name, "operation": self.operation}


class NeedsAnswers(NeedsExternalAnswer):
    """Some webhooks of a plugin must be asked; all of them at once."""

    keeps_deadline = True

    def __init__(self, plugin: str, state: AdmissionState, questions: Sequence[WebhookQuestion]) -> None:
        super().__init__()
        self._ask = state.ask_with_credentials.get(plugin, state.ask)
        self._metrics = state.metrics
        self._siblings = state.siblings
        self._questions = questions

    def __str__(self) -> str:
        return f"admission webhooks: {', '.join(question.webhook.name for question in self._questions)}"

    async def resolve(self) -> None:
        missing = [question for question in self._questions if question.end() is None]
        ask = partial(WebhookQuestion.ask, ask=self._ask, metrics=self._metrics, siblings=self._siblings)
        deadline = decision_deadline()
        if len(missing) == 1:
            await ask(missing[0], deadline=deadline)
        else:
            async with trio.open_nursery() as nursery:
                for question in missing:
                    nursery.start_soon(partial(ask, question, deadline=deadline))
        for question in missing:
            remember_answer(question.key, question.end())


# -- dispatch ----------------------------------------------------------------------------------------------------------

ANNOTATIONS: Final = "webhook.admission.k8s.io"


def candidates(
    configurations: Configurations, attributes: Attributes, state: AdmissionState
) -> Sequence[tuple[Placed, ResourceType]]:
    """Return the webhooks whose rules match a write, each with the type in whose version."""
    index = configurations.index(state, attributes.rt)
    return () if index is None else candidates_of(index, attributes, state)


class Dispatch:
    """The webhooks for one write. ``versions``: its objects."""

    def __init__(self, attributes: Attributes, state: AdmissionState, versions: Versions, *, mutating: bool) -> None:
        self.attributes = attributes
        self.state = state
        self.versions = versions
        self._mutating = mutating

    @cached_property
    def _reading(self) -> PolicyReading:
        return PolicyReading(self.attributes, self.state, self.versions)

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

    def question(self, webhook: Webhook, rt: ResourceType) -> WebhookQuestion:
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
        return WebhookQuestion(webhook, request, attributes.operation, mutating=self._mutating, second=second)

    def take(self, webhook: Webhook, answer: WebhookAnswer) -> None:
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
