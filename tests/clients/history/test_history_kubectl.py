"""kubectl, unchanged, in a context of a past moment, written by `kubechronicle kubeconfig`."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from harness import BINARIES, Server, prepare, unique
from programs import Kubectl

READ_ONLY = "Error from server (MethodNotAllowed): "
STORY = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: "example.invalid/shop:1"}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {app: web}}
data: {color: blue}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
data: {color: green}
---
apiVersion: v1
kind: Pod
metadata: {name: web-1, labels: {app: web}}
spec: {nodeName: node-7, terminationGracePeriodSeconds: 0, containers: [{name: main, image: "example.invalid/shop:1"}]}
"""
EVENT = """
apiVersion: v1
kind: Event
metadata: {name: web-1.1}
involvedObject: {apiVersion: v1, kind: Pod, name: web-1, namespace: NAMESPACE, uid: UID}
reason: Pulled
message: the image was there already
type: Normal
"""


@dataclass
class At(Kubectl):
    """kubectl with contexts in a file of its own."""

    file: Path = Path()
    context: str = ""

    def _environment(self) -> dict[str, str]:
        return super()._environment() | {"KUBECONFIG": str(self.file)}

    def command(self, *arguments: str) -> list[str]:
        return super().command("--context", self.context, *arguments)


@dataclass
class Story:
    """A namespace with the objects above, and changes and deletions after ``moment``."""

    now: Kubectl
    then: At
    moment: str
    revision: str

    def context(self, name: str, *arguments: str) -> At:
        """Let the command write a context into the file. Return its name."""
        command = [*self.now.server.command(), "kubeconfig", "--data-dir", str(self.now.server.data_dir), *arguments]
        command += ["--kubeconfig", str(self.then.file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert f"context {name} shows " in done.stdout
        return At(self.now.binary, self.now.server, self.now.home, self.now.namespace, self.then.file, name)


@pytest.fixture(scope="module")
def story(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    prepare("kubectl")
    api, home = server.api(), tmp_path_factory.mktemp("history-home")
    name = api.namespace(unique("history"))
    now = Kubectl(str(BINARIES / "kubectl"), server, home, name)
    now("create", "-f", "-", stdin=STORY)
    uid = now("get", "pod", "web-1", "-o", "jsonpath={.metadata.uid}")
    now("create", "-f", "-", stdin=EVENT.replace("NAMESPACE", name).replace("UID", uid))
    moment = datetime.now(UTC).isoformat()
    revision = api.get(f"/api/v1/namespaces/{name}/events")["metadata"]["resourceVersion"]
    now("scale", "deployment/web", "--replicas=5")
    now("patch", "configmap/settings", "--type=merge", "--patch", '{"data":{"color":"red"}}')
    now("delete", "pod/web-1", "event/web-1.1", "configmap/other", "--force")
    file = home / "config"
    file.write_text(server.kubeconfig.read_text())
    story = Story(now, At(now.binary, server, home, name, file, "then"), moment, revision)
    story.context("then", "--at", moment, "--context-name", "then")
    yield story
    api.request("DELETE", f"/api/v1/namespaces/{name}")
    api.close()


def test_past_objects_are_listed(story: Story) -> None:
    now, then = story.now, story.then
    wide = then("get", "pods", "-o", "wide").splitlines()
    assert re.match(r"web-1 +0/1 +Pending +0 +\d+s +<none> +node-7 ", wide[1])
    everywhere = then("get", "pods", "--all-namespaces", "-o", "wide")
    assert re.search(rf"^{now.namespace} +web-1 ", everywhere, re.MULTILINE)
    assert re.search(r"^web +0/2 ", then("get", "deployments"), re.MULTILINE)
    assert re.search(r"^web +0/5 ", now("get", "deployments"), re.MULTILINE)
    assert then("get", "configmaps", "-o", "name").split() == ["configmap/other", "configmap/settings"]
    assert then("get", "configmaps", "-l", "app=web", "-o", "name", "--chunk-size=1") == "configmap/settings\n"
    assert then("get", "configmaps", "-o", "name", "--chunk-size=1").split() == [
        "configmap/other",
        "configmap/settings",
    ]
    assert then("get", "pods", "--field-selector", "spec.nodeName=node-7", "-o", "name") == "pod/web-1\n"
    assert then("get", "configmap", "settings", "-o", "jsonpath={.data.color}") == "blue"
    assert then("get", "all", "-o", "name").split() == ["pod/web-1", "deployment.apps/web"]
    assert f"namespace/{now.namespace}" in then("get", "namespaces", "-o", "name")
    assert 'pods "web-1" not found' in now.refused("get", "pod", "web-1")
    assert then("get", "deployment", "web", "--subresource=scale", "-o", "jsonpath={.spec.replicas}") == "2"


def test_describe_shows_past_events(story: Story) -> None:
    described = story.then("describe", "pod", "web-1")
    assert re.search(r"^Node: +node-7", described, re.MULTILINE)
    assert re.search(r"Normal +Pulled .* the image was there already", described)
    assert "2 desired" in story.then("describe", "deployment", "web")
    assert "the image was there already" in story.then("get", "events")


def test_past_objects_are_compared_and_restored(story: Story) -> None:
    now, then = story.now, story.then
    was = then("get", "configmap", "settings", "-o", "yaml")
    diff = now.call("diff", "-f", "-", stdin=was)
    assert diff.returncode == 1
    assert {line for line in diff.stdout.splitlines() if re.match(r"[-+] ", line)} >= {
        "-  color: red",
        "+  color: blue",
    }
    lost = json.loads(then("get", "configmap", "other", "-o", "json"))
    for member in ("uid", "resourceVersion"):
        del lost["metadata"][member]
    assert now("apply", "-f", "-", stdin=json.dumps(lost)) == "configmap/other created\n"
    assert now("get", "configmap", "other", "-o", "jsonpath={.data.color}") == "green"
    now("delete", "configmap", "other")


def test_nothing_is_changed(story: Story) -> None:
    then, manifest = story.then, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {color: pink}\n"
    for command in (
        ("scale", "deployment/web", "--replicas=1"),
        ("delete", "pod", "web-1"),
        ("create", "namespace", "x"),
        ("label", "pod", "web-1", "a=b"),
        ("set", "image", "deployment/web", "main=x"),
    ):
        refused = then.refused(*command)
        assert "(MethodNotAllowed): history is read-only: this is the cluster as of" in refused or (
            refused.startswith("error: ") and "history is read-only" in refused
        )
        assert "remove its uid and resourceVersion, and apply it to the server itself" in refused
    assert "history is read-only" in then.refused("apply", "-f", "-", stdin=manifest)
    assert "history is read-only" in then.refused("apply", "--server-side", "-f", "-", stdin=manifest)
    assert then.refused("logs", "web-1").startswith(
        f"{READ_ONLY}history has objects, not processes: it has no past log"
    )
    assert "it has no past exec" in then.refused("exec", "web-1", "--", "ls")


def test_discovery_and_permissions(story: Story) -> None:
    then, now = story.then, story.now
    assert "nodeName <string>" in then("explain", "pod.spec.nodeName")
    assert then("api-resources", "-o", "name") == now("api-resources", "-o", "name")
    assert then("api-versions") == now("api-versions")
    assert then("version", "-o", "json") == now("version", "-o", "json")
    assert then("auth", "can-i", "list", "pods") == "yes\n"
    assert "kubernetes-admin" in then("auth", "whoami")
    as_jane = ("--as", "jane")
    assert then.call("auth", "can-i", "list", "secrets", *as_jane).stdout == "no\n"
    assert '(Forbidden): pods is forbidden: User "jane" cannot list' in then.refused("get", "pods", *as_jane)


def test_a_user_of_one_namespace_sees_its_past(story: Story) -> None:
    now, then = story.now, story.then
    now("create", "rolebinding", "jane", "--clusterrole=view", "--user=jane")
    assert then("get", "pods", "-o", "name", "--as", "jane") == "pod/web-1\n"
    for arguments in (("get", "pods", "-A"), ("get", "secrets"), ("get", "nodes"), ("get", "pods", "-n", "default")):
        assert "(Forbidden)" in then.refused(*arguments, "--as", "jane")


def test_every_notation_of_the_moment(story: Story) -> None:
    by_revision = story.context(f"at-{story.revision}", "--at", story.revision)
    assert by_revision("get", "configmap", "settings", "-o", "jsonpath={.data.color}") == "blue"
    ago = story.context("at-0s", "--at", "-0s", "--moving")
    assert ago("get", "configmap", "settings", "-o", "jsonpath={.data.color}") == "red"
    early = story.context("at-3000d", "--at", "3000d")
    assert "(Expired)" in early.refused("get", "pods")
    assert "lies before the retained history: the oldest moment is 20" in early.refused("get", "pods")
    contexts = story.then("config", "get-contexts", "-o", "name").split()
    assert contexts == sorted(["at-0s", f"at-{story.revision}", "at-3000d", "kubechronicle", "then"])
    assert story.then("config", "current-context") == "kubechronicle\n"


def test_a_watch_starts_in_the_past_and_continues(story: Story) -> None:
    with story.then.following("get", "configmaps", "-w", "--output-watch-events", "--no-headers") as lines:
        events = [(lines.next() or "").split()[:2] for _ in range(4)]
        assert events == [["ADDED", "other"], ["ADDED", "settings"], ["MODIFIED", "settings"], ["DELETED", "other"]]
        story.now("create", "configmap", "fresh")
        lines.until(lambda line: line.split()[:2] == ["ADDED", "fresh"])
