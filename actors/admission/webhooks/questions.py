"""Questions to webhooks: reviews whose answers serve the decision that asks, and no other."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from time import perf_counter
from types import MappingProxyType
from typing import Final

import msgspec
import trio

from kubechronicle.actors.admission.chain import Attributes, State
from kubechronicle.actors.admission.metrics import ADMIT, VALIDATING, AdmissionMetrics
from kubechronicle.actors.admission.webhooks.configurations import Webhook
from kubechronicle.actors.conversion.conversions import AskWebhook, WebhookError
from kubechronicle.actors.external_answers import (
    TIMED_OUT,
    NeedsExternalAnswer,
    decision_deadline,
    recall_answer,
    remember_answer,
)
from kubechronicle.actors.random_names import new_uid
from kubechronicle.api.admission import rejections, reviews
from kubechronicle.api.admission.reviews import Answer, CallFailed
from kubechronicle.api.errors import status
from kubechronicle.eventlog import request_parts
from kubechronicle.eventlog.appender import Siblings
from kubechronicle.eventlog.request_parts import CURRENT

PARTS: Final = {
    True: (request_parts.MUTATING, "Call mutating webhook"),
    False: (request_parts.VALIDATING, "Call validating webhook"),
}
"""Name and span of the part of a request that the question is, by ``mutating``."""

NO_ANSWERS: Final[Mapping[object, object]] = MappingProxyType({})


class _Ended(msgspec.Struct, frozen=True):
    """The end of a call: the answer or failure, and the seconds that it took."""

    answer: Answer | CallFailed
    seconds: float


class Question:
    """A review for one webhook. Raises CallFailed if the webhook accepts no known version of reviews.

    ``request``: the JSON of the request without a uid. The same request to the same webhook in the same round is the
    same question, whichever attempt of the write asks it. ``operation``: that of the request. ``known``: answers that
    the write has waited for where it was.
    """

    __slots__ = ("_ended", "_request", "key", "mutating", "operation", "version", "webhook")

    def __init__(
        self,
        webhook: Webhook,
        request: bytes,
        operation: str,
        *,
        mutating: bool,
        second: bool = False,
        known: Mapping[object, object] = NO_ANSWERS,
    ) -> None:
        self.operation = operation
        self.webhook = webhook
        self.version = reviews.version_of(webhook.review_versions)
        self.mutating = mutating
        self._request = request
        self.key = (webhook.uid, webhook.version, mutating, second, self.version, request)
        found = (known.get(self.key) if known else None) or recall_answer(self.key)
        self._ended = found if isinstance(found, _Ended) else None

    def answer(self) -> Answer | None:
        """Return the answer, None if it is not there yet. Raises CallFailed."""
        if self._ended is None:
            return None
        answer = self._ended.answer
        if isinstance(answer, CallFailed):
            raise answer
        return answer

    @property
    def seconds(self) -> float:
        """The duration of the call, 0 if it has not ended."""
        return self._ended.seconds if self._ended is not None else 0.0

    def ended(self) -> _Ended | None:
        """Return the end of the call; None: the webhook has neither answered nor failed for this decision."""
        return self._ended

    async def ask(self, ask: AskWebhook | None, metrics: AdmissionMetrics, siblings: Siblings, deadline: float) -> None:
        """Ask the webhook, and keep its answer or its failure. ``deadline``: trio time."""
        webhook, parts, begun = self.webhook, CURRENT.get(), perf_counter()
        call = (webhook.name, ADMIT if self.mutating else VALIDATING, self.operation)
        kind, title = PARTS[self.mutating]
        span = None if parts is None or parts.spans is None else parts.spans.begin(title, self._shown())
        answer: Answer | CallFailed
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
        self._ended = _Ended(answer, seconds)
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


def stop(attributes: Attributes, work: object) -> None:
    """Keep the work of a plugin whose write is about to stop, if the write may go on later."""
    if attributes.progress is not None:
        attributes.progress.held = work


def stopped_work(attributes: Attributes) -> object | None:
    """Return the work of a plugin whose write goes on; None: it begins."""
    progress = attributes.progress
    if progress is None:
        return None
    work: object | None = progress.held
    progress.held = None
    return work


class NeedsAnswers(NeedsExternalAnswer):
    """Some webhooks of a plugin must be asked; all of them at once."""

    keeps_deadline = True

    def __init__(self, plugin: str, state: State, questions: Sequence[Question]) -> None:
        super().__init__()
        self._ask = state.ask_with_credentials.get(plugin, state.ask)
        self._metrics = state.metrics
        self._siblings = state.siblings
        self._questions = questions

    def __str__(self) -> str:
        return f"admission webhooks: {', '.join(question.webhook.name for question in self._questions)}"

    async def resolve(self) -> None:
        await self._asked(decision_deadline())
        for question in self._questions:
            remember_answer(question.key, question.ended())

    def resolve_here(self, deadline: float) -> Awaitable[None]:
        return self._asked(deadline)

    def keep_answers(self, answers: dict[object, object], deadline: float) -> None:
        for question in self._questions:
            ended = answers[question.key] = question.ended()
            # Only a call without an answer can have come to the deadline.
            if ended is not None and isinstance(ended.answer, CallFailed) and trio.current_time() >= deadline:
                raise status.timeout(TIMED_OUT)

    def _asked(self, deadline: float) -> Awaitable[None]:
        """Ask the webhooks that have not answered yet. Await the result at once."""
        missing = [question for question in self._questions if question.ended() is None]
        if len(missing) == 1:  # without a coroutine that each wake-up of the task would pass through
            return missing[0].ask(self._ask, self._metrics, self._siblings, deadline)
        return self._ask_all(missing, deadline)

    async def _ask_all(self, questions: Sequence[Question], deadline: float) -> None:
        async with trio.open_nursery() as nursery:
            for question in questions:
                nursery.start_soon(question.ask, self._ask, self._metrics, self._siblings, deadline)
