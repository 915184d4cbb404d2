"""Discovery as clients fetch it: ETags, caching, and agreement with the served resources."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

import pytest
from in_process import PROTOBUF, InProcess, open_server

from kubechronicle.api.codecs import protobuf

V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
V2BETA1 = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"


@pytest.fixture
async def server() -> AsyncIterator[InProcess]:
    async with open_server(namespaces=()) as running:
        yield running


# -- /api, /apis and below --------------------------------------------------------------------------------------------


async def test_api_versions(server: InProcess) -> None:
    assert await server.get("/api") == {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "10.1.0.1:6443"}],
    }
    assert (await server.get("/api/"))["versions"] == ["v1"]


async def test_every_group_version_has_its_documents(server: InProcess) -> None:
    groups = (await server.get("/apis"))["groups"]
    assert {group["name"] for group in groups} >= {"apps", "batch", "rbac.authorization.k8s.io", "autoscaling"}
    for group in groups:
        assert await server.get(f"/apis/{group['name']}") == {"kind": "APIGroup", "apiVersion": "v1", **group}
        assert group["preferredVersion"] in group["versions"]
        for version in group["versions"]:
            found = await server.get(f"/apis/{version['groupVersion']}")
            assert (found["kind"], found["groupVersion"]) == ("APIResourceList", version["groupVersion"])
            assert found["resources"]
    core = await server.get("/api/v1")
    assert core["groupVersion"] == "v1"
    pods = next(one for one in core["resources"] if one["name"] == "pods")
    assert pods["shortNames"] == ["po"]
    assert set(pods["verbs"]) == {
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    }


async def test_resources_of_discovery_are_served(server: InProcess) -> None:
    """Each listable resource can be listed in every version, and each watchable one watched."""
    groups = (await server.get("/apis"))["groups"]
    paths = ["/api/v1", *(f"/apis/{version['groupVersion']}" for group in groups for version in group["versions"])]
    listed = 0
    for path in paths:
        for resource in (await server.get(path))["resources"]:
            if "list" in resource["verbs"]:
                found = await server.get(f"{path}/{resource['name']}")
                assert found["kind"] == resource["kind"] + "List"
                # The statuses of components are answers of this server, not stored objects.
                assert found["items"] == [] or resource["name"] == "componentstatuses"
                listed += 1
            if "watch" in resource["verbs"]:
                async with server.watch(f"{path}/{resource['name']}?watch=1&timeoutSeconds=1"):
                    pass
    assert listed > 50


@pytest.mark.parametrize("path", ["/apis/nonsense", "/apis/nonsense/v1", "/apis/apps/v9", "/api/v9", "/apis/apps/v1x"])
async def test_unknown_paths_are_404(server: InProcess, path: str) -> None:
    assert (await server.ask("GET", path)).status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"])
async def test_other_methods(server: InProcess, method: str) -> None:
    """kube-apiserver routes some paths for GET alone. The handlers of the others do not look at the method."""
    for path in ("/api", "/api/v1", "/api/v1/", "/apis/apps/v1", "/version", "/openid/v1/jwks"):
        refusal = (await server.ask(method, path, {})).refused(405)
        assert refusal["message"] == "the server does not allow this method on the requested resource"
    for path in ("/", "/apis", "/apis/apps", "/openapi/v2", "/openapi/v3", "/openapi/v3/apis/apps/v1", "/metrics"):
        if (method, path) != ("DELETE", "/metrics"):
            assert (await server.ask(method, path, {})).status == 200, path


@pytest.mark.parametrize("accept", ["text/html", "application/*", "a"])
async def test_routed_documents_check_accept_as_the_router_does(server: InProcess, accept: str) -> None:
    for path, types in (
        ("/api/v1", "application/json, application/yaml, application/vnd.kubernetes.protobuf"),
        ("/version", "application/json"),
        ("/openid/v1/jwks", "application/jwk-set+json"),
    ):
        refusal = (await server.ask("GET", path, headers={"accept": accept})).refused(406)
        assert refusal["message"] == f"406: Not Acceptable\n\nAvailable representations: {types}"


async def test_paths_with_empty_parts(server: InProcess) -> None:
    for path in ("/api//v1", "/apis//v1", "/apis/apps//v1", "/api/v1//nodes", "/apis/apps/v1//deployments"):
        (await server.ask("GET", path)).refused(404)
    for path in ("//api/v1", "/apis//", "/apis///"):
        assert (await server.ask("GET", path)).body == b"404 page not found\n"
    for path in ("/apis/", "/api//", "/api/v1//", "/apis/apps//"):
        assert (await server.ask("GET", path)).status == 200


async def test_representations(server: InProcess) -> None:
    import yaml

    for path in ("/api", "/apis", "/api/v1", "/apis/apps"):
        plain = await server.get(path)
        as_yaml = await server.ask("GET", path, headers={"accept": "application/yaml"})
        assert (as_yaml.status, as_yaml.header("content-type")) == (200, "application/yaml")
        assert yaml.safe_load(as_yaml.body) == plain
        as_protobuf = await server.ask("GET", path, headers={"accept": f"{PROTOBUF}, application/json"})
        assert as_protobuf.header("content-type") == PROTOBUF
        assert protobuf.decode(as_protobuf.body, default_api_version="v1") == {"apiVersion": "v1", **plain}
        (await server.ask("GET", path, headers={"accept": "text/html"})).refused(406)


async def test_version_and_the_list_of_paths(server: InProcess) -> None:
    version = await server.get("/version")
    assert (version["major"], version["minor"]) == ("1", "37")
    assert version["gitVersion"].startswith("v1.37.")
    paths = (await server.get("/"))["paths"]
    assert paths == sorted(set(paths))
    for path in set(paths) - {"/openapi/v3/"}:  # that stands for the documents below it
        assert (await server.ask("GET", path)).status == 200, path
    for path in (
        "/api",
        "/api/v1",
        "/apis/apps/v1",
        "/healthz/ping",
        "/metrics",
        "/metrics/slis",
        "/flagz",
        "/openapi/v3/",
        "/version",
    ):
        assert path in paths


async def test_the_versions_of_the_core_group_have_no_version_themselves(server: InProcess) -> None:
    """Neither in JSON nor in the envelope of protobuf."""
    assert "apiVersion" not in await server.get("/api")
    answer = await server.ask("GET", "/api", headers={"accept": PROTOBUF})
    assert answer.body.startswith(b"k8s\0\n\x0f\n\0\x12\x0bAPIVersions")
    assert protobuf.decode(answer.body, default_api_version="v1")["versions"] == ["v1"]


# -- aggregated discovery ---------------------------------------------------------------------------------------------


async def test_the_beta_of_aggregated_discovery_is_gone(server: InProcess) -> None:
    for path, kind in (("/api", "APIVersions"), ("/apis", "APIGroupList")):
        (await server.ask("GET", path, headers={"accept": V2BETA1})).refused(406)
        assert (await server.get(path, headers={"accept": f"{V2BETA1},application/json"}))["kind"] == kind


@pytest.mark.parametrize(("accept", "version"), [(V2, "v2"), (f"{V2BETA1},{V2},application/json", "v2")])
async def test_aggregated(server: InProcess, accept: str, version: str) -> None:
    for path, groups in (("/api", [""]), ("/apis", None)):
        answer = await server.ask("GET", path, headers={"accept": accept})
        assert answer.header("content-type") == (
            f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
        )
        assert answer.header("vary") == "Accept"
        found = answer.ok()
        assert (found["kind"], found["apiVersion"]) == ("APIGroupDiscoveryList", f"apidiscovery.k8s.io/{version}")
        names = [item["metadata"].get("name", "") for item in found["items"]]
        if groups is not None:
            assert names == groups
        else:
            assert names == [group["name"] for group in (await server.get("/apis"))["groups"]]
        for item in found["items"]:
            for each in item["versions"]:
                assert each["freshness"] == "Current"
                assert all(resource["verbs"] for resource in each["resources"])


async def test_aggregated_discovery_equals_the_lists(server: InProcess) -> None:
    found = await server.get("/apis", headers={"accept": V2})
    for item in found["items"]:
        for version in item["versions"]:
            group_version = f"{item['metadata']['name']}/{version['version']}"
            listed = await server.get(f"/apis/{group_version}")
            plain = {one["name"]: sorted(one["verbs"]) for one in listed["resources"]}
            aggregated = {}
            for one in version["resources"]:
                aggregated[one["resource"]] = sorted(one["verbs"])
                for below in one.get("subresources", []):
                    aggregated[f"{one['resource']}/{below['subresource']}"] = sorted(below["verbs"])
            assert aggregated == plain, group_version


async def test_etags(server: InProcess) -> None:
    for path in ("/api", "/apis"):
        first = await server.ask("GET", path, headers={"accept": V2})
        etag = first.header("etag")
        assert etag == '"' + hashlib.sha512(first.body).hexdigest().upper() + '"'
        again = await server.ask("GET", path, headers={"accept": V2, "if-none-match": etag})
        assert (again.status, again.body, again.header("etag")) == (304, b"", etag)
        other = await server.ask("GET", path, headers={"accept": V2, "if-none-match": '"other"'})
        assert other.status == 200
