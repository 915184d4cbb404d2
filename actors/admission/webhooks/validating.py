"""ValidatingAdmissionWebhook: webhooks that may deny a write, asked in parallel.

Source: k8s.io/apiserver ``pkg/admission/plugin/webhook/validating``.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubechronicle.actors.admission.chain import CONNECT, CREATE, DELETE, UPDATE, AdmissionPlugin, Attributes, State
from kubechronicle.actors.admission.versions import Versions
from kubechronicle.actors.admission.webhooks.configurations import VALIDATING, Configurations, Placed, Webhook
from kubechronicle.actors.admission.webhooks.dispatch import ANNOTATIONS, Dispatch, candidates, relevant
from kubechronicle.actors.admission.webhooks.questions import NeedsAnswers, Question, stop, stopped_work
from kubechronicle.api.admission import rejections
from kubechronicle.api.admission.reviews import CallFailed
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.registry.registry import ResourceType


class ValidatingAdmissionWebhook(AdmissionPlugin):
    name = "ValidatingAdmissionWebhook"
    operations = frozenset({CREATE, UPDATE, DELETE, CONNECT})

    def __init__(self) -> None:
        self._configurations = Configurations(VALIDATING, self.name)

    def validate(self, attributes: Attributes, state: State) -> None:
        """Reject a write with the first denial, in the order of the webhooks. NeedsExternalAnswer, StatusError."""
        calls = stopped_work(attributes)
        if calls is None:
            found = candidates(self._configurations, attributes, state)
            if not found:
                return
            calls = _Calls(Dispatch(attributes, state, Versions(attributes, stored=True), mutating=False), found)
        assert isinstance(calls, _Calls)
        calls.conclude()


class _Calls:
    """The questions to all webhooks whose rules match (``found``). A webhook that cannot be asked has its failure."""

    def __init__(self, dispatch: Dispatch, found: Sequence[tuple[Placed, ResourceType]]) -> None:
        self._dispatch = dispatch
        self._asked: list[tuple[Webhook, Question | CallFailed | StatusError]] = []
        for placed, rt in list(relevant(found, dispatch)):
            try:
                self._asked.append((placed.webhook, dispatch.question(placed.webhook, rt)))
            except (CallFailed, StatusError) as error:
                self._asked.append((placed.webhook, error))

    def conclude(self) -> None:
        """Raise the first denial. NeedsExternalAnswer: some answers are not there yet."""
        dispatch, missing, longest = self._dispatch, [], 0.0
        for _, question in self._asked:
            if isinstance(question, Question):
                if question.ended() is None:
                    missing.append(question)
                longest = max(longest, question.seconds)
        if missing:
            stop(dispatch.attributes, self)
            raise NeedsAnswers(ValidatingAdmissionWebhook.name, dispatch.state, missing)
        dispatch.state.metrics.waited += longest
        first: StatusError | None = None
        for index, each in enumerate(self._asked):
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
