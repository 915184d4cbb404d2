"""Writes from end to end through the pure rules, against a dictionary instead of a log."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubechronicle.api.codecs import yaml
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.encoding import copy_object, encode_stored
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.pipeline import deleting, patches, pipeline
from kubechronicle.api.pipeline.pipeline import Outcome, Prepared, WriteContext
from kubechronicle.api.pipeline.scale import scale_of, with_scale
from kubechronicle.api.registry.registry import ResourceType, builtin_registry

NOW = "2026-01-01T00:00:00Z"
LATER = "2026-01-01T00:01:00Z"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"


def resource(path: str) -> ResourceType:
    group, version, plural = path.rsplit("/", 2) if path.count("/") == 2 else ("", *path.split("/"))
    found = builtin_registry().lookup(group, version, plural)
    assert found is not None
    return found


class Objects:
    """One resource's objects, and the writes a server would carry out."""

    def __init__(self, path: str) -> None:
        self.rt = resource(path)
        self.revision = 10
        self.stored: dict[str, dict[str, Any]] = {}
        self.warnings: list[str] = []

    def context(self, name: str = "", **more: Any) -> WriteContext:
        namespace = "n" if self.rt.namespaced else ""
        return WriteContext(
            **{"now": NOW, "uid": "u", "name_suffix": "bcdfg", "manager": "m", "name": name, "namespace": namespace}
            | more
        )

    def carry_out(self, name: str, prepared: Prepared) -> dict[str, Any]:
        if prepared.outcome is Outcome.UNCHANGED:
            return prepared.object
        self.revision += 1
        if prepared.outcome is Outcome.GONE:
            del self.stored[name]
            return prepared.object
        stored: dict[str, Any] = json.loads(encode_stored(prepared.object))
        stored["metadata"]["resourceVersion"] = str(self.revision)
        self.stored[name] = stored
        if prepared.outcome is Outcome.STORE_THEN_GONE:
            del self.stored[name]
        return stored

    def create(self, obj: dict[str, Any], **more: Any) -> dict[str, Any]:
        ctx = self.context(**more)
        decoded, self.warnings = pipeline.decode_object(self.rt, obj, ctx, create=True)
        prepared = pipeline.prepare_create(self.rt, decoded, ctx)
        return self.carry_out(prepared.object["metadata"]["name"], prepared)

    def update(self, name: str, obj: dict[str, Any], **more: Any) -> dict[str, Any]:
        ctx = self.context(name, **more)
        decoded, self.warnings = pipeline.decode_object(self.rt, obj, ctx, create=False)
        return self.carry_out(name, pipeline.prepare_update(self.rt, self.stored[name], decoded, ctx))

    def patch(self, name: str, patch: Any, content_type: str = MERGE, **more: Any) -> dict[str, Any]:
        ctx = self.context(name, patches=True, **more)
        body = json.dumps(patch).encode()
        new, self.warnings = patches.apply_patch(self.rt, copy_object(self.stored[name]), content_type, body, ctx)
        return self.carry_out(name, pipeline.prepare_update(self.rt, self.stored[name], new, ctx))

    def delete(self, name: str, **more: Any) -> tuple[Outcome, dict[str, Any]]:
        ctx = self.context(name, now=LATER)
        prepared = deleting.prepare_delete(self.rt, self.stored[name], DeleteOptions(**more), ctx)
        obj = self.carry_out(name, prepared)
        answer = deleting.delete_answer(self.rt, Prepared(prepared.outcome, obj), name)
        return prepared.outcome, answer


def config_map(name: str = "a", **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **more}


def replica_set(**more: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"app": "a"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "a"}, "spec": spec, **more}


def pod(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "c", "image": "i:1"}], **spec},
    }


def refused(code: int) -> Any:
    return pytest.raises(StatusError, check=lambda error: error.code == code)


def test_a_stored_object_begins_with_its_type_and_has_no_revision() -> None:
    body = encode_stored(
        {"data": {}, "metadata": {"resourceVersion": "5", "name": "a"}, "kind": "K", "apiVersion": "v"}
    )
    assert body == b'{"apiVersion":"v","kind":"K","metadata":{"name":"a"},"data":{}}'


