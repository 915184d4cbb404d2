"""Every verb on resources as clients see it: codes, representations, options, paging and past revisions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from in_process import MAPS, PODS, PROTOBUF, InProcess, configmap, open_server, pod
from trio.testing import MockClock

from kubechronicle.api.codecs import protobuf
from kubechronicle.eventlog.memory.memory_log import MemoryLog
from kubechronicle.eventlog.views import view

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIALS = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


def deployment(name: str, replicas: int = 1) -> Any:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod("x")["spec"]},
        },
    }


# -- the verbs --------------------------------------------------------------------------------------------------------


async def test_a_life(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        created = await server.ask("POST", MAPS, configmap("a", x="1"))
        assert created.status == 201
        assert created.header("content-type") == "application/json"
        assert created.header("cache-control") == "no-cache, private"
        made = created.json()
        assert made["metadata"]["resourceVersion"] == "2"
        assert list(made)[:3] == ["apiVersion", "kind", "metadata"]
        assert await server.get(f"{MAPS}/a") == made
        updated = await server.put(f"{MAPS}/a", {**made, "data": {"x": "2"}})
        assert updated["metadata"]["resourceVersion"] == "3"
        assert updated["metadata"]["uid"] == made["metadata"]["uid"]
        patched = await server.patch(f"{MAPS}/a", {"data": {"y": "1"}})
        assert patched["data"] == {"x": "2", "y": "1"}
        patched = await server.patch(f"{MAPS}/a", [{"op": "remove", "path": "/data/x"}], kind="json-patch")
        assert patched["data"] == {"y": "1"}
        body = {"data": {"$patch": "replace", "z": "1"}}
        patched = await server.patch(f"{MAPS}/a", body, kind="strategic-merge-patch")
        assert patched["data"] == {"z": "1"}
        listed = await server.get(MAPS)
        assert (listed["kind"], listed["apiVersion"]) == ("ConfigMapList", "v1")
        assert listed["metadata"] == {"resourceVersion": str(server.log.store.revision)}
        (item,) = listed["items"]
        assert "kind" not in item
        assert item["metadata"]["name"] == "a"
        deleted = await server.delete(f"{MAPS}/a")
        assert deleted["status"] == "Success"
        assert deleted["details"] == {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]}
        assert (await server.ask("GET", f"{MAPS}/a")).refused(404)["message"] == 'configmaps "a" not found'


async def test_lists_of_one_and_of_all_namespaces(autojump_clock: MockClock) -> None:
    async with open_server(namespaces=("one", "two")) as server:
        for namespace, name in (("two", "b"), ("one", "c"), ("one", "a")):
            await server.post(f"/api/v1/namespaces/{namespace}/configmaps", configmap(name, namespace))
        assert await server.names("/api/v1/namespaces/one/configmaps") == ["a", "c"]
        assert await server.names("/api/v1/namespaces/nowhere/configmaps") == []
        everything = await server.get("/api/v1/configmaps")
        keys = [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in everything["items"]]
        assert keys == [("one", "a"), ("one", "c"), ("two", "b")]
        assert await server.names("/api/v1/namespaces") == ["one", "two"]


async def test_selectors(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await server.post(
            PODS,
            pod(
                "a",
                labels={"app": "x"},
            ),
        )
        await server.post(PODS, pod("b", node="n1", labels={"app": "y"}))
        await server.post(PODS, pod("c", node="n2"))
        for selector, expected in (
            ("labelSelector=app", ["a", "b"]),
            ("labelSelector=app%3Dx", ["a"]),
            ("labelSelector=!app", ["c"]),
            ("labelSelector=app+in+(x,y),app!%3Dx", ["b"]),
            ("labelSelector=", ["a", "b", "c"]),
            ("fieldSelector=spec.nodeName%3Dn1", ["b"]),
            ("fieldSelector=spec.nodeName!%3Dn1", ["a", "c"]),
            ("fieldSelector=metadata.name%3Dc", ["c"]),
            ("fieldSelector=status.phase%3DPending", ["a", "b", "c"]),
            ("fieldSelector=spec.nodeName%3Dn1&labelSelector=app%3Dx", []),
        ):
            assert await server.names(f"{PODS}?{selector}") == expected, selector
        for selector in ("labelSelector=app+in", "labelSelector=a%3D%3D%3Db", "fieldSelector=spec.hostname%3Dx"):
            (await server.ask("GET", f"{PODS}?{selector}")).refused(400)


async def test_status_is_written_by_its_subresource_only(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        made = await server.post(DEPLOYMENTS, deployment("d"))
        with_status = {**made, "status": {"replicas": 3}}
        whole = await server.put(f"{DEPLOYMENTS}/d", with_status)
        assert whole["status"] == made["status"]
        by_status = await server.put(f"{DEPLOYMENTS}/d/status", {**with_status, "spec": deployment("d", 7)["spec"]})
        assert by_status["status"]["replicas"] == 3
        assert by_status["spec"] == made["spec"]
        assert by_status["metadata"].get("generation") == made["metadata"]["generation"]
        body = {"status": {"readyReplicas": 2}}
        patched = await server.patch(f"{DEPLOYMENTS}/d/status", body, "strategic-merge-patch")
        assert patched["status"]["readyReplicas"] == 2
        assert await server.get(f"{DEPLOYMENTS}/d/status") == patched
        changed = await server.patch(f"{DEPLOYMENTS}/d", {"spec": {"replicas": 5}})
        assert changed["status"] == patched["status"]
        assert changed["metadata"]["generation"] == made["metadata"]["generation"] + 1


async def test_generate_name(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        body = {"metadata": {"generateName": "run-"}}
        names = [(await server.post(MAPS, body))["metadata"]["name"] for _ in range(5)]
        assert len(set(names)) == 5
        assert all(name.startswith("run-") and len(name) == 9 for name in names)


async def test_only_subresources_of_discovery_are_served(
    autojump_clock: MockClock,
) -> None:
    """Subresources of discovery are answered; others are 404."""
    async with open_server() as server:
        await server.post(PODS, pod("p"))
        listed = {one["name"]: one["verbs"] for one in (await server.get("/api/v1"))["resources"]}
        for subresource in ("binding", "eviction", "log", "exec", "nonsense"):
            answer = await server.ask("POST", f"{PODS}/p/{subresource}", {})
            if f"pods/{subresource}" not in listed:
                assert answer.status == 404


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "target", "code", "message"),
    [
        ("GET", "/api/v1/nonsense", 404, "the server could not find the requested resource"),
        ("GET", "/api/v2/pods", 404, "the server could not find the requested resource"),
        ("GET", "/apis/apps/v1/nonsense/x", 404, "the server could not find the requested resource"),
        ("GET", f"{PODS}/p/nonsense", 404, "the server could not find the requested resource"),
        ("GET", "/api/v1/namespaces/default/nodes", 404, "the server could not find the requested resource"),
        ("GET", f"{PODS}/missing", 404, 'pods "missing" not found'),
        ("GET", f"{DEPLOYMENTS}/missing", 404, 'deployments.apps "missing" not found'),
        ("DELETE", f"{MAPS}/missing", 404, 'configmaps "missing" not found'),
        ("GET", f"{PODS}/missing/status", 404, 'pods "missing" not found'),
        ("POST", f"{MAPS}/a", 405, "the server does not allow this method on the requested resource"),
        ("PUT", MAPS, 405, "the server does not allow this method on the requested resource"),
        ("PATCH", MAPS, 405, "the server does not allow this method on the requested resource"),
        ("DELETE", f"{PODS}/p/status", 405, "the server does not allow this method on the requested resource"),
        ("POST", "/api/v1/configmaps", 405, "the server does not allow this method on the requested resource"),
        ("OPTIONS", MAPS, 405, "the server does not allow this method on the requested resource"),
        ("DELETE", "/api/v1/namespaces", 405, "the server does not allow this method on the requested resource"),
    ],
)
async def test_404_and_405(autojump_clock: MockClock, method: str, target: str, code: int, message: str) -> None:
    async with open_server() as server:
        body: Any = {} if method in ("POST", "PUT", "PATCH") else None
        assert (await server.ask(method, target, body)).refused(code)["message"] == message


async def test_paths_of_unknown_groups_are_plain_404s(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        for path in ("/apis/example.com/v1/things", "/nowhere", "/apis/example.com", "/api/v1beta1x"):
            answer = await server.ask("GET", path)
            assert answer.status == 404, path


@pytest.mark.parametrize(
    ("accept", "code"),
    [
        ("text/html", 406),
        ("application/xml", 406),
        ("*/*", 200),
        ("application/*", 406),
        ("", 200),
        ("text/html,application/json;q=0.1", 200),
    ],
)
async def test_406(autojump_clock: MockClock, accept: str, code: int) -> None:
    async with open_server() as server:
        for target in (MAPS, "/api/v1/namespaces/default"):
            answer = await server.ask("GET", target, headers={"accept": accept})
            assert answer.status == code
            assert answer.header("content-type") == "application/json"


async def test_409_for_existing_and_for_changed_objects(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        made = await server.post(MAPS, configmap("a", x="1"))
        found = (await server.ask("POST", MAPS, configmap("a"))).refused(409)
        assert (found["reason"], found["message"]) == ("AlreadyExists", 'configmaps "a" already exists')
        await server.put(f"{MAPS}/a", configmap("a", x="2"))
        found = (await server.ask("PUT", f"{MAPS}/a", made)).refused(409)
        assert found["reason"] == "Conflict"
        assert found["message"] == (
            'Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply your changes '
            "to the latest version and try again"
        )
        patch = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"x": "3"}}
        headers = {"content-type": "application/merge-patch+json"}
        (await server.ask("PATCH", f"{MAPS}/a", patch, headers=headers)).refused(409)


async def test_413_415_and_400_for_bodies() -> None:
    async with open_server() as server:
        big = configmap("a", x="y" * (3 * 1024 * 1024))
        assert (await server.ask("POST", MAPS, big)).refused(413)["reason"] == "RequestEntityTooLarge"
        for content_type in ("text/plain", "application/xml", "application/merge-patch+json"):
            answer = await server.ask("POST", MAPS, configmap("a"), headers={"content-type": content_type})
            assert answer.refused(415)["reason"] == "UnsupportedMediaType"
        for content_type in ("application/json", "text/plain", "application/apply-nonsense"):
            answer = await server.ask("PATCH", f"{MAPS}/a", {}, headers={"content-type": content_type})
            assert answer.status == 415, (content_type, answer.body)
        for body in (b"", b"{", b"[]", b'"text"', b"\xff", b'{"metadata":[]}', b"1" * 100, b"[" * 100_000):
            answer = await server.ask("POST", MAPS, body)
            assert answer.status == 400, (body[:20], answer.body)
        deep = b'{"metadata":{"name":"a"},"data":' + b'{"a":' * 20_000 + b"1" + b"}" * 20_000 + b"}"
        assert (await server.ask("POST", MAPS, deep)).status == 400
        (await server.ask("PATCH", f"{MAPS}/a", b"{")).refused(415)


async def test_the_bodys_type_and_place_must_be_the_paths(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        for body in (
            {**configmap("a"), "kind": "Secret"},
            {**configmap("a"), "apiVersion": "v2"},
            configmap("a", "elsewhere"),
        ):
            (await server.ask("POST", MAPS, body)).refused(400)
        await server.post(MAPS, configmap("a"))
        found = (await server.ask("PUT", f"{MAPS}/a", configmap("b"))).refused(400)
        assert "the name of the object (b) does not match the name on the URL (a)" in found["message"]


async def test_422_names_every_cause(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        body = deployment("Wrong_Name")
        body["spec"]["template"]["metadata"]["labels"] = {"other": "x"}
        found = (await server.ask("POST", DEPLOYMENTS, body)).refused(422)
        assert found["reason"] == "Invalid"
        fields = {cause["field"] for cause in found["details"]["causes"]}
        assert {"metadata.name", "spec.template.metadata.labels"} <= fields
        (await server.ask("POST", MAPS, {"metadata": {}})).refused(422)


async def test_strict_validation_refuses_and_warns(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        body = b'{"metadata":{"name":"a"},"data":{"x":"1","x":"2"},"unknown":1}'
        found = (await server.ask("POST", f"{MAPS}?fieldValidation=Strict", body)).refused(400)
        assert 'unknown field "unknown"' in found["message"]
        assert 'duplicate field "data.x"' in found["message"]
        warned = await server.ask("POST", f"{MAPS}?fieldValidation=Warn", body)
        assert len(warned.header_all("warning")) == 2
        ignored = await server.ask("PUT", f"{MAPS}/a?fieldValidation=Ignore", body)
        assert ignored.header_all("warning") == []
        (await server.ask("POST", f"{MAPS}?fieldValidation=Nonsense", body)).refused(422)
        typed = b'{"metadata":{"name":"b"},"data":{"k":1,"k":"2"}}'
        (await server.ask("POST", f"{MAPS}?fieldValidation=Ignore", typed)).refused(400)


@pytest.mark.parametrize("target", [f"{MAPS}?dryRun=true", f"{MAPS}?dryRun=All&dryRun=x"])
async def test_a_dry_run_is_all_or_an_error(autojump_clock: MockClock, target: str) -> None:
    async with open_server() as server:
        (await server.ask("POST", target, configmap("a"))).refused(422)


@pytest.mark.parametrize("limit", ["x", "-1", "1.5", "99999999999999999999"])
async def test_limits_that_are_none(autojump_clock: MockClock, limit: str) -> None:
    async with open_server() as server:
        answer = await server.ask("GET", f"{MAPS}?limit={limit}")
        assert answer.status in (400, 422) or limit == "-1"  # a negative limit means no limit, as in Kubernetes


# -- representations --------------------------------------------------------------------------------------------------


async def test_yaml_both_ways(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        text = yaml.safe_dump(configmap("a", x="yes", z="012")).encode()
        headers = {"content-type": "application/yaml", "accept": "application/yaml"}
        answer = await server.ask("POST", MAPS, text, headers=headers)
        assert (answer.status, answer.header("content-type")) == (201, "application/yaml")
        assert yaml.safe_load(answer.body)["data"] == {"x": "yes", "z": "012"}
        assert yaml.safe_load(answer.body) == await server.get(f"{MAPS}/a")
        listed = await server.ask("GET", MAPS, headers={"accept": "application/yaml"})
        assert [item["metadata"]["name"] for item in yaml.safe_load(listed.body)["items"]] == ["a"]


async def test_protobuf_both_ways(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        headers = {"content-type": PROTOBUF, "accept": f"{PROTOBUF},application/json"}
        for target, body in ((MAPS, configmap("a", x="1")), (PODS, pod("p")), (DEPLOYMENTS, deployment("d"))):
            answer = await server.ask("POST", target, protobuf.encode(body), headers=headers)
            assert (answer.status, answer.header("content-type")) == (201, PROTOBUF), answer.body
            name = body["metadata"]["name"]
            as_json = await server.get(f"{target}/{name}")
            assert protobuf.decode(answer.body)["metadata"]["uid"] == as_json["metadata"]["uid"]
            again = await server.ask("PUT", f"{target}/{name}", answer.body, headers=headers)
            assert again.status == 200
            assert (await server.get(f"{target}/{name}")) == as_json  # no page is missing
            listed = await server.ask("GET", target, headers={"accept": PROTOBUF})
            decoded = protobuf.decode(listed.body)
            assert decoded["kind"].endswith("List")
            assert [item["metadata"]["name"] for item in decoded["items"]] == [name]
            gone = await server.ask("DELETE", f"{target}/{name}", headers={"accept": PROTOBUF})
            assert protobuf.decode(gone.body)["kind"] in ("Status", "Pod")
        for body in (b"", b"k8s\x00", b"k8s\x00\xff\xff", b"xxxx", protobuf.encode(pod("p"))[:-7]):
            answer = await server.ask("POST", PODS, body, headers={"content-type": PROTOBUF})
            assert answer.status == 400, (body[:10], answer.status, answer.body)


async def test_pretty(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await server.post(MAPS, configmap("a"))
        for target in (MAPS, f"{MAPS}/a"):
            plain = await server.ask("GET", target)
            for request in (
                await server.ask("GET", f"{target}?pretty=true"),
                await server.ask("GET", target, headers={"user-agent": "curl/8"}),
            ):
                assert b'{\n  "' in request.body
                assert request.json() == plain.json()
            assert b"\n " not in plain.body


async def test_tables(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await server.post(MAPS, configmap("a", x="1", y="2"))
        await server.post(MAPS, configmap("b"))
        answer = await server.ask("GET", MAPS, headers={"accept": TABLE})
        found = answer.ok()
        assert answer.header("content-type") == "application/json"
        assert (found["kind"], found["apiVersion"]) == ("Table", "meta.k8s.io/v1")
        assert [column["name"] for column in found["columnDefinitions"]] == ["Name", "Data", "Age"]
        assert [row["cells"][:2] for row in found["rows"]] == [["a", 2], ["b", 0]]
        assert found["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
        assert found["metadata"]["resourceVersion"] == str(server.log.store.revision)
        one = await server.get(f"{MAPS}/a?includeObject=Object", headers={"accept": TABLE})
        assert one["rows"][0]["object"]["data"] == {"x": "1", "y": "2"}
        none = await server.get(f"{MAPS}/a?includeObject=None", headers={"accept": TABLE})
        assert none["rows"][0].get("object") is None
        limited = await server.get(f"{MAPS}?limit=1", headers={"accept": TABLE})
        assert limited["metadata"]["continue"]
        assert limited["metadata"]["remainingItemCount"] == 1
        (await server.ask("GET", f"{MAPS}?includeObject=Nonsense", headers={"accept": TABLE})).refused(400)


async def test_tables_are_not_made_in_protobuf(autojump_clock: MockClock) -> None:
    """A Table has no protobuf form: the next acceptable form counts, or 406."""
    async with open_server() as server:
        await server.post(MAPS, configmap("a"))
        accept = TABLE.replace("application/json", PROTOBUF)
        for target in (MAPS, f"{MAPS}/a", f"{MAPS}?watch=1"):
            (await server.ask("GET", target, headers={"accept": accept})).refused(406)
        answer = await server.ask("GET", MAPS, headers={"accept": f"{accept},{TABLE},application/json"})
        assert (answer.header("content-type"), answer.ok()["kind"]) == ("application/json", "Table")
        answer = await server.ask("GET", MAPS, headers={"accept": f"{accept},{PROTOBUF}"})
        assert answer.header("content-type") == PROTOBUF
        assert protobuf.decode(answer.body)["kind"] == "ConfigMapList"


async def test_partial_metadata(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        made = await server.post(MAPS, configmap("a", x="1"))
        one = await server.get(f"{MAPS}/a", headers={"accept": PARTIAL})
        expected = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": made["metadata"]}
        assert one == expected
        many = await server.get(MAPS, headers={"accept": PARTIALS})
        assert many["kind"] == "PartialObjectMetadataList"
        assert [item["metadata"]["name"] for item in many["items"]] == ["a"]
        (await server.ask("GET", MAPS, headers={"accept": PARTIAL})).refused(406)
        (await server.ask("GET", f"{MAPS}/a", headers={"accept": PARTIALS})).refused(406)
        as_protobuf = await server.ask("GET", MAPS, headers={"accept": PARTIALS.replace("application/json", PROTOBUF)})
        assert protobuf.decode(as_protobuf.body)["kind"] == "PartialObjectMetadataList"


async def test_a_token_skips_the_object_of_a_list_by_name(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        for name in ("a", "b", "c"):
            await server.post(MAPS, configmap(name))
        token = (await server.get(f"{MAPS}?limit=2"))["metadata"]["continue"]
        for name, found in (("a", []), ("b", []), ("c", ["c"])):
            listed = await server.get(f"{MAPS}?limit=1&continue={token}&fieldSelector=metadata.name={name}")
            assert [item["metadata"]["name"] for item in listed["items"]] == found
            assert "continue" not in listed["metadata"]


@pytest.mark.parametrize(
    ("target", "go_type"),
    [
        ("/api/v1/namespaces/default/events/a", "core.Event"),
        ("/apis/events.k8s.io/v1/namespaces/default/events/a", "core.Event"),
        ("/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/a", "rbac.Role"),
        ("/apis/apps/v1/namespaces/default/deployments/a/scale", "autoscaling.Scale"),
    ],
)
async def test_one_object_is_no_list_of_metadata(target: str, go_type: str, autojump_clock: MockClock) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    body = {"metadata": {"name": "a"}, "involvedObject": {"namespace": "default"}, "spec": spec}
    collection = target.removesuffix("/scale").removesuffix("/a").replace("apis/events.k8s.io", "api")
    async with open_server() as server:
        await server.post(collection, body)
        refusal = (await server.ask("GET", target, headers={"accept": PARTIALS})).refused(406)
        assert refusal["message"].endswith(
            f"PartialObjectMetadataList, but the requested object is not a list (*{go_type})"
        )


@pytest.mark.parametrize(
    "target",
    [
        "/api/v1/namespaces/default/pods/a/resize",
        "/api/v1/namespaces/default/pods/a/ephemeralcontainers",
        "/apis/certificates.k8s.io/v1/certificatesigningrequests/a/approval",
        "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/a/status",
    ],
)
async def test_some_subresources_have_no_table(target: str, autojump_clock: MockClock) -> None:
    async with open_server() as server:
        for method in ("GET", "PUT"):
            body = {} if method == "PUT" else None
            (await server.ask(method, target, body, headers={"accept": TABLE})).refused(406)
            assert (await server.ask(method, target, body, headers={"accept": PARTIAL})).status in (400, 404)
        whole = target.rpartition("/")[0]
        assert (await server.ask("GET", whole, headers={"accept": TABLE})).status == 404


async def test_a_deprecated_version_warns_of_itself_even_if_the_answer_is_406(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        target = "/api/v1/namespaces/default/endpoints"
        for method, headers, code, count in (
            ("GET", {}, 200, 1),
            ("GET", {"accept": TABLE.replace("v1", "x")}, 406, 1),
            ("POST", {"content-type": "text/x"}, 415, 1),
            ("GET", {"accept": "text/html"}, 406, 0),  # no route
        ):
            answer = await server.ask(method, target, b"{}" if method == "POST" else None, headers=headers)
            assert answer.status == code
            warnings = answer.header_all("warning")
            assert len([text for text in warnings if "Endpoints is deprecated" in text]) == len(warnings) == count


async def test_one_object_in_two_versions(autojump_clock: MockClock) -> None:
    """Stored once, served in each version of its group."""
    async with open_server() as server:
        both = "/apis/autoscaling/{}/namespaces/default/horizontalpodautoscalers"
        body = {
            "metadata": {"name": "h"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
                "maxReplicas": 3,
                "targetCPUUtilizationPercentage": 50,
            },
        }
        made = await server.post(both.format("v1"), body)
        assert made["apiVersion"] == "autoscaling/v1"
        newer = await server.get(both.format("v2") + "/h")
        assert newer["apiVersion"] == "autoscaling/v2"
        (metric,) = newer["spec"]["metrics"]
        assert metric["resource"]["target"]["averageUtilization"] == 50
        listed = await server.get(both.format("v1"))
        assert listed["items"][0]["spec"]["targetCPUUtilizationPercentage"] == 50
        async with server.watch(both.format("v1") + "?watch=1") as watch:
            event = await watch.next()
        assert event is not None
        assert event["object"]["apiVersion"] == "autoscaling/v1"
        await server.delete(both.format("v2") + "/h")


# -- paging -----------------------------------------------------------------------------------------------------------


async def pages(server: InProcess, target: str, limit: int = 2, after_page: Any = None) -> list[list[str]]:
    found, token = [], ""
    while True:
        answer = await server.get(f"{target}limit={limit}" + (f"&continue={token}" if token else ""))
        found.append([item["metadata"]["name"] for item in answer["items"]])
        token = answer["metadata"].get("continue", "")
        if not token:
            assert "remainingItemCount" not in answer["metadata"]
            return found
        if after_page is not None:
            await after_page(len(found))


async def fill(server: InProcess, names: str = "abcde") -> None:
    for name in names:
        await server.post(MAPS, configmap(name))


async def test_pages_have_one_revision_despite_changes(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await fill(server)

        async def disturb(page: int) -> None:
            await server.delete(f"{MAPS}/{'de'[page - 1]}")
            await server.post(MAPS, configmap(f"a{page}"))

        assert await pages(server, f"{MAPS}?", after_page=disturb) == [["a", "b"], ["c", "d"], ["e"]]
        assert await pages(server, f"{MAPS}?", limit=10) == [["a", "a1", "a2", "b", "c"]]
        assert await pages(server, "/api/v1/configmaps?", limit=3) == [["a", "a1", "a2"], ["b", "c"]]


async def test_the_first_pages_metadata(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await fill(server)
        first = await server.get(f"{MAPS}?limit=2")
        assert first["metadata"]["remainingItemCount"] == 3
        assert first["metadata"]["resourceVersion"] == "6"
        await server.post(MAPS, configmap("f"))
        second = await server.get(f"{MAPS}?limit=2&continue={first['metadata']['continue']}")
        assert second["metadata"]["resourceVersion"] == "6"
        assert second["metadata"]["remainingItemCount"] == 1
        selected = await server.get(f"{MAPS}?limit=1&fieldSelector=metadata.name!%3Da")
        assert "remainingItemCount" not in selected["metadata"]


async def test_pages_with_a_selector_have_matching_objects(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        for number in range(10):
            await server.post(MAPS, configmap(f"m{number}", labels={"even": str(number % 2 == 0).lower()}))
        found = await pages(server, f"{MAPS}?labelSelector=even%3Dtrue&", limit=2)
        assert [name for page in found for name in page] == ["m0", "m2", "m4", "m6", "m8"]
        assert all(len(page) <= 2 for page in found)


async def test_paging_goes_on_from_the_log_when_memory_has_scrolled(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "RECENT_EVENTS", 4)
    monkeypatch.setattr(view, "SLACK", 4)
    async with open_server() as server:
        await fill(server)

        async def disturb(page: int) -> None:
            for number in range(10):
                await server.post(MAPS, configmap(f"z{page}-{number}"))

        asked = server.log.calls["list_at"]
        assert await pages(server, f"{MAPS}?", after_page=disturb) == [["a", "b"], ["c", "d"], ["e"]]
        assert server.log.calls["list_at"] > asked


async def test_an_expired_token_is_410_with_one_to_go_on_inconsistently(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await fill(server)
        first = await server.get(f"{MAPS}?limit=2")
        await server.delete(f"{MAPS}/d")
        await compact(server)
        answer = await server.ask("GET", f"{MAPS}?limit=2&continue={first['metadata']['continue']}")
        found = answer.refused(410)
        assert found["reason"] == "Expired"
        assert "continue token in this response" in found["message"]
        token = found["metadata"]["continue"]
        rest = await server.get(f"{MAPS}?limit=2&continue={token}")
        assert [item["metadata"]["name"] for item in rest["items"]] == ["c", "e"]


async def compact(server: InProcess) -> None:
    """Compact up to now on a log with later changes, and let the views apply that."""
    before = server.log.store.revision
    await server.post("/api/v1/namespaces", {"metadata": {"name": f"ns{before}"}})
    server.log.store.compact(before)
    await server.get(MAPS)


@pytest.mark.parametrize(
    "token", ["x", "e30", "%00", "bm90IGpzb24", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTUsInN0YXJ0IjoiIn0"]
)
async def test_tokens_that_are_none(autojump_clock: MockClock, token: str) -> None:
    async with open_server() as server:
        found = (await server.ask("GET", f"{MAPS}?limit=2&continue={token}")).refused(400)
        assert "continue key is not valid" in found["message"]


async def test_a_token_and_a_revision_do_not_go_together(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await fill(server)
        token = (await server.get(f"{MAPS}?limit=2"))["metadata"]["continue"]
        (await server.ask("GET", f"{MAPS}?limit=2&continue={token}&resourceVersion=3")).refused(400)
        await server.get(f"{MAPS}?limit=2&continue={token}&resourceVersion=0")


# -- revisions --------------------------------------------------------------------------------------------------------


async def test_lists_of_an_exact_revision_from_memory_and_from_the_log(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_server() as server:
        await fill(server, "abc")  # revisions 2 to 4
        await server.delete(f"{MAPS}/a")  # 5
        await server.put(f"{MAPS}/b", configmap("b", x="new"))  # 6

        async def at(revision: int) -> Mapping[str, Any]:
            answer = await server.get(f"{MAPS}?resourceVersion={revision}&resourceVersionMatch=Exact")
            assert answer["metadata"]["resourceVersion"] == str(revision)
            return {item["metadata"]["name"]: item.get("data") for item in answer["items"]}

        expected = {
            2: {"a": None},
            3: {"a": None, "b": None},
            4: {"a": None, "b": None, "c": None},
            5: {"b": None, "c": None},
            6: {"b": {"x": "new"}, "c": None},
        }
        found = {revision: await at(revision) for revision in expected}
        normalized = {revision: {k: v or None for k, v in items.items()} for revision, items in found.items()}
        assert normalized == expected
        assert server.log.calls["list_at"] == 0  # all from memory
    async with open_server(server.log) as restarted:  # a new process holds no history in memory
        server = restarted
        assert {revision: await at(revision) for revision in expected} == found
        assert server.log.calls["list_at"] > 0


async def test_gets_and_lists_not_older_than(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await fill(server, "abc")
        for target in (f"{MAPS}/a?resourceVersion=2", f"{MAPS}?resourceVersion=2", f"{MAPS}?resourceVersion=0"):
            await server.get(target)
        listed = await server.get(f"{MAPS}?resourceVersion=2&resourceVersionMatch=NotOlderThan")
        assert listed["metadata"]["resourceVersion"] == "4"
        assert len(listed["items"]) == 3
        limited = await server.get(f"{MAPS}?resourceVersion=2&limit=5")
        assert limited["metadata"]["resourceVersion"] == "2"
        assert len(limited["items"]) == 1


async def test_a_future_revision_is_awaited_then_504(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        for target in (
            f"{MAPS}/a?resourceVersion=99",
            f"{MAPS}?resourceVersion=99",
            f"{MAPS}?resourceVersion=99&resourceVersionMatch=Exact",
            f"{MAPS}?resourceVersion=99&limit=5&fieldSelector=metadata.name=a",
            "/api/v1/events?resourceVersion=99",
            "/apis/events.k8s.io/v1/namespaces/default/events/a?resourceVersion=99",
        ):
            answer = await server.ask("GET", target)
            found = answer.refused(504)
            assert found["message"] == "Timeout: Too large resource version: 99, current: 1"
            assert found["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
            # kube-apiserver has no cache of Events, nor for one object at a revision, so it expects no progress.
            retry = 0 if "events" in target or "fieldSelector" in target else 1
            assert found["details"].get("retryAfterSeconds", 0) == retry
            assert answer.header("retry-after") == ("1" if retry else "")


EVENT = "namespaces/default/events/a"
REVISIONS = "/apis/history.kubechronicle.dev/v1/namespaces/default/revisions"


@pytest.mark.parametrize("revision", ["x", "-1", "1.5", "99999999999999999999999"])
@pytest.mark.parametrize(
    ("code", "method", "path"),
    [
        (400, "GET", MAPS),
        (400, "DELETE", MAPS),
        (500, "GET", f"{MAPS}/a"),
        (500, "GET", f"{MAPS}?watch=1"),
        (400, "GET", f"/api/v1/{EVENT}"),  # kube-apiserver has no watch cache of them: the store itself reads it
        (400, "GET", f"/apis/events.k8s.io/v1/{EVENT}"),
        (500, "GET", "/api/v1/events?watch=1"),
        (400, "GET", REVISIONS),
        (400, "GET", f"{REVISIONS}/1"),
        (200, "GET", "/api/v1/componentstatuses"),  # nothing stores them, so nothing reads it
        (200, "GET", "/api/v1/componentstatuses/etcd-0"),
    ],
)
async def test_a_revision_that_is_no_number(
    autojump_clock: MockClock, revision: str, code: int, method: str, path: str
) -> None:
    async with open_server() as server:
        joined = "&" if "?" in path else "?"
        answer = await server.ask(method, f"{path}{joined}resourceVersion={revision}")
        if code == 200:
            answer.ok()
            return
        start = "invalid resource version: " if code == 400 else ""
        problem = f'resourceVersion: Invalid value: "{revision}": strconv.ParseUint: parsing "{revision}": '
        assert answer.refused(code)["message"].startswith(f"{start}{problem}")


async def test_matches_of_revisions_that_contradict(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        for query in (
            "resourceVersionMatch=Exact",
            "resourceVersion=0&resourceVersionMatch=Exact",
            "resourceVersion=1&resourceVersionMatch=Nonsense",
            "sendInitialEvents=true",
        ):
            (await server.ask("GET", f"{MAPS}?{query}")).refused(422)


async def test_below_the_compacted_revision_is_410(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await fill(server, "abc")
        await compact(server)
        found = (await server.ask("GET", f"{MAPS}?resourceVersion=2&resourceVersionMatch=Exact")).refused(410)
        assert (found["reason"], found["message"]) == (
            "Expired",
            "The resourceVersion for the provided list is too old.",
        )


async def test_an_unreadable_past_is_503(autojump_clock: MockClock) -> None:
    from kubechronicle.eventlog.memory.memory_log import Fault

    log = MemoryLog()
    async with open_server(log) as server:
        await fill(server, "abc")
    async with open_server(log) as server:
        log.fail_next("list_at", Fault.UNAVAILABLE)
        (await server.ask("GET", f"{MAPS}?resourceVersion=2&resourceVersionMatch=Exact")).refused(503)


# -- options of deletions ---------------------------------------------------------------------------------------------


async def test_delete_options_from_body_and_query(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        for target, body in (
            (f"{PODS}/p?gracePeriodSeconds=5", None),
            (f"{PODS}/p", {"gracePeriodSeconds": 5}),
            (f"{PODS}/p?gracePeriodSeconds=9", {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 5}),
        ):
            await server.post(PODS, pod("p", node="n"))
            marked = await server.delete(target, body)
            assert marked["metadata"]["deletionGracePeriodSeconds"] == 5, target
            await server.delete(f"{PODS}/p?gracePeriodSeconds=0")
        await server.post(MAPS, configmap("a"))
        wrong: Any
        for wrong in ({"propagationPolicy": "Sideways"}, {"propagationPolicy": "Orphan", "orphanDependents": True}):
            (await server.ask("DELETE", f"{MAPS}/a", wrong)).refused(422)
        (await server.ask("DELETE", f"{MAPS}/a", {"kind": "Pod", "apiVersion": "v1"})).refused(400)
        for raw in (b"{", b"[]", b"1", b'"x"', b'{"preconditions":[]}', b'{"gracePeriodSeconds":"x"}'):
            answer = await server.ask("DELETE", f"{MAPS}/a", raw)
            assert answer.status == 400, (raw, answer.status, answer.body)
        encoded = protobuf.encode({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"})
        answer = await server.ask("DELETE", f"{MAPS}/a", encoded, headers={"content-type": PROTOBUF})
        assert answer.status == 200, answer.body


async def test_foreground_and_orphan_deletion_wait_for_the_garbage_collector(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        for policy, finalizer in (("Foreground", "foregroundDeletion"), ("Orphan", "orphan")):
            await server.post(DEPLOYMENTS, deployment("d"))
            answer = await server.ask("DELETE", f"{DEPLOYMENTS}/d", {"propagationPolicy": policy})
            marked = answer.ok()
            assert marked["metadata"]["finalizers"] == [finalizer]
            assert "deletionTimestamp" in marked["metadata"]
            await server.patch(f"{DEPLOYMENTS}/d", {"metadata": {"finalizers": None}})
            (await server.ask("GET", f"{DEPLOYMENTS}/d")).refused(404)


async def test_a_collection_is_deleted_as_it_was_at_a_revision(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        first = (await server.post(MAPS, configmap("a")))["metadata"]["resourceVersion"]
        await server.post(MAPS, configmap("b"))
        for query in (f"resourceVersion={first}", f"resourceVersion={first}&limit=1"):
            deleted = (await server.ask("DELETE", f"{MAPS}?{query}&dryRun=All")).ok()
            assert [each["metadata"]["name"] for each in deleted["items"]] == ["a"]
        query = f"resourceVersion={first}&resourceVersionMatch=NotOlderThan"
        (await server.ask("DELETE", f"{MAPS}?{query}")).refused(409)
        (await server.ask("DELETE", f"{MAPS}?resourceVersion={first}")).ok()
        assert await server.names(MAPS) == ["b"]


async def test_a_collection_takes_the_classes_that_no_request_by_name_deletes(autojump_clock: MockClock) -> None:
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    system = {"metadata": {"name": "system-node-critical"}, "value": 2000001000}
    async with open_server() as server:
        await server.post(classes, system)
        (await server.ask("DELETE", f"{classes}/system-node-critical")).refused(403)
        (await server.ask("DELETE", classes)).ok()
        assert await server.names(classes) == []


async def test_head_is_get(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await server.post(MAPS, configmap("a"))
        for target in (MAPS, f"{MAPS}/a"):
            answer = await server.ask("HEAD", target)
            # kube-apiserver registers no HEAD for resources
            assert answer.status in (200, 405)
            assert json.loads(answer.body or b"{}") is not None


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
@pytest.mark.parametrize("name", ["x%25y", ".%2e"])
async def test_a_name_that_no_object_can_have_is_400(autojump_clock: MockClock, method: str, name: str) -> None:
    async with open_server() as server:
        decoded = {"x%25y": "x%y", ".%2e": ".."}[name]
        body = {"metadata": {"name": decoded}} if method == "PUT" else None
        answer = await server.ask(method, f"/api/v1/namespaces/default/configmaps/{name}", body)
        assert answer.refused(400)["message"].startswith(f'Name parameter invalid: "{decoded}": may not')


async def test_a_dry_run_creates_with_any_revision(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        sent = {"metadata": {"name": "a", "resourceVersion": "7"}}
        made = (await server.ask("POST", f"{MAPS}?dryRun=All", sent)).ok()
        assert made["metadata"]["resourceVersion"] == "7"
        (await server.ask("POST", MAPS, sent)).refused(500)
