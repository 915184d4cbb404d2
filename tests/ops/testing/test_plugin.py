"""The pytest plugin in a project of its own: fixtures, the real client libraries, history, and the report of a failure.

The project's tests run in a pytest of their own, as a user runs them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

OPERATOR = """
import kopf

@kopf.on.create("paints")
def mix(spec, **_):
    return {"colour": "".join(sorted(spec["parts"]))}
"""
DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: paints.shop.example.com}
spec:
  group: shop.example.com
  scope: Namespaced
  names: {plural: paints, singular: paint, kind: Paint}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""
CONFTEST = """
import pytest

@pytest.fixture(scope="session")
def kubernetes_manifests():
    return ["crds/*.yaml"]
"""
MAP = '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "color"}, "data": {"color": "%s"}}'


class Project:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "crds").mkdir()
        (folder / "crds" / "paint.yaml").write_text(DEFINITION)
        (folder / "conftest.py").write_text(CONFTEST)
        (folder / "operator_of_paints.py").write_text(OPERATOR)

    def run(self, tests: str, *arguments: str) -> tuple[int, str]:
        (self.folder / "test_it.py").write_text(tests)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:hypothesispytest", *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=180)
        return done.returncode, done.stdout + done.stderr

    def passes(self, tests: str, *arguments: str) -> str:
        code, output = self.run(tests, *arguments)
        assert code == 0, output
        return output


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_each_test_begins_clean_with_the_manifests_of_the_session(project: Project) -> None:
    project.passes(f"""
import os, subprocess

def test_first(kubernetes):
    kubernetes.apply({MAP % "red"})
    kubernetes.delete("crd/paints.shop.example.com")
    kubernetes.wait_gone("crd/paints.shop.example.com")

def test_second(kubernetes):
    assert kubernetes.get("configmap/color") is None
    assert kubernetes.get("crd/paints.shop.example.com")["spec"]["group"] == "shop.example.com"
    kubernetes.apply("crds", {{"apiVersion": "shop.example.com/v1", "kind": "Paint", "metadata": {{"name": "a"}}}})
    assert [each["metadata"]["name"] for each in kubernetes.objects("paints")] == ["a"]
    assert os.environ["KUBECONFIG"] == str(kubernetes.kubeconfig)
""")


def test_history_tells_who_changed_what_and_the_past_can_be_read(project: Project) -> None:
    project.passes(f"""
def test_it(kubernetes):
    jane = kubernetes.user("jane", role="edit", namespace="default")
    kubernetes.apply({MAP % "red"})
    red = kubernetes.revision
    jane.apply({MAP % "blue"})
    created, changed = kubernetes.history.of("configmap/color")
    assert (created.user, created.before, created.after["data"]) == ("kubernetes-admin", None, {{"color": "red"}})
    assert (changed.user, changed.fields["data.color"]) == ("jane", ("red", "blue"))
    assert kubernetes.history.who("configmap/color", "data.color") == "jane"
    assert kubernetes.history.who("configmap/color", "metadata.labels") == "kubernetes-admin"
    assert kubernetes.history.who("configmap/other") == ""
    assert kubernetes.at(red).get("configmap/color")["data"] == {{"color": "red"}}
    assert kubernetes.get("configmap/color")["data"] == {{"color": "blue"}}
    jane.delete("configmap/color")
    assert kubernetes.history.of("configmap/color")[-1].action == "delete"
    assert [str(each).split()[1] for each in kubernetes.history.all("default")][-1] == "delete"

def test_a_user_has_no_more_rights_than_its_role(kubernetes):
    viewer = kubernetes.user("vera", role="view", namespace="default")
    try:
        viewer.apply({MAP % "red"})
    except Exception as error:
        assert "vera" in str(error) and "cannot patch" in str(error)
    else:
        raise AssertionError
    assert viewer.objects("configmaps", "default")
""")


def test_client_libraries_find_the_cluster(project: Project) -> None:
    project.passes(f"""
import asyncio, kr8s, kubernetes as library, kubernetes_asyncio, lightkube
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap as LightkubeConfigMap

def test_kubernetes(kubernetes):
    library.config.load_kube_config()
    for api in (library.client.CoreV1Api(), library.client.CoreV1Api(kubernetes.kubernetes_client())):
        api.create_namespaced_config_map("default", {{"metadata": {{"generateName": "a-"}}}})
    made = api.list_namespaced_config_map("default").items[0]
    assert made.metadata.name.startswith("a-")
    assert kubernetes.history.who(made) == "kubernetes-admin"