def test_create_fills_in_what_is_the_servers() -> None:
    maps = Objects("v1/configmaps")
    obj = maps.create({"metadata": {"name": "a", "uid": "mine"}, "data": {"k": "v"}})
    assert obj == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "a",
            "namespace": "n",
            "uid": "u",
            "creationTimestamp": NOW,
            "resourceVersion": "11",
            "managedFields": [
                {
                    "manager": "m",
                    "operation": "Update",
                    "apiVersion": "v1",
                    "time": NOW,
                    "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:data": {".": {}, "f:k": {}}},
                }
            ],
        },
        "data": {"k": "v"},
    }


@pytest.mark.parametrize(
    ("obj", "code", "message"),
    [
        (config_map("Bad"), 422, 'ConfigMap "Bad" is invalid: metadata.name: Invalid value: "Bad": a lowercase RFC'),
        ({"kind": "Secret", "metadata": {"name": "a"}}, 400, 'Secret in version "v1" cannot be handled as a ConfigMap'),
        ({"apiVersion": "v2", "metadata": {}}, 400, 'ConfigMap in version "v2" cannot be handled as a ConfigMap: no'),
        ({"apiVersion": "//v1", "metadata": {}}, 400, 'ConfigMap in version "v1" cannot be handled as a ConfigMap: un'),
        ({"metadata": {"name": "a", "resourceVersion": "4"}}, 500, "resourceVersion should not be set on objects to"),
        ({"metadata": {"name": "a", "namespace": "x"}}, 400, "the namespace of the provided object does not match"),
        ({"metadata": {"name": "a"}, "data": 1}, 400, 'ConfigMap in version "v1" cannot be handled as a ConfigMap: js'),
    ],
)
def test_creations_that_are_refused(obj: dict[str, Any], code: int, message: str) -> None:
    with refused(code) as caught:
        Objects("v1/configmaps").create(obj)
    assert caught.value.message.startswith(message)


