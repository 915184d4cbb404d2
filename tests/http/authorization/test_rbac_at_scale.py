"""Large roles and many bindings: a decision costs little, and long indexing and comparing is done in steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import trio
from stalls.longest_pass import passes_below
from view_objects import Object, ViewObjects

from kubechronicle.actors.external_answers import NeedsExternalAnswer, decide_with_answers
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.eventlog.records import Who
from kubechronicle.http.authentication.user import User
from kubechronicle.http.authorization import rbac
from kubechronicle.http.authorization.decision import Decision
from kubechronicle.http.authorization.rbac import GROUP, RbacAuthorizer

ANN = User(name="ann", groups=("staff",))
STAFF = {"kind": "Group", "name": "staff"}
ASKED = RequestInfo(
    path="/", verb="get", is_resource=True, group="", namespace="ta", resource="configmaps", name="unknown"
)


class Cluster(ViewObjects):
    def put_role(self, name: str, rules: list[Object]) -> None:
        self.put(f"roles.{GROUP}", "ta", name, {"rules": rules})

    def bind(self, name: str, role: str, *subjects: Object) -> None:
        reference = {"kind": "Role", "name": role}
        self.put(f"rolebindings.{GROUP}", "ta", name, {"roleRef": reference, "subjects": list(subjects)})


def named(*names: str, resource: str = "configmaps") -> list[Object]:
    return [{"verbs": ["get"], "apiGroups": [""], "resources": [resource], "resourceNames": [name]} for name in names]


def with_roles(roles: int, rules: int) -> Cluster:
    cluster = Cluster()
    for number in range(roles):
        cluster.put_role(f"r-{number}", named(*(f"n-{number}-{each}" for each in range(rules))))
        cluster.bind(f"b-{number}", f"r-{number}", STAFF)
    return cluster


@contextmanager
def cpu_below(seconds: float) -> Iterator[None]:
    began = time.thread_time()
    yield
    assert time.thread_time() - began < seconds


def asked(name: str, **fields: Any) -> RequestInfo:
    return RequestInfo(
        **{
            **{each: getattr(ASKED, each) for each in ("path", "verb", "is_resource", "group")},
            "namespace": "ta",
            "resource": "configmaps",
            "name": name,
            **fields,
        }
    )


@pytest.mark.parametrize(("roles", "rules"), [(84, 500), (5_000, 2)])
def test_a_decision_does_not_depend_on_the_number_of_rules(roles: int, rules: int) -> None:
    cluster = with_roles(roles, rules)
    authorizer = RbacAuthorizer(cluster.views)
    assert authorizer.decide(ANN, ASKED).decision is Decision.NO_OPINION  # indexes all
    with cpu_below(0.02):
        assert authorizer.decide(ANN, asked("other")).decision is Decision.NO_OPINION
        assert authorizer.decide(ANN, asked(f"n-{roles - 1}-0")).decision is Decision.ALLOW
    cluster.put_role("r-0", named("changed"))
    with cpu_below(0.1):
        assert authorizer.decide(ANN, asked("changed")).decision is Decision.ALLOW
        assert authorizer.decide(ANN, asked("n-0-0")).decision is Decision.NO_OPINION
        reason = authorizer.explain(ANN, asked("n-9-1")).reason
    assert reason == 'RBAC: allowed by RoleBinding "b-9/ta" of Role "r-9" to Group "staff"'


def test_a_change_in_a_namespace_keeps_the_decisions_about_others() -> None:
    cluster = with_roles(2, 2)
    authorizer = RbacAuthorizer(cluster.views)
    for namespace in ("ta", "tb"):
        authorizer.decide(ANN, asked("a", namespace=namespace))
    kept = authorizer._kept["tb"]
    cluster.put_role("r-0", named("b"))
    assert authorizer.decide(ANN, asked("b")).decision is Decision.ALLOW
    assert authorizer._kept["tb"] is kept


def test_a_role_of_many_bindings() -> None:
    cluster = Cluster()
    cluster.put_role("r", named("a"))
    for number in range(5_000):
        cluster.bind(f"b-{number:04}", "r", {"kind": "User", "name": f"u-{number}"}, STAFF)
    authorizer = RbacAuthorizer(cluster.views)
    assert authorizer.decide(ANN, asked("a")).decision is Decision.ALLOW
    with cpu_below(0.05):
        cluster.put_role("r", named("b"))
        assert authorizer.decide(ANN, asked("a")).decision is Decision.NO_OPINION
        assert authorizer.explain(User(name="u-77"), asked("b")).reason.startswith(
            'RBAC: allowed by RoleBinding "b-0077'
        )


async def following(authorizer: RbacAuthorizer, nursery: trio.Nursery) -> None:
    await nursery.start(authorizer.following.run)


def long_role(word: str) -> list[Object]:
    return named(*(f"{word}-{number}" for number in range(2_000)))


async def test_a_decision_waits_for_the_index_of_a_large_role() -> None:
    cluster = Cluster()
    cluster.bind("b", "r", STAFF)
    authorizer = RbacAuthorizer(cluster.views)
    async with trio.open_nursery() as nursery:
        await following(authorizer, nursery)
        for word in ("one", "other"):
            cluster.put_role("r", long_role(word))
            with pytest.raises(NeedsExternalAnswer):
                authorizer.decide(ANN, asked(f"{word}-1999"))
            verdict = await decide_with_answers(lambda word=word: authorizer.decide(ANN, asked(f"{word}-1999")))
            assert verdict.decision is Decision.ALLOW
            assert authorizer.decide(User(name="bob"), asked("x")).decision is Decision.NO_OPINION  # needs no waiting
        assert authorizer.decide(ANN, asked("one-1")).decision is Decision.NO_OPINION
        cluster.bind("long", "r", *({"kind": "User", "name": f"u-{number}"} for number in range(5_000)))
        verdict = await decide_with_answers(lambda: authorizer.decide(User(name="u-4999"), asked("other-5")))
        assert verdict.decision is Decision.ALLOW
        nursery.cancel_scope.cancel()
    cluster.put_role("r", long_role("alone"))  # without the task, the question does all work
    assert authorizer.decide(ANN, asked("alone-1999")).decision is Decision.ALLOW


async def test_many_rules_are_compared_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = with_roles(3, 1_000)
    authorizer = RbacAuthorizer(cluster.views)
    who = Who(user="ann", groups=("staff",))
    wanted = named(*(f"n-1-{number}" for number in range(1_000)), "missing")

    def compare() -> tuple[str, ...]:
        return tuple(authorizer.not_covered(who, "ta", wanted))

    at_once = compare()
    assert at_once == ('{APIGroups:[""], Resources:["configmaps"], ResourceNames:["missing"], Verbs:["get"]}',)
    async with trio.open_nursery() as nursery:
        await following(authorizer, nursery)
        with pytest.raises(rbac.LongComparison):
            compare()
        assert await decide_with_answers(compare) == at_once
        nursery.cancel_scope.cancel()


def test_a_rules_review_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = with_roles(4, 10)
    authorizer = RbacAuthorizer(cluster.views)
    whole = authorizer.rules(ANN, "ta")
    assert (len(whole.rules), whole.incomplete, whole.errors) == (40, False, [])
    monkeypatch.setattr(rbac, "LISTED_BYTES", whole.size // 2)
    part = authorizer.rules(ANN, "ta")
    assert (len(part.rules), part.incomplete, part.errors) == (20, True, [rbac.TOO_MANY])


@pytest.mark.parametrize("change", [lambda cluster: cluster.forget_history(), lambda cluster: None])
async def test_steps_that_are_interrupted_lose_nothing(change: Callable[[Cluster], None]) -> None:
    cluster = with_roles(20, 1)
    authorizer = RbacAuthorizer(cluster.views)
    follower = authorizer._followers[1]
    steps = follower.steps()
    for _ in range(5):
        next(steps)
    cluster.put_role("r-1", named("late"))
    change(cluster)
    assert authorizer.decide(ANN, asked("late")).decision is Decision.ALLOW
    list(steps)
    assert authorizer.decide(ANN, asked("late")).decision is Decision.ALLOW
    assert authorizer.decide(ANN, asked("n-1-0")).decision is Decision.NO_OPINION
    assert authorizer.decide(ANN, asked("n-19-0")).decision is Decision.ALLOW


async def test_a_user_of_many_groups_and_one_of_many_bindings() -> None:
    cluster = Cluster()
    cluster.put_role("r", named("a"))
    groups = tuple(f"g-{number}" for number in range(50_000))
    for part in range(5):
        cluster.bind(
            f"m-{part}", "r", *({"kind": "Group", "name": f"g-{number * 5 + part}"} for number in range(10_000))
        )
    for number in range(10_000):
        cluster.bind(f"b-{number:05}", f"lost-{number % 3}", {"kind": "User", "name": "bob"})
    authorizer = RbacAuthorizer(cluster.views)
    users = (User(name="u", groups=groups), User(name="u", groups=tuple(f"h-{number}" for number in range(100_000))))
    slow = [authorizer.explain(user, asked("a")) for user in users]  # at once, as the task does not run
    slow += [authorizer.explain(user, asked("b")) for user in users]
    plain = authorizer.rules(User(name="bob"), "ta")
    async with trio.open_nursery() as nursery:
        await following(authorizer, nursery)
        with passes_below(0.06):
            quick = [await decide_with_answers(partial(authorizer.explain, user, asked("a"))) for user in users]
            quick += [await decide_with_answers(partial(authorizer.explain, user, asked("b"))) for user in users]
            rules = await decide_with_answers(partial(authorizer.rules, User(name="bob"), "ta"))
            allowed = await decide_with_answers(partial(authorizer.decide, users[0], asked("a")))
        nursery.cancel_scope.cancel()
    assert quick == slow
    assert [verdict.decision for verdict in quick] == [Decision.ALLOW, *[Decision.NO_OPINION] * 3]
    assert quick[0].reason == 'RBAC: allowed by RoleBinding "m-0/ta" of Role "r" to Group "g-0"'
    assert allowed.decision is Decision.ALLOW
    assert rules == plain
    assert len(rules.errors) == 10_000
