"""A session of a new user with kubectl: every output is as with a Kubernetes cluster.

The output of kubectl depends on the answers of the server: changed and unchanged objects, conflicts, defaults. The
outputs about workloads are in test_kubectl_workloads.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import BINARIES, Server, prepare, unique
from programs import Kubectl

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME, labels: {app: NAME}}
spec:
  replicas: 2
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      containers: [{name: main, image: "example.invalid/shop:1", ports: [{containerPort: 8080}]}]
"""
HINT = "Please review the fields above--they currently have other managers."


@pytest.fixture(scope="module")
def kubectl(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    prepare("kubectl")
    api = server.api()
    name = api.namespace(unique("session"))
    yield Kubectl(str(BINARIES / "kubectl"), server, tmp_path_factory.mktemp("session-home"), name)
    api.request("DELETE", f"/api/v1/namespaces/{name}")
    api.close()


@pytest.fixture
def shop(kubectl: Kubectl, tmp_path: Path) -> Path:
    """Write the manifest of a Deployment with a unique name. Return the file, of the same name."""
    name = unique("shop")
    path = tmp_path / f"{name}.yaml"
    path.write_text(DEPLOYMENT.replace("NAME", name))
    return path


def changed(manifest: Path, *changes: tuple[str, str]) -> Path:
    """Write a copy of the manifest with some text replaced. Return the file."""
    text = manifest.read_text()
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    path = manifest.with_suffix(".changed.yaml")
    path.write_text(text)
    return path


def rows(text: str) -> list[list[str]]:
    return [re.split(r"  +|\t", line.strip()) for line in text.splitlines()]


def screen(text: str) -> str:
    """Return an output with single spaces."""
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


# -- kubectl create ---------------------------------------------------------------------------------------------------

NAMESPACED = (
    ("configmap cm --from-literal=a=1 --from-literal=b=2", "configmap", "cm 2 AGE"),
    (
        "cronjob tick --image=busybox --schedule=*/5_*_*_*_* -- date",
        "cronjob.batch",
        "tick */5 * * * * <none> False 0 ",
    ),
    ("deployment web --image=nginx:1 --replicas=3 --port=80", "deployment.apps", "web 0/3 0 0 AGE"),
    (
        "ingress ing --class=nginx --rule=shop.example/bar=svc1:8080,tls=cert --default-backend=d:http",
        "ingress.networking.k8s.io",
        "ing nginx shop.example 80, 443 AGE",
    ),
    ("job once --image=busybox -- date", "job.batch", "once Running 0/1 AGE"),
    ("poddisruptionbudget some --selector=app=web --min-available=1", "poddisruptionbudget.policy", "some 1 N/A 0 AGE"),
    ("quota few --hard=cpu=1,memory=1G,pods=2 --scopes=NotTerminating", "resourcequota", "few "),
    ("role reader --verb=get,list --resource=pods,deployments.apps", "role.rbac.authorization.k8s.io", "reader 20"),
    (
        "rolebinding readers --role=reader --user=u --serviceaccount=a:b",
        "rolebinding.rbac.authorization.k8s.io",
        "readers Role/reader AGE",
    ),
    (
        "secret docker-registry login --docker-server=s --docker-username=u --docker-password=p",
        "secret",
        "login kubernetes.io/dockerconfigjson 1 AGE",
    ),
    ("secret generic plain --from-literal=a=b --type=example.com/x", "secret", "plain example.com/x 1 AGE"),
    ("service clusterip inner --tcp=5678:8080", "service", "inner ClusterIP IP <none> 5678/TCP AGE"),
    (
        "service externalname outer --external-name=bar.example",
        "service",
        "outer ExternalName <none> bar.example <none> ",
    ),
    ("service loadbalancer front --tcp=80:80", "service", "front LoadBalancer IP <pending> 80:PORT/TCP AGE"),
    ("service nodeport door --tcp=80:80", "service", "door NodePort IP <none> 80:PORT/TCP AGE"),
    ("serviceaccount robot", "serviceaccount", "robot AGE"),
)


@pytest.mark.parametrize(("command", "kind", "row"), NAMESPACED, ids=lambda value: value.split(" --")[0])
def test_create(kubectl: Kubectl, command: str, kind: str, row: str) -> None:
    arguments = [word.replace("_", " ") if "schedule" in word else word for word in command.split()]
    name = next(word for word in arguments[2 if arguments[0] in ("secret", "service") else 1 :])
    assert kubectl("create", *arguments) == f"{kind}/{name} created\n"
    printed = screen(kubectl("get", kind, name, "--no-headers"))
    printed = re.sub(r"\b10\.\d+\.\d+\.\d+\b", "IP", re.sub(r":3\d{4}/", ":PORT/", printed))
    assert re.sub(r"\b\d+s\b", "AGE", printed).startswith(row)
    described = kubectl("describe", kind, name)
    assert re.match(rf"Name: +{name}\n", described)
    assert kubectl.refused("create", *arguments).endswith(f'"{name}" already exists\n')


def test_create_job_from_a_cron_job(kubectl: Kubectl) -> None:
    kubectl("create", "cronjob", "nightly", "--image=busybox", "--schedule=0 3 * * *")
    assert kubectl("create", "job", "now", "--from=cronjob/nightly") == "job.batch/now created\n"
    owner = kubectl("get", "job", "now", "-o", "jsonpath={.metadata.ownerReferences[0].kind}")
    assert owner == "CronJob"


def test_create_a_tls_secret(kubectl: Kubectl, server: Server) -> None:
    pki = server.data_dir / "pki"
    arguments = ("secret", "tls", "cert", f"--cert={pki / 'admin.crt'}", f"--key={pki / 'admin.key'}")
    assert kubectl("create", *arguments) == "secret/cert created\n"
    assert screen(kubectl("get", "secret", "cert", "--no-headers")).startswith("cert kubernetes.io/tls 2 ")


CLUSTER = (
    ("clusterrole NAME --verb=get,list --resource=pods --resource-name=x", "clusterrole.rbac.authorization.k8s.io"),
    ("clusterrole NAME --verb=get --non-resource-url=/logs/*", "clusterrole.rbac.authorization.k8s.io"),
    ("clusterrole NAME --aggregation-rule=a=b", "clusterrole.rbac.authorization.k8s.io"),
    ("clusterrolebinding NAME --clusterrole=view --user=u --group=g", "clusterrolebinding.rbac.authorization.k8s.io"),
    ("priorityclass NAME --value=1000 --description=high", "priorityclass.scheduling.k8s.io"),
    ("namespace NAME", "namespace"),
)


@pytest.mark.parametrize(("command", "kind"), CLUSTER, ids=lambda value: value)
def test_create_for_the_whole_cluster(kubectl: Kubectl, command: str, kind: str) -> None:
    name = unique("session")
    assert kubectl("create", *command.replace("NAME", name).split()) == f"{kind}/{name} created\n"
    try:
        assert rows(kubectl("get", kind, name, "--no-headers"))[0][0] == name
        assert re.match(rf"Name: +{name}\n", kubectl("describe", kind, name))
    finally:
        kubectl("delete", kind, name, "--wait=false")


# -- apply ------------------------------------------------------------------------------------------------------------


def test_apply_diff_apply(kubectl: Kubectl, shop: Path) -> None:
    title = f"deployment.apps/{shop.stem}"
    assert kubectl("apply", "-f", str(shop)) == f"{title} created\n"
    assert kubectl("apply", "-f", str(shop)) == f"{title} unchanged\n"
    assert kubectl("diff", "-f", str(shop)) == ""
    other = changed(shop, ("replicas: 2", "replicas: 3"), ("shop:1", "shop:2"))
    diff = kubectl.call("diff", "-f", str(other))
    assert diff.returncode == 1
    lines = [line for line in diff.stdout.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert lines == [
        "-  generation: 1",
        "+  generation: 2",
        "-  replicas: 2",
        "+  replicas: 3",
        "-      - image: example.invalid/shop:1",
        "+      - image: example.invalid/shop:2",
    ]
    assert kubectl("apply", "-f", str(other), "--dry-run=server") == f"{title} configured (server dry run)\n"
    assert kubectl("apply", "-f", str(other)) == f"{title} configured\n"
    assert "image: example.invalid/shop:2" in kubectl("apply", "view-last-applied", title)
    without = changed(shop, ("  replicas: 2\n", ""))
    assert kubectl("apply", "-f", str(without)) == f"{title} configured\n"
    assert kubectl("get", title, "-o", "jsonpath={.spec.replicas}") == "1", "back to the default"


def test_server_side_apply_and_conflicts(kubectl: Kubectl, shop: Path) -> None:
    title = f"deployment.apps/{shop.stem}"
    assert kubectl("apply", "--server-side", "-f", str(shop)) == f"{title} serverside-applied\n"
    revision = kubectl("get", title, "-o", "jsonpath={.metadata.resourceVersion}")
    assert kubectl("apply", "--server-side", "-f", str(shop)) == f"{title} serverside-applied\n"
    assert kubectl("get", title, "-o", "jsonpath={.metadata.resourceVersion}") == revision
    kubectl("scale", title, "--replicas=5")
    kubectl("set", "image", title, "main=example.invalid/shop:8")
    complaint = kubectl.refused("apply", "--server-side", "-f", str(shop))
    assert complaint.startswith(
        'error: Apply failed with 2 conflicts: conflicts with "kubectl" with subresource "scale" using apps/v1:\n'
        "- .spec.replicas\n"
        'conflicts with "kubectl-set" using apps/v1:\n'
        '- .spec.template.spec.containers[name="main"].image\n' + HINT
    )
    one = changed(shop, ("shop:1", "shop:8"))
    assert kubectl.refused("apply", "--server-side", "-f", str(one)).startswith(
        'error: Apply failed with 1 conflict: conflict with "kubectl" with subresource "scale" using apps/v1: '
        ".spec.replicas\n" + HINT
    )
    assert kubectl("apply", "--server-side", "--force-conflicts", "-f", str(shop)) == f"{title} serverside-applied\n"
    managers = kubectl("get", title, "--show-managed-fields", "-o", "jsonpath={.metadata.managedFields[*].manager}")
    assert managers == "kubectl"


def test_a_second_manager_shares_and_releases_a_field(kubectl: Kubectl, shop: Path, tmp_path: Path) -> None:
    title = f"deployment.apps/{shop.stem}"
    kubectl("apply", "--server-side", "-f", str(shop))
    label = tmp_path / "label.yaml"
    head = f"apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {shop.stem}, labels: "
    label.write_text(f"{head}{{app: {shop.stem}, team: a}}}}\n")
    kubectl("apply", "--server-side", "--field-manager=team", "-f", str(label))
    kubectl("apply", "--server-side", "-f", str(changed(shop, (f", labels: {{app: {shop.stem}}}}}\nspec", "}\nspec"))))
    label.write_text(f"{head}{{team: b}}}}\n")
    assert kubectl("get", title, "-o", "jsonpath={.metadata.labels}") == f'{{"app":"{shop.stem}","team":"a"}}'
    kubectl("apply", "--server-side", "--field-manager=team", "-f", str(label))
    assert kubectl("get", title, "-o", "jsonpath={.metadata.labels}") == '{"team":"b"}'


def test_from_client_side_to_server_side(kubectl: Kubectl, shop: Path) -> None:
    title = f"deployment.apps/{shop.stem}"
    kubectl("apply", "-f", str(shop))
    other = changed(shop, ("shop:1", "shop:2"))
    assert kubectl("apply", "--server-side", "-f", str(other)) == f"{title} serverside-applied\n"
    managers = kubectl("get", title, "--show-managed-fields", "-o", "jsonpath={.metadata.managedFields[*].manager}")
    assert set(managers.split()) == {"kubectl", "kubectl-last-applied"}
    assert "shop:2" in kubectl("apply", "view-last-applied", title), "still updated, for a return to client-side apply"
    assert kubectl("apply", "-f", str(shop)) == f"{title} configured\n"


# -- edit, patch, replace ---------------------------------------------------------------------------------------------


def test_edit(kubectl: Kubectl, shop: Path) -> None:
    title = f"deployment.apps/{shop.stem}"
    kubectl("apply", "-f", str(shop))
    assert kubectl("edit", title, environment={"KUBE_EDITOR": "sed -i s/shop:1/shop:9/"}) == f"{title} edited\n"
    same = kubectl.call("edit", title, environment={"KUBE_EDITOR": "true"})
    assert same.stderr == "Edit cancelled, no changes made.\n"
    # kubectl opens the editor again with the error. The editor changes nothing, so kubectl gives up.
    wrong = kubectl.call("edit", title, environment={"KUBE_EDITOR": "sed -i s/replicas:.2/replicas:\\ -2/"})
    assert wrong.returncode == 1
    assert f'error: deployments.apps "{shop.stem}" is invalid\n' in wrong.stderr
    assert wrong.stderr.endswith("error: Edit cancelled, no valid changes were saved.\n")
    status = {"KUBE_EDITOR": "sed -i s/status:.{}/status:\\ {replicas:\\ 2}/"}
    assert kubectl("edit", title, "--subresource=status", environment=status) == f"{title} edited\n"
    assert kubectl("get", title, "-o", "jsonpath={.status.replicas}") == "2"


def test_patch_of_all_three_types(kubectl: Kubectl, shop: Path) -> None:
    title = f"deployment.apps/{shop.stem}"
    kubectl("apply", "-f", str(shop))
    side = '{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"side:1"}]}}}}'
    assert kubectl("patch", title, "-p", side) == f"{title} patched\n"
    names = "jsonpath={.spec.template.spec.containers[*].name}"
    assert kubectl("get", title, "-o", names) == "side main"
    assert kubectl("patch", title, "-p", side) == f"{title} patched (no change)\n"
    remove = '[{"op":"remove","path":"/spec/template/spec/containers/0"}]'
    assert kubectl("patch", title, "--type=json", "-p", remove) == f"{title} patched\n"
    assert kubectl("get", title, "-o", names) == "main"
    unknown = kubectl.call("patch", title, "--type=merge", "-p", '{"spec":{"nope":1,"paused":true}}')
    assert (unknown.stdout, unknown.stderr) == (f"{title} patched\n", 'Warning: unknown field "spec.nope"\n')
    immutable = kubectl.refused("patch", title, "--type=merge", "-p", '{"spec":{"selector":{"matchLabels":{"a":"b"}}}}')
    assert immutable.startswith(f'The Deployment "{shop.stem}" is invalid: \n* spec.template.metadata.labels: ')
    assert "* spec.selector: Invalid value: " in immutable
    assert "field is immutable" in immutable


def test_replace(kubectl: Kubectl, shop: Path) -> None:
    title = f"deployment.apps/{shop.stem}"
    kubectl("create", "-f", str(shop))
    uid = kubectl("get", title, "-o", "jsonpath={.metadata.uid}")
    assert kubectl("replace", "-f", str(changed(shop, ("replicas: 2", "replicas: 4")))) == f"{title} replaced\n"
    assert (
        kubectl("get", title, "-o", "jsonpath={.metadata.uid}/{.spec.replicas}/{.metadata.generation}") == f"{uid}/4/2"
    )
    assert kubectl("replace", "--force", "-f", str(shop)) == (
        f'deployment.apps "{shop.stem}" deleted from {kubectl.namespace} namespace\n{title} replaced\n'
    )
    assert kubectl("get", title, "-o", "jsonpath={.metadata.uid}") != uid
    missing = changed(shop, (shop.stem, "not-there"))
    assert "(NotFound)" in kubectl.refused("replace", "-f", str(missing))


def test_labels_as_get_shows_them(kubectl: Kubectl, shop: Path) -> None:
    title = f"deployment.apps/{shop.stem}"
    kubectl("create", "-f", str(shop))
    assert kubectl("label", title, "tier=front", "session=labels") == f"{title} labeled\n"
    assert kubectl("label", title, "tier=front") == f"{title} not labeled\n"
    assert kubectl.refused("label", title, "tier=back") == (
        "error: 'tier' already has a value (front), and --overwrite is false\n"
    )
    assert kubectl("annotate", title, "note=hello world") == f"{title} annotated\n"
    by_label = rows(kubectl("get", "deploy", "-l", "session=labels", "-L", "tier,session"))
    assert by_label[0] == ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE", "TIER", "SESSION"]
    assert by_label[1][-2:] == ["front", "labels"]
    shown = rows(kubectl("get", "deploy", "-l", "session=labels", "--show-labels"))
    assert shown[1][-1] == f"app={shop.stem},session=labels,tier=front"
    columns = "custom-columns=NAME:.metadata.name,IMAGE:.spec.template.spec.containers[*].image,NONE:.spec.none"
    assert rows(kubectl("get", "deploy", "-l", "session=labels", "-o", columns)) == [
        ["NAME", "IMAGE", "NONE"],
        [shop.stem, "example.invalid/shop:1", "<none>"],
    ]
    assert kubectl("label", title, "tier-") == f"{title} unlabeled\n"


def test_sorting(kubectl: Kubectl) -> None:
    for name, value in (("sort-b", "1"), ("sort-c", "3"), ("sort-a", "2")):
        kubectl("create", "configmap", name, f"--from-literal=v={value}")
        kubectl("label", "configmap", name, "sorted=yes")
    by_value = rows(kubectl("get", "cm", "-l", "sorted", "--sort-by=.data.v"))
    assert [row[0] for row in by_value] == ["NAME", "sort-b", "sort-a", "sort-c"]
    by_name = rows(kubectl("get", "cm", "-l", "sorted", "--sort-by=.metadata.name", "--no-headers"))
    assert [row[0] for row in by_name] == ["sort-a", "sort-b", "sort-c"]
