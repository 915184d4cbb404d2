"""kubectl, unchanged, on a custom resource: every output is as with a Kubernetes cluster."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from custom_resources import CRDS, FOLDER, undefine
from harness import BINARIES, Api, Server, eventually, prepare, unique
from programs import Kubectl

NAME = "crontabs.shell.example.com"
PATH = "/apis/shell.example.com/v1/namespaces/{}/crontabs"
DEFINITION = FOLDER / "crontabs.yaml"
CRONTAB = """
apiVersion: shell.example.com/v1
kind: CronTab
metadata: {name: a, labels: {app: a}}
spec: {cronSpec: "* * * * */5", image: one, ports: [{port: 80, name: web}]}
"""
FIELDS = """
  spec <Object> -required-
    cronSpec <string> -required-
    image <string>
    enum: one, two, three
    ports <[]Object>
      name <string>
      port <integer> -required-
    replicas <integer>
  status <Object>
    conditions <[]Object>
      status <string> -required-
      type <string> -required-
    labelSelector <string>
    replicas <integer>
"""


@pytest.fixture
def kubectl(server: Server, tmp_path: Path) -> Iterator[Kubectl]:
    """kubectl in a namespace of its own, with the definition applied."""
    prepare("kubectl")
    with closing(server.api()) as api:
        kubectl = Kubectl(str(BINARIES / "kubectl"), server, tmp_path, api.namespace(unique("crontabs")))
        title = f"customresourcedefinition.apiextensions.k8s.io/{NAME}"
        assert kubectl("apply", "-f", str(DEFINITION)) == f"{title} created\n"
        # kubectl wait fails on a definition without conditions, as a new one is for a moment (in kube-apiserver, too).
        shown = ("get", "crd", NAME, "-o", "jsonpath={.status.conditions}")
        eventually(lambda: kubectl(*shown), "the definition has conditions")
        assert kubectl("wait", "--for=condition=Established", f"crd/{NAME}") == f"{title} condition met\n"
        yield kubectl
        listed = api.request("GET", PATH.format(kubectl.namespace))
        for item in listed.json()["items"] if listed.status == 200 else ():
            kubectl.call("patch", "ct", item["metadata"]["name"], "--type=merge", '-p={"metadata":{"finalizers":null}}')
        undefine(api, NAME)
        api.request("DELETE", f"/api/v1/namespaces/{kubectl.namespace}").expect(200)


@pytest.fixture
def api(server: Server) -> Iterator[Api]:
    with closing(server.api()) as api:
        yield api


def screen(text: str) -> str:
    """Return an output with single spaces behind the indentation, and without ages."""
    lines = (re.sub(r"(?<=\S)[ \t]+", " ", line.rstrip()) for line in text.splitlines())
    return "\n".join(re.sub(r" \d+m?s\b", " AGE", line) for line in lines) + "\n"


def test_apply_without_a_change_writes_nothing(kubectl: Kubectl, api: Api) -> None:
    def versions() -> list[str]:  # of both objects: the server itself may write others meanwhile
        paths = (f"{PATH.format(kubectl.namespace)}/a", f"{CRDS}/{NAME}")
        return [api.get(path)["metadata"]["resourceVersion"] for path in paths]

    for apply in (["apply"], ["apply", "--server-side"], ["apply", "--server-side", "--field-manager=other"]):
        for document in (CRONTAB, DEFINITION.read_text()):
            kubectl(*apply, "-f", "-", stdin=document)
        before = versions()
        for document in (CRONTAB, DEFINITION.read_text()):
            printed = kubectl(*apply, "-f", "-", stdin=document)
            assert printed.endswith(" serverside-applied\n" if "--server-side" in apply else " unchanged\n")
        assert versions() == before, "a revision was written"


def test_explain_and_discovery(kubectl: Kubectl) -> None:
    assert FIELDS in screen(kubectl("explain", "--recursive", "crontabs"))
    assert "DESCRIPTION:\n    Times in the form of cron.\n" in kubectl("explain", "ct.spec.cronSpec")
    assert screen(kubectl("api-resources", "--api-group=shell.example.com", "--no-headers")) == (
        "crontabs ct shell.example.com/v1 true CronTab\n"
    )
    kubectl("create", "-f", "-", stdin=CRONTAB)
    assert screen(kubectl("get", "ct")) == "NAME SPEC REPLICAS AGE\na * * * * */5 1 AGE\n"
    assert screen(kubectl("get", "crontab", "-o", "wide", "--no-headers")) == "a * * * * */5 1 one AGE\n"
    for category in ("all", "shellall"):
        assert kubectl("get", category, "-o", "name") == "crontab.shell.example.com/a\n"
    assert kubectl("get", "ct", "--field-selector=spec.image=one", "-o", "name") == "crontab.shell.example.com/a\n"
    assert kubectl("get", "ct", "--field-selector=spec.image=two", "-o", "name") == ""


def test_scale_wait_and_watch(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=CRONTAB)
    with kubectl.following("get", "ct", "-w", "--no-headers") as lines:
        assert screen(lines.next() or "") == "a * * * * */5 1 AGE\n"
        assert kubectl("scale", "ct/a", "--replicas=3") == "crontab.shell.example.com/a scaled\n"
        assert screen(lines.next() or "") == "a * * * * */5 3 AGE\n"
    assert kubectl.refused("scale", "ct/a", "--replicas=3", "--current-replicas=1") == (
        "error: Expected replicas to be 1, was 3\n"
    )
    status = '{"status":{"replicas":3,"conditions":[{"type":"Ready","status":"True"}]}}'
    kubectl("patch", "ct/a", "--subresource=status", "--type=merge", "-p", status)
    met = "crontab.shell.example.com/a condition met\n"
    assert kubectl("wait", "--for=condition=Ready", "ct/a") == met
    assert kubectl("wait", "--for=jsonpath={.status.replicas}=3", "ct/a") == met


def test_patch_and_edit(kubectl: Kubectl) -> None:
    title = "crontab.shell.example.com/a"
    kubectl("create", "-f", "-", stdin=CRONTAB)
    two = '{"spec":{"image":"two"}}'
    assert "application/strategic-merge-patch+json is not supported by" in kubectl.refused("patch", "ct/a", "-p", two)
    assert kubectl("patch", "ct/a", "--type=merge", "-p", two) == f"{title} patched\n"
    assert kubectl("patch", "ct/a", "--type=merge", "-p", two) == f"{title} patched (no change)\n"
    unknown = kubectl.call("patch", "ct/a", "--type=merge", "-p", '{"spec":{"nope":1}}')
    assert (unknown.stdout, unknown.stderr) == (
        f"{title} patched (no change)\n",
        'Warning: unknown field "spec.nope"\n',
    )
    many = '{"spec":{"image":"three","replicas":7}}'
    assert kubectl.refused("patch", "ct/a", "--type=merge", "-p", many) == (
        'The CronTab "a" is invalid: spec: Invalid value: at most four of three\n'
    )
    step = '[{"op":"remove","path":"/spec/cronSpec"}]'
    assert kubectl.refused("patch", "ct/a", "--type=json", "-p", step).startswith(
        'The CronTab "a" is invalid: \n* spec.cronSpec: Required value\n'
    )
    assert kubectl("edit", "ct/a", environment={"KUBE_EDITOR": "sed -i s/two/three/"}) == f"{title} edited\n"
    wrong = kubectl.call("edit", "ct/a", environment={"KUBE_EDITOR": "sed -i s/three/four/"})
    assert 'error: crontabs.shell.example.com "a" is invalid\n' in wrong.stderr
    assert "Image:      three\n" in kubectl("describe", "ct/a") or "Image: three\n" in screen(
        kubectl("describe", "ct/a")
    )
    wrong = kubectl.call("create", "-f", "-", stdin=CRONTAB.replace("image", "picture"))
    assert 'strict decoding error: unknown field "spec.picture"\n' in wrong.stderr


def test_deletion_of_a_definition_waits_for_its_objects(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=CRONTAB.replace("name: a", "name: a, finalizers: [example.com/hold]"))
    kubectl("create", "-f", "-", stdin=CRONTAB.replace("name: a", "name: b"))
    assert kubectl("delete", "crd", NAME, "--wait=false").endswith(f'"{NAME}" deleted\n')
    kubectl("wait", "--for=delete", "ct/b")
    assert kubectl.refused("create", "-f", "-", stdin=CRONTAB).endswith(
        "is forbidden: create not allowed while custom resource definition is terminating\n"
    )
    assert kubectl("get", "ct", "-o", "name") == "crontab.shell.example.com/a\n"
    kubectl("patch", "ct/a", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    kubectl("wait", "--for=delete", f"crd/{NAME}")
    assert "the server could not find the requested resource" in kubectl.refused("get", "ct")
    assert kubectl("api-resources", "--api-group=shell.example.com", "--no-headers") == ""


def test_history_of_an_object_before_and_after_the_end_of_its_definition(kubectl: Kubectl, api: Api) -> None:
    def chronicle(*arguments: str, code: int = 0) -> str:
        path = f"{Path(sys.executable).parent}:{BINARIES}:{os.environ['PATH']}"
        plugin = Kubectl(kubectl.binary, kubectl.server, kubectl.home)  # no flag may stand before a plugin's name
        command, *others = arguments
        done = plugin.call("chronicle", command, "-n", kubectl.namespace, *others, environment={"PATH": path})
        assert done.returncode == code, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    kubectl("apply", "--server-side", "-f", "-", stdin=CRONTAB)
    moment = datetime.now(UTC).isoformat()
    kubectl("scale", "ct/a", "--replicas=3")
    log = screen(chronicle("log", "ct/a"))
    assert log.count("\n") >= 3, log
    difference = chronicle("diff", "ct/a", "--from", moment, code=1)
    assert "-  replicas: 1\n+  replicas: 3\n" in difference, difference
    chronicle("restore", "ct/a", "--to", moment, "--yes")
    assert kubectl("get", "ct/a", "-o", "jsonpath={.spec.replicas}") == "1"
    kubectl("delete", "crd", NAME)
    eventually(lambda: api.request("GET", PATH.format(kubectl.namespace)).status == 404, "the path is gone")
    assert "crontabs.shell.example.com/a" in chronicle("log"), "of the namespace"
    for text in ("ct/a", "crontabs.shell.example.com/a"):
        printed = chronicle("log", text)
        assert "    deleted\n" in printed
        assert "    spec.replicas: 1 → 3\n" in printed
    chronicle("log", "nothing/a", code=2)
    assert "-  cronSpec: '* * * * */5'\n" in chronicle("diff", "ct/a", "--from", moment, code=1)
    assert "  cronSpec: '* * * * */5'\n" in chronicle("blame", "ct/a", "--at", moment)
    listed = screen(chronicle("at", moment, "get", "ct"))
    assert listed == "NAME SPEC REPLICAS AGE\na * * * * */5 1 AGE\n"
    assert "  cronSpec: '* * * * */5'\n" in chronicle("export", "--at", moment)
    chronicle("restore", "ct/a", "--to", moment, "--yes", code=2)
    chronicle("restore", f"crd/{NAME}", "--to", moment, "--yes")
    chronicle("restore", "ct/a", "--to", moment, "--yes")
    assert kubectl("get", "ct/a", "-o", "jsonpath={.spec.replicas}") == "1"
