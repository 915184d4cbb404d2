"""The settings of audit: their defaults are kube-apiserver's, and a mistake is one line that names the flag."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubechronicle.http.audit.backends import BatchSettings, LogSettings, TruncateSettings, WebhookSettings
from kubechronicle.http.outgoing.client import Outgoing
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.server.audit import audit_parts, audit_plan, reads_plan
from kubechronicle.ops.settings.settings import Settings, load

POLICY = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"
KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: a}}]
clusters: [{name: a, cluster: {server: "http://localhost:1/audit"}}]
"""


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "wrong.yaml").write_text(POLICY.replace("Metadata", "All"))
    (tmp_path / "webhook.yaml").write_text(KUBECONFIG)
    return {name: str(tmp_path / name) for name in ("policy.yaml", "wrong.yaml", "webhook.yaml", "audit.log")}


def settings(**flags: Any) -> Settings:
    return load({name.replace("_", "-"): value for name, value in flags.items()}, environment={})


def plans(**flags: Any) -> None:
    made = settings(**flags)
    audit_plan(made)
    reads_plan(made)


def test_the_defaults_are_kube_apiservers(files: dict[str, str]) -> None:
    plan = audit_plan(
        settings(
            audit_policy_file=files["policy.yaml"],
            audit_log_path=files["audit.log"],
            audit_webhook_config_file=files["webhook.yaml"],
        )
    )
    assert plan is not None
    assert plan.log == LogSettings(
        path=files["audit.log"], format="json", mode="blocking", max_age=366, max_backups=100, max_size=100,
        compress=False, truncate=TruncateSettings(enabled=False, max_batch_size=10 << 20, max_event_size=100 << 10),
        batch=BatchSettings(buffer_size=10_000, max_size=1, max_wait=0.0, throttle=False, qps=0.0, burst=0),
    )  # fmt: skip
    assert plan.webhook == WebhookSettings(
        kubeconfig=Path(files["webhook.yaml"]), mode="batch", initial_backoff=10.0,
        batch=BatchSettings(buffer_size=10_000, max_size=400, max_wait=30.0, throttle=True, qps=10.0, burst=15),
    )  # fmt: skip
    parts = audit_parts(plan, Outgoing())
    assert parts is not None
    assert [child.name for child in parts.children()] == ["audit-0", "audit-1", "audit-policy"]


def test_a_backend_without_a_policy_is_off(files: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    assert audit_plan(settings(audit_log_path=files["audit.log"])) is None
    assert "--audit-log-path has no effect without --audit-policy-file" in caplog.text
    assert audit_plan(settings(audit_policy_file=files["policy.yaml"])) is None
    assert audit_plan(settings()) is None
    assert reads_plan(settings()) is None


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"audit_policy_file": "wrong.yaml"}, "--audit-policy-file: .*wrong.yaml: rules.0..level: Unsupported value"),
        ({"audit_reads_policy_file": "wrong.yaml"}, "--audit-reads-policy-file: .*rules.0..level: Unsupported value"),
        ({"audit_policy_file": "none"}, "--audit-policy-file: there is no file 'none'"),
        ({"audit_log_mode": "lazy"}, "--audit-log-mode: must be one of batch, blocking, blocking-strict, got 'lazy'"),
        ({"audit_log_format": "xml"}, "--audit-log-format: must be legacy or json, got 'xml'"),
        ({"audit_log_version": "audit.k8s.io/v1beta1"}, "--audit-log-version: "),
        ({"audit_webhook_batch_throttle_qps": "fast"}, "--audit-webhook-batch-throttle-qps: must be a number"),
        ({"audit_webhook_batch_throttle_qps": "0"}, "--audit-webhook-batch-throttle-qps: must be a positive number"),
        ({"audit_webhook_batch_max_size": "0"}, "--audit-webhook-batch-max-size: must be a positive number"),
        ({"audit_log_batch_buffer_size": "0"}, "--audit-log-batch-buffer-size: must be a positive number"),
        ({"audit_log_truncate_max_event_size": "0"}, "--audit-log-truncate-max-event-size: must be a positive number"),
        ({"audit_log_truncate_max_batch_size": "9"}, "must be at least --audit-log-truncate-max-event-size"),
        ({"audit_webhook_config_file": "policy.yaml"}, "--audit-webhook-config-file: .*policy.yaml"),
    ],
)
def test_mistakes_are_one_line(flags: dict[str, str], message: str, files: dict[str, str]) -> None:
    given = {"audit_log_path": files["audit.log"], "audit_webhook_config_file": files["webhook.yaml"]}
    given |= {name: files.get(value, value) for name, value in flags.items()}
    with pytest.raises(OperatorError, match=message) as refused:
        plans(**given)
    assert "\n" not in str(refused.value)


def test_a_file_that_cannot_be_opened(files: dict[str, str]) -> None:
    plan = audit_plan(settings(audit_policy_file=files["policy.yaml"], audit_log_path="/proc/none/audit.log"))
    with pytest.raises(OperatorError, match=r"--audit-log-path: cannot open .*: No such file"):
        audit_parts(plan, Outgoing())


def test_reads(files: dict[str, str]) -> None:
    plan = reads_plan(settings(audit_reads_policy_file=files["policy.yaml"], audit_reads_retention="30"))
    assert plan is not None
    assert (plan.days, plan.content) == (30, POLICY.encode())