def test_an_empty_group_may_stand_before_the_version() -> None:
    made = Objects("v1/configmaps").create({"apiVersion": "/v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
    assert made["apiVersion"] == "v1"


def test_unknown_fields_warn_or_are_refused() -> None:
    maps = Objects("v1/configmaps")
    maps.create(config_map(dta={}))
    assert maps.warnings == ['unknown field "dta"']
    maps.create(config_map("b", dta={}), field_validation="Ignore")
    assert maps.warnings == []
    with refused(400) as caught:
        maps.create(config_map("c", dta={}), field_validation="Strict")
    assert caught.value.message.endswith('strict decoding error: unknown field "dta"')


def test_an_update_without_change_changes_nothing() -> None:
    maps = Objects("v1/configmaps")
    before = maps.create(config_map(data={"k": "v"}))
    assert maps.update("a", config_map(data={"k": "v"}), now=LATER, manager="other") == before
    assert maps.patch("a", {}) == before


def test_preconditions_of_updates() -> None:
    maps = Objects("v1/configmaps")
    maps.create(config_map())
    stale = config_map()
    stale["metadata"]["resourceVersion"] = "7"
    with refused(409):
        maps.update("a", stale)
    other = config_map()
    other["metadata"]["uid"] = "v"
    with refused(409):
        maps.update("a", other)
    with refused(422):
        maps.patch("a", {"metadata": {"uid": "v"}})
    with refused(400):
        maps.patch("a", {"metadata": {"name": "b"}})
    leases = Objects("coordination.k8s.io/v1/leases")
    leases.create({"metadata": {"name": "a"}})
    with refused(422):
        leases.update("a", {"metadata": {"name": "a"}})
    assert pipeline.allows_create_on_update(leases.rt)


def test_status_and_spec_are_written_apart() -> None:
    sets = Objects("apps/v1/replicasets")
    created = sets.create(replica_set(status={"replicas": 9}))
    assert created["status"] == {"replicas": 0}
    assert created["metadata"]["generation"] == 1
    done = sets.patch("a", {"spec": {"replicas": 5}, "status": {"replicas": 2}}, subresource="status")
    assert (done["spec"]["replicas"], done["status"], done["metadata"]["generation"]) == (1, {"replicas": 2}, 1)
    done = sets.patch("a", {"spec": {"replicas": 5}, "status": {"replicas": 7}})
    assert (done["spec"]["replicas"], done["status"], done["metadata"]["generation"]) == (5, {"replicas": 2}, 2)
    with refused(422):
        sets.patch("a", {"spec": {"selector": {"matchLabels": {"app": "b"}}}})


def test_scale_is_another_view_of_the_spec() -> None:
    sets = Objects("apps/v1/replicasets")
    created = sets.create(replica_set())
    scale = scale_of(created)
    assert scale["spec"] == {"replicas": 1}
    assert scale["status"] == {"replicas": 0, "selector": "app=a"}
    scale["spec"]["replicas"] = 3
    ctx = sets.context("a", subresource="scale")
    done = pipeline.prepare_update(sets.rt, created, with_scale(sets.rt, created, scale), ctx)
    assert done.object["spec"]["replicas"] == 3
    with refused(422):
        with_scale(sets.rt, created, {"metadata": {"name": "a"}, "spec": {"replicas": -1}})


def test_immutable_config_maps() -> None:
    maps = Objects("v1/configmaps")
    maps.create(config_map(immutable=True, data={"k": "v"}))
    with refused(422):
        maps.update("a", config_map(immutable=True, data={"k": "w"}))
    with refused(422):
        maps.update("a", config_map(data={"k": "v"}))


def test_secrets_hide_string_data() -> None:
    obj = Objects("v1/secrets").create({"metadata": {"name": "a"}, "data": {"k": "eA=="}, "stringData": {"k": "v"}})
    assert (obj["data"], obj["type"]) == ({"k": "dg=="}, "Opaque")
    assert "stringData" not in obj


def test_deleting_answers_a_status_or_the_object() -> None:
    maps = Objects("v1/configmaps")
    maps.create(config_map())
    outcome, answer = maps.delete("a")
    assert outcome is Outcome.GONE
    assert answer["details"] == {"kind": "configmaps", "name": "a", "uid": "u"}
    accounts = Objects("v1/serviceaccounts")
    accounts.create({"metadata": {"name": "a"}})
    assert accounts.delete("a")[1]["kind"] == "ServiceAccount"


def test_finalizers_hold_an_object_until_the_last_one_goes() -> None:
    maps = Objects("v1/configmaps")
    obj = config_map()
    obj["metadata"]["finalizers"] = ["x.io/f"]
    maps.create(obj)
    outcome, answer = maps.delete("a")
    assert outcome is Outcome.STORE
    assert answer["metadata"]["deletionTimestamp"] == LATER
    assert answer["metadata"]["deletionGracePeriodSeconds"] == 0
    assert maps.delete("a")[0] is Outcome.UNCHANGED
    with refused(422):
        maps.patch("a", {"metadata": {"finalizers": ["x.io/f", "x.io/g"]}})
    assert maps.patch("a", {"data": {"k": "v"}})["data"] == {"k": "v"}
    old = maps.stored["a"]
    ctx = maps.context("a")
    new, _ = patches.apply_patch(maps.rt, copy_object(old), MERGE, b'{"metadata":{"finalizers":null}}', ctx)
    ended = pipeline.prepare_update(maps.rt, old, new, ctx)
    assert ended.outcome is Outcome.GONE
    assert "finalizers" not in ended.object["metadata"]
    assert ended.last == old


@pytest.mark.parametrize(
    ("options", "finalizers"),
    [
        ({"propagation_policy": "Foreground"}, ["foregroundDeletion"]),
        ({"propagation_policy": "Orphan"}, ["orphan"]),
        ({"orphan_dependents": True}, ["orphan"]),
    ],
)
def test_dependents_are_left_to_the_garbage_collector(options: dict[str, Any], finalizers: list[str]) -> None:
    maps = Objects("v1/configmaps")
    maps.create(config_map())
    outcome, answer = maps.delete("a", **options)
    assert outcome is Outcome.STORE
    assert answer["metadata"]["finalizers"] == finalizers


def test_preconditions_of_deletions() -> None:
    maps = Objects("v1/configmaps")
    maps.create(config_map())
    with refused(409):
        maps.delete("a", precondition_uid="v")
    with refused(409):
        maps.delete("a", precondition_resource_version="3")
    maps.delete("a", precondition_uid="u", precondition_resource_version="11")


def test_a_pod_on_a_node_gets_time_and_may_only_lose_it() -> None:
    pods = Objects("v1/pods")
    created = pods.create(pod(nodeName="n1"))
    assert created["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    outcome, answer = pods.delete("a", grace_period_seconds=20)
    assert outcome is Outcome.STORE
    assert answer["metadata"]["deletionTimestamp"] == "2026-01-01T00:01:20Z"
    assert answer["metadata"]["generation"] == 2
    assert pods.delete("a", grace_period_seconds=25)[0] is Outcome.UNCHANGED
    answer = pods.delete("a", grace_period_seconds=5)[1]
    assert answer["metadata"]["deletionTimestamp"] == "2026-01-01T00:01:05Z"
    outcome, answer = pods.delete("a", grace_period_seconds=0)
    assert outcome is Outcome.STORE_THEN_GONE
    assert answer["metadata"]["deletionGracePeriodSeconds"] == 0
    assert pods.stored == {}


def test_a_pod_without_a_node_goes_at_once() -> None:
    pods = Objects("v1/pods")
    pods.create(pod())
    assert pods.delete("a")[0] is Outcome.STORE_THEN_GONE


def test_quality_of_service() -> None:
    limits = {"limits": {"cpu": "1", "memory": "1Gi"}}
    container = {"name": "c", "image": "i"}
    pods = Objects("v1/pods")
    created = pods.create(pod(containers=[{**container, "resources": limits}]))
    assert created["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
    assert created["status"]["qosClass"] == "Guaranteed"
    some = {"requests": {"cpu": "1"}}
    assert pods.create(pod(containers=[{**container, "resources": some}]))["status"]["qosClass"] == "Burstable"
    sent = pods.create({**pod(containers=[container]), "status": {"qosClass": "Guaranteed", "reason": "x"}})
    assert sent["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


def test_a_namespace_ends_when_it_is_finalized() -> None:
    spaces = Objects("v1/namespaces")
    created = spaces.create({"metadata": {"name": "x"}})
    assert created["metadata"]["labels"] == {"kubernetes.io/metadata.name": "x"}
    assert (created["spec"], created["status"]) == ({"finalizers": ["kubernetes"]}, {"phase": "Active"})
    outcome, answer = spaces.delete("x")
    assert outcome is Outcome.STORE
    assert answer["status"] == {"phase": "Terminating"}
    assert spaces.delete("x")[0] is Outcome.UNCHANGED
    old = spaces.stored["x"]
    ctx = spaces.context("x", subresource="finalize")
    new, _ = pipeline.decode_object(
        spaces.rt, {"metadata": {"name": "x"}, "spec": {"finalizers": []}}, ctx, create=False
    )
    assert pipeline.prepare_update(spaces.rt, old, new, ctx).outcome is Outcome.GONE


def test_json_patches_that_fail_are_refused_without_a_reason() -> None:
    maps = Objects("v1/configmaps")
    maps.create(config_map())
    with refused(422) as caught:
        maps.patch("a", [{"op": "test", "path": "/data/k", "value": "x"}], "application/json-patch+json")
    assert caught.value.message == "the server rejected our request due to an error in our request"
    with refused(415):
        maps.patch("a", {}, "application/json")
    with refused(422) as caught:
        maps.patch("a", {"data": {"k": 5}})
    assert caught.value.details is not None
    assert caught.value.details["causes"][0]["field"] == "patch"


def test_defaults_of_a_pod() -> None:
    probe = {"httpGet": {"port": 80}}
    volume = {"name": "v", "secret": {"secretName": "s"}}
    container = {"name": "c", "image": "r.io:5000/i", "livenessProbe": probe, "ports": [{"containerPort": 1}]}
    spec = Objects("v1/pods").create(pod(containers=[container], volumes=[volume, {"name": "w"}]))["spec"]
    assert spec["containers"][0]["imagePullPolicy"] == "Always"
    assert spec["containers"][0]["livenessProbe"] == {
        "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    assert spec["containers"][0]["ports"][0]["protocol"] == "TCP"
    assert spec["volumes"] == [
        {"name": "v", "secret": {"secretName": "s", "defaultMode": 420}},
        {"name": "w", "emptyDir": {}},
    ]
    assert (spec["restartPolicy"], spec["terminationGracePeriodSeconds"]) == ("Always", 30)
    assert spec["enableServiceLinks"] is True


def test_autoscalers_of_both_versions_are_one_object() -> None:
    older, newer = (
        Objects("autoscaling/v1/horizontalpodautoscalers"),
        resource("autoscaling/v2/horizontalpodautoscalers"),
    )
    target = {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}
    stored = older.create({"metadata": {"name": "h"}, "spec": {"scaleTargetRef": target, "maxReplicas": 3}})
    assert stored["apiVersion"] == "autoscaling/v2"
    assert stored["spec"]["metrics"][0]["resource"]["target"] == {"type": "Utilization", "averageUtilization": 80}
    shown = pipeline.to_request_version(older.rt, stored)
    assert shown["spec"]["targetCPUUtilizationPercentage"] == 80
    pods_metric = {
        "type": "Pods",
        "pods": {"metric": {"name": "q"}, "target": {"type": "AverageValue", "averageValue": "1k"}},
    }
    behavior = {"scaleDown": {"selectPolicy": "Max", "policies": [{"type": "Pods", "value": 1, "periodSeconds": 5}]}}
    rich = {**stored, "spec": {**stored["spec"], "metrics": [pods_metric, *stored["spec"]["metrics"]]}}
    rich["spec"]["behavior"] = behavior
    there = pipeline.to_request_version(older.rt, rich)
    assert set(there["metadata"]["annotations"]) == {
        "autoscaling.alpha.kubernetes.io/metrics",
        "autoscaling.alpha.kubernetes.io/behavior",
    }
    back = pipeline.to_storage_version(newer, there)
    assert back == rich


def test_events_of_both_versions_are_one_object() -> None:
    newer = resource("events.k8s.io/v1/events")
    core: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "n"},
        "involvedObject": {"kind": "Pod", "name": "p"},
        "message": "hello",
        "source": {"component": "c"},
        "firstTimestamp": NOW,
        "lastTimestamp": None,
        "count": 2,
        "eventTime": None,
        "reportingComponent": "c",
        "reportingInstance": "",
    }
    shown = pipeline.to_request_version(newer, core)
    assert (shown["apiVersion"], shown["note"], shown["regarding"]["name"]) == ("events.k8s.io/v1", "hello", "p")
    assert shown["deprecatedCount"] == 2
    assert pipeline.to_storage_version(newer, shown) == core


def test_a_put_that_creates_has_no_uid_and_any_number_as_revision() -> None:
    rt = resource("coordination.k8s.io/v1/leases")
    ctx = WriteContext(now=NOW, uid="u", manager="m", namespace="default", name="a")

    def put(spec: dict[str, Any] | None = None, **given: str) -> Prepared:
        body = {"metadata": {"name": "a", **given}, "spec": spec}
        obj, _ = pipeline.decode_object(rt, body, ctx, create=False)
        return pipeline.prepare_create(rt, obj, ctx)

    assert put(resourceVersion="5").outcome is Outcome.STORE
    with pytest.raises(StatusError, match="Precondition failed: UID in precondition: x") as caught:
        put(uid="x")
    assert caught.value.code == 409
    with pytest.raises(StatusError, match="invalid syntax") as caught:
        put({"leaseDurationSeconds": -1}, resourceVersion="abc")  # read before the rules of its kind
    assert caught.value.code == 500


STRATEGIC = "application/strategic-merge-patch+json"


def test_the_order_of_keys_counts_in_the_data_of_a_controller_revision() -> None:
    revisions = Objects("apps/v1/controllerrevisions")
    body = {"metadata": {"name": "a"}, "revision": 1, "data": {"b": 1, "a": {"d": 1.0, "c": 2}}}
    revisions.create(copy_object(body))
    revisions.update("a", copy_object({**body, "revision": 2}))
    assert revisions.patch("a", {"revision": 3})["data"] == body["data"]
    with refused(422):
        revisions.update("a", {**body, "data": {"a": {"d": 1.0, "c": 2}, "b": 1}})
    with refused(422):
        revisions.patch("a", {"revision": 4}, STRATEGIC)
    applied = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": "a", "labels": {"a": "b"}}}
    with refused(422):
        revisions.patch("a", applied, "application/apply-patch+yaml", applies=True)
    revisions.create({"metadata": {"name": "s"}, "revision": 1, "data": {"a": {"c": 2}, "b": 1}})
    assert revisions.patch("s", {"revision": 4}, STRATEGIC)["revision"] == 4


def test_patches_sort_the_keys_of_the_objects_that_they_enter() -> None:
    revisions = Objects("apps/v1/controllerrevisions")
    in_order = {"a": {"c": 2, "d": [1]}, "b": 1}
    revisions.create({"metadata": {"name": "s"}, "revision": 1, "data": copy_object(in_order)})
    revisions.create({"metadata": {"name": "u"}, "revision": 1, "data": {"b": 1, "a": {"d": [1], "c": 2}}})
    entering = [{"op": "replace", "path": "/data/a/d/0", "value": 1}]
    for patch in (entering, [{"op": "test", "path": "/data", "value": in_order}]):
        assert revisions.patch("s", patch, JSON_PATCH)["data"] == in_order
        with refused(422):
            revisions.patch("u", patch, JSON_PATCH)
    assert revisions.patch("u", [{"op": "replace", "path": "/revision", "value": 5}], JSON_PATCH)["revision"] == 5
    with refused(422):
        revisions.patch("u", {"data": {"a": {"c": 2}}})
    assert revisions.patch("s", {"data": {"a": {"c": 2}}})["data"] == in_order


def test_yaml_sorts_the_keys_of_the_data_of_a_controller_revision() -> None:
    rt = builtin_registry().lookup("apps", "v1", "controllerrevisions")
    assert rt is not None
    value, complaints = yaml.decode(b"metadata: {name: a}\nrevision: 1\ndata: {b: 1, a: {d: 1, c: 2}}\n")
    obj, _ = pipeline.decode_object(
        rt, value, Objects("apps/v1/controllerrevisions").context(), duplicates=complaints, create=True
    )
    assert json.dumps(obj["data"]) == '{"a": {"c": 2, "d": 1}, "b": 1}'


def test_the_first_update_of_a_job_stores_its_labels() -> None:
    jobs = Objects("batch/v1/jobs")
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    for name, labels in (("a", {}), ("b", {"a": "b"})):
        stored = jobs.create(
            {"metadata": {"name": name, "labels": labels}, "spec": {"template": copy_object(template)}}
        )
        unchanged = pipeline.prepare_update(jobs.rt, stored, copy_object(stored), jobs.context(name))
        assert unchanged.outcome is Outcome.UNCHANGED
        first = pipeline.finish_first_update(jobs.rt, unchanged)
        assert first.outcome is (Outcome.UNCHANGED if labels else Outcome.STORE)


def test_the_first_update_of_a_claim_stores_its_phase() -> None:
    claims = Objects("v1/persistentvolumeclaims")
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    stored = claims.create({"metadata": {"name": "a"}, "spec": spec})
    assert stored["status"] == {"phase": "Pending"}
    unchanged = pipeline.prepare_update(claims.rt, stored, copy_object(stored), claims.context("a"))
    assert unchanged.outcome is Outcome.UNCHANGED
    assert pipeline.finish_first_update(claims.rt, unchanged).outcome is Outcome.STORE


@pytest.mark.parametrize(
    ("name", "namespace", "message"),
    [
        ("b", "other", "the namespace of the provided object"),
        ("b", "n", "the name of the object"),
        ("", "n", "the name of the object"),
    ],
)
def test_the_namespace_is_matched_before_the_name_and_the_error_has_warnings(
    name: str, namespace: str, message: str
) -> None:
    maps = Objects("v1/configmaps")
    maps.create({"metadata": {"name": "a"}})
    other = {"metadata": {"name": name, "namespace": namespace}, "dat": {}}
    for write in (maps.update, maps.patch):
        with pytest.raises(StatusError, match=message) as caught:
            write("a", copy_object(other))
        assert list(caught.value.warnings) == ['unknown field "dat"']


def test_labels_of_its_pods_are_those_of_a_replication_controller_without_labels() -> None:
    controllers = Objects("v1/replicationcontrollers")
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    controllers.create({"metadata": {"name": "a"}, "spec": {"template": template}})
    patch = {"metadata": {"labels": None}, "spec": {"template": {"metadata": {"labels": None}}}}
    assert controllers.patch("a", patch, subresource="status")["metadata"]["labels"] == {"a": "b"}
