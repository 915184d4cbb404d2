"""`try-policy` against a server: its verdicts, and the same as the server's own when the policy was in force."""

from __future__ import annotations

import base64
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubechronicle.ops.client import trial

Chronicle = Callable[..., Any]
GROUP = "/apis/admissionregistration.k8s.io/v1"
_numbers = itertools.count(1)
_spaces = (f"trial-{number}" for number in itertools.count(1))

RULES = {
    "resourceRules": [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE", "DELETE"],
            "resources": ["configmaps"],
        }
    ]
}
EXPRESSIONS = (
    "request.operation == 'DELETE' || !has(object.data) || !('a' in object.data) || int(object.data.a) < 3",
    "oldObject == null || object == null || !has(oldObject.data) || oldObject.data.a != object.data.a",
    "request.operation != 'DELETE' || oldObject.metadata.name != 'x'",
    "namespaceObject.metadata.labels.team == 'red' || request.operation == 'DELETE'",
    "request.operation == 'DELETE' || !has(object.metadata.labels) || variables.color == 'blue'",
)


def policy(expression: str, **spec: Any) -> dict[str, Any]:
    color = "has(object.metadata.labels) ? object.metadata.labels.color : ''"
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": f"tried-{next(_numbers)}"},
        "spec": {
            "matchConstraints": RULES,
            "variables": [{"name": "color", "expression": color}],
            "validations": [{"expression": expression, "message": "not like this"}],
            **spec,
        },
    }


def binding(of: dict[str, Any], namespace: str, *actions: str, **spec: Any) -> dict[str, Any]:
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{of['kind']}Binding",
        "metadata": {"name": of["metadata"]["name"]},
        "spec": {
            "policyName": of["metadata"]["name"],
            **({"validationActions": list(actions)} if actions else {}),
            "matchResources": {"namespaceSelector": selector},
            **spec,
        },
    }


@pytest.fixture
def namespace(running: Any) -> str:
    name = next(_spaces)
    running.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": {"team": "blue"}}})
    return name


def maps(namespace: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps" + (f"/{name}" if name else "")


def newest(running: Any) -> str:
    return str(running.ask("GET", "/api/v1/namespaces")["metadata"]["resourceVersion"])


def written(path: Path, *documents: dict[str, Any]) -> str:
    file = path / "policy.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    return str(file)


def test_the_refused_writes_with_their_users_and_messages(
    chronicle: Chronicle, running: Any, namespace: str, tmp_path: Path
) -> None:
    since = newest(running)
    for name, value in (("x", "1"), ("y", "5")):
        running.ask("POST", maps(namespace), {"metadata": {"name": name}, "data": {"a": value}})
    running.ask("PATCH", maps(namespace, "x"), {"data": {"a": "9"}})
    running.ask("DELETE", maps(namespace, "y"))
    tried = policy(EXPRESSIONS[0])
    before = newest(running)
    file = written(tmp_path, tried)
    found = chronicle("try-policy", "-f", file, "--since", since, "-n", namespace, "-o", "json")
    assert found.code == 1, found.err
    report = found.json()
    assert report["writes"] in (4, 5)  # the server may have written kube-root-ca.crt meanwhile
    assert report["effects"] == {"refused": 2, "warned": 0, "audited": 0, "mutated": 0}
    [of_policy] = report["policies"]
    assert of_policy["messages"] == [{"message": "not like this", "count": 2}]
    assert [example["object"] for example in of_policy["examples"]] == ["configmaps/x", "configmaps/y"]
    assert [example["operation"] for example in of_policy["examples"]] == ["UPDATE", "CREATE"]
    assert "bound to everything" in report["notes"][0]
    text = chronicle("try-policy", "-f", file, "--since", since, "-n", namespace)
    assert "writes of configmaps in namespace" in text.out
    assert "2 refused" in text.out
    assert newest(running) == before
    nothing = chronicle("try-policy", "-f", file, "--since", before, "-n", namespace)
    assert nothing.code == 0
    assert "None of 0 writes of configmaps" in nothing.out


def test_parameters_and_namespaces_as_of_each_write(
    chronicle: Chronicle, running: Any, namespace: str, tmp_path: Path
) -> None:
    limit = {"metadata": {"name": "limit"}, "data": {"most": "3"}}
    running.ask("POST", maps(namespace), limit)
    since = newest(running)
    running.ask("POST", maps(namespace), {"metadata": {"name": "x"}, "data": {"a": "4"}})
    running.ask("PATCH", maps(namespace, "limit"), {"data": {"most": "5"}})
    running.ask("PATCH", maps(namespace, "x"), {"data": {"a": "5"}})
    tried = policy(
        "!has(object.data.a) || int(object.data.a) <= int(params.data.most)",
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
    )
    reference = {"name": "limit", "parameterNotFoundAction": "Deny"}
    bound = binding(tried, namespace, "Warn", paramRef=reference)
    file = written(tmp_path, tried, bound)
    report = chronicle("try-policy", "-f", file, "--since", since, "-n", namespace, "-o", "json").json()
    assert report["effects"]["warned"] == 1
    [example] = report["policies"][0]["examples"]
    assert (example["operation"], example["object"]) == ("CREATE", "configmaps/x")
    strict = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "limit", "namespace": namespace}}
    strict["data"] = {"most": "1"}  # type: ignore[assignment]
    file = written(tmp_path, tried, bound, strict)
    report = chronicle("try-policy", "-f", file, "--since", since, "-n", namespace, "-o", "json").json()
    assert report["effects"]["warned"] == 2


