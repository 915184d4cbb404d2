"""client-go's informers and the Python client on the path of a past moment; kubectl with a patch of history."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness import PATIENCE, Api, Server, configmap, unique
from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException
from programs import GoProgram, Kubectl

from kubechronicle.ops import cli


@dataclass
class Past:
    """ConfigMaps of ``namespace`` at ``moment``: a (1), b (1). Later a (2) and c (1) were written, b deleted."""

    api: Api
    namespace: str
    moment: str
    kubeconfig: Path

    @property
    def maps(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps"


@pytest.fixture(scope="module")
def past(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    api = server.api()
    namespace = api.namespace(unique("past"))
    moment, file = "", tmp_path_factory.mktemp("past") / "config"
    past = Past(api, namespace, moment, file)
    for name in "ab":
        api.create(past.maps, configmap(name, value=f"{name}1"))
    past.moment = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    api.request("PUT", f"{past.maps}/a", configmap("a", value="a2")).expect(200)
    api.request("DELETE", f"{past.maps}/b").expect(200)
    api.create(past.maps, configmap("c", value="c1"))
    document = yaml.safe_load(server.kubeconfig.read_text())
    document["clusters"][0]["cluster"]["server"] += f"/history/at/{past.moment}"
    file.write_text(yaml.safe_dump(document))
    yield past
    api.request("DELETE", f"/api/v1/namespaces/{namespace}")
    api.close()


@pytest.mark.usefixtures("informers")
@pytest.mark.parametrize("watch_list", ["true", "false"])
def test_an_informer_starts_in_the_past_and_reaches_the_present(past: Past, tmp_path: Path, watch_list: str) -> None:
    environment = {"KUBE_FEATURE_WatchListClient": watch_list}
    arguments = ("inform", "--kubeconfig", str(past.kubeconfig), "--namespace", past.namespace)
    with closing(GoProgram(tmp_path, *arguments, environment=environment)) as program:
        seen: list[Any] = []

        def until(value: str) -> None:
            while value not in seen:
                seen.append(program.wait("seen", timeout=PATIENCE)["value"])

        until("c1")
        assert sorted(seen[:2]) == ["a1", "b1"]
        assert seen[2:] == ["a2", "c1"]
        fresh = unique("fresh")
        past.api.create(past.maps, configmap(fresh, value=fresh))
        until(fresh)
        past.api.request("DELETE", f"{past.maps}/{fresh}").expect(200)


def test_the_python_client(past: Past) -> None:
    with config.new_client_from_config(str(past.kubeconfig)) as made:
        core = client.CoreV1Api(made)
        assert core.read_namespaced_config_map("a", past.namespace).data == {"value": "a1"}
        listed = core.list_namespaced_config_map(past.namespace)
        assert [(item.metadata.name, item.data["value"]) for item in listed.items] == [("a", "a1"), ("b", "b1")]
        page = core.list_namespaced_config_map(past.namespace, limit=1)
        assert (page.items[0].metadata.name, page.metadata.remaining_item_count) == ("a", 1)
        rest = core.list_namespaced_config_map(past.namespace, limit=1, _continue=page.metadata._continue)
        assert [item.metadata.name for item in rest.items] == ["b"]
        events = []
        start = listed.metadata.resource_version
        watching = watch.Watch()
        for event in watching.stream(core.list_namespaced_config_map, past.namespace, resource_version=start):
            events.append((event["type"], event["object"].metadata.name))
            if len(events) == 3:
                watching.stop()
        assert events == [("MODIFIED", "a"), ("DELETED", "b"), ("ADDED", "c")]
        with pytest.raises(ApiException) as refused:
            core.delete_namespaced_config_map("a", past.namespace)
        assert refused.value.status == 405
        assert client.VersionApi(made).get_code().major == "1"


def test_a_patch_of_kubectl_chronicle_is_applied_by_sh_and_kubectl(
    past: Past, kubectl: Kubectl, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    maps = f"/api/v1/namespaces/{kubectl.namespace}/configmaps"
    kept, gone, new = unique("kept"), unique("gone"), unique("new")
    past.api.create(maps, configmap(kept, value="it's"))
    there = past.api.create(maps, configmap(gone, value="g"))["metadata"]["resourceVersion"]
    past.api.request("PUT", f"{maps}/{kept}", configmap(kept, value="other")).expect(200)
    past.api.request("DELETE", f"{maps}/{gone}").expect(200)
    past.api.create(maps, configmap(new, value="n"))
    monkeypatch.setenv("KUBECONFIG", str(kubectl.server.kubeconfig))

    def diff(*arguments: str) -> tuple[int, str]:
        code = cli.main(["diff", "configmaps", "-n", kubectl.namespace, *arguments])
        return code, capsys.readouterr().out

    code, script = diff("--from", "now", "--to", there, "-o", "patch")
    assert code == 1
    environment = {**os.environ, "KUBECTL": kubectl.binary, "HOME": str(kubectl.home)}
    done = subprocess.run(["sh"], input=script, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    for name, verb in ((gone, "created"), (kept, "patched"), (new, "deleted")):
        assert [line for line in done.stdout.splitlines() if name in line and verb in line], done.stdout
    assert diff("--from", there) == (0, "")
    again = subprocess.run(["sh"], input=script, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert again.returncode != 0  # its values have changed
