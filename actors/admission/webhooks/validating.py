"""ValidatingAdmissionWebhook: webhooks that may deny a write, asked in parallel.

Source: k8s.io/apiserver ``pkg/admission/plugin/webhook/validating``.
"""

from __future__ import annotations

from kubechronicle.actors.admission.chain import CONNECT, CREATE, DELETE, UPDATE, AdmissionPlugin, Attributes, State
from kubechronicle.actors.admission.versions import Versions
from kubechronicle.actors.admission.webhooks.configurations import VALIDATING, Configurations, Webhook
from kubechronicle.actors.admission.webhooks.dispatch import ANNOTATIONS, Dispatch, candidates, relevant
from kubechronicle.actors.admission.webhooks.questions import NeedsAnswers, Question
from kubechronicle.api.admission import reviews
from kubechronicle.api.admission.reviews import CallFailed
from kubechronicle.api.errors.status import StatusError


class ValidatingAdmissionWebhook(AdmissionPlugin):
    name = "ValidatingAdmissionWebhook"
    operations = frozenset({CREATE, UPDATE, DELETE, CONNECT})

    def __init__(self) -> None:
        self._configurations = Configurations(VALIDATING)

    def validate(self, attributes: Attributes, state: State) -> None:
        """Reject a write with the first denial, in the order of the webhooks. NeedsExternalAnswer, StatusError."""
        found = candidates(self._configurations, attributes, state)
        if not found:
            return
        dispatch = Dispatch(attributes, state, Versions(attributes, stored=True), mutating=False)
        asked: list[tuple[Webhook, Question | CallFailed | StatusError]] = []
        for placed, rt in list(relevant(found, dispatch)):
            try:
                asked.append((placed.webhook, dispatch.question(placed.webhook, rt)))
            except (CallFailed, StatusError) as error:
                asked.append((placed.webhook, error))
        missing = [question for _, question in asked if isinstance(question, Question) and question.unanswered]
        if missing:
            raise NeedsAnswers(self.name, state, missing)
        state.metrics.waited += max(
            (question.seconds for _, question in asked if isinstance(question, Question)), default=0.0
        )
        problems = [_problem(dispatch, index, *each) for index, each in enumerate(asked)]
        for problem in problems:
            if problem is not None:
                raise problem


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
            return reviews.calling_failed(webhook.name, error)
        place = f"failed-open.validating.{ANNOTATIONS}/round_0_index_{index}"
        dispatch.attributes.annotations[place] = webhook.name
    except StatusError as error:
        return error
    return None