def test_kubernetes_asyncio(kubernetes):
    async def create():
        async with await kubernetes.kubernetes_asyncio_client() as client:
            api = kubernetes_asyncio.client.CoreV1Api(client)
            return await api.create_namespaced_config_map("default", {{"metadata": {{"name": "b"}}}})
    assert kubernetes.history.of(asyncio.run(create()))[0].action == "create"

def test_lightkube(kubernetes):
    for client in (lightkube.Client(), kubernetes.lightkube_client()):
        made = client.create(LightkubeConfigMap(metadata=ObjectMeta(generateName="c-", namespace="default")))
    assert len(kubernetes.history.of(made)) == 1

def test_kr8s(kubernetes):
    api = kubernetes.kr8s_client()
    made = kr8s.objects.ConfigMap({MAP % "red"}, api=api)
    made.create()
    made.patch({{"data": {{"color": "blue"}}}})
    assert [each.action for each in kubernetes.history.of(made)] == ["create", "patch"]
    assert [each.name for each in kr8s.get("configmaps", "color", namespace="default", api=api)] == ["color"]

def test_kopf(kubernetes):
    with kubernetes.kopf("operator_of_paints.py"):
        paint = {{"apiVersion": "shop.example.com/v1", "kind": "Paint", "metadata": {{"name": "x"}},
                 "spec": {{"parts": ["r", "b"]}}}}
        kubernetes.apply(paint)
        mixed = kubernetes.wait_for(paint, lambda each: "mix" in each.get("status", {{}}))
    assert mixed["status"]["mix"] == {{"colour": "br"}}
    assert kubernetes.history.who(paint, "status.mix") == "kubernetes-admin"
""")


def test_a_failure_reports_what_happened(project: Project, tmp_path: Path) -> None:
    code, output = project.run(
        f"""
def test_it(kubernetes):
    kubernetes.user("jane", role="edit").apply({MAP % "<red>"})
    assert kubernetes.get("configmap/color")["data"]["color"] == "blue"
""",
        "--kubernetes-incidents=incidents",
    )
    assert code == 1
    assert "changes in the cluster" in output
    assert re.search(r"\d+ patch configmaps/color by jane: <created>", output), output
    page = (tmp_path / "incidents" / "test_it.py-test_it.html").read_text()
    assert "configmaps/color" in page
    assert "AssertionError" in page
    assert "<h2>Causes</h2>" in page
    assert "<ins>+  color: &#x27;&lt;red&gt;&#x27;</ins>" in page or "<ins>+  color: &lt;red&gt;</ins>" in page
    assert "&lt;red&gt;" in page
    assert "<red>" not in page


def test_pods_run_on_simulated_nodes(project: Project) -> None:
    project.passes("""
import pytest
from kubechronicle.ops.testing.cluster import is_ready

@pytest.fixture(scope="session")
def kubernetes_nodes():
    return 2

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
       "spec": {"containers": [{"name": "c", "image": "example.com/image"}]}}

@pytest.mark.parametrize("time", [1, 2])
def test_pods(kubernetes, time):
    assert all(is_ready(each) for each in kubernetes.objects("nodes"))
    assert kubernetes.get("pod/web") is None
    kubernetes.apply(POD)
    running = kubernetes.wait_for("pod/web", is_ready)
    assert running["status"]["podIP"].startswith("10.244.")
    kubernetes.delete("pod/web")
    kubernetes.wait_gone("pod/web")

def test_a_node_can_be_lost(kubernetes):
    kubernetes.delete("node/node-1")
    kubernetes.apply(POD)
    assert kubernetes.wait_for("pod/web", is_ready)["spec"]["nodeName"] == "node-0"
""")


def test_a_server_that_does_not_start_says_why(project: Project) -> None:
    code, output = project.run(
        """
import pytest

@pytest.fixture(scope="session")
def kubernetes_flags():
    return ["--no-such-flag"]

def test_it(kubernetes): pass
"""
    )
    assert code == 1
    assert "unknown flag --no-such-flag" in output


def test_a_run_without_the_fixture_starts_nothing(project: Project) -> None:
    output = project.passes(
        """
import sys

def test_it():
    assert not [each for each in sys.modules if each.startswith("kubechronicle.ops.client")]
"""
    )
    assert "1 passed" in output
