"""Erased contents are nowhere in the memory of a running server: neither in a cache, nor in freed blocks.

They came through each way that a server has for them: writes and reads in all forms, kubectl, admission and conversion
webhooks, audit backends, watches that stay open, branches and history.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from admission.review_server import review_server
from harness import BINARIES, Server, configmap, eventually, home, prepare, server_in
from programs import Kubectl

MARK = "born-1970-01-01-of-jane-doe"
FORMS = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
MAPS = "/api/v1/namespaces/default/configmaps"
REVISIONS = "/apis/history.kubechronicle.dev/v1/namespaces/default/revisions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
LATER = WIDGETS.replace("v1", "v2")
POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- {level: RequestResponse, resources: [{group: ""}, {group: example.com}]}
"""
GRACE = 60.0  # seconds: the server overwrites its memory four times in the first 22


def places(pid: int) -> list[bytes]:
    """Return the surroundings of the mark in the memory of a process, in all forms that Python has for texts."""
    pattern = re.compile(b"|".join(re.escape(MARK.encode(form)) for form in ("utf-8", "utf-16-le", "utf-32-le")))
    found = []
    with Path(f"/proc/{pid}/maps").open() as maps, Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in maps:
            extent, access, *_ = line.split()
            if not access.startswith("rw"):
                continue
            begin, end = (int(each, 16) for each in extent.split("-"))
            memory.seek(begin)
            try:
                held = memory.read(end - begin)
            except OSError:
                continue
            found += [held[max(0, each.start() - 60) : each.end() + 20] for each in pattern.finditer(held)]
    return found


def widget(text: str) -> dict[str, Any]:
    spec = {"texts": {f"k{number}": f"{text}-{number}" + "x" * 60 for number in range(40)}}
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec}


def definition(convert: Any) -> dict[str, Any]:
    texts = {"type": "object", "additionalProperties": {"type": "string"}}
    spec = {"type": "object", "properties": {"texts": texts}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    conversion = {
        "strategy": "Webhook",
        "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": convert},
    }
    versions = [{"name": name, "served": True, "storage": name == "v1", "schema": schema} for name in ("v1", "v2")]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": versions,
            "conversion": conversion,
        },
    }


# -- webhooks ---------------------------------------------------------------------------------------------------------


def reviewed(review: Any, **response: Any) -> Any:
    """Return the answer to a review of any kind."""
    uid = review["request"]["uid"]
    return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": {"uid": uid, **response}}


def mutate(review: Any) -> Any:
    """Write the mark into an annotation of the object, and into one of the audit event."""
    if "metadata" not in (obj := review["request"]["object"] or {}):
        return reviewed(review, allowed=True)
    annotations = {**obj["metadata"].get("annotations", {}), "mutated": MARK}
    patch = json.dumps([{"op": "add", "path": "/metadata/annotations", "value": annotations}]).encode()
    answer = {"patch": base64.b64encode(patch).decode(), "patchType": "JSONPatch", "auditAnnotations": {"born": MARK}}
    return reviewed(review, allowed=True, **answer)


def validate(review: Any) -> Any:
    """Deny objects of the name denied, with the mark as the reason."""
    if review["request"]["name"] == "denied":
        return reviewed(review, allowed=False, status={"message": f"{MARK} is denied"})
    return reviewed(review, allowed=True, warnings=[f"{MARK} is a date"])


def convert(review: Any) -> Any:
    request = review["request"]
    converted = [{**obj, "apiVersion": request["desiredAPIVersion"]} for obj in request["objects"]]
    return reviewed(review, convertedObjects=converted, result={"status": "Success"})


def audit_kubeconfig(client: Any) -> dict[str, Any]:
    cluster = {"server": client["url"], "certificate-authority-data": client["caBundle"]}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "audit",
        "contexts": [{"name": "audit", "context": {"cluster": "audit"}}],
        "clusters": [{"name": "audit", "cluster": cluster}],
    }


