"""The official Python client: list, watch and CRUD, with no setting changed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from harness import Server, unique
from kubernetes import client, config, dynamic, watch
from kubernetes.client.exceptions import ApiException

NAMESPACE = "python-client"


@pytest.fixture(scope="module")
def api_client(server: Server) -> Iterator[Any]:
    with config.new_client_from_config(str(server.kubeconfig)) as made:
        server.api().namespace(NAMESPACE)
        yield made


@pytest.fixture
def core(api_client: Any) -> Any:
    return client.CoreV1Api(api_client)


def body(name: str, **data: str) -> Any:
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels={"of": name}), data=data)


def test_create_read_replace_patch_delete(core: Any) -> None:
    name = unique("crud")
    made = core.create_namespaced_config_map(NAMESPACE, body(name, a="1"))
    assert made.metadata.uid
    assert made.metadata.creation_timestamp.tzinfo is not None

    read = core.read_namespaced_config_map(name, NAMESPACE)
    assert read == made
    read.data["b"] = "2"
    replaced = core.replace_namespaced_config_map(name, NAMESPACE, read)
    assert int(replaced.metadata.resource_version) > int(made.metadata.resource_version)
    made.data["b"] = "stale"
    with pytest.raises(ApiException) as caught:
        core.replace_namespaced_config_map(name, NAMESPACE, made)
    assert (caught.value.status, caught.value.reason) == (409, "Conflict")

    # The client sends a list as a JSON patch. The other two types are requested by name.
    steps = [{"op": "remove", "path": "/data/a"}]
    assert core.patch_namespaced_config_map(name, NAMESPACE, steps).data == {"b": "2"}
    merged = core.patch_namespaced_config_map(
        name, NAMESPACE, {"data": {"b": None, "c": "3"}}, _content_type="application/merge-patch+json"
    )
    assert merged.data == {"c": "3"}

    core.delete_namespaced_config_map(name, NAMESPACE)
    with pytest.raises(ApiException) as caught:
        core.read_namespaced_config_map(name, NAMESPACE)
    assert caught.value.status == 404


def test_list_with_selectors_and_pages(core: Any) -> None:
    names = sorted(unique("page") for _ in range(5))
    for name in names:
        made = body(name)
        made.metadata.labels["paged"] = "yes"
        core.create_namespaced_config_map(NAMESPACE, made)
    listed: list[str] = []
    token = None
    while token != "":
        page = core.list_namespaced_config_map(NAMESPACE, label_selector="paged=yes", limit=2, _continue=token)
        listed += [item.metadata.name for item in page.items]
        token = page.metadata._continue or ""
    assert listed == names
    one = core.list_config_map_for_all_namespaces(field_selector=f"metadata.name={names[0]}")
    assert [item.metadata.name for item in one.items] == names[:1]


def test_watch_from_a_list(core: Any) -> None:
    listed = core.list_namespaced_config_map(NAMESPACE)
    name = unique("watched")

    def change() -> None:
        core.create_namespaced_config_map(NAMESPACE, body(name, n="1"))
        core.patch_namespaced_config_map(name, NAMESPACE, [{"op": "replace", "path": "/data/n", "value": "2"}])
        core.delete_namespaced_config_map(name, NAMESPACE)

    changing = threading.Thread(target=change)
    changing.start()  # however early: the watch starts at the revision of the list
    seen = []
    stream = watch.Watch()
    for event in stream.stream(
        core.list_namespaced_config_map,
        NAMESPACE,
        resource_version=listed.metadata.resource_version,
        label_selector=f"of={name}",
        timeout_seconds=20,
    ):
        seen.append((event["type"], event["object"].data["n"]))
        if len(seen) == 3:
            stream.stop()
    changing.join()
    assert seen == [("ADDED", "1"), ("MODIFIED", "2"), ("DELETED", "2")]


def test_typed_kinds_and_status(api_client: Any) -> None:
    apps = client.AppsV1Api(api_client)
    name = unique("web")
    template = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels={"app": name}),
        spec=client.V1PodSpec(containers=[client.V1Container(name="c", image="example.invalid/c:1")]),
    )
    spec = client.V1DeploymentSpec(
        replicas=2, selector=client.V1LabelSelector(match_labels={"app": name}), template=template
    )
    made = apps.create_namespaced_deployment(
        NAMESPACE, client.V1Deployment(metadata=client.V1ObjectMeta(name=name), spec=spec)
    )
    assert made.metadata.generation == 1
    made.status.replicas, made.status.observed_generation = 2, 1
    made.spec.replicas = 7  # a status update changes only the status
    updated = apps.replace_namespaced_deployment_status(name, NAMESPACE, made)
    assert (updated.status.replicas, updated.spec.replicas, updated.metadata.generation) == (2, 2, 1)


def test_dynamic_client(api_client: Any) -> None:
    resources = dynamic.DynamicClient(api_client).resources.get(api_version="coordination.k8s.io/v1", kind="Lease")
    name = unique("lease")
    made = resources.create(
        namespace=NAMESPACE, body={"metadata": {"name": name}, "spec": {"holderIdentity": "python"}}
    )
    assert made.spec.holderIdentity == "python"
    assert name in [item.metadata.name for item in resources.get(namespace=NAMESPACE).items]
    resources.delete(name=name, namespace=NAMESPACE)


def test_delete_collection(core: Any) -> None:
    for _ in range(3):
        made = body(unique("swept"))
        made.metadata.labels["swept"] = "yes"
        core.create_namespaced_config_map(NAMESPACE, made)
    core.delete_collection_namespaced_config_map(NAMESPACE, label_selector="swept=yes")
    assert core.list_namespaced_config_map(NAMESPACE, label_selector="swept=yes").items == []


def test_versions_and_discovery(api_client: Any) -> None:
    assert client.VersionApi(api_client).get_code().git_version.startswith("v1.37.")
    groups = {group.name for group in client.ApisApi(api_client).get_api_versions().groups}
    assert {"apps", "batch", "coordination.k8s.io"} <= groups
