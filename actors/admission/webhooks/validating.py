"""ValidatingAdmissionWebhook: webhooks that may deny a write, asked in parallel.

Source: k8s.io/apiserver ``pkg/admission/plugin/webhook/validating``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kubechronicle.actors.admission.chain import (
    CONNECT,
    CREATE,
    DELETE,
    UPDATE,
    AdmissionPlugin,
    AdmissionSteps,
    Attributes,
    State,
)
from kubechronicle.actors.admission.versions import Versions
from kubechronicle.actors.admission.webhooks.configurations import VALIDATING, Configurations, Placed, Webhook
from kubechronicle.actors.admission.webhooks.dispatch import ANNOTATIONS, Dispatch, NeedsAnswers, Question, candidates
from kubechronicle.actors.external_answers import awaiting
from kubechronicle.api.admission import rejections
from kubechronicle.api.admission.reviews import CallFailed
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.registry.registry import ResourceType


class ValidatingAdmissionWebhook(AdmissionPlugin):
    name = "ValidatingAdmissionWebhook"
    operations = frozenset({CREATE, UPDATE, DELETE, CONNECT})

    def __init__(self, *, review_reviews: bool = False) -> None:
        self._configurations = Configurations(VALIDATING, self.name, review_reviews=review_reviews)

    def validate(self, attributes: Attributes, state: State) -> AdmissionSteps | None:
        """Reject a write with the first denial, in the order of the webhooks. StatusError."""
        found = candidates(self._configurations, attributes, state)
        if not found:
            return None
        return _ask(Dispatch(attributes, state, Versions(attributes, stored=True), mutating=False), found)


def _ask(dispatch: Dispatch, found: Sequence[tuple[Placed, ResourceType]]) -> AdmissionSteps:
    """Ask the webhooks that match in full, and raise the first denial. ``found``: those whose rules match."""
    matching = []
    for placed, rt in found:
        if (yield from awaiting(partial(dispatch.matches, placed.webhook, rt))):
            matching.append((placed.webhook, rt))
        yield None
    # A webhook that cannot be asked has its failure.
    asked: list[tuple[Webhook, Question | CallFailed | StatusError]] = []
    for webhook, rt in matching:
        try:
            asked.append((webhook, (yield from awaiting(partial(dispatch.question, webhook, rt)))))
        except (CallFailed, StatusError) as error:
            asked.append((webhook, error))
        yield None
    missing = [each for _, each in asked if isinstance(each, Question) and each.end() is None]
    if missing:
        yield NeedsAnswers(ValidatingAdmissionWebhook.name, dispatch.state, missing)
    first: StatusError | None = None
    for index, each in enumerate(asked):
        problem = _problem(dispatch, index, *each)  # all answers may have warnings
        first = first or problem
    if first is not None:
        raise first


def _problem(
    dispatch: Dispatch, index: int, webhook: Webhook, question: Question | CallFailed | StatusError
) -> StatusError | None:
    """Return the rejection by one webhook, whose answer is there; None if it allows the write."""
    try:
        if not isinstance(question, Question):
            raise question
        answer = question.answer()
        assert answer is not None, "all answers are there"
        dispatch.take(webhook, answer)
    except CallFailed as error:
        if not webhook.ignores:
            return rejections.calling_failed(webhook.name, error)
        place = f"failed-open.validating.{ANNOTATIONS}/round_0_index_{index}"
        dispatch.attributes.annotations[place] = webhook.name
    except StatusError as error:
        return error
    return None
