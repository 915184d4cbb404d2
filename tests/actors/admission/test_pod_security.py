"""PodSecurity: the checks of each level and version, labels, warnings."""

from __future__ import annotations

from typing import Any

import pytest
from in_process import PODS, open_server, pod
from trio.testing import MockClock

from kubechronicle.actors.admission import plugins
from kubechronicle.actors.admission.pod_security import standards
from kubechronicle.actors.admission.pod_security.plugin import policy_of
from kubechronicle.api.configuration.admission import (
    PluginConfigurations,
    PodSecurityConfiguration,
    PodSecurityDefaults,
    PodSecurityExemptions,
)
from kubechronicle.api.values.steps import finish

PREFIX = "pod-security.kubernetes.io/"
DEFAULT = "/api/v1/namespaces/default"
SAFE: Any = {
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {"name": "c", "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}
    ],
}


def reasons(level: str, spec: Any, *, minor: int = 36, **meta: Any) -> list[str]:
    return [reason for reason, _ in finish(standards.evaluate(level, minor, meta, spec))]


def container(**fields: Any) -> Any:
    return {"containers": [{"name": "c", **fields}]}


@pytest.mark.parametrize(
    ("spec", "reason", "detail"),
    [
        ({"hostIPC": True}, "host namespaces", "hostIPC=true"),
        ({"volumes": [{"name": "h", "hostPath": {}}]}, "hostPath volumes", 'volume "h"'),
        (container(ports=[{"hostPort": 80}]), "hostPort", 'container "c" uses hostPort 80'),
        (
            container(livenessProbe={"httpGet": {"host": "h"}}),
            "probe or lifecycle host",
            'container "c" uses probe or lifecycle host "h"',
        ),
        (
            container(securityContext={"capabilities": {"add": ["NET_RAW"]}}),
            "non-default capabilities",
            'container "c" must not include "NET_RAW" in securityContext.capabilities.add',
        ),
        (
            container(securityContext={"procMount": "Unmasked"}),
            "procMount",
            'container "c" must not set securityContext.procMount to "Unmasked"',
        ),
        (
            {"securityContext": {"seLinuxOptions": {"type": "x", "role": "r"}}},
            "seLinuxOptions",
            'pod set forbidden securityContext.seLinuxOptions: type "x"; role may not be set',
        ),
        (
            {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
            "seccompProfile",
            'pod must not set securityContext.seccompProfile.type to "Unconfined"',
        ),
        ({"securityContext": {"sysctls": [{"name": "k.x"}]}}, "forbidden sysctls", "k.x"),
        (
            {"securityContext": {"windowsOptions": {"hostProcess": True}}},
            "hostProcess",
            "pod must not set securityContext.windowsOptions.hostProcess=true",
        ),
        (
            {"securityContext": {"appArmorProfile": {"type": "Unconfined"}}},
            "forbidden AppArmor profile",
            'pod must not set AppArmor profile type to "Unconfined"',
        ),
    ],
)
def test_the_baseline_level_rejects(spec: Any, reason: str, detail: str) -> None:
    assert finish(standards.evaluate("baseline", 36, {}, spec)) == [(reason, detail)]
    assert finish(standards.evaluate("privileged", 36, {}, spec)) == []


def test_safe_pods_are_allowed() -> None:
    assert reasons("restricted", SAFE) == []
    assert reasons("baseline", container()) == []


def test_the_restricted_level_rejects() -> None:
    assert reasons("restricted", container()) == [
        "allowPrivilegeEscalation != false",
        "unrestricted capabilities",
        "runAsNonRoot != true",
        "seccompProfile",
    ]
    # A restricted check replaces its baseline check.
    spec = {**SAFE, "volumes": [{"name": "h", "hostPath": {}}, {"name": "n", "nfs": {}}]}
    detail = 'volumes "h", "n" use restricted volume types "hostPath", "nfs"'
    assert finish(standards.evaluate("restricted", 36, {}, spec)) == [("restricted volume types", detail)]
    root = {**SAFE, "securityContext": {**SAFE["securityContext"], "runAsUser": 0}}
    assert reasons("restricted", root) == ["runAsUser=0"]


def test_a_version_selects_its_checks() -> None:
    probe = container(livenessProbe={"tcpSocket": {"host": "h"}})
    assert reasons("baseline", probe, minor=33) == []
    assert reasons("baseline", probe, minor=34) == reasons("baseline", probe, minor=99) == ["probe or lifecycle host"]
    sysctl = {"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_rmem"}]}}
    assert (reasons("baseline", sysctl, minor=31), reasons("baseline", sysctl)) == (["forbidden sysctls"], [])
    annotated = {"seccomp.security.alpha.kubernetes.io/pod": "unconfined"}
    assert reasons("baseline", {}, minor=18, annotations=annotated) == ["seccompProfile"]
    assert reasons("baseline", {}, annotations=annotated) == []
    unmasked = {"hostUsers": False, **container(securityContext={"procMount": "Unmasked"})}
    assert (reasons("baseline", unmasked), reasons("baseline", unmasked, minor=34)) == ([], ["procMount"])
    assert "procMount" in reasons("restricted", unmasked)
    windows = {"os": {"name": "windows"}, "securityContext": {"runAsNonRoot": True}, **container()}
    assert reasons("restricted", windows) == []
    assert "seccompProfile" in reasons("restricted", windows, minor=24)


