"""Rules that need external answers are evaluated again once they have them, in every kind of write."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from admission.decisions import decided
from in_process import MAPS, InProcess, configmap, open_server

from kubechronicle.actors.admission.chain import DELETE, AdmissionPlugin, AdmissionState, Attributes
from kubechronicle.actors.external_answers import (
    MAX_QUESTIONS,
    NeedsExternalAnswer,
    decide_with_answers,
    recall_answer,
    remember_answer,
)
from kubechronicle.actors.writing.writes import Caller, Target
from kubechronicle.api.errors.status import StatusError
from kubechronicle.eventlog.records import Key, Who

MERGE = {"content-type": "application/merge-patch+json"}
APPLY = {"content-type": "application/apply-patch+yaml"}


class Question(NeedsExternalAnswer):
    def __init__(self, key: object, questions: list[object]) -> None:
        super().__init__()
        self.key, self.questions = key, questions

    async def resolve(self) -> None:
        await trio.lowlevel.checkpoint()
        self.questions.append(self.key)
        remember_answer(self.key, f"answer to {self.key}")


def rule(questions: list[object], *keys: object) -> list[object]:
    """Return a decision that needs all these answers, one after another."""
    answers = []
    for key in keys:
        answer = recall_answer(key)
        if answer is None:
            raise Question(key, questions)
        answers.append(answer)
    return answers


async def test_a_decision_requests_each_answer_once() -> None:
    questions: list[object] = []
    assert await decide_with_answers(partial(rule, questions, "a", "b", "a")) == [
        "answer to a",
        "answer to b",
        "answer to a",
    ]
    assert questions == ["a", "b"]
    assert recall_answer("a") is None  # for that decision alone
    assert await decide_with_answers(partial(rule, questions, "a")) == ["answer to a"]
    assert questions == ["a", "b", "a"]


async def test_decisions_at_the_same_time_share_no_answers() -> None:
    questions: list[object] = []
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(decide_with_answers, partial(rule, questions, "a"))
    assert questions == ["a"] * 3


async def test_a_decision_within_an_attempt_shares_its_answers() -> None:
    questions: list[object] = []

    async def attempt() -> list[object]:
        return rule(questions, "a") + await decide_with_answers(partial(rule, questions, "a", "b"))

    assert await decided(attempt, deadline=trio.current_time() + 10) == [
        "answer to a",
        "answer to a",
        "answer to b",
    ]
    assert questions == ["a", "b"]


async def test_a_decision_with_endless_questions_ends() -> None:
    questions: list[object] = []

    def forgetful() -> None:
        raise Question(len(questions), questions)

    async def attempt() -> None:
        forgetful()

    for endless in (
        partial(decide_with_answers, forgetful),
        partial(decided, attempt),
    ):
        questions.clear()
        with pytest.raises(StatusError) as caught:
            await endless()
        assert caught.value.code == 500
        assert len(questions) == MAX_QUESTIONS


async def test_an_answer_is_not_awaited_past_the_deadline(autojump_clock: trio.testing.MockClock) -> None:
    class Silent(NeedsExternalAnswer):
        async def resolve(self) -> None:
            await trio.sleep_forever()

    async def attempt() -> None:
        raise Silent

    began = trio.current_time()
    with pytest.raises(StatusError) as caught:
        await decided(attempt, deadline=began + 3)
    assert caught.value.code == 504
    assert trio.current_time() == began + 3


# -- writes -----------------------------------------------------------------------------------------------------------


class NeedsAnswers(AdmissionPlugin):
    """Needs an answer for every write of a ConfigMap, in ``admit`` and again in ``validate``."""

    name = "Asking"
    resources = frozenset({"configmaps"})
    operations = frozenset({"CREATE", "UPDATE", DELETE})

    def __init__(self) -> None:
        self.questions: list[object] = []
        self.applied: set[int] = set()
        self.server: InProcess | None = None

    def admit(self, attributes: Attributes, state: AdmissionState) -> None:
        if attributes.object is not None:
            attributes.object.setdefault("data", {})["admitted"] = "yes"
        self._need("admit", attributes)

    def validate(self, attributes: Attributes, state: AdmissionState) -> None:
        self._need("validate", attributes)

    def locked_keys(self, rt: Any, operation: str, namespace: str, state: AdmissionState) -> list[Key]:
        return [Key("configmaps", namespace, "locked")]

    def _need(self, step: str, attributes: Attributes) -> None:
        name = attributes.name or attributes.object["metadata"]["name"]  # type: ignore[index]
        key = (step, attributes.operation, name)
        if recall_answer(key) is None:
            assert self.server is not None
            self.applied.add(self.server.assembly.views.applied)
            raise Free(key, self.questions, self.server)


class Free(Question):
    def __init__(self, key: object, questions: list[object], server: InProcess) -> None:
        super().__init__(key, questions)
        self.server = server

    async def resolve(self) -> None:
        assert not len(self.server.store.writes._loop._key_locks)  # a waiting write holds no lock
        await super().resolve()


def add_plugin(server: InProcess) -> NeedsAnswers:
    plugin = NeedsAnswers()
    plugin.server = server
    chain = server.store.writes._loop._admission
    chain._plugins = (*chain._plugins, plugin)
    return plugin


async def test_every_kind_of_write_waits_for_answers() -> None:
    async with open_server() as server:
        plugin = add_plugin(server)
        applied = f"{MAPS}/applied?fieldManager=me"

        async def check(method: str, target: str, body: Any, *steps: tuple[str, str], **request: Any) -> Any:
            """Check the questions of one write, and that it commits nothing before it has all answers."""
            plugin.questions.clear()
            plugin.applied.clear()
            before = server.assembly.views.applied
            answer = (await server.ask(method, target, body, **request)).ok()
            assert [key[:2] for key in plugin.questions] == list(steps)  # type: ignore[index]
            assert plugin.applied == {before}
            assert server.assembly.views.applied == before + 1
            return answer

        create, update = [("admit", "CREATE"), ("validate", "CREATE")], [("admit", "UPDATE"), ("validate", "UPDATE")]
        made = await check("POST", MAPS, configmap("a", x="1"), *create)
        assert made["data"] == {"x": "1", "admitted": "yes"}
        await check("PUT", f"{MAPS}/a", configmap("a", x="2"), *update)
        await check("PATCH", f"{MAPS}/a", {"data": {"y": "3"}}, *update, headers=MERGE)
        body = {"apiVersion": "v1", **configmap("applied", z="1")}
        await check("PATCH", applied, body, *create, headers=APPLY)
        await check("PATCH", applied, {**body, "data": {"z": "2"}}, *update, headers=APPLY)
        await check("DELETE", f"{MAPS}/a", None, ("admit", DELETE), ("validate", DELETE))
        assert await server.names(MAPS) == ["applied"]


async def test_loops_and_collections_wait_for_answers() -> None:
    async with open_server() as server:
        for name in "abc":
            await server.post(MAPS, configmap(name))
        plugin = add_plugin(server)
        rt = server.store.registry.lookup("", "v1", "configmaps")
        assert rt is not None
        caller = Caller(who=Who(user="system:loop"), deadline=trio.current_time() + 30)
        target = Target(rt=rt, namespace="default", name="a", manager="loop")
        written = await server.store.writes.edit(caller, target, lambda obj: {**obj, "data": {"edited": "yes"}})
        assert written.entry is not None
        assert written.entry.object()["data"] == {"edited": "yes", "admitted": "yes"}
        assert plugin.questions == [("admit", "UPDATE", "a"), ("validate", "UPDATE", "a")]
        plugin.questions.clear()
        await server.delete(MAPS)
        assert plugin.questions == [(step, DELETE, name) for name in "abc" for step in ("admit", "validate")]
        assert await server.names(MAPS) == []


async def test_changes_during_a_question_are_seen() -> None:
    async with open_server() as server:
        await server.post(MAPS, configmap("a", x="1"))
        plugin = add_plugin(server)
        others = [True]

        class Meddling(Free):
            async def resolve(self) -> None:
                await super().resolve()
                if others and self.key == ("validate", "UPDATE", "a"):
                    others.clear()
                    await server.patch(f"{MAPS}/a", {"data": {"other": "too"}})

        plugin._need = lambda step, attributes: _meddle(plugin, Meddling, step, attributes)  # type: ignore[method-assign]
        patched = await server.patch(f"{MAPS}/a", {"data": {"x": "2"}})
        assert patched["data"] == {"x": "2", "other": "too", "admitted": "yes"}


def _meddle(plugin: NeedsAnswers, question: type[Free], step: str, attributes: Attributes) -> None:
    key = (step, attributes.operation, attributes.name)
    if recall_answer(key) is None:
        assert plugin.server is not None
        raise question(key, plugin.questions, plugin.server)
