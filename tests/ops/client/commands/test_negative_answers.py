"""Answers that nothing was found: they state what was searched, and are errors where they would mislead."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from in_process import JOE

from kubechronicle.ops.client.client import Client

Chronicle = Callable[..., Any]


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (("who", "deleted", "deployment/web"), "Nobody deleted deployment.apps/web in namespace {}.\n  3 changes were"),
        (("who", "set", "deploy/web", "metadata.name", "--since", "{}"), "Nobody set metadata.name of deployment"),
        (("who", "deleted", "secret/key", "--since", "1m"), "in that time.\n  2 changes were searched, from 20"),
        (("between", "now", "now"), "Nothing changed: none of the 9 changes lies in that time: they were made from 20"),
    ],
)
def test_what_was_searched(
    chronicle: Chronicle, shop: tuple[str, int], arguments: tuple[str, ...], answer: str
) -> None:
    name, revision = shop
    output = chronicle(*(argument.format(revision) for argument in arguments), "-n", name)
    assert answer.format(name) in output.out, output
    assert output.code == (0 if arguments[0] == "between" else 1)


def test_what_was_searched_in_programs(chronicle: Chronicle, shop: tuple[str, int]) -> None:
    document = chronicle("who", "deleted", "deploy/web", "-n", shop[0], "-o", "json").json()
    assert document["answers"] == []
    assert document["nobody"][0]["searched"].startswith("3 changes were searched")
    log = chronicle("log", "deploy/web", "-n", shop[0], "--user", "nobody", "-o", "json")
    assert log.json()["items"] == []
    assert log.err.startswith("no changes: 3 changes were searched, from ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("who", "deleted", "configmap/setings"), "there is no configmap/setings in namespace {}, nor was there one"),
        (("who", "deleted", "configmap/setings"), "; did you mean configmap/settings?"),
        (("log", "configmap/setings"), "; did you mean configmap/settings?"),
        (("who", "created", "deployment/wbe"), "; did you mean deployment.apps/web?"),
        (("who", "deleted", "deploymet/web"), "the server has no kind 'deploymet'; did you mean deployment?"),
        (("log", "deploymet/web"), "did you mean deployment?"),
        (("between", "1h", "now", "--kind", "deploymet"), "did you mean deployment?"),
        (("who", "set", "deploy/web", "spec.replcas"), "none of the 3 versions of deployment.apps/web in namespace {}"),
        (("who", "set", "deploy/web", "spec.replcas"), "has a field spec.replcas; did you mean spec.replicas?"),
        (
            ("who", "set", "deploy/web", "containers[0].image"),
            "did you mean spec.template.spec.containers[name=web]",
        ),
        (("log", "deploy/web", "--field", "replicas"), "has a field replicas; did you mean spec.replicas?"),
        (("log", "deploy/web", "--field", "/spec/replica"), "has a field spec.replica; did you mean spec.replicas?"),
        (("log", "deploy/web", "--since", "1m", "--until", "2m"), "is later than 2m"),
        (("diff", "configmap/setings", "--from", "now"), "did you mean configmap/settings?"),
        (("blame", "configmap/setings"), "did you mean configmap/settings?"),
    ],
)
def test_mistakes_are_errors(
    chronicle: Chronicle, shop: tuple[str, int], arguments: tuple[str, ...], message: str
) -> None:
    output = chronicle(*arguments, "-n", shop[0])
    assert message.format(shop[0]) in output.err, output
    assert (output.code, output.out) == (2, "")


@pytest.mark.parametrize(
    "arguments",
    [("log",), ("between", "1h", "now"), ("log", "pods"), ("who", "deleted", "pod/a"), ("diff", "--from", "now")],
)
def test_a_namespace_that_never_existed_is_an_error(
    chronicle: Chronicle, shop: tuple[str, int], arguments: tuple[str, ...]
) -> None:
    output = chronicle(*arguments, "-n", f"{shop[0]}x")
    assert f"there is no namespace {shop[0]}x, nor was there one since" in output.err, output
    assert f"did you mean namespace/{shop[0]}?" in output.err
    assert output.code == 2


def test_history_that_was_dropped_is_an_error(chronicle: Chronicle, shop: tuple[str, int], running: Any) -> None:
    """Events are kept for a shorter time than the question is about."""
    name, revision = shop

    async def compact() -> None:
        running.server.log.store.compact(revision, resource="events")

    running.run(compact)
    for arguments in (
        ("log", "events", "--since", "3d"),
        ("who", "deleted", "event/a", "--since", "3d"),
        ("between", "3d", "now", "--kind", "events"),
    ):
        output = chronicle(*arguments, "-n", name)
        assert "the history of events begins at 2" in output.err, output
        assert f"(revision {revision})" in output.err
        assert output.code == 2
    assert chronicle("log", "events", "--since", str(revision), "-n", name).code == 0


def test_a_condition_that_may_have_flipped_before_the_mark_is_no_answer(
    chronicle: Chronicle, shop: tuple[str, int], running: Any
) -> None:
    name, _ = shop
    path = f"/api/v1/namespaces/{name}/limitranges"
    running.ask("POST", path, {"metadata": {"name": "a"}, "spec": {"limits": []}})
    made = int(running.ask("GET", path)["metadata"]["resourceVersion"])

    async def compact() -> None:
        running.server.log.store.compact(made, resource="limitranges")

    running.run(compact)
    held = chronicle("bisect", "true", "limitrange/a", "-n", name, "--since", str(made - 1))
    assert (held.code, "the time since" in held.err, "is not kept as a whole" in held.err) == (2, True, True)
    assert chronicle("bisect", "true", "limitrange/a", "-n", name).code == 0
    running.ask("DELETE", f"{path}/a")
    flipped = chronicle("bisect", "true", "limitrange/a", "-n", name, "--since", str(made - 1))
    assert flipped.code == 0, flipped.err
    assert "the history of limitranges begins at" in flipped.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("between", "now", "1m"), "now is later than 1m"),
        (("log", "--since", "now", "--until", "1m"), "now is later than 1m"),
        (("between", "{last}", "{first}"), "is later than"),
        (("between", "{last}", "1h"), "the period begins at revision"),
        (("log", "--since", "{last}", "--until", "1h"), "the period begins at revision"),
        (("incident", "400d"), "the period ends before the history of"),
        (("bisect", "has(self.x)", "deploy/web", "--until", "400d"), "the period ends before the history of"),
    ],
)
def test_periods_without_an_answer_are_errors(
    chronicle: Chronicle, shop: tuple[str, int], arguments: tuple[str, ...], message: str
) -> None:
    name, revision = shop
    output = chronicle(*(each.format(first=revision - 1, last=revision + 4) for each in arguments), "-n", name)
    assert message in output.err, output
    assert output.code == 2


def test_changes_outside_of_the_namespace_are_counted(chronicle: Chronicle, shop: tuple[str, int]) -> None:
    for arguments in (
        ("log", "--user", "admin"),
        ("between", "1h", "now", "--user", "adm*"),
        ("audit", "--user", "admin"),
    ):
        output = chronicle(*arguments, "-n", "kube-node-lease")
        said = output.out + output.err
        assert "only namespace kube-node-lease was searched: " in said, output
        assert "lie outside of it, and -A finds them" in said


def test_objects_that_may_not_be_read_are_no_negative_answer(
    chronicle: Chronicle, shop: tuple[str, int], running: Any
) -> None:
    name, _ = shop
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{name}"
    rule = {"apiGroups": ["history.kubechronicle.dev"], "resources": ["revisions"], "verbs": ["list", "watch"]}
    running.ask("POST", f"{rbac}/roles", {"metadata": {"name": "reader"}, "rules": [rule]})
    subjects = [{"kind": "User", "name": "joe", "apiGroup": "rbac.authorization.k8s.io"}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    binding = {"metadata": {"name": "reader"}, "subjects": subjects, "roleRef": role}
    running.ask("POST", f"{rbac}/rolebindings", binding)
    for arguments in (("tree", "secret/key", "--from", "1"), ("bisect", "has(self.data)", "secret/key")):
        output = chronicle(*arguments, "-n", name, token=JOE)
        assert "no answer is possible about secret/key" in output.err, output
        assert output.code == 2


def test_blame_of_a_deleted_object_prints_its_last_state(chronicle: Chronicle, shop: tuple[str, int]) -> None:
    output = chronicle("blame", "configmap/settings", "-n", shop[0])
    assert "color: blue" in output.out
    assert output.code == 0
    assert "was deleted by admin at 2" in output.err
    assert "this is its last state" in output.err
    missing = chronicle("blame", "configmap/new", "-n", shop[0], "--at", str(shop[1]))
    assert "there is no configmap/new" in missing.err
    assert missing.code == 2


def test_a_clock_that_was_wrong_is_told(chronicle: Chronicle, shop: tuple[str, int], monkeypatch: Any) -> None:
    """A change with a time of the future makes times and ages name other changes than people mean."""
    earlier = timedelta(hours=-1)
    monkeypatch.setattr(Client, "now", lambda client: datetime.now(UTC) + earlier)
    output = chronicle("log", "deployment/web", "-n", shop[0])
    assert "a clock was wrong: the newest change (revision " in output.err
    assert "in the future; name revisions instead of times" in output.err