def configuration(kind: str, client: Any) -> dict[str, Any]:
    rule = {"apiGroups": ["", "example.com"], "apiVersions": ["*"], "operations": ["*"]}
    webhook = {
        "name": f"{kind.lower()}.example.com",
        "clientConfig": client,
        "rules": [rule | {"resources": ["configmaps", "widgets"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    of_group = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": f"{kind}WebhookConfiguration"}
    return of_group | {"metadata": {"name": "reviews"}, "webhooks": [webhook]}


def use_kubectl(kubectl: Kubectl) -> None:
    """Apply and patch the object with kubectl, on both sides."""
    obj = configmap("jane", applied=MARK)
    for number in range(2):
        obj["data"]["turn"] = f"{MARK}-{number}"
        kubectl("apply", "-f", "-", stdin=json.dumps(obj))
        kubectl("apply", "-f", "-", "--server-side", "--force-conflicts", stdin=yaml.safe_dump(obj))
        for form in ("merge", "strategic"):
            kubectl("patch", "configmap", "jane", "--type", form, "-p", json.dumps({"data": {form: f"{MARK}{number}"}}))
    change = [{"op": "add", "path": "/data/json", "value": MARK}]
    kubectl("patch", "configmap", "jane", "--type", "json", "-p", json.dumps(change))
    kubectl("diff", "-f", "-", stdin=json.dumps(obj | {"data": obj["data"] | {"strategic": f"{MARK}1"}}))


def write_and_read(server: Server, kubectl: Kubectl) -> None:
    """Send the mark through the ways that leave it in memory, and delete its objects."""
    api, ahead = server.api(), server.api()
    watch = server.watch(f"{MAPS}?watch=1")
    apply = {"Content-Type": "application/apply-patch+yaml"}
    merge = {"Content-Type": "application/merge-patch+json"}
    api.create(MAPS, configmap("jane", born=MARK))
    api.request("POST", f"{MAPS}?dryRun=All", configmap("tried", born=MARK)).expect(201)
    api.request("POST", MAPS, configmap("denied", born=MARK)).expect(400, 403)
    api.request("POST", MAPS, configmap("not.A_name", born=MARK)).expect(422)
    use_kubectl(kubectl)
    for number in range(3):
        body = {"data": {"born": f"{MARK}-{number}", "long": MARK + "y" * 2000}}
        api.request("PATCH", f"{MAPS}/jane", body, headers=merge).expect(200)
        api.request("PATCH", f"{WIDGETS}/w?fieldManager=a&force=true", widget(MARK), headers=apply).expect(200, 201)
        api.request("PATCH", f"{MAPS}/jane?fieldManager=b&force=true", configmap("jane", own=MARK), headers=apply)
    moment = api.get(f"{MAPS}/jane")["metadata"]["resourceVersion"]
    for form in (*FORMS, TABLE, f"{TABLE},application/json"):
        for encoding in ("identity", "gzip"):
            headers = {"Accept": form, "Accept-Encoding": encoding}
            for path in (MAPS, f"{MAPS}?includeObject=Object", f"{MAPS}/jane", f"{MAPS}?labelSelector=a!={MARK}"):
                api.request("GET", path, headers=headers)
    for path in (LATER, f"{LATER}/w", f"/history/at/{moment}{LATER}"):
        api.get(path)
    api.request("PATCH", f"{LATER}/w", {"spec": {"texts": {"later": MARK}}}, headers=merge).expect(200)
    api.get(f"/history/at/{moment}{MAPS}")
    api.get(f"{REVISIONS}?content=states&limit=50")
    api.get(f"{REVISIONS}?limit=50")
    branch = {"apiVersion": "history.kubechronicle.dev/v1", "kind": "Branch", "metadata": {"name": "trial"}}
    api.request("POST", "/apis/history.kubechronicle.dev/v1/branches", branch)
    api.request("PATCH", f"/history/branches/trial{MAPS}/jane", {"data": {"more": MARK}}, headers=merge)
    api.request("DELETE", "/apis/history.kubechronicle.dev/v1/branches/trial")
    watch.take(5)
    for path in (f"{MAPS}/jane", f"{WIDGETS}/w"):
        api.request("DELETE", path).expect(200)
    api.close()
    ahead.close()
    watch.close()


def erase(server: Server, subject: str) -> None:
    arguments = ["erase", subject, "-n", "default", "--reason", "asked for", "--yes", *server.where()]
    done = subprocess.run([*server.command(), *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def processes(server: Server) -> list[int]:
    """Return the server's process and its workers."""
    threads = Path(f"/proc/{server.pid}/task").glob("*/children")
    children = [int(child) for thread in threads for child in thread.read_text().split()]
    return [
        server.pid,
        *(each for each in children if b"ops.server.worker" in Path(f"/proc/{each}/cmdline").read_bytes()),
    ]


def search(server: Server) -> None:
    """Search until nothing is left."""
    end = time.monotonic() + GRACE
    while left := [place for process in processes(server) for place in places(process)]:
        assert time.monotonic() < end, json.dumps([str(each) for each in left[:8]], indent=1)
        time.sleep(0.5)


@pytest.mark.as_deployed
@pytest.mark.flaky(reruns=1)  # a cache holds a text each time; a block that a library does not fill, by chance
def test_nothing_of_an_erased_object_is_in_memory(tmp_path: Path) -> None:
    prepare("kubectl")
    answers = {"/mutate": mutate, "/validate": validate, "/convert": convert, "/audit": lambda _: {}}
    with home("erased") as directory, review_server(tmp_path, answers) as client:
        (tmp_path / "policy.yaml").write_text(POLICY)
        (tmp_path / "audit.kubeconfig").write_text(json.dumps(audit_kubeconfig(client("/audit"))))
        audit = ["--audit-policy-file", str(tmp_path / "policy.yaml"), "--audit-log-path", str(tmp_path / "audit.log")]
        audit += ["--audit-webhook-config-file", str(tmp_path / "audit.kubeconfig")]
        server = server_in(directory / "data", arguments=[*audit, "--audit-webhook-batch-max-wait", "1s"])
        with contextlib.closing(server):
            server.start()
            api = server.api()
            api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(client("/convert")))
            eventually(lambda: api.request("GET", LATER).status == 200, "the definition is served")
            for kind in ("Mutating", "Validating"):
                path = f"{CONFIGURATIONS}/{kind.lower()}webhookconfigurations"
                api.create(path, configuration(kind, client("/mutate" if kind == "Mutating" else "/validate")))
            created = eventually(
                lambda: (
                    (made := api.create(MAPS, configmap("first"))) and api.request("DELETE", f"{MAPS}/first") and made
                ),
                "the webhooks are asked",
            )
            assert created["metadata"]["annotations"] == {"mutated": MARK}
            open_watches = [server.watch(f"{path}?watch=1") for path in (MAPS, WIDGETS, LATER, f"{MAPS}?a=b")]
            write_and_read(server, Kubectl(str(BINARIES / "kubectl"), server, tmp_path, "default"))
            assert places(server.pid)
            erase(server, "configmap/jane")
            erase(server, "configmap/first")
            erase(server, "widgets.example.com/w")
            api.get(MAPS)
            search(server)
            for watch in open_watches:
                watch.close()
            server.verify()


@pytest.mark.as_deployed
@pytest.mark.flaky(reruns=1)  # see above
def test_nothing_is_left_in_the_processes_of_a_server_with_workers() -> None:
    """Both workers and their parent have had the object, and the memory that they share."""
    with home("erased-workers") as directory:
        server = server_in(directory / "data", arguments=["--workers", "2"])
        with contextlib.closing(server):
            server.start()
            clients = [server.api() for _ in range(8)]
            clients[0].create(MAPS, configmap("jane", born=MARK))
            for number, api in enumerate(clients):
                body = {"data": {"born": f"{MARK}-{number}"}}
                api.request("PATCH", f"{MAPS}/jane", body, headers={"Content-Type": "application/merge-patch+json"})
                api.get(f"{MAPS}/jane")
            clients[0].request("DELETE", f"{MAPS}/jane").expect(200)
            assert len(processes(server)) == 3
            assert all(places(process) for process in processes(server))
            erase(server, "configmap/jane")
            for api in clients:
                api.get(MAPS)
            search(server)
            for api in clients:
                api.close()
