"""Admission configurations from files (KEP-5793): wrong files, reloads, and a server with some."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from hostile_clients import connected

from kubechronicle.api.configuration.admission_manifests import load
from kubechronicle.api.configuration.files import ConfigFileError
from kubechronicle.ops.development.server_process import ServerProcess, running
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.server.admission import manifests, plugin_configurations
from kubechronicle.ops.server.admission_manifests import ReloadedManifests, load_directory
from kubechronicle.ops.settings.feature_gates import feature_gates
from kubechronicle.ops.settings.settings import Settings
from kubechronicle.ops.settings.settings import load as load_settings

API = "admissionregistration.k8s.io/v1"
VAP = "ValidatingAdmissionPolicy"
GATE = "ManifestBasedAdmissionControlConfig"
RULE = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["*"]}
CONFIG = "apiserver.config.k8s.io/v1"
HEAD = {"apiVersion": CONFIG}


def policy(name: str = "few.static.k8s.io", message: str = "bad", **spec: Any) -> dict[str, Any]:
    validations = [{"expression": "!has(object.metadata.labels) || !('bad' in object.metadata.labels)"}]
    validations[0]["message"] = message
    whole = {"matchConstraints": {"resourceRules": [RULE]}, "validations": validations, **spec}
    return {"apiVersion": API, "kind": VAP, "metadata": {"name": name}, "spec": whole}


def binding(policy: str = "few.static.k8s.io", **spec: Any) -> dict[str, Any]:
    whole = {"policyName": policy, "validationActions": ["Deny"], **spec}
    return {"apiVersion": API, "kind": f"{VAP}Binding", "metadata": {"name": "all.static.k8s.io"}, "spec": whole}


def webhook(client: dict[str, Any]) -> dict[str, Any]:
    hook = {
        "name": "hook.example.com",
        "clientConfig": client,
        "rules": [{**RULE, "operations": ["CREATE", "DELETE"]}],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }
    kind = "ValidatingWebhookConfiguration"
    return {"apiVersion": API, "kind": kind, "metadata": {"name": "hook.static.k8s.io"}, "webhooks": [hook]}


def text(*documents: Any) -> bytes:
    return yaml.safe_dump_all(documents).encode()


def test_files_hold_objects_and_lists() -> None:
    items = [policy("b.static.k8s.io"), policy("a.static.k8s.io")]
    listed = {"apiVersion": "v1", "kind": "List", "items": items}
    typed = {"apiVersion": API, "kind": f"{VAP}BindingList", "items": [{**binding("a.static.k8s.io"), "kind": ""}]}
    found = load(VAP, [("1.yaml", text(listed)), ("2.json", json.dumps(typed).encode()), ("3.yaml", b"")])
    assert [each["metadata"]["name"] for each in found.configurations] == ["a.static.k8s.io", "b.static.k8s.io"]
    assert found.configurations[0]["spec"]["failurePolicy"] == "Fail"  # defaults are set
    assert [each["spec"]["policyName"] for each in found.bindings] == ["a.static.k8s.io"]
    assert found.hash.startswith("sha256:")
    assert load(VAP, []).hash == ""


WRONG = (
    (VAP, [policy("few")], '"few" in file "a.yaml" must have a name ending with ".static.k8s.io"'),
    (
        VAP,
        [policy(), policy()],
        'duplicate name "few.static.k8s.io" found in file "a.yaml" (previously seen in "a.yaml")',
    ),
    (VAP, [binding("no.static.k8s.io")], 'references policy "no.static.k8s.io" which does not exist in the manifest'),
    (VAP, [policy(), binding("few")], 'spec.policyName "few" must end with ".static.k8s.io"'),
    (VAP, [policy(paramKind={"apiVersion": "v1", "kind": "ConfigMap"})], "spec.paramKind is not supported for static"),
    (VAP, [policy(validations=[{"expression": "object.x +"}])], "Syntax error"),
    (VAP, [policy(rules=[])], 'unknown field "spec.rules"'),
    (VAP, [webhook({"url": "https://a.example"})], "unsupported resource type"),
    (VAP, [{**policy(), "apiVersion": f"{API}beta1"}], "unsupported resource type"),
    (VAP, [{"kind": VAP}], "Object 'apiVersion' is missing"),
    (VAP, ["text"], "a document is no object"),
    (
        "ValidatingAdmissionWebhook",
        [webhook({"service": {"name": "a", "namespace": "b"}})],
        "clientConfig.service is not supported for static manifests; use clientConfig.url instead",
    ),
)


@pytest.mark.parametrize(("plugin", "documents", "problem"), WRONG)
def test_wrong_files(plugin: str, documents: list[Any], problem: str) -> None:
    with pytest.raises(ConfigFileError) as caught:
        load(plugin, [("a.yaml", text(*documents))])
    assert problem in str(caught.value)


def settings_with(directory: Path, plugin_configuration: dict[str, Any], gate: str = f"{GATE}=true") -> Settings:
    plugins = [{"name": VAP, "configuration": {"apiVersion": CONFIG, **plugin_configuration}}]
    whole = {"apiVersion": CONFIG, "kind": "AdmissionConfiguration", "plugins": plugins}
    (directory / "admission.yaml").write_bytes(text(whole))
    flags: dict[str, Any] = {"admission-control-config-file": str(directory / "admission.yaml")}
    return load_settings(flags | ({"feature-gates": gate} if gate else {}))


@pytest.mark.parametrize(
    ("configuration", "gate", "problem"),
    [
        (
            {"staticManifestsDir": "/"},
            f"{GATE}=false",
            "staticManifestsDir requires the ManifestBasedAdmission",
        ),
        ({"staticManifestsDir": "a"}, f"{GATE}=true", 'Invalid value: "a": must be an absolute file path'),
        ({"staticManifestsDir": "/nowhere"}, f"{GATE}=true", "unable to read: no such file or directory"),
        ({"staticManifestsDir": "/etc/passwd"}, f"{GATE}=true", "must be a directory"),
        ({"manifests": "/"}, f"{GATE}=true", 'unknown field "manifests"'),
        ({}, "OtherGate=true", "--feature-gates: unrecognized feature gate: OtherGate"),
        ({}, f"{GATE}=maybe", "strconv.ParseBool"),
    ],
)
def test_wrong_configurations(tmp_path: Path, configuration: dict[str, Any], gate: str, problem: str) -> None:
    settings = settings_with(tmp_path, {"kind": f"{VAP}Configuration", **configuration}, gate)
    with pytest.raises(OperatorError) as caught:
        manifests(plugin_configurations(settings, frozenset({VAP})))
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_gate_is_on_since_v1_37() -> None:
    assert feature_gates(load_settings({})).enabled(GATE)
    former = {"emulated-version": "1.36"}
    assert not feature_gates(load_settings(former)).enabled(GATE)
    assert feature_gates(load_settings({**former, "feature-gates": f"{GATE}=true"})).enabled(GATE)


async def test_files_take_effect_together_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(text(policy(), binding()))
    reloaded = ReloadedManifests({VAP: (tmp_path, load_directory(VAP, tmp_path))}, "here")
    current, counts = reloaded.current[VAP], reloaded.metrics.counts
    first = current.current
    await reloaded.look(VAP)
    assert current.current is first  # the files are the same
    (tmp_path / "b.yaml").write_bytes(text(policy("more.static.k8s.io")))
    await reloaded.look(VAP)
    assert [each["metadata"]["name"] for each in current.current.configurations] == [
        "few.static.k8s.io",
        "more.static.k8s.io",
    ]
    second = current.current
    (tmp_path / "c.yaml").write_bytes(b"kind: [")
    await reloaded.look(VAP)
    assert current.current is second
    assert counts == {("success", VAP): 2, ("failure", VAP): 1}
    (tmp_path / "c.yaml").unlink()
    (tmp_path / "b.yaml").unlink()
    await reloaded.look(VAP)
    assert len(current.current.configurations) == 1
    assert reloaded.metrics.hashes == {VAP: first.hash}


class Api:
    """A client of one server, as an administrator."""

    def __init__(self, server: ServerProcess) -> None:
        self._connection = connected(urlsplit(server.url).netloc)

    def __enter__(self) -> Api:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        headers = {"Authorization": "Bearer t", "Content-Type": "application/json"}
        self._connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = self._connection.getresponse()
        return response.status, response.read().decode()

    def create(self, kind: str, name: str, **labels: str) -> tuple[int, str]:
        """Create a ConfigMap, or a policy of the API, as a dry run. Return the status and the message."""
        meta = {"name": name, "labels": labels}
        path = "/api/v1/namespaces/default/configmaps"
        body: dict[str, Any] = {"metadata": meta}
        if kind == VAP:
            path, body = f"/apis/{API}/validatingadmissionpolicies", {**policy(name), "metadata": meta}
        status, answer = self.ask("POST", f"{path}?dryRun=All", body)
        return status, json.loads(answer).get("message", "")


def test_a_server_with_policies_and_webhooks_from_files() -> None:
    with tempfile.TemporaryDirectory(prefix="kubechronicle-test-") as directory:
        home = Path(directory)
        for name in ("policies", "webhooks"):
            (home / name).mkdir()
        (home / "policies/a.yaml").write_bytes(text(policy(), binding()))
        selected = webhook({"url": "https://127.0.0.1:1/"})  # nobody listens there
        selected["webhooks"][0]["objectSelector"] = {"matchLabels": {"hooked": "yes"}}
        (home / "webhooks/a.yaml").write_bytes(text(selected))
        plugins = [
            {
                "name": name,
                "configuration": {"apiVersion": CONFIG, "kind": kind, "staticManifestsDir": str(home / place)},
            }
            for name, kind, place in (
                (VAP, f"{VAP}Configuration", "policies"),
                ("ValidatingAdmissionWebhook", "WebhookAdmissionConfiguration", "webhooks"),
            )
        ]
        whole = {"apiVersion": CONFIG, "kind": "AdmissionConfiguration", "plugins": plugins}
        (home / "admission.yaml").write_bytes(text(whole))
        (home / "tokens.csv").write_text('t,admin,1,"system:masters"\n')
        flags = {
            "token-auth-file": home / "tokens.csv",
            "admission-control-config-file": home / "admission.yaml",
            "feature-gates": f"{GATE}=true",
        }
        arguments = [
            "--controllers",
            "",
            *(each for name, value in flags.items() for each in (f"--{name}", str(value))),
        ]
        with running(ServerProcess(home / "data", arguments=arguments)) as server, Api(server) as api:
            check_running(api, home)


def check_running(api: Api, home: Path) -> None:
    few = "ValidatingAdmissionPolicy 'few.static.k8s.io' with binding 'all.static.k8s.io' denied request"
    assert api.create("ConfigMap", "a") == (201, "")
    status, message = api.create("ConfigMap", "a", bad="yes")
    assert (status, f"{few}: bad" in message) == (422, True)
    # Policies of the API leave out policies, those from files do not; nor do webhooks from files.
    status, message = api.create(VAP, "p", bad="yes")
    assert (status, few in message) == (422, True)
    status, message = api.create(VAP, "p", hooked="yes")
    assert (status, 'failed calling webhook "hook.example.com"' in message) == (500, True)
    status, message = api.create(VAP, "p.static.k8s.io")
    assert (status, "are reserved for static manifest-based configurations" in message) == (422, True)
    assert "few" not in api.ask("GET", f"/apis/{API}/validatingadmissionpolicies")[1]
    (home / "policies/a.yaml").write_bytes(text(policy(message="worse"), binding()))
    wait_until(lambda: "denied request: worse" in api.create("ConfigMap", "a", bad="yes")[1])
    (home / "policies/b.yaml").write_bytes(b"kind: [")
    prefix = "apiserver_manifest_admission_config_controller_automatic_reloads_total"
    wait_until(lambda: f'plugin="{VAP}",status="failure"}} 1\n' in api.ask("GET", "/metrics")[1])
    assert "denied request: worse" in api.create("ConfigMap", "a", bad="yes")[1]
    assert f"{prefix}{{" in api.ask("GET", "/metrics")[1]


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_server_does_not_start_with_a_wrong_manifest(tmp_path: Path) -> None:
    directory = tmp_path / "policies"
    directory.mkdir()
    (directory / "a.yaml").write_bytes(text(policy("few")))
    settings_with(tmp_path, {"kind": f"{VAP}Configuration", "staticManifestsDir": str(directory)})
    command = [sys.executable, "-m", "kubechronicle.ops.cli", "serve", "--data-dir", str(tmp_path / "data")]
    flags = ["--admission-control-config-file", str(tmp_path / "admission.yaml"), "--feature-gates", f"{GATE}=true"]
    done = subprocess.run([*command, *flags], capture_output=True, check=False, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert (
        "couldn't init admission plugin ValidatingAdmissionPolicy: failed to load static policy manifests"
        in done.stderr
    )
    assert 'must have a name ending with ".static.k8s.io"' in done.stderr
