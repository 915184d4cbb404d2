"""Admission of objects with classes (claims, ingresses, priorities), protection of volumes, disabled plugins."""

from __future__ import annotations

from typing import Any

import pytest
from in_process import PODS, open_server, pod
from trio.testing import MockClock

from kubechronicle.actors.admission import plugins

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
INGRESSES = "/apis/networking.k8s.io/v1/namespaces/default/ingresses"


def claim(name: str, size: str = "1Gi", **spec: Any) -> Any:
    resources = {"requests": {"storage": size}}
    return {"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources, **spec}}


def storage_class(name: str, *, default: bool = False, **fields: Any) -> Any:
    marks = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    return {"metadata": {"name": name, "annotations": marks}, "provisioner": "example.com/p", **fields}


async def test_the_default_storage_class(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        assert "storageClassName" not in (await server.post(CLAIMS, claim("none")))["spec"]
        await server.post(CLASSES, storage_class("plain"))
        await server.post(CLASSES, storage_class("usual", default=True))
        made = await server.post(CLAIMS, claim("a"))
        assert made["spec"]["storageClassName"] == "usual"
        assert made["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
        assert (await server.post(CLAIMS, claim("b", storageClassName="")))["spec"]["storageClassName"] == ""


async def test_the_default_ingress_class(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        marks = {"ingressclass.kubernetes.io/is-default-class": "true"}
        body = {"metadata": {"name": "usual", "annotations": marks}, "spec": {"controller": "example.com/c"}}
        await server.post("/apis/networking.k8s.io/v1/ingressclasses", body)
        backend = {"service": {"name": "s", "port": {"number": 80}}}
        ingress: Any = {"metadata": {"name": "a"}, "spec": {"defaultBackend": backend}}
        assert (await server.post(INGRESSES, ingress))["spec"]["ingressClassName"] == "usual"
        ingress["metadata"] = {"name": "b", "annotations": {"kubernetes.io/ingress.class": "old"}}
        assert "ingressClassName" not in (await server.post(INGRESSES, ingress))["spec"]


@pytest.mark.parametrize("expandable", [False, True])
async def test_a_claim_grows_if_bound_and_its_class_allows_it(autojump_clock: MockClock, expandable: bool) -> None:
    async with open_server() as server:
        await server.post(CLASSES, storage_class("c", allowVolumeExpansion=expandable))
        made = await server.post(CLAIMS, claim("a", storageClassName="c", volumeName="v"))
        made["status"] = {"phase": "Bound"}
        made = await server.put(f"{CLAIMS}/a/status", made)
        made["spec"]["resources"]["requests"]["storage"] = "2Gi"
        answer = await server.ask("PUT", f"{CLAIMS}/a", made)
        if expandable:
            answer.ok()
        else:
            assert "only dynamically provisioned pvc can be resized" in answer.refused(403)["message"]


async def test_a_second_default_priority_class_is_rejected(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        target = "/apis/scheduling.k8s.io/v1/priorityclasses"
        made = await server.post(target, {"metadata": {"name": "a"}, "value": 1, "globalDefault": True})
        again = {"metadata": {"name": "b"}, "value": 1, "globalDefault": True}
        error = (await server.ask("POST", target, again)).refused(403)
        assert "PriorityClass a is already marked as default. Only one default can exist" in error["message"]
        made["description"] = "still the one"
        await server.put(f"{target}/a", made)


async def test_a_disabled_plugin_does_not_run(autojump_clock: MockClock) -> None:
    async with open_server(admission=frozenset({"NamespaceLifecycle"})) as server:
        assert "tolerations" not in (await server.post(PODS, pod("a")))["spec"]


async def test_external_ips_are_denied_if_the_plugin_is_enabled(autojump_clock: MockClock) -> None:
    async with open_server(admission=(plugins.DEFAULT | {"DenyServiceExternalIPs"}) - {"ServiceAccount"}) as server:
        body = {"metadata": {"name": "s"}, "spec": {"clusterIP": "None", "externalIPs": ["1.2.3.4"]}}
        target = "/api/v1/namespaces/default/services"
        assert "external IPs" in (await server.ask("POST", target, body)).refused(403)["message"]


def test_plugins_run_in_the_order_of_the_list() -> None:
    names = [plugin.name for plugin in plugins.plugins_in_order(sorted(plugins.NAMES))]
    assert tuple(names) == plugins.NAMES
