"""kubectl, unmodified: the commands of its users, and its output.

Every test runs with the kubectl of the served API version and with the one on PATH, most of them for each kind below.
The kubectl on PATH runs only the tests of output for every kind, and the others for FEW: it sends patches in the same
way for all kinds. (Longer than most files: it is a list of commands.)
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from harness import Api, Server, unique
from programs import Kubectl

CONTAINER = {"name": "main", "image": "example.invalid/main:1"}
TEMPLATE = {"metadata": {"labels": {"app": "t"}}, "spec": {"containers": [CONTAINER]}}


@dataclass(frozen=True)
class Kind:
    """One kind: its name in kubectl, a body, its columns in kubectl, and a line of its description."""

    kind: str
    resource: str
    api_version: str
    columns: str
    described: str
    body: dict[str, Any]
    wide: str = ""
    namespaced: bool = True

    @property
    def title(self) -> str:
        """The name in ``configmap/x created``."""
        group = self.api_version.partition("/")[0] if "/" in self.api_version else ""
        return self.kind.lower() + (f".{group}" if group else "")

    @property
    def group_resource(self) -> str:
        """The name in error messages."""
        return self.resource + self.title[len(self.kind) :]

    def manifest(self, name: str, namespace: str) -> dict[str, Any]:
        metadata: dict[str, Any] = {"name": name, "labels": {"made": "here"}, "annotations": {"note": "before"}}
        if self.namespaced:
            metadata["namespace"] = namespace
        body = json.loads(json.dumps(self.body).replace("NAMESPACE", namespace))
        return {"apiVersion": self.api_version, "kind": self.kind, "metadata": metadata} | body

    def path(self, namespace: str) -> str:
        base = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        return base + (f"/namespaces/{namespace}" if self.namespaced else "") + f"/{self.resource}"


KINDS = (
    Kind(
        "Pod",
        "pods",
        "v1",
        "NAME READY STATUS RESTARTS AGE",
        "Containers:",
        {"spec": {"containers": [CONTAINER]}},
        wide="IP NODE NOMINATED NODE READINESS GATES",
    ),
    Kind(
        "Deployment",
        "deployments",
        "apps/v1",
        "NAME READY UP-TO-DATE AVAILABLE AGE",
        "Replicas:",
        {"spec": {"replicas": 2, "selector": {"matchLabels": {"app": "t"}}, "template": TEMPLATE}},
        wide="CONTAINERS IMAGES SELECTOR",
    ),
    Kind(
        "Service",
        "services",
        "v1",
        "NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE",
        "Selector:",
        {"spec": {"clusterIP": "None", "selector": {"app": "t"}, "ports": [{"port": 80}]}},
        wide="SELECTOR",
    ),
    Kind("ConfigMap", "configmaps", "v1", "NAME DATA AGE", "Data", {"data": {"k": "v"}}),
    Kind("Secret", "secrets", "v1", "NAME TYPE DATA AGE", "Type:  Opaque", {"data": {"k": "dg=="}}),
    Kind("Namespace", "namespaces", "v1", "NAME STATUS AGE", "Status:", {}, namespaced=False),
    Kind(
        "Node",
        "nodes",
        "v1",
        "NAME STATUS ROLES AGE VERSION",
        "Roles:",
        {"spec": {"podCIDR": "10.9.0.0/24"}},
        wide="INTERNAL-IP EXTERNAL-IP OS-IMAGE KERNEL-VERSION CONTAINER-RUNTIME",
        namespaced=False,
    ),
    Kind(
        "Lease",
        "leases",
        "coordination.k8s.io/v1",
        "NAME HOLDER AGE",
        "Holder Identity",
        {"spec": {"holderIdentity": "someone"}},
    ),
    Kind(
        "Event",
        "events",
        "v1",
        "LAST SEEN TYPE REASON OBJECT MESSAGE",
        "Message:",
        {
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": "NAMESPACE"},
            "reason": "Tested",
            "message": "a message",
            "type": "Normal",
        },
        wide="SUBOBJECT SOURCE MESSAGE FIRST SEEN COUNT NAME",
    ),
)


@dataclass
class Thing:
    """An object of a kind, created without kubectl, for kubectl to work on."""

    kind: Kind
    name: str
    path: str
    api: Api

    @property
    def full(self) -> str:
        return f"{self.kind.title}/{self.name}"

    def get(self) -> dict[str, Any]:
        obj: dict[str, Any] = self.api.get(f"{self.path}/{self.name}")
        return obj


# Kinds with and without a status, namespaced and cluster-scoped.
FEW = ("pods", "configmaps", "nodes")


@pytest.fixture(scope="module")
def api(server: Server) -> Api:
    return server.api()


@pytest.fixture(params=KINDS, ids=lambda kind: kind.resource)
def kind(request: pytest.FixtureRequest) -> Kind:
    kind: Kind = request.param
    return kind


def wanted(kubectl_binary: str, kind: Kind, every_kind: bool) -> bool:
    """Return True if a test of a kind runs with this kubectl (see conftest.py)."""
    return every_kind or kubectl_binary != "kubectl on PATH" or kind.resource in FEW


@pytest.fixture
def thing(kind: Kind, kubectl: Kubectl, api: Api) -> Any:
    name, path = unique(kind.resource), kind.path(kubectl.namespace)
    api.create(path, kind.manifest(name, kubectl.namespace))
    yield Thing(kind, name, path, api)
    if not kind.namespaced:
        api.request("DELETE", f"{path}/{name}")


def columns(text: str) -> str:
    """Return the header line with single spaces."""
    return " ".join(text.splitlines()[0].split())


def line_of(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if name in line)


# One object, from its creation to its deletion


def test_create_from_a_manifest(kind: Kind, kubectl: Kubectl, api: Api) -> None:
    name = unique(kind.resource)
    manifest = yaml.safe_dump(kind.manifest(name, kubectl.namespace))
    try:
        assert kubectl("create", "-f", "-", stdin=manifest) == f"{kind.title}/{name} created\n"
        again = kubectl.refused("create", "-f", "-", stdin=manifest)
        assert again.startswith('Error from server (AlreadyExists): error when creating "STDIN": ')
        assert f'{kind.group_resource} "{name}" already exists' in again
        managed = api.get(f"{kind.path(kubectl.namespace)}/{name}")["metadata"]["managedFields"]
        assert [(entry["manager"], entry["operation"]) for entry in managed] == [("kubectl-create", "Update")]
    finally:
        if not kind.namespaced:
            api.request("DELETE", f"{kind.path(kubectl.namespace)}/{name}")


@pytest.mark.every_kind
def test_get_prints_the_columns_of_the_kind(thing: Thing, kubectl: Kubectl) -> None:
    kind = thing.kind
    listed = kubectl("get", kind.resource)
    assert columns(listed) == kind.columns
    if kind.resource != "events":  # events have no name column until -o wide
        assert line_of(listed, thing.name).split()[0] == thing.name
    wide = kubectl("get", kind.resource, thing.name, "-o", "wide")
    assert columns(wide).endswith(kind.wide or kind.columns)
    if kind.resource == "nodes":
        assert line_of(wide, thing.name).split()[1] == "Unknown"
    elif "AGE" in kind.columns.split():
        age = line_of(listed, thing.name).split()[kind.columns.split().index("AGE")]
        assert age.rstrip("sm").isdigit(), age
    assert thing.full in kubectl("get", kind.resource, "-o", "name").split()


def test_get_prints_json_yaml_and_jsonpath(thing: Thing, kubectl: Kubectl) -> None:
    reference = (thing.kind.resource, thing.name)
    as_json = json.loads(kubectl("get", *reference, "-o", "json"))
    assert as_json == yaml.safe_load(kubectl("get", *reference, "-o", "yaml"))
    assert (as_json["apiVersion"], as_json["kind"]) == (thing.kind.api_version, thing.kind.kind)
    assert as_json["metadata"]["annotations"]["note"] == "before"
    assert kubectl("get", *reference, "-o", "jsonpath={.metadata.uid}") == thing.get()["metadata"]["uid"]
    listed = json.loads(kubectl("get", thing.kind.resource, "-o", "json"))
    assert (listed["kind"], listed["apiVersion"]) == ("List", "v1")
    assert thing.name in [item["metadata"]["name"] for item in listed["items"]]
    custom = kubectl("get", thing.kind.resource, "-o", "custom-columns=N:.metadata.name,L:.metadata.labels.made")
    assert line_of(custom, thing.name).split() == [thing.name, "here"]


def test_get_of_a_missing_object(kind: Kind, kubectl: Kubectl) -> None:
    complaint = kubectl.refused("get", kind.resource, "not-there")
    assert complaint == f'Error from server (NotFound): {kind.group_resource} "not-there" not found\n'


@pytest.mark.every_kind
def test_describe(thing: Thing, kubectl: Kubectl) -> None:
    text = kubectl("describe", thing.kind.resource, thing.name)
    assert line_of(text, "Name:").split() == ["Name:", thing.name]
    assert "made=here" in text
    assert thing.kind.described in text


def test_label_and_annotate(thing: Thing, kubectl: Kubectl) -> None:
    reference = (thing.kind.resource, thing.name)
    assert kubectl("label", *reference, "colour=blue") == f"{thing.full} labeled\n"
    assert "already has a value (blue), and --overwrite is false" in kubectl.refused("label", *reference, "colour=red")
    assert kubectl("label", *reference, "colour=red", "--overwrite") == f"{thing.full} labeled\n"
    assert thing.full in kubectl("get", thing.kind.resource, "-l", "colour in (red, green),made", "-o", "name").split()
    assert thing.full not in kubectl("get", thing.kind.resource, "-l", "colour!=red", "-o", "name").split()
    assert kubectl("label", *reference, "colour-") == f"{thing.full} unlabeled\n"
    assert kubectl("annotate", *reference, "why=because") == f"{thing.full} annotated\n"
    metadata = thing.get()["metadata"]
    assert metadata["labels"].get("colour") is None
    assert metadata["annotations"]["why"] == "because"


def test_patch(thing: Thing, kubectl: Kubectl) -> None:
    reference = ("patch", thing.kind.resource, thing.name)
    merge = '{"metadata":{"annotations":{"note":null,"merged":"yes"}}}'
    assert kubectl(*reference, "--type=merge", "-p", merge) == f"{thing.full} patched\n"
    assert kubectl(*reference, "--type=merge", "-p", merge) == f"{thing.full} patched (no change)\n"
    steps = [
        {"op": "test", "path": "/metadata/labels/made", "value": "here"},
        {"op": "add", "path": "/metadata/labels/n", "value": "1"},
    ]
    assert kubectl(*reference, "--type=json", "-p", json.dumps(steps)) == f"{thing.full} patched\n"
    metadata = thing.get()["metadata"]
    assert metadata["annotations"] == {"merged": "yes"}
    assert metadata["labels"]["n"] == "1"
    wrong = '[{"op":"test","path":"/metadata/labels/made","value":"there"}]'
    assert kubectl.refused(*reference, "--type=json", "-p", wrong).startswith("The request is invalid")


def test_replace(thing: Thing, kubectl: Kubectl) -> None:
    stale = thing.get()
    fresh = json.loads(json.dumps(stale))
    fresh["metadata"]["labels"]["replaced"] = "yes"
    assert kubectl("replace", "-f", "-", stdin=json.dumps(fresh)) == f"{thing.full} replaced\n"
    assert thing.get()["metadata"]["labels"]["replaced"] == "yes"
    stale["metadata"]["labels"]["replaced"] = "no"
    complaint = kubectl.refused("replace", "-f", "-", stdin=json.dumps(stale))
    assert complaint.startswith("Error from server (Conflict): error when replacing")
    assert (
        f'Operation cannot be fulfilled on {thing.kind.group_resource} "{thing.name}": the object has been modified; '
        "please apply your changes to the latest version and try again"
    ) in complaint


def test_edit(thing: Thing, kubectl: Kubectl) -> None:
    editor = {"KUBE_EDITOR": "sed -i s/before/after/"}
    assert kubectl("edit", thing.kind.resource, thing.name, environment=editor) == f"{thing.full} edited\n"
    assert thing.get()["metadata"]["annotations"]["note"] == "after"
    unchanged = kubectl.call("edit", thing.kind.resource, thing.name, environment={"KUBE_EDITOR": "true"})
    assert "no changes made" in unchanged.stdout + unchanged.stderr


def test_get_watch_prints_changes(thing: Thing, kubectl: Kubectl) -> None:
    # -o wide, as events print their name there only
    with kubectl.following("get", thing.kind.resource, thing.name, "-w", "-o", "wide", "-L", "step") as lines:
        lines.until(lambda line: thing.name in line)
        for step in ("one", "two"):
            patch = json.dumps({"metadata": {"labels": {"step": step}}}).encode()
            content_type = {"Content-Type": "application/merge-patch+json"}
            thing.api.request("PATCH", f"{thing.path}/{thing.name}", patch, headers=content_type).expect(200)
            assert lines.until(lambda line: thing.name in line).split()[-1] == step


def test_wait_for_a_value(thing: Thing, kubectl: Kubectl) -> None:
    reference = f"{thing.kind.resource}/{thing.name}"
    assert kubectl("wait", reference, "--for=jsonpath={.metadata.annotations.note}=before", "--timeout=60s") == (
        f"{thing.full} condition met\n"
    )
    waiting = threading.Thread(
        target=lambda: thing.api.request(
            "PATCH",
            f"{thing.path}/{thing.name}",
            b'{"metadata":{"annotations":{"note":"later"}}}',
            headers={"Content-Type": "application/merge-patch+json"},
        ).expect(200)
    )
    with kubectl.following(
        "wait", reference, "--for=jsonpath={.metadata.annotations.note}=later", "--timeout=60s"
    ) as lines:
        waiting.start()
        assert lines.next() == f"{thing.full} condition met"
    waiting.join()


def test_delete_and_wait_for_it(thing: Thing, kubectl: Kubectl) -> None:
    reference = f"{thing.kind.resource}/{thing.name}"
    with kubectl.following("wait", reference, "--for=delete", "--timeout=60s") as lines:
        # Since 1.34 the line continues with "from NAMESPACE namespace".
        assert kubectl("delete", reference).startswith(f'{thing.kind.title} "{thing.name}" deleted')
        # kubectl prints this if it saw the deletion, and nothing if it came too late to see the object.
        assert lines.next() in (f"{thing.full} condition met", None)
    assert "(NotFound)" in kubectl.refused("get", reference)
    assert kubectl("delete", reference, "--ignore-not-found") == ""


def test_a_deleted_namespace_deletes_its_contents(kubectl: Kubectl) -> None:
    """It stays Terminating while an object in it has a finalizer, and rejects new objects."""
    name = unique("emptied")
    kubectl("create", "namespace", name)
    kubectl("create", "configmap", "plain", "-n", name)
    held = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "held", "finalizers": ["example.com/hold"]}}
    kubectl("create", "-n", name, "-f", "-", stdin=json.dumps(held))
    assert kubectl("delete", "namespace", name, "--wait=false").startswith(f'namespace "{name}" deleted')
    assert line_of(kubectl("get", "namespaces"), name).split()[1] == "Terminating"
    late = kubectl.refused("create", "configmap", "late", "-n", name)
    assert f"unable to create new content in namespace {name} because it is being terminated" in late
    with kubectl.following("wait", f"namespace/{name}", "--for=delete", "--timeout=60s") as lines:
        kubectl("patch", "secret", "held", "-n", name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        assert lines.next() in (f"namespace/{name} condition met", None)
    assert "(NotFound)" in kubectl.refused("get", "configmap", "plain", "-n", name)


# Commands that create objects without a manifest


@pytest.mark.parametrize(
    ("arguments", "reference"),
    [
        (["deployment", "NAME", "--image=example.invalid/web:1", "--replicas=3"], "deployment.apps"),
        (["configmap", "NAME", "--from-literal=a=b"], "configmap"),
        (["secret", "generic", "NAME", "--from-literal=a=b"], "secret"),
        (["service", "clusterip", "NAME", "--clusterip=None"], "service"),
        (["serviceaccount", "NAME"], "serviceaccount"),
        (["job", "NAME", "--image=example.invalid/once:1"], "job.batch"),
        (["cronjob", "NAME", "--image=example.invalid/cron:1", "--schedule=0 * * * *"], "cronjob.batch"),
        (["role", "NAME", "--verb=get,list", "--resource=pods"], "role.rbac.authorization.k8s.io"),
        (["quota", "NAME", "--hard=services.loadbalancers=3"], "resourcequota"),
        (["ingress", "NAME", "--rule=a.example/*=web:80"], "ingress.networking.k8s.io"),
        (["poddisruptionbudget", "NAME", "--selector=app=t", "--min-available=1"], "poddisruptionbudget.policy"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_create_subcommands(arguments: list[str], reference: str, kubectl: Kubectl) -> None:
    name = unique("made")
    words = [argument.replace("NAME", name) for argument in arguments]
    assert kubectl("create", *words) == f"{reference}/{name} created\n"
    assert kubectl("get", f"{reference}/{name}", "-o", "name") == f"{reference}/{name}\n"
    assert "exists" in kubectl.refused("create", *words)


def test_create_namespace_and_work_in_it(kubectl: Kubectl, api: Api) -> None:
    name = unique("created")
    assert kubectl("create", "namespace", name) == f"namespace/{name} created\n"
    try:
        assert line_of(kubectl("get", "namespaces"), name).split()[1] == "Active"
        assert kubectl("get", "configmaps", "-n", name) == ""
        empty = kubectl.call("get", "pods", "-n", name)
        assert empty.stderr == f"No resources found in {name} namespace.\n"
    finally:
        api.request("DELETE", f"/api/v1/namespaces/{name}")


def test_run_and_get_all(kubectl: Kubectl) -> None:
    name = unique("run")
    assert kubectl("run", name, "--image=example.invalid/run:1") == f"pod/{name} created\n"
    assert line_of(kubectl("get", "all"), f"pod/{name}").split()[1:3] == ["0/1", "Pending"]


def test_several_documents_at_once(kubectl: Kubectl) -> None:
    names = [unique("several"), unique("several")]
    documents = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": names[0]}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": names[1]}, "stringData": {"plain": "text"}},
    ]
    text = yaml.safe_dump_all(documents)
    assert kubectl("create", "-f", "-", stdin=text) == f"configmap/{names[0]} created\nsecret/{names[1]} created\n"
    assert kubectl("get", "secret", names[1], "-o", "jsonpath={.data.plain}") == "dGV4dA=="
    deleted = kubectl("delete", "-f", "-", stdin=text).splitlines()
    assert [line.split(" deleted")[0] for line in deleted] == [f'configmap "{names[0]}"', f'secret "{names[1]}"']


def test_an_unknown_field_is_rejected(kubectl: Kubectl) -> None:
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": unique("typo")}, "dada": {"a": "b"}}
    complaint = kubectl.refused("create", "-f", "-", stdin=json.dumps(manifest))
    assert 'unknown field "dada"' in complaint
    assert "(BadRequest)" in complaint


def test_an_invalid_object_is_rejected_with_its_field(kubectl: Kubectl) -> None:
    complaint = kubectl.refused("create", "configmap", "Not_A_Name")
    assert complaint.startswith('error: failed to create configmap: ConfigMap "Not_A_Name" is invalid: metadata.name: ')


def test_dry_run_changes_nothing(kubectl: Kubectl) -> None:
    name = unique("dry")
    assert kubectl("create", "configmap", name, "--dry-run=server") == f"configmap/{name} created (server dry run)\n"
    assert "(NotFound)" in kubectl.refused("get", "configmap", name)


def test_wait_for_a_condition(kubectl: Kubectl) -> None:
    name = unique("conditioned")
    kubectl("create", "deployment", name, "--image=example.invalid/web:1")
    reference = f"deployment/{name}"
    late = kubectl.refused("wait", reference, "--for=condition=Available", "--timeout=1s")
    assert late == f"error: timed out waiting for the condition on deployments/{name}\n"
    status = {"status": {"conditions": [{"type": "Available", "status": "True", "reason": "T", "message": "m"}]}}
    with kubectl.following("wait", reference, "--for=condition=Available", "--timeout=60s") as lines:
        kubectl("patch", reference, "--subresource=status", "--type=merge", "-p", json.dumps(status))
        assert lines.next() == f"deployment.apps/{name} condition met"


def test_selectors_and_chunks(kubectl: Kubectl) -> None:
    names = sorted(unique("chunk") for _ in range(5))
    for name in names:
        kubectl("create", "configmap", name)
        kubectl("label", "configmap", name, "chunked=yes")
    chunked = kubectl("get", "configmaps", "-l", "chunked=yes", "--chunk-size=2", "-o", "name").split()
    assert chunked == [f"configmap/{name}" for name in names]
    one = kubectl("get", "configmaps", f"--field-selector=metadata.name={names[0]}", "-o", "name").split()
    assert one == [f"configmap/{names[0]}"]
    everywhere = kubectl("get", "configmaps", "-A", "--field-selector", f"metadata.namespace={kubectl.namespace}")
    assert columns(everywhere) == "NAMESPACE NAME DATA AGE"
    assert kubectl("get", "configmaps", "--sort-by=.metadata.name", "-l", "chunked", "-o", "name").split() == chunked
    deleted = kubectl("delete", "configmaps", "-l", "chunked=yes").splitlines()
    assert len(deleted) == len(names)


def test_watch_events_as_json(kubectl: Kubectl) -> None:
    name = unique("watched")
    with kubectl.following(
        "get", "configmaps", "-w", "--output-watch-events", "-o", "jsonpath={.type} {.object.metadata.name}{'\\n'}"
    ) as lines:
        kubectl("create", "configmap", name)
        lines.until(lambda line: line == f"ADDED {name}")
        kubectl("annotate", "configmap", name, "a=b")
        lines.until(lambda line: line == f"MODIFIED {name}")
        kubectl("delete", "configmap", name)
        lines.until(lambda line: line == f"DELETED {name}")


# The server itself


def test_version(kubectl: Kubectl) -> None:
    version = json.loads(kubectl("version", "-o", "json"))["serverVersion"]
    assert (version["major"], version["minor"]) == ("1", "37")
    assert version["gitVersion"].startswith("v1.37.")
    assert "kubechronicle" in json.dumps(version)
    assert "Server Version: v1.37." in kubectl("version")


def test_cluster_info(kubectl: Kubectl, server: Server) -> None:
    assert f"is running at {server.url}" in kubectl("cluster-info").replace("\x1b[0m", "").replace("\x1b[0;33m", "")


def test_api_versions(kubectl: Kubectl) -> None:
    versions = kubectl("api-versions").split()
    assert {"v1", "apps/v1", "batch/v1", "coordination.k8s.io/v1", "rbac.authorization.k8s.io/v1"} <= set(versions)


def test_api_resources(kubectl: Kubectl) -> None:
    text = kubectl("api-resources")
    assert columns(text) == "NAME SHORTNAMES APIVERSION NAMESPACED KIND"
    rows = {(row[0], row[-3]): row for row in (line.split() for line in text.splitlines()[1:])}
    assert rows["pods", "v1"] == ["pods", "po", "v1", "true", "Pod"]
    assert rows["deployments", "apps/v1"] == ["deployments", "deploy", "apps/v1", "true", "Deployment"]
    assert rows["nodes", "v1"] == ["nodes", "no", "v1", "false", "Node"]
    names = kubectl("api-resources", "--namespaced=false", "--verbs=list,watch", "-o", "name").split()
    assert {"namespaces", "nodes", "clusterroles.rbac.authorization.k8s.io"} <= set(names)
    wide = kubectl("api-resources", "--api-group=apps", "-o", "wide")
    assert columns(wide) == "NAME SHORTNAMES APIVERSION NAMESPACED KIND VERBS CATEGORIES"
    assert line_of(wide, "deployments").split()[-1] == "all"


def test_raw_requests(kubectl: Kubectl) -> None:
    assert kubectl("get", "--raw", "/readyz") == "ok"
    assert "[+]ping ok" in kubectl("get", "--raw", "/readyz?verbose")
    assert json.loads(kubectl("get", "--raw", "/api/v1/namespaces/default"))["metadata"]["name"] == "default"
    assert "/apis/apps/v1" in json.loads(kubectl("get", "--raw", "/"))["paths"]
    assert "apiserver_request_total" in kubectl("get", "--raw", "/metrics")
    assert "(NotFound)" in kubectl.refused("get", "--raw", "/nothing/here")


def test_an_unknown_resource_type(kubectl: Kubectl) -> None:
    assert kubectl.refused("get", "gadgets") == 'error: the server doesn\'t have a resource type "gadgets"\n'


def test_the_bootstrap_objects(kubectl: Kubectl) -> None:
    namespaces = kubectl("get", "namespaces", "-o", "name").split()
    wanted = {f"namespace/{name}" for name in ("default", "kube-system", "kube-public", "kube-node-lease")}
    assert wanted <= set(namespaces)
    service = line_of(kubectl("get", "services", "-n", "default"), "kubernetes").split()
    assert (service[1], service[3:5]) == ("ClusterIP", ["<none>", "443/TCP"])
    assert service[2].endswith(".1")  # the first address of the range
