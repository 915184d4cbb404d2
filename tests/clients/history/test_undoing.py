"""`revert` and `restore` with kubectl: what they undo is there afterwards, and a second run has nothing to do."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from harness import Server, configmap, eventually, unique

JANE = {"Impersonate-User": "jane", "Impersonate-Group": "system:masters"}


class Shop:
    """A namespace of its own."""

    def __init__(self, server: Server) -> None:
        self.server, self.api, self.name = server, server.api(), server.api().namespace(unique("undoing"))
        self.maps = f"/api/v1/namespaces/{self.name}/configmaps"

    def moment(self) -> str:
        return str(self.api.get("/api/v1/namespaces?limit=1")["metadata"]["resourceVersion"])

    def chronicle(self, *arguments: str, code: int = 0) -> str:
        kubeconfig = str(self.server.data_dir / "admin.kubeconfig")
        command = [os.path.join(os.path.dirname(self.server.command()[0]), "kubectl-chronicle")]
        environment = os.environ | {"KUBECONFIG": kubeconfig}
        whole = [*command, *arguments, "-n", self.name]
        done = subprocess.run(whole, capture_output=True, text=True, timeout=120, check=False, env=environment)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def put(self, name: str, *owners: dict[str, Any], headers: Any = None, **data: str) -> dict[str, Any]:
        obj = configmap(name, **data)
        obj["metadata"]["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": each["metadata"]["name"], "uid": each["metadata"]["uid"]}
            for each in owners
        ]
        made: dict[str, Any] = self.api.request("POST", self.maps, obj, headers=headers).expect(201)
        return made

    def drop(self, path: str, headers: Any = None) -> None:
        self.api.request("DELETE", path, {"gracePeriodSeconds": 0}, headers=headers).expect(200)


def test_a_replaced_object_comes_back_as_it_was(server: Server) -> None:
    shop = Shop(server)
    shop.put("x", color="red")
    since = shop.moment()
    shop.drop(f"{shop.maps}/x", JANE)
    shop.put("x", color="blue", headers=JANE)
    assert "x reverted" in shop.chronicle("revert", "--user", "jane", "--since", since, "--yes")
    assert shop.api.get(f"{shop.maps}/x")["data"] == {"color": "red"}
    shop.chronicle("revert", "--user", "jane", "--since", since, "--yes")
    assert shop.api.get(f"{shop.maps}/x")["data"] == {"color": "red"}


def test_an_equal_pod_is_left_alone(server: Server) -> None:
    shop = Shop(server)
    pods = f"/api/v1/namespaces/{shop.name}/pods"
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    pod["spec"] = {"containers": [{"name": "main", "image": "a"}]}
    shop.api.create(pods, pod)
    moment = shop.moment()
    shop.drop(f"{pods}/p")
    uid = shop.api.create(pods, pod)["metadata"]["uid"]
    for _ in range(2):
        assert "Nothing to restore" in shop.chronicle("restore", "pod/p", "--to", moment, "--replace", "--yes")
    assert shop.api.get(f"{pods}/p")["metadata"]["uid"] == uid


def test_dependents_get_the_owner_that_the_same_plan_restores(server: Server) -> None:
    shop = Shop(server)
    owner = shop.put("o")
    below = shop.put("c", owner)
    shop.put("a", below)
    moment = shop.moment()
    shop.drop(f"{shop.maps}/o")
    eventually(lambda: not shop.api.get(shop.maps)["items"], "the dependents are collected")
    shop.chronicle("restore", "--to", moment, "--yes")
    made = {each["metadata"]["name"]: each["metadata"] for each in shop.api.get(shop.maps)["items"]}
    owners = {name: [each["uid"] for each in one.get("ownerReferences", ())] for name, one in made.items()}
    assert owners == {"o": [], "c": [made["o"]["uid"]], "a": [made["c"]["uid"]]}
    plan = json.loads(shop.chronicle("restore", "--to", moment, "--dry-run", "-o", "json"))["plan"]
    assert [each for each in plan if each["action"] != "leave"] == []


def test_an_immutable_object_is_replaced_once(server: Server) -> None:
    shop = Shop(server)
    made = shop.api.create(shop.maps, configmap("fixed", color="red") | {"immutable": True})
    moment = shop.moment()
    shop.drop(f"{shop.maps}/fixed")
    shop.put("below", shop.api.create(shop.maps, configmap("fixed", color="blue") | {"immutable": True}))
    shop.chronicle("restore", "configmap/fixed", "--to", moment, "--replace", "--yes")
    now = shop.api.get(f"{shop.maps}/fixed")
    assert (now["data"], now["immutable"]) == (made["data"], True)
    assert "below" in [each["metadata"]["name"] for each in shop.api.get(shop.maps)["items"]]
    assert "Nothing to restore" in shop.chronicle("restore", "configmap/fixed", "--to", moment, "--replace", "--yes")


def test_an_address_that_is_free_comes_back(server: Server) -> None:
    shop = Shop(server)
    services, moment, before, now = _service_made_again(shop)
    assert before != now
    shop.drop(f"{services}/taker")
    shop.chronicle("restore", "service/s", "--to", moment, "--replace", "--yes")
    assert shop.api.get(f"{services}/s")["spec"]["clusterIP"] == before
    assert "Nothing to restore" in shop.chronicle("restore", "service/s", "--to", moment, "--replace", "--yes")


def test_an_address_that_stays_is_told(server: Server) -> None:
    shop = Shop(server)
    services, moment, before, now = _service_made_again(shop)
    told = shop.chronicle("restore", "service/s", "--to", moment, "--replace", "--yes", code=3)
    assert f"spec.clusterIP was {before}, and is {now}" in told
    assert shop.api.get(f"{services}/s")["spec"]["clusterIP"] == now


def _service_made_again(shop: Shop) -> tuple[str, str, str, str]:
    """Make the Service s, delete it, give its address to another one, and make it again.

    Return the path of Services, the moment before, the former address and the present one.
    """
    services = f"/api/v1/namespaces/{shop.name}/services"
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
    before = shop.api.create(services, service)["spec"]["clusterIP"]
    moment = shop.moment()
    shop.drop(f"{services}/s")
    taker = {**service, "metadata": {"name": "taker"}, "spec": {"clusterIP": before, "ports": [{"port": 80}]}}
    shop.api.create(services, taker)
    return services, moment, before, shop.api.create(services, service)["spec"]["clusterIP"]
