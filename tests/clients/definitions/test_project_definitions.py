"""Definitions of cert-manager, Gateway API, Prometheus operator, Argo and Crossplane, as these projects ship them.

They come from the projects' Go modules (prepare.sh projects) and are not part of this repository. Some of each project
are tested by default, all of them with KUBECHRONICLE_PROJECTS=all. One project's are also made anew from its Go types,
by controller-gen (prepare.sh generated).
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from custom_resources import CRDS, is_true, load, undefine
from harness import BINARIES, Api, Server, eventually, prepare, unique
from programs import Kubectl

from kubechronicle.api.codecs import yaml
from kubechronicle.ops.development.server_process import cpu_seconds

OBJECTS = load("projects.yaml")  # by the name of their definition
PROJECTS = BINARIES.parent / "projects"
ESTABLISHED = 0.9  # seconds of CPU at most until it is served: against surprises, the largest takes 0.2
SOME = {  # the largest or the most peculiar of each project
    "argo-cd": {"applicationsets.argoproj.io"},
    "argo-rollouts": {"rollouts.argoproj.io"},
    "argo-workflows": {"workflowtemplates.argoproj.io", "workfloweventbindings.argoproj.io"},
    "cert-manager": {"issuers.cert-manager.io"},
    "crossplane": {"compositions.apiextensions.crossplane.io", "functions.pkg.crossplane.io"},
    "gateway-api": {"httproutes.gateway.networking.k8s.io", "gateways.gateway.networking.k8s.io"},
    "prometheus-operator": {"prometheuses.monitoring.coreos.com", "alertmanagerconfigs.monitoring.coreos.com"},
}


@pytest.fixture(scope="module")
def projects() -> Path:
    try:
        prepare("projects")
    except subprocess.CalledProcessError:
        pytest.skip("the Go modules of the projects cannot be fetched")
    return PROJECTS


@pytest.fixture
def api(server: Server) -> Iterator[Api]:
    with closing(server.api()) as api:
        yield api


def definitions(folder: Path, wanted: set[str]) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("*.yaml")):
        for document in yaml.decode_all(path.read_bytes()):
            if document["kind"] == "CustomResourceDefinition" and (
                os.environ.get("KUBECHRONICLE_PROJECTS") == "all" or document["metadata"]["name"] in wanted
            ):
                yield document


@pytest.mark.parametrize("project", sorted(SOME))
def test_definitions_of_a_project(project: str, projects: Path, api: Api, server: Server, tmp_path: Path) -> None:
    assert use_definitions(projects / project, SOME[project], api, server, tmp_path)


def test_definitions_that_controller_gen_makes(api: Api, server: Server, tmp_path: Path) -> None:
    try:
        prepare("generated")
    except subprocess.CalledProcessError:
        pytest.skip("controller-gen or the Go types cannot be fetched")
    wanted = {"servicemonitors.monitoring.coreos.com", "prometheuses.monitoring.coreos.com"}
    assert use_definitions(PROJECTS / "generated", wanted, api, server, tmp_path) >= len(wanted)


def use_definitions(folder: Path, wanted: set[str], api: Api, server: Server, tmp_path: Path) -> int:
    """Establish each definition, explain it, and apply an object of it. Return their number."""
    prepare("kubectl")
    namespace = api.namespace(unique("project"))
    kubectl = Kubectl(str(BINARIES / "kubectl"), server, tmp_path, namespace)
    used_definitions = 0
    for definition in definitions(folder, wanted):
        used_definitions += 1
        name = definition["metadata"]["name"]
        used = cpu_seconds(server.processes())
        establish(api, definition)
        used = cpu_seconds(server.processes()) - used
        print(f"{name}: {len(json.dumps(definition)) / 1024:.0f} KB, established with {used:.2f} s of CPU")
        assert used < ESTABLISHED
        explain(kubectl, definition)
        if name in OBJECTS:
            apply_twice(kubectl, name, OBJECTS[name])
            refuse_mistakes(kubectl, OBJECTS[name])
            show_columns(kubectl, definition, OBJECTS[name])
        undefine(api, name)
    api.request("DELETE", f"/api/v1/namespaces/{namespace}").expect(200)
    return used_definitions


def establish(api: Api, definition: dict[str, Any]) -> None:
    name = definition["metadata"]["name"]
    undefine(api, name)
    api.create(CRDS, definition)
    eventually(lambda: is_true(api.get(f"{CRDS}/{name}"), "Established"), f"{name} is established")
    spec = definition["spec"]
    for version in spec["versions"]:
        listed = api.request("GET", f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}")
        assert listed.status == (200 if version["served"] else 404)


def explain(kubectl: Kubectl, definition: dict[str, Any]) -> None:
    """Explain all fields of each served version: the text names every field of spec."""
    spec = definition["spec"]
    for version in spec["versions"]:
        if not version["served"]:
            continue
        text = kubectl(
            "explain", spec["names"]["plural"], f"--api-version={spec['group']}/{version['name']}", "--recursive"
        )
        properties = version["schema"]["openAPIV3Schema"]["properties"]
        shown = {line.split("\t")[0].strip() for line in text.splitlines()}
        assert {"apiVersion", *properties, *properties.get("spec", {}).get("properties", ())} <= shown


def apply_twice(kubectl: Kubectl, name: str, obj: dict[str, Any]) -> None:
    """Apply the object twice: the second time writes nothing."""
    document = json.dumps(obj)
    revisions = []
    for _ in range(2):
        kubectl("apply", "--server-side", "-f", "-", stdin=document)
        revisions.append(kubectl("get", f"{name}/demo", "-o", "jsonpath={.metadata.resourceVersion}"))
    assert revisions[0] == revisions[1]


def refuse_mistakes(kubectl: Kubectl, obj: dict[str, Any]) -> None:
    """Refuse a field of another type, and an unknown field."""
    field = next(iter(obj["spec"]))
    other = {**obj, "metadata": {"name": "wrong"}, "spec": {**obj["spec"], field: 1.5}}
    refusal = kubectl.refused("create", "-f", "-", stdin=json.dumps(other))
    assert "is invalid" in refusal
    assert f"spec.{field}: Invalid value" in refusal
    unknown = {**obj, "metadata": {"name": "wrong"}, "spec": {**obj["spec"], "noSuchField": 1}}
    assert 'unknown field "spec.noSuchField"' in kubectl.refused("create", "-f", "-", stdin=json.dumps(unknown))


def show_columns(kubectl: Kubectl, definition: dict[str, Any], obj: dict[str, Any]) -> None:
    """Print the object with the columns that its version names."""
    spec, used = definition["spec"], obj["apiVersion"].partition("/")[2]
    version = next(one for one in spec["versions"] if one["name"] == used)
    columns = [one for one in version.get("additionalPrinterColumns", ()) if not one.get("priority")]
    expected = ["NAME", *(one["name"].upper() for one in columns)]
    header = kubectl("get", f"{spec['names']['plural']}.{used}.{spec['group']}").splitlines()[0]
    assert header.split() == " ".join(expected if columns else ["NAME", "AGE"]).split()
