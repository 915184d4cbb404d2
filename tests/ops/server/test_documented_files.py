"""Configuration files and objects that the pages show are accepted by the programs that read them."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml
from certificates import CA
from documents.pages import ROOT, parts
from in_process import open_server

from kubechronicle.api.configuration import egress_selector, encryption, tracing
from kubechronicle.http.authorization.current_authorizers import AuthorizationPlan
from kubechronicle.http.outgoing.kubeconfig import read_kubeconfig
from kubechronicle.ops.server.admission import chosen_plugins, plugin_configurations, webhook_users
from kubechronicle.ops.server.retention import retention_policies
from kubechronicle.ops.settings.settings import load


def shown(page: str, needle: str) -> str:
    """Return the one YAML block of a page that contains a text."""
    [text] = [part.text for part in parts(ROOT / "docs" / page) if part.kind == "yaml" and needle in part.text]
    return text


def write(file: Path, text: str) -> Path:
    file.write_text(text)
    return file


def plugins_with(file: Path, **flags: str) -> Any:
    settings = load({"admission-control-config-file": str(file), **flags}, environment={})
    return plugin_configurations(settings, chosen_plugins(settings, AuthorizationPlan()))


def test_an_admission_configuration(tmp_path: Path) -> None:
    text = shown("admission.md", "EventRateLimit")
    write(tmp_path / "node-selectors.yaml", "podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: a=b}\n")
    flags = {"enable-admission-plugins": "EventRateLimit,PodNodeSelector"}
    found = plugins_with(write(tmp_path / "admission.yaml", text), **flags)
    assert [limit.qps for limit in found.event_limits] == [50]
    # The shorter block shows the list alone, with a directory of manifests.
    head = text[: text.index("plugins:")]
    policies = shown("admission.md", "staticManifestsDir").replace(
        "/etc/kubernetes/policies", str(tmp_path / "policies")
    )
    (tmp_path / "policies").mkdir()
    flags = {"feature-gates": "ManifestBasedAdmissionControlConfig=true"}
    assert plugins_with(write(tmp_path / "static.yaml", head + policies), **flags)


def test_credentials_for_webhooks(tmp_path: Path) -> None:
    text = shown("admission.md", "hook.ns.svc")
    CA("hooks").files(tmp_path, "hook")
    write(tmp_path / "token", "secret")
    users = write(tmp_path / "users.yaml", text)
    configuration = f"""
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionWebhook
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: {users}
"""
    found = webhook_users(plugins_with(write(tmp_path / "admission.yaml", configuration)))
    assert found["ValidatingAdmissionWebhook"].of("x.example.com", 443) != found["ValidatingAdmissionWebhook"].of(
        "y", 443
    )


def test_the_kubeconfig_of_a_webhook(tmp_path: Path) -> None:
    text = shown("authorization.md", "authorizer.example.com")
    authority = CA("authorizer")
    authority.files(tmp_path, "client")
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    assert read_kubeconfig(write(tmp_path / "webhook.kubeconfig", text))


def test_an_encryption_configuration() -> None:
    text = shown("encryption.md", "EncryptionConfiguration")
    key = base64.b64encode(bytes(range(32))).decode()
    [entry] = encryption.load(text.replace("<base64 of 32 random bytes>", key).encode()).resources
    assert entry.resources == ("secrets", "*.vaults.example.com")


def test_a_tracing_configuration() -> None:
    assert tracing.parse(shown("monitoring.md", "TracingConfiguration").encode()).sampling_rate == 10000


def test_an_egress_configuration() -> None:
    text = shown("nodes.md", "EgressSelectorConfiguration")
    [selection] = egress_selector.parse(text.encode(), lambda path: True).egress_selections
    assert selection.name == "cluster"


def test_a_retention_file(tmp_path: Path) -> None:
    file = write(tmp_path / "retention.yaml", shown("retention.md", "retention:"))
    policies = {
        each.resource: each for each in retention_policies(load({"history-retention-file": str(file)}, environment={}))
    }
    assert (policies["pods"].max_changes, policies["secrets"].max_age) == (1000000, None)


@pytest.mark.parametrize(
    ("page", "needle", "collection"),
    [
        ("forensics.md", "history-reader", "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
        ("versions.md", "StorageVersionMigration", "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations"),
        ("branches.md", "branchchanges", "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
    ],
)
async def test_objects_are_valid(page: str, needle: str, collection: str) -> None:
    document = yaml.safe_load(shown(page, needle))
    async with open_server(runtime_config="storagemigration.k8s.io/v1beta1=true") as server:
        answer = await server.ask("POST", f"{collection}?fieldValidation=Strict", document)
        assert answer.status == 201, answer.json()