def test_mutations_and_rights(chronicle: Chronicle, running: Any, namespace: str, tmp_path: Path) -> None:
    since = newest(running)
    running.ask("POST", maps(namespace), {"metadata": {"name": "x"}, "data": {"a": "4"}})
    rules = {"resourceRules": [{**RULES["resourceRules"][0], "operations": ["CREATE"]}]}
    applied = {"expression": "Object{metadata: Object.metadata{labels: {'seen': 'yes'}}}"}
    mutating = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": "label"},
        "spec": {
            "matchConstraints": rules,
            "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": applied}],
        },
    }
    check = "authorizer.group('').resource('secrets').namespace('kube-system').check('get').allowed()"
    judging = policy(f"{check} && request.operation == 'DELETE'")
    file = written(tmp_path, mutating, judging)
    report = chronicle("try-policy", "-f", file, "--since", since, "-n", namespace, "-o", "json").json()
    label, judged = report["policies"] if report["policies"][0]["name"] == "label" else report["policies"][::-1]
    assert label["effects"]["mutated"] == 1
    assert "metadata.labels" in label["examples"][0]["outcomes"][0]["message"]
    assert judged["effects"]["refused"] == 1
    assert "labels" not in running.ask("GET", maps(namespace, "x"))["metadata"]


def test_policies_of_the_cluster_that_only_audit(
    chronicle: Chronicle, running: Any, namespace: str, tmp_path: Path
) -> None:
    assert "give either -f FILE or --audited" in chronicle("try-policy").err
    nothing = chronicle("try-policy", "--audited")
    assert (nothing.code, "no policy of the cluster is bound" in nothing.err) == (2, True)
    audits, warns = (policy(EXPRESSIONS[0]) for _ in range(2))
    objects = [("ies", audits), ("ies", warns), ("ybindings", binding(audits, namespace, "Audit"))]
    objects.append(("ybindings", binding(warns, namespace, "Audit", "Warn")))
    for ending, obj in objects:
        running.ask("POST", f"{GROUP}/validatingadmissionpolic{ending}", obj)
    since = newest(running)
    for name, value in (("x", "1"), ("y", "5")):
        running.ask("POST", maps(namespace), {"metadata": {"name": name}, "data": {"a": value}})
    report = chronicle("try-policy", "--audited", "--since", since, "-n", namespace, "-o", "json").json()
    assert report["effects"]["refused"] == 1
    assert [each["name"] for each in report["policies"]] == [audits["metadata"]["name"]]
    [example] = report["policies"][0]["examples"]
    assert (example["user"], example["object"]) == ("admin", "configmaps/y")
    for ending, obj in objects:
        running.ask("DELETE", f"{GROUP}/validatingadmissionpolic{ending}/{obj['metadata']['name']}")