def test_labels_select_standards() -> None:
    policy, causes = policy_of({PREFIX + "enforce": "baseline", PREFIX + "enforce-version": "v1.30"})
    assert (str(policy.enforce), str(policy.warn), causes) == ("baseline:v1.30", "baseline:v1.30", [])
    policy, causes = policy_of({PREFIX + "enforce": "lenient", PREFIX + "warn-version": "1.20"})
    assert (str(policy.enforce), str(policy.warn), len(causes)) == ("restricted:latest", "privileged:latest", 2)


async def test_labels_of_a_namespace_reject_and_warn(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await server.post(PODS, pod("old"))
        found = await server.get(DEFAULT)
        found["metadata"]["labels"] |= {PREFIX + "enforce": "restricted"}
        answer = await server.ask("PUT", DEFAULT, found)
        answer.ok()
        assert "existing pods in namespace" in str(answer.headers)
        body = pod("a")
        why = (await server.ask("POST", PODS, body)).refused(403)["message"]
        assert why.startswith('pods "a" is forbidden: violates PodSecurity "restricted:latest": allowPrivilege')
        # An update that changes no image is not checked.
        held = await server.get(f"{PODS}/old")
        held["metadata"]["labels"] = {"x": "1"}
        held = await server.put(f"{PODS}/old", held)
        held["spec"]["containers"][0]["image"] = "other"
        (await server.ask("PUT", f"{PODS}/old", held)).refused(403)
        template = {"metadata": {"labels": {"a": "b"}}, "spec": body["spec"]}
        spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
        target = "/apis/apps/v1/namespaces/default/deployments"
        answer = await server.ask("POST", target, {"metadata": {"name": "d"}, "spec": spec})
        answer.ok()
        assert "would violate PodSecurity" in str(answer.headers)


async def test_unknown_labels_are_rejected(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        body = {"metadata": {"name": "n", "labels": {PREFIX + "enforce": "lenient"}}}
        found = (await server.ask("POST", "/api/v1/namespaces", body)).refused(422)
        assert found["details"]["causes"][0]["field"] == f"metadata.labels[{PREFIX}enforce]"


async def test_configured_defaults_and_exemptions(autojump_clock: MockClock) -> None:
    configuration = PodSecurityConfiguration(
        defaults=PodSecurityDefaults(enforce="baseline"),
        exemptions=PodSecurityExemptions(usernames=("joe",), namespaces=("free",), runtime_classes=("sandbox",)),
    )
    other = {"admission": PluginConfigurations(pod_security=configuration)}
    admission = plugins.DEFAULT - {"ServiceAccount", "RuntimeClass"}
    body: Any = pod("a")
    body["spec"]["hostNetwork"] = True
    async with open_server(admission=admission, other=other) as server:
        error = (await server.ask("POST", PODS, body)).refused(403)
        assert 'violates PodSecurity "baseline:latest": host namespaces' in error["message"]
        sandboxed = {**body, "spec": {**body["spec"], "runtimeClassName": "sandbox"}}
        await server.post(PODS, sandboxed)
        marks = {"pod-security.kubernetes.io/enforce": "restricted"}
        answer = await server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "free", "labels": marks}})
        warning = (
            'namespace "free" is exempt from Pod Security, and the policy (enforce=restricted:latest) will be ignored'
        )
        assert any(warning in text.replace("\\", "") for text in answer.header_all("warning"))
        await server.post("/api/v1/namespaces/free/pods", body)
