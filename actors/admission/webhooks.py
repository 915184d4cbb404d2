"""MutatingAdmissionWebhook: webhooks that may change an object, one after the other.

Source: k8s.io/apiserver ``pkg/admission/plugin/webhook/mutating``.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial
from typing import Any, Final

import orjson

from kubechronicle.actors.admission.chain import (
    CONNECT,
    CREATE,
    DELETE,
    UPDATE,
    AdmissionPlugin,
    AdmissionState,
    AdmissionSteps,
    Attributes,
)
from kubechronicle.actors.admission.versions import Versions, digest
from kubechronicle.actors.admission.webhook_configurations import MUTATING, VALIDATING, Configurations, Placed, Webhook
from kubechronicle.actors.admission.webhook_dispatch import (
    ANNOTATIONS,
    Dispatch,
    NeedsAnswers,
    WebhookQuestion,
    candidates,
)
from kubechronicle.actors.evaluation import MAX_GROWTH, note_growth
from kubechronicle.actors.external_answers import NeedsExternalAnswer, awaiting
from kubechronicle.api.admission import patches, rejections
from kubechronicle.api.admission.matching import UNWANTED
from kubechronicle.api.admission.reviews import CallFailed, WebhookAnswer
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.patch import json_patch
from kubechronicle.api.registry.registry import ResourceType

# -- validating --------------------------------------------------------------------------------------------------------
#
# ValidatingAdmissionWebhook: webhooks that may deny a write, asked in parallel.
#
# Source: k8s.io/apiserver ``pkg/admission/plugin/webhook/validating``.


class ValidatingAdmissionWebhook(AdmissionPlugin):
    name = "ValidatingAdmissionWebhook"
    configured_by = VALIDATING
    operations = frozenset({CREATE, UPDATE, DELETE, CONNECT})

    def __init__(self, *, review_reviews: bool = False) -> None:
        self._configurations = Configurations(VALIDATING, self.name, review_reviews=review_reviews)

    def validate(self, attributes: Attributes, state: AdmissionState) -> AdmissionSteps | None:
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
    asked: list[tuple[Webhook, WebhookQuestion | CallFailed | StatusError]] = []
    for webhook, rt in matching:
        try:
            asked.append((webhook, (yield from awaiting(partial(dispatch.question, webhook, rt)))))
        except (CallFailed, StatusError) as error:
            asked.append((webhook, error))
        yield None
    missing = [each for _, each in asked if isinstance(each, WebhookQuestion) and each.end() is None]
    if missing:
        yield NeedsAnswers(ValidatingAdmissionWebhook.name, dispatch.state, missing)
    first: StatusError | None = None
    for index, each in enumerate(asked):
        problem = _problem(dispatch, index, *each)  # all answers may have warnings
        first = first or problem
    if first is not None:
        raise first


def _problem(
    dispatch: Dispatch, index: int, webhook: Webhook, question: WebhookQuestion | CallFailed | StatusError
) -> StatusError | None:
    """Return the rejection by one webhook, whose answer is there; None if it allows the write."""
    try:
        if not isinstance(question, WebhookQuestion):
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


# -- mutating ----------------------------------------------------------------------------------------------------------

MAX_SHOWN_PATCH: Final = 64 * 1024
"""Bytes of the longest patch that is kept for the audit event."""


class MutatingAdmissionWebhook(AdmissionPlugin):
    name = "MutatingAdmissionWebhook"
    configured_by = MUTATING
    operations = frozenset({CREATE, UPDATE, DELETE, CONNECT})

    def __init__(self, *, review_reviews: bool = False) -> None:
        self._configurations = Configurations(MUTATING, self.name, review_reviews=review_reviews)

    def admit(self, attributes: Attributes, state: AdmissionState) -> AdmissionSteps | None:
        """Apply the patches of the webhooks in order. StatusError of the first that denies."""
        if attributes.reinvocation.second and not _memory_of(attributes, self.name).asks_again():
            return None
        found = candidates(self._configurations, attributes, state)
        if not found:
            return None
        dispatch = Dispatch(attributes, state, Versions(attributes, stored=False), mutating=True)
        return _Calls(dispatch, _memory_of(attributes, self.name)).ask(found)


class _Memory:
    """Notes for the second round.

    ``asked``: webhooks to ask again if a later one changes the object. ``again``: those to ask again for certain.
    ``last``: the digest of the object after the last answer. ``patched``: some webhook has patched it.
    """

    __slots__ = ("again", "asked", "last", "patched")

    def __init__(self) -> None:
        self.asked: set[str] = set()
        self.again: set[str] = set()
        self.last = b""
        self.patched = False

    def asks_again(self) -> bool:
        """Tell whether the second round may ask a webhook."""
        return bool(self.again or self.asked)

    def note_change(self) -> None:
        self.again |= self.asked
        self.asked.clear()


def _memory_of(attributes: Attributes, name: str) -> _Memory:
    memory = attributes.reinvocation.memory.get(name)
    if memory is None:
        memory = attributes.reinvocation.memory[name] = _Memory()
    assert isinstance(memory, _Memory)
    return memory


def _digest(obj: dict[str, Any] | None) -> bytes:
    return b"" if obj is None else digest(obj, any_order=True)


class _Calls:
    """The calls of one round."""

    def __init__(self, dispatch: Dispatch, memory: _Memory) -> None:
        self.dispatch = dispatch
        self._memory = memory

    def ask(self, found: Sequence[tuple[Placed, ResourceType]]) -> AdmissionSteps:
        """Ask the webhooks whose rules match, each checked in full when its turn comes. StatusError."""
        attributes, memory = self.dispatch.attributes, self._memory
        if attributes.reinvocation.second and memory.asked and memory.last != _digest(attributes.object):
            memory.note_change()  # other plugins have changed the object since the first round
        for placed, rt in found:
            if (yield from awaiting(partial(self.dispatch.matches, placed.webhook, rt))):
                yield from self._call(placed, rt)
            yield None
        if memory.asked:
            memory.last = _digest(attributes.object)

    def _call(self, placed: Placed, rt: ResourceType) -> AdmissionSteps:
        """Ask one webhook and apply its patch. StatusError."""
        webhook, attributes = placed.webhook, self.dispatch.attributes
        run = attributes.reinvocation
        if run.second and webhook.uid not in self._memory.again:
            return
        changed = False
        try:
            answer = yield from self._answer(webhook, rt)
            changed = yield from awaiting(partial(self._patch, placed, rt, answer))
        except CallFailed as error:
            self._annotate(placed, changed=False)
            if not webhook.ignores:
                raise rejections.calling_failed(webhook.name, error) from None
            attributes.annotations[f"failed-open.mutation.{self._place(placed)}"] = webhook.name
        except StatusError:
            self._annotate(placed, changed=False)
            raise
        else:
            self._annotate(placed, changed=changed)
        if changed:
            self._memory.note_change()
            run.wanted = True
        if webhook.reinvoked:
            self._memory.asked.add(webhook.uid)

    def _place(self, placed: Placed) -> str:
        """Return the end of the keys of a webhook's annotations."""
        return f"{ANNOTATIONS}/round_{int(self.dispatch.attributes.reinvocation.second)}_index_{placed.place}"

    def _annotate(self, placed: Placed, *, changed: bool) -> None:
        """Say in the audit event that a webhook was asked, whatever its answer."""
        annotations = self.dispatch.attributes.annotations
        if annotations is not UNWANTED:
            shown = {"configuration": placed.webhook.configuration, "webhook": placed.webhook.name, "mutated": changed}
            annotations[f"mutation.{self._place(placed)}"] = orjson.dumps(shown).decode()

    def _answer(self, webhook: Webhook, rt: ResourceType) -> Generator[NeedsExternalAnswer | None, None, WebhookAnswer]:
        question = yield from awaiting(partial(self.dispatch.question, webhook, rt))
        while (answer := question.answer()) is None:
            yield NeedsAnswers(MutatingAdmissionWebhook.name, self.dispatch.state, [question])
        self.dispatch.take(webhook, answer)
        return answer

    def _patch(self, placed: Placed, rt: ResourceType, answer: WebhookAnswer) -> bool:
        """Apply the patch of an answer, and tell whether it has changed the object."""
        webhook, attributes, versions = placed.webhook, self.dispatch.attributes, self.dispatch.versions
        found = patches.operations(answer.patch) if answer.patch else []
        if not found:
            return False
        before = versions.new(rt)
        if before is None or attributes.object is None:
            raise rejections.not_modifiable(webhook.name)
        run = attributes.reinvocation
        after = patches.patched(versions.type_of(rt), before, found, size=len(answer.patch))
        # kube-apiserver's first decoding of a built-in kind sets the fields kind and apiVersion, which counts as well.
        changed = (rt.custom is None and not self._memory.patched) or after != before
        if run.original is None:
            # The values of the members are left as they are: ``after`` shares none of them.
            run.original = dict(attributes.object)
        self._memory.patched = True
        versions.replace(rt, after)
        note_growth(MAX_GROWTH if json_patch.may_grow(answer.patch) else len(answer.patch))
        if attributes.annotations is not UNWANTED and len(answer.patch) <= MAX_SHOWN_PATCH:
            shown = {"configuration": webhook.configuration, "webhook": webhook.name, "patch": found}
            value = orjson.dumps({**shown, "patchType": "JSONPatch"}).decode()
            attributes.annotations[f"patch.{self._place(placed)}"] = value
        return changed