def test_an_invalid_policy_is_explained(chronicle: Chronicle, running: Any, tmp_path: Path) -> None:
    found = chronicle("try-policy", "-f", written(tmp_path, policy("object.spec +")))
    assert found.code == 2
    assert "Syntax error" in found.err
    found = chronicle(
        "try-policy", "-f", written(tmp_path, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}})
    )
    assert found.code == 2
    assert "no policy in it" in found.err
    assert chronicle("try-policy", "-f", str(tmp_path / "missing")).code == 2


def test_ctrl_c_prints_the_result_so_far(
    chronicle: Chronicle, running: Any, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    since = newest(running)
    for name in "xy":
        running.ask("POST", maps(namespace), {"metadata": {"name": name}, "data": {"a": "9"}})
    whole = trial.Trial._judge
    judged = itertools.count()

    def interrupted(*arguments: Any) -> None:
        whole(*arguments)
        if next(judged) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(trial.Trial, "_judge", interrupted)
    file = written(tmp_path, policy(EXPRESSIONS[0]))
    found = chronicle("try-policy", "-f", file, "--since", since, "-n", namespace)
    assert found.code == 130
    assert "Interrupted" in found.out


class Webhook(BaseHTTPRequestHandler):
    """Denies values of 9, and labels others."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))["request"]
        assert request["dryRun"]
        answer: dict[str, Any] = {"uid": request["uid"], "allowed": request["object"]["data"]["a"] != "9"}
        if self.path == "/mutate":
            patch = json.dumps([{"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}}])
            answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(patch.encode()).decode()}
        if not answer["allowed"]:
            answer["status"] = {"message": f"nine, {request['userInfo']['username']}"}
        body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def webhook() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Webhook) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def configuration(kind: str) -> dict[str, Any]:
    rules = [{**RULES["resourceRules"][0], "operations": ["CREATE"]}]
    hook = {
        "name": "nine.example.com",
        "rules": rules,
        "clientConfig": {"url": "https://nobody.example.com"},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "objectSelector": {"matchLabels": {"asked": "yes"}},
    }
    meta = {"name": "nine"}
    return {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": meta, "webhooks": [hook]}


def test_webhooks_are_asked_at_the_given_address(
    chronicle: Chronicle, running: Any, namespace: str, tmp_path: Path, webhook: str
) -> None:
    since = newest(running)
    for name, value, labels in (("x", "1", {"asked": "yes"}), ("y", "9", {"asked": "yes"}), ("z", "9", {})):
        running.ask("POST", maps(namespace), {"metadata": {"name": name, "labels": labels}, "data": {"a": value}})

    def tried(kind: str, *more: str) -> Any:
        file = written(tmp_path, configuration(kind))
        return chronicle("try-policy", "-f", file, "--since", since, "-n", namespace, "-o", "json", *more)

    report = tried("ValidatingWebhookConfiguration", "--webhook-url", webhook).json()
    assert report["effects"]["refused"] == 1
    [policy] = report["policies"]
    assert policy["name"] == "nine/nine.example.com"
    assert policy["examples"][0]["object"] == "configmaps/y"
    assert "denied the request: nine, admin" in policy["messages"][0]["message"]
    report = tried("MutatingWebhookConfiguration", "--webhook-url", f"{webhook}/mutate").json()
    assert (report["effects"]["mutated"], report["effects"]["refused"]) == (1, 1)
    assert "--webhook-url" in tried("ValidatingWebhookConfiguration").err
    silent = tried("ValidatingWebhookConfiguration", "--webhook-url", "http://127.0.0.1:1")
    assert silent.code == 2
    assert "is the webhook running there?" in silent.err
