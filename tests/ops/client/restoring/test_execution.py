"""Plans are carried out in one transaction where they fit one, otherwise one step after the other, and say so."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from kubechronicle.api.history.restore_plan import Action, Step
from kubechronicle.ops.client.client import ApiError
from kubechronicle.ops.client.restoring.execution import PATH, execute

Chronicle = Callable[..., Any]
REVISIONS = "/apis/history.kubechronicle.dev/v1/namespaces/{}/revisions?order=oldest&fieldSelector={}"


def committed(running: Any, namespace: str, output: str) -> list[dict[str, Any]]:
    """Return the changes of the transaction that an output names."""
    found = re.search(r"\(in one transaction, revisions (\d+) to (\d+)\)", output)
    assert found is not None, output
    selector = f"revision.from%3D{found[1]},revision.to%3D{found[2]}"
    items: list[dict[str, Any]] = running.ask("GET", REVISIONS.format(namespace, selector))["items"]
    assert len(items) == int(found[2]) - int(found[1]) + 1
    assert {each["request"]["verb"] for each in items} == {"transaction"}
    assert len({each["time"] for each in items}) == 1
    return items


def test_a_revert_is_one_transaction_in_which_each_change_has_its_own_cause(
    chronicle: Chronicle, shop: tuple[str, int], running: Any
) -> None:
    name, _ = shop
    space = f"/api/v1/namespaces/{name}"
    since = running.ask("GET", f"{space}/configmaps")["metadata"]["resourceVersion"]
    running.ask_as("bob", "DELETE", f"{space}/configmaps/new")
    running.ask_as("bob", "POST", f"{space}/configmaps", {"metadata": {"name": "bobs"}})
    running.ask_as("bob", "PATCH", f"{space}/secrets/key", {"stringData": {"a": "bobs word"}})
    selector = f"who.username%3Dbob,revision.from%3D{int(since) + 1}"
    undone = {
        each["object"]["name"]: each["metadata"]["name"]
        for each in running.ask("GET", REVISIONS.format(name, selector))["items"]
    }
    output = chronicle("revert", "--user", "bob", "--since", since, "-n", name, "--yes")
    assert output.code == 0, output.err
    changes = committed(running, name, output.out)
    assert {each["object"]["name"]: each["cause"] for each in changes} == undone
    assert {each["object"]["name"]: each["operation"] for each in changes} == {
        "new": "Create",
        "bobs": "Delete",
        "key": "Update",
    }
    assert chronicle("who", "deleted", "cm/bobs", "-n", name).out.startswith("admin deleted configmap/bobs")
    again = chronicle("revert", "--user", "bob", "--since", since, "-n", name, "--yes").out
    assert "Nothing to undo" in again


def test_a_restore_is_one_transaction(chronicle: Chronicle, shop: tuple[str, int], running: Any) -> None:
    name, revision = shop
    output = chronicle("restore", "-n", name, "--to", str(revision), "--prune", "--yes")
    assert output.code == 0, output.err
    assert {each["object"]["name"] for each in committed(running, name, output.out)} == {
        "settings",
        "web",
        "key",
        "new",
    }
    assert chronicle("diff", "-n", name, "--from", str(revision)).code == 0


def test_a_rejected_transaction_leaves_the_steps_that_are_possible(
    chronicle: Chronicle, shop: tuple[str, int], running: Any
) -> None:
    """The address of a Service is taken: the transaction is rejected, and the rest is restored."""
    name, _ = shop
    space = f"/api/v1/namespaces/{name}"
    web = running.ask("POST", f"{space}/services", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})
    running.ask("DELETE", f"{space}/services/s")
    running.ask("DELETE", f"{space}/configmaps/new")
    taker = {"metadata": {"name": "t"}, "spec": {"ports": [{"port": 80}], "clusterIP": web["spec"]["clusterIP"]}}
    running.ask("POST", f"{space}/services", taker)
    moment = web["metadata"]["resourceVersion"]
    output = chronicle("restore", "svc/s", "cm/new", "-n", name, "--to", moment, "--yes")
    assert output.code == 3
    assert "(one by one: the transaction was rejected: spec.changes[" in output.out
    assert "service/s created, without cluster IP" in output.out
    assert "configmap/new created\n" in output.out


def test_owners_of_the_same_plan_come_first(chronicle: Chronicle, shop: tuple[str, int], running: Any) -> None:
    name, _ = shop
    maps = f"/api/v1/namespaces/{name}/configmaps"
    uid = running.ask("POST", maps, {"metadata": {"name": "owner"}})["metadata"]["uid"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
    below = running.ask("POST", maps, {"metadata": {"name": "below", "ownerReferences": [reference]}})
    for each in ("below", "owner"):
        running.ask("DELETE", f"{maps}/{each}")
    moment = below["metadata"]["resourceVersion"]
    document = chronicle("restore", "cm/below", "cm/owner", "-n", name, "--to", moment, "--yes", "-o", "json").json()
    assert document["carriedOut"] == "one by one: the plan creates the owner of configmap/below"
    (reference,) = running.ask("GET", f"{maps}/below")["metadata"]["ownerReferences"]
    assert reference["uid"] == running.ask("GET", f"{maps}/owner")["metadata"]["uid"]


class Failing:
    """A client and restorer whose transactions end with an error, and whose steps are listed."""

    def __init__(self, code: int) -> None:
        self.code, self.done, self.options = code, list[str](), dict[str, str]()

    def request(self, method: str, path: str, query: Any, body: Any) -> Any:
        assert (method, path) == ("POST", PATH)
        raise ApiError(self.code, "", "no")

    def change_of(self, step: Step) -> tuple[dict[str, Any], tuple[str, ...]]:
        return {"verb": step.action}, ()

    def do(self, step: Step) -> Any:
        self.done.append(step.key[3])


def step(action: Action, name: str) -> Step:
    return Step(action, ("", "ConfigMap", "shop", name), {"metadata": {"name": name}})


@pytest.mark.parametrize(
    ("code", "tried"), [(403, ["a", "b"]), (404, ["a", "b"]), (500, ["a", "b"]), (503, []), (504, [])]
)
def test_nothing_is_tried_after_an_unknown_outcome(code: int, tried: list[str]) -> None:
    fake: Any = Failing(code)
    done = execute(fake, fake, [step("create", "a"), step("delete", "b")], "restoring")
    assert fake.done == tried
    if not tried:
        assert [(each.outcome, each.failed) for each in done.results] == [("failed: no", True)] * 2


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ([step("create", str(number)) for number in range(101)], "a transaction has at most 100 changes"),
        ([step("create", "a"), step("replace", "b")], "configmap/b is deleted before it is created again"),
        ([step("create", "a"), step("rebind", "b")], "configmap/b is bound to an object that the plan creates"),
        ([step("create", "a"), step("update", "b")._replace(problem="no")], "configmap/b would be rejected"),
        ([step("create", "a")._replace(live={}), step("update", "b")], "configmap/a is still being deleted"),
    ],
)
def test_plans_that_fit_no_transaction(steps: list[Step], why: str) -> None:
    fake: Any = Failing(503)
    assert execute(fake, fake, steps, "restoring").how == f"one by one: {why}"
    assert len(fake.done) == len(steps)
