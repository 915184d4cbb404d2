"""Metrics of admission: each write, call and check counts once, whatever the number of attempts."""

from __future__ import annotations

from typing import Any

import pytest
from admission.prepared_webhooks import MAPS, Hooks, adding, configure, webhook
from in_process import PODS, InProcess, configmap, open_server, pod

from kubechronicle.actors.admission import metrics as admission_metrics
from kubechronicle.actors.admission.metrics import MOST_NOTED, AdmissionMetrics, Histograms
from kubechronicle.actors.reading.conversions import WebhookError

GROUP = "/apis/admissionregistration.k8s.io/v1"


async def numbers(server: InProcess, name: str) -> dict[tuple[str, ...], float]:
    """Return the samples of a metric by their labels' values, in the order of the labels' names."""
    found: dict[tuple[str, ...], float] = {}
    for family in server.assembly.application.metrics.registry.collect():
        for sample in family.samples:
            if sample.name == name:
                found[tuple(value for _, value in sorted(sample.labels.items()))] = sample.value
    return found


async def test_calls_of_webhooks(hooks: Hooks) -> None:
    denial: dict[str, Any] = {"allowed": False, "status": {"code": 403}}
    hooks.replies = {"a": adding("/data/k", "v"), "b": WebhookError("down", code=500), "c": denial}
    async with open_server() as server:
        await configure(server, "mutating", webhook("a"), webhook("b", failurePolicy="Ignore"))
        await configure(server, "validating", webhook("c"))
        (await server.ask("POST", MAPS, configmap("m", x="0"))).refused(403)
        prefix = "apiserver_admission"
        assert await numbers(server, f"{prefix}_webhook_request_total") == {
            ("200", "a.example.com", "CREATE", "false", "admit"): 1,
            ("500", "b.example.com", "CREATE", "false", "admit"): 1,
            ("403", "c.example.com", "CREATE", "true", "validating"): 1,
        }
        assert await numbers(server, f"{prefix}_webhook_fail_open_count") == {("b.example.com", "admit"): 1}
        rejection = ("no_error", "c.example.com", "CREATE", "403", "validating")
        assert await numbers(server, f"{prefix}_webhook_rejection_count") == {rejection: 1}
        steps = await numbers(server, f"{prefix}_step_admission_duration_seconds_count")
        assert steps["CREATE", "true", "validate"] == 1
        plugins = await numbers(server, f"{prefix}_controller_admission_duration_seconds_count")
        assert plugins["ValidatingAdmissionWebhook", "CREATE", "true", "validate"] == 1


async def test_match_conditions(hooks: Hooks) -> None:
    conditions = [{"name": "c", "expression": "object.metadata.name == 'other'"}]
    async with open_server() as server:
        await configure(server, "validating", webhook("a", matchConditions=conditions))
        await server.post(MAPS, configmap("m"))
        key = ("webhook", "a.example.com", "CREATE", "validate")
        assert await numbers(server, "apiserver_admission_match_condition_exclusions_total") == {key: 1}
        assert await numbers(server, "apiserver_admission_match_condition_evaluation_seconds_count") == {key: 1}
    assert not hooks.asked


async def test_checks_of_policies() -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "!has(object.data)"}, {"expression": "object.data.missing == ''"}],
    }
    binding = {"policyName": "p", "validationActions": ["Warn", "Audit"]}
    async with open_server() as server:
        await server.post(f"{GROUP}/validatingadmissionpolicies", {"metadata": {"name": "p"}, "spec": spec})
        await server.post(f"{GROUP}/validatingadmissionpolicybindings", {"metadata": {"name": "b"}, "spec": binding})
        await server.post(MAPS, configmap("m", x="0"))
        assert await numbers(server, "apiserver_validating_admission_policy_check_total") == {
            (action, problem, "p", "b"): 1 for action in ("warn", "audit") for problem in ("no_error", "invalid_error")
        }


async def test_checks_of_pod_security() -> None:
    levels = {"pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/warn": "restricted"}
    async with open_server() as server:
        await server.post("/api/v1/namespaces", {"metadata": {"name": "strict", "labels": levels}})
        await server.post(PODS, pod("a"))
        await server.post("/api/v1/namespaces/strict/pods", pod("a"))
        privileged = pod("b")
        privileged["spec"]["hostNetwork"] = True
        (await server.ask("POST", "/api/v1/namespaces/strict/pods", privileged)).refused(403)
        found = await numbers(server, "pod_security_evaluations_total")
        assert set((await numbers(server, "pod_security_exemptions_total")).values()) == {0}
    # decision, mode, level, version, operation, resource, subresource
    assert found == {
        ("allow", "enforce", "privileged", "latest", "create", "pod", ""): 1,
        ("allow", "enforce", "privileged", "latest", "update", "pod", ""): 0,  # there from the start
        ("allow", "enforce", "baseline", "latest", "create", "pod", ""): 1,
        ("deny", "warn", "restricted", "latest", "create", "pod", ""): 1,
        ("deny", "enforce", "baseline", "latest", "create", "pod", ""): 1,
    }


def test_noted_durations_are_counted_in_time() -> None:
    metrics = AdmissionMetrics()
    count = metrics.steps.of(("admit",))
    for _ in range(MOST_NOTED - 1):
        metrics.count([(count, 0.25)])
    series = metrics.steps.series["admit",]
    assert len(series._noted) == MOST_NOTED - 1
    metrics.count([(count, 3.0)])
    assert not series._noted
    assert (series.counts, series.total) == ([0, 0, 0, MOST_NOTED - 1, 0, 0, 1], 0.25 * (MOST_NOTED - 1) + 3.0)


def test_further_combinations_of_labels_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission_metrics, "MOST_SERIES", 1)
    histograms = Histograms((1.0,))
    for name in "ab":
        histograms.add((name,), 2.0)
        histograms.of((name,))(0.5)
    histograms.fold()
    assert {labels: (each.counts, each.total) for labels, each in histograms.series.items()} == {("a",): ([1, 1], 2.5)}
