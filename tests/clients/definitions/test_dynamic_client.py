"""The dynamic client of the official Python client, on a custom resource."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from custom_resources import define, load, undefine
from harness import Server, unique
from kubernetes import config, dynamic
from kubernetes.dynamic.exceptions import ConflictError, NotFoundError, UnprocessibleEntityError


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    api = server.api()
    name = define(api, load("site.yaml"))
    with config.new_client_from_config(str(server.kubeconfig)) as made:
        yield dynamic.DynamicClient(made)
    undefine(api, name)
    api.close()


def body(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "operator.example.com/v1", "kind": "Site", "metadata": {"name": name}, "spec": spec}


def test_create_patch_watch_apply_delete(client: Any, server: Server) -> None:
    namespace = server.api().namespace(unique("dynamic"))
    sites = client.resources.get(api_version="operator.example.com/v1", kind="Site")
    assert (sites.name, sites.namespaced, sorted(sites.subresources)) == ("sites", True, ["status"])
    made = sites.create(body=body("a", host="a.b"), namespace=namespace)
    assert made.spec.pages == 1
    with pytest.raises(ConflictError):
        sites.create(body=body("a", host="a.b"), namespace=namespace)
    with pytest.raises(UnprocessibleEntityError) as caught:
        sites.create(body=body("b", host=""), namespace=namespace)
    assert "spec.host in body should be at least 1 chars long" in caught.value.summary()

    seen: list[tuple[str, str, int]] = []

    def follow() -> None:
        start = made.metadata.resourceVersion
        for event in sites.watch(namespace=namespace, resource_version=start, timeout=30):
            obj = event["object"]
            seen.append((event["type"], obj.metadata.name, obj.metadata.generation))
            if event["type"] == "DELETED":
                return

    following = threading.Thread(target=follow, daemon=True)
    following.start()
    merged = "application/merge-patch+json"
    patched = sites.patch(body={"spec": {"pages": 2}}, name="a", namespace=namespace, content_type=merged)
    assert (patched.spec.pages, patched.metadata.generation) == (2, 2)
    steps = [{"op": "replace", "path": "/spec/pages", "value": 3}]
    sites.patch(body=steps, name="a", namespace=namespace, content_type="application/json-patch+json")
    status = {"status": {"configMap": "c"}, "spec": {"pages": 9}}
    done = sites.status.patch(body=status, name="a", namespace=namespace, content_type=merged)
    assert (done.status.configMap, done.spec.pages, done.metadata.generation) == ("c", 3, 3)

    with pytest.raises(ConflictError) as refused:
        sites.server_side_apply(body=body("a", pages=5), namespace=namespace, field_manager="robot")
    assert "conflict with" in refused.value.summary()
    applied = sites.server_side_apply(
        body=body("a", host="a.b", pages=5), namespace=namespace, field_manager="robot", force_conflicts=True
    )
    assert (applied.spec.pages, applied.metadata.generation) == (5, 4)
    again = sites.server_side_apply(body=body("a", host="a.b", pages=5), namespace=namespace, field_manager="robot")
    assert again.metadata.resourceVersion == applied.metadata.resourceVersion

    assert [item.metadata.name for item in sites.get(namespace=namespace).items] == ["a"]
    sites.delete(name="a", namespace=namespace)
    following.join(30)
    kinds = [("MODIFIED", "a", generation) for generation in (2, 3, 3, 4)]
    assert seen == [*kinds, ("DELETED", "a", 4)]
    with pytest.raises(NotFoundError):
        sites.get(name="a", namespace=namespace)
