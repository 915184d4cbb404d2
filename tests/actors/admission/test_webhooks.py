"""Admission webhooks in a whole server: order, patches, denials, failures, and what a write shows to them."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from admission.prepared_webhooks import MAPS, Hooks, adding, configure, patching, webhook
from in_process import configmap, open_server, pod
from services import open_services

from kubechronicle.actors.admission import plugins
from kubechronicle.actors.reading.conversions import WebhookError
from kubechronicle.actors.writing.targets import Caller, Target
from kubechronicle.api.errors.status import StatusError
from kubechronicle.eventlog.records import Who

MERGE = {"content-type": "application/merge-patch+json"}


async def test_mutating_webhooks_are_asked_in_order_and_validating_ones_after_them(hooks: Hooks) -> None:
    hooks.replies = {"one": adding("/data/a", "1"), "two": adding("/data/b", "2")}
    async with open_server() as server:
        await configure(server, "validating", webhook("last"))
        await configure(server, "mutating", webhook("two"), name="y")
        await configure(server, "mutating", webhook("one"), name="x")
        assert (await server.post(MAPS, configmap("m", x="0")))["data"] == {"x": "0", "a": "1", "b": "2"}
    assert hooks.names == ["one", "two", "last"]
    assert [set(request["object"]["data"]) for _, request in hooks.asked] == [{"x"}, {"x", "a"}, {"x", "a", "b"}]
    assert "uid" not in hooks.asked[0][1]["object"]["metadata"]
    assert "uid" in hooks.last()["object"]["metadata"]


async def test_validating_webhooks_are_asked_together(hooks: Hooks) -> None:
    both = trio.Event()

    async def waiting(request: dict[str, Any]) -> dict[str, Any]:
        if len(hooks.asked) == 2:
            both.set()
        await both.wait()
        return {"allowed": False, "status": {"message": "no", "code": 403}, "warnings": ["careful"]}

    hooks.replies = {"a": waiting, "b": waiting}
    async with open_server() as server:
        await configure(server, "validating", webhook("a"), webhook("b"))
        answer = await server.ask("POST", MAPS, configmap("m"))
    assert answer.refused(403)["message"] == 'admission webhook "a.example.com" denied the request: no'
    assert answer.header_all("warning") == ['299 - "careful"']
    assert sorted(hooks.names) == ["a", "b"]


async def test_a_failing_webhook_is_ignored_or_not(hooks: Hooks) -> None:
    hooks.replies = {"a": WebhookError("it is down"), "b": adding("/data/b", "1")}
    async with open_server() as server:
        await configure(server, "mutating", webhook("a", failurePolicy="Ignore"), webhook("b"))
        assert (await server.post(MAPS, configmap("m", x="0")))["data"] == {"x": "0", "b": "1"}
        await configure(server, "validating", webhook("a", failurePolicy="Fail"))
        answer = await server.ask("POST", MAPS, configmap("n", x="0"))
    why = 'failed calling webhook "a.example.com": failed to call webhook: it is down'
    assert answer.refused(500)["message"] == f"Internal error occurred: {why}"


async def test_a_changed_object_is_shown_again_once(hooks: Hooks) -> None:
    hooks.replies = {"two": adding("/data/k", "v")}
    async with open_server() as server:
        again = webhook("one", reinvocationPolicy="IfNeeded")
        await configure(server, "mutating", again, webhook("two"), webhook("three"))
        await server.post(MAPS, configmap("m", x="0"))
    assert hooks.names == ["one", "two", "three", "one"]
    assert hooks.last()["object"]["data"] == {"x": "0", "k": "v"}


async def test_builtin_plugins_see_the_patched_object(hooks: Hooks) -> None:
    side = {"name": "side", "image": "i:1"}
    hooks.replies = {"a": adding("/spec/containers/-", side)}
    async with open_server(admission=plugins.DEFAULT) as server:
        await configure(server, "mutating", webhook("a", "pods"))
        await server.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
        created = await server.post("/api/v1/namespaces/default/pods", pod("p"))
    added = created["spec"]["containers"][1]
    assert added["imagePullPolicy"] == "IfNotPresent"
    assert added["volumeMounts"][0]["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount"
    assert hooks.names == ["a"]  # the random name of the volume is the same in each attempt


async def test_random_values_are_the_same_in_each_attempt(hooks: Hooks) -> None:
    service = {"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}
    async with open_services() as server:
        await configure(server, "validating", webhook("a", "services"))
        created = await server.post("/api/v1/namespaces/default/services", service)
        shown = hooks.last()["object"]["spec"]
        assert (shown["clusterIP"], shown["ports"]) == (created["spec"]["clusterIP"], created["spec"]["ports"])
        await server.post(MAPS, {"metadata": {"generateName": "m-"}})
        more = {"spec": {"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]}}
        await server.patch("/api/v1/namespaces/default/services/s", more)
    assert hooks.names == ["a", "a"]


async def test_a_write_is_decided_on_the_newest_state(hooks: Hooks) -> None:
    async with open_server() as server:
        await server.post(MAPS, configmap("m", x="0"))

        async def interfering(request: dict[str, Any]) -> dict[str, Any]:
            if len(hooks.asked) == 1:
                await server.patch(f"{MAPS}/m", {"data": {"y": "1"}})
            return {}

        hooks.replies = {"a": interfering}
        condition = {"name": "c", "expression": "'z' in object.data"}
        await configure(server, "validating", webhook("a", matchConditions=[condition]))
        assert (await server.patch(f"{MAPS}/m", {"data": {"z": "2"}}))["data"] == {"x": "0", "y": "1", "z": "2"}
    assert [request["oldObject"]["data"] for _, request in hooks.asked] == [{"x": "0"}, {"x": "0", "y": "1"}]


@pytest.mark.parametrize("kind", ["mutating", "validating"])
async def test_a_webhook_refuses_an_update_once_while_other_objects_change(hooks: Hooks, kind: str) -> None:
    """The refusal is checked on the newest state, on which the question is the same."""
    async with open_server() as server:
        await server.post(MAPS, configmap("m", x="0"))

        async def refusing(request: dict[str, Any]) -> dict[str, Any]:
            if request["name"] == "m":
                await server.post(MAPS, configmap(f"n{len(hooks.asked)}"))
                return {"allowed": False}
            return {}

        hooks.replies = {"a": refusing}
        await configure(server, kind, webhook("a"))
        (await server.ask("PATCH", f"{MAPS}/m", {"data": {"y": "1"}}, headers=MERGE)).refused(400)
    assert [request["name"] for _, request in hooks.asked] == ["m", "n1"]


async def test_deletions(hooks: Hooks) -> None:
    rules = webhook("a")["rules"]
    rules[0]["operations"] = ["DELETE"]
    async with open_server() as server:
        await configure(server, "validating", webhook("a", rules=rules))
        for name in "mno":
            await server.post(MAPS, configmap(name))
        await server.delete(f"{MAPS}/m")
        request = hooks.last()
        assert (request["name"], request["object"], request["oldObject"]["metadata"]["name"]) == ("m", None, "m")
        await server.delete(MAPS)
        assert [request.get("name") for _, request in hooks.asked[1:]] == [None, None]
        await server.post(MAPS, configmap("p"))
        stale = {"preconditions": {"resourceVersion": "1"}}
        (await server.ask("DELETE", f"{MAPS}/p", stale)).refused(409)
        assert len(hooks.asked) == 3
        hooks.replies = {"a": {"allowed": False}}
        (await server.ask("DELETE", f"{MAPS}/p")).refused(400)
        await server.get(f"{MAPS}/p")


async def test_the_scale_of_a_workload_is_shown_and_patched_as_a_scale(hooks: Hooks) -> None:
    hooks.replies = {"a": patching({"op": "replace", "path": "/spec/replicas", "value": 7})}
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }
    path = "/apis/apps/v1/namespaces/default/deployments"
    async with open_server() as server:
        await configure(server, "mutating", webhook("a", "deployments/scale"))
        await server.post(path, {"metadata": {"name": "d"}, "spec": spec})
        assert (await server.patch(f"{path}/d/scale", {"spec": {"replicas": 3}}))["spec"] == {"replicas": 7}
        assert (await server.get(f"{path}/d"))["spec"]["replicas"] == 7
    request = hooks.last()
    assert request["kind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert (request["object"]["spec"], request["oldObject"]["spec"]) == ({"replicas": 3}, {"replicas": 1})


async def test_another_version_is_shown_and_converted_back(hooks: Hooks) -> None:
    hooks.replies = {"a": patching({"op": "replace", "path": "/spec/maxReplicas", "value": 9})}
    rule = {"apiGroups": ["autoscaling"], "apiVersions": ["v2"], "operations": ["*"], "resources": ["*"]}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    spec = {"maxReplicas": 3, "scaleTargetRef": target, "targetCPUUtilizationPercentage": 50}
    async with open_server() as server:
        await configure(server, "mutating", webhook("a", rules=[rule]))
        path = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
        created = await server.post(path, {"metadata": {"name": "h"}, "spec": spec})
    assert (created["apiVersion"], created["spec"]["maxReplicas"]) == ("autoscaling/v1", 9)
    request = hooks.last()
    assert (request["kind"]["version"], request["requestKind"]["version"]) == ("v2", "v1")
    assert request["object"]["apiVersion"] == "autoscaling/v2"


async def test_configurations_and_policies_are_never_shown(hooks: Hooks) -> None:
    async with open_server() as server:
        await configure(server, "validating", webhook("a", "*/*"))
        await configure(server, "mutating", webhook("b", "*/*"))
        await configure(server, "mutating", webhook("b", "*/*"), name="d")
        assert not hooks.asked
        await server.post(MAPS, configmap("m"))
    assert hooks.names == ["b", "b", "a"]


async def test_a_dry_run_needs_a_webhook_without_side_effects(hooks: Hooks) -> None:
    async with open_server() as server:
        await configure(server, "validating", webhook("a", sideEffects="NoneOnDryRun"))
        await server.post(f"{MAPS}?dryRun=All", configmap("m"))
    request = hooks.last()
    assert request["dryRun"] is True
    assert request["options"] == {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "dryRun": ["All"]}


async def test_a_patch_of_a_rejected_object_is_not_applied_twice(hooks: Hooks) -> None:
    """The chain runs again on the newest state after a rejection, on the object as it was."""
    hooks.replies = {"one": adding("/data/a", "1"), "two": {"allowed": False}}
    async with open_server() as server:
        await configure(server, "mutating", webhook("one"), webhook("two"))
        (await server.ask("POST", MAPS, configmap("m", x="0"))).refused(400)
    assert hooks.names == ["one", "two"]


async def test_the_timeout_is_the_webhooks(hooks: Hooks) -> None:
    async with open_server() as server:
        await configure(server, "validating", webhook("a", timeoutSeconds=3))
        await server.post(MAPS, configmap("m"))
    assert hooks.timeouts == [3]


async def test_a_webhook_that_hangs_holds_nobody_else(hooks: Hooks) -> None:
    entered, leave = trio.Event(), trio.Event()

    async def hanging(request: dict[str, Any]) -> dict[str, Any]:
        entered.set()
        await leave.wait()
        return {}

    hooks.replies = {"a": hanging}
    async with open_server() as server, trio.open_nursery() as nursery:
        await configure(server, "validating", webhook("a", objectSelector={"matchLabels": {"slow": "1"}}))
        nursery.start_soon(server.post, MAPS, configmap("slow", labels={"slow": "1"}))
        await entered.wait()
        await server.post(MAPS, configmap("fast"))
        await server.delete(f"{MAPS}/fast")
        leave.set()


async def test_connections_are_admitted_with_their_options(hooks: Hooks) -> None:
    hooks.replies = {"a": patching({"op": "add", "path": "/container", "value": "c"}), "b": {}}
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CONNECT"], "resources": ["pods/exec"]}]
    options = {"apiVersion": "v1", "kind": "PodExecOptions", "stdout": True, "command": ["ls"]}
    async with open_server() as server:
        await configure(server, "mutating", webhook("a", rules=rules))
        await configure(server, "validating", webhook("b", rules=rules))
        store = server.assembly.store
        pods = store.registry.builtin("", "v1", "pods")
        target = Target(rt=pods, namespace="default", name="p", subresource="exec")
        caller = Caller(who=Who(user="alice"), deadline=trio.current_time() + 30)
        await store.writes.admit_connect(caller, target, options)
        assert options["container"] == "c"
        hooks.replies["b"] = {"allowed": False, "status": {"code": 403, "message": "no shells"}}
        with pytest.raises(StatusError) as caught:
            await store.writes.admit_connect(caller, target, options)
    assert (caught.value.code, caught.value.message) == (
        403,
        'admission webhook "b.example.com" denied the request: no shells',
    )
    request = hooks.last()
    assert (request["operation"], request["subResource"], request["name"]) == ("CONNECT", "exec", "p")
    assert request["kind"] == {"group": "", "version": "v1", "kind": "PodExecOptions"}
    assert (request["oldObject"], request["options"]) == (None, None)


async def test_warnings_about_a_connection_are_shown(hooks: Hooks) -> None:
    hooks.replies = {"a": {"allowed": True, "warnings": ["careful"]}}
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CONNECT"], "resources": ["*/*"]}]
    async with open_server() as server:
        await configure(server, "validating", webhook("a", rules=rules))
        for path in ("nodes/n/proxy", "namespaces/default/pods/p/proxy/x", "namespaces/default/pods/p/exec?command=ls"):
            answer = await server.ask("POST", f"/api/v1/{path}")
            assert answer.header_all("warning") == ['299 - "careful"']
            answer.refused(404)


async def test_an_eviction_follows_the_options_that_a_webhook_has_left(hooks: Hooks) -> None:
    pods = "/api/v1/namespaces/default/pods"
    hooks.replies = {"a": adding("/deleteOptions", {"dryRun": ["All"]})}
    async with open_server() as server:
        await configure(server, "mutating", webhook("a", "pods/eviction"))
        await server.post(pods, pod("p"))
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
        await server.post(f"{pods}/p/eviction", eviction)
        assert "deletionTimestamp" not in (await server.get(f"{pods}/p"))["metadata"]


async def test_unusable_managed_fields_are_not_taken_over(hooks: Hooks) -> None:
    hooks.replies = {"a": patching({"op": "replace", "path": "/metadata/managedFields", "value": [{"manager": "x"}]})}
    async with open_server() as server:
        await configure(server, "mutating", webhook("a"))
        answer = await server.ask("POST", f"{MAPS}?fieldManager=m", configmap("m", x="0"))
        assert [entry["manager"] for entry in answer.ok()["metadata"]["managedFields"]] == ["m"]
        assert "operation must be `Apply` or `Update`" in answer.header("warning")
        changed = await server.ask("PATCH", f"{MAPS}/m", {"data": {"y": "1"}}, headers=MERGE)
        assert "in an invalid state after admission" in changed.header("warning")


async def test_owners_that_a_webhook_repeats_are_kept_once(hooks: Hooks) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "b", "uid": "u"}
    hooks.replies = {"a": adding("/metadata/ownerReferences/-", owner)}
    async with open_server() as server:
        await configure(server, "mutating", webhook("a"))
        sent = configmap("m", x="0")
        sent["metadata"]["ownerReferences"] = [owner]
        answers = [
            await server.ask("POST", MAPS, sent),
            await server.ask("PUT", f"{MAPS}/m", sent),
            await server.ask("PATCH", f"{MAPS}/m", {}, headers=MERGE),
        ]
        for answer in answers:
            assert answer.ok()["metadata"]["ownerReferences"] == [owner]
            (warning,) = answer.header_all("warning")
            assert "duplicate entries after mutating admission happens" in warning
            assert "observed: u" in warning


async def test_a_webhook_may_mark_a_new_object_for_deletion(hooks: Hooks) -> None:
    hooks.replies = {"a": adding("/metadata/deletionTimestamp", "2020-01-01T00:00:00Z")}
    async with open_server() as server:
        await configure(server, "mutating", webhook("a"))
        assert (await server.post(MAPS, configmap("m")))["metadata"]["deletionTimestamp"] == "2020-01-01T00:00:00Z"


async def test_the_same_value_again_changes_nothing_in_the_second_round(hooks: Hooks) -> None:
    hooks.replies = {"one": adding("/data/a", "1"), "two": adding("/data/b", "1")}
    async with open_server() as server:
        again = {"reinvocationPolicy": "IfNeeded"}
        await configure(server, "mutating", webhook("one", **again), webhook("two", **again))
        await server.post(MAPS, configmap("m", x="0"))
    assert hooks.names == ["one", "two", "one"]


@pytest.mark.parametrize("query", ["", "?gracePeriodSeconds=0"])
async def test_both_steps_of_the_deletion_of_a_pod_are_shown(hooks: Hooks, query: str) -> None:
    pods = "/api/v1/namespaces/default/pods"
    async with open_server() as server:
        await server.post(pods, pod("p"))
        await configure(server, "validating", webhook("a", "pods"))
        await server.delete(f"{pods}/p{query}")
    assert [request["options"]["gracePeriodSeconds"] for _, request in hooks.asked] == [0, 0]
    marked = ["deletionTimestamp" in request["oldObject"]["metadata"] for _, request in hooks.asked]
    assert marked == [False, True]


async def test_mutating_webhooks_see_a_scale_as_it_was_sent(hooks: Hooks) -> None:
    hooks.replies = {"one": adding("/spec/replicas", 4)}
    path = "/apis/apps/v1/namespaces/default/deployments"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    async with open_server() as server:
        await server.post(
            path, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}
        )
        rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["deployments/scale"]}
        await configure(server, "mutating", webhook("one", rules=[rule]))
        scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 3}}
        answer = await server.put(f"{path}/d/scale?fieldManager=s", scale)
    assert answer["spec"]["replicas"] == 4
    ((_, request),) = hooks.asked
    sent, old = request["object"], request["oldObject"]
    assert "uid" not in sent["metadata"]
    assert "uid" in old["metadata"]
    (entry,) = sent["metadata"]["managedFields"]
    assert (entry["manager"], entry["subresource"], entry["fieldsV1"]) == ("s", "scale", {"f:spec": {"f:replicas": {}}})


async def test_a_deletion_that_waits_for_finalizers_is_shown_each_time(hooks: Hooks) -> None:
    async with open_server() as server:
        held = configmap("m")
        held["metadata"]["finalizers"] = ["example.com/x"]
        await server.post(MAPS, held)
        await configure(server, "validating", webhook("a"))
        await server.delete(f"{MAPS}/m")
        await server.delete(f"{MAPS}/m")
    assert [request["operation"] for _, request in hooks.asked] == ["DELETE", "DELETE"]


async def test_validating_webhooks_see_empty_lists_and_no_defaults_of_the_store(hooks: Hooks) -> None:
    roles, claims = (
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/api/v1/namespaces/default/persistentvolumeclaims",
    )
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    rule = {"apiGroups": ["*"], "apiVersions": ["v1"], "operations": ["*"]}
    async with open_server() as server:
        await configure(server, "validating", webhook("a", rules=[{**rule, "resources": ["persistentvolumeclaims"]}]))
        role_rules = [{**rule, "resources": ["clusterroles"]}]
        await configure(server, "validating", webhook("b", rules=role_rules), name="roles")
        role = await server.post(roles, {"metadata": {"name": "r"}, "rules": []})
        claim = await server.post(claims, {"metadata": {"name": "c"}, "spec": spec})
    assert (role["rules"], claim["status"]) == (None, {"phase": "Pending"})
    shown = {name: request["object"] for name, request in hooks.asked}
    assert (shown["b"]["rules"], shown["a"]["status"]) == ([], {})


async def test_the_name_in_an_eviction_or_binding_is_checked_after_mutating_webhooks(hooks: Hooks) -> None:
    pods = "/api/v1/namespaces/default/pods"
    async with open_server() as server:
        await server.post(pods, pod("p"))
        rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}]
        rules[0]["resources"] = ["pods/eviction", "pods/binding"]
        await configure(server, "mutating", webhook("m", rules=rules))
        await configure(server, "validating", webhook("v", rules=rules))
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "q"}}
        (await server.ask("POST", f"{pods}/p/eviction", eviction)).refused(400)
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"name": ""}}
        (await server.ask("POST", f"{pods}/p/binding", binding)).refused(500)
    assert hooks.names == ["m", "m"]


async def test_a_dry_run_of_an_evictions_own_options_is_not_that_of_the_request(hooks: Hooks) -> None:
    pods = "/api/v1/namespaces/default/pods"
    async with open_server() as server:
        await server.post(pods, pod("p"))
        await configure(server, "validating", webhook("v", "pods/eviction"))
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
        await server.post(f"{pods}/p/eviction", {**eviction, "deleteOptions": {"dryRun": ["All"]}})
        assert not hooks.last()["dryRun"]
        assert "deletionTimestamp" not in (await server.get(f"{pods}/p"))["metadata"]


async def test_a_negative_grace_period_is_shown_as_one_second(hooks: Hooks) -> None:
    async with open_server() as server:
        await server.post(MAPS, configmap("m"))
        await configure(server, "validating", webhook("v"))
        await server.ask("DELETE", f"{MAPS}/m?gracePeriodSeconds=-5")
    assert hooks.last()["options"]["gracePeriodSeconds"] == 1


async def test_a_new_objects_revision_is_shown_before_it_is_refused(hooks: Hooks) -> None:
    async with open_server() as server:
        await configure(server, "validating", webhook("v"))
        named = {**configmap("m"), "metadata": {"name": "m", "resourceVersion": "7"}}
        (await server.ask("POST", MAPS, named)).refused(500)
    assert hooks.last()["object"]["metadata"]["resourceVersion"] == "7"


async def test_a_dry_run_of_a_connection_is_refused(hooks: Hooks) -> None:
    async with open_server() as server:
        for path in ("exec?command=x&dryRun=All", "proxy/x?dryRun=All"):
            refusal = (await server.ask("GET", f"/api/v1/namespaces/default/pods/p/{path}")).refused(400)
            assert refusal["message"] == "dryRun is not supported"
