"""Objects and settings that later requests of a sequence meet: limits, quotas, budgets, levels of pod security."""

from __future__ import annotations

from random import Random
from typing import Any

from kubechronicle.ops.development.differential.catalogue import Resource
from kubechronicle.ops.development.differential.steps import Step

NAMESPACE = "/api/v1/namespaces/$NS"
BUDGETS = "/apis/policy/v1/namespaces/$NS/poddisruptionbudgets"
MERGE = {"Content-Type": "application/merge-patch+json"}
WITH_PODS = frozenset(
    {
        "Pod",
        "Deployment",
        "DaemonSet",
        "StatefulSet",
        "ReplicaSet",
        "ReplicationController",
        "Job",
        "CronJob",
        "PodTemplate",
    }
)
LIMITS: tuple[dict[str, Any], ...] = (
    {"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}, "defaultRequest": {"cpu": "100m"}},
    {"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "50m"}},
    {"type": "Container", "max": {"memory": "1Gi"}, "maxLimitRequestRatio": {"memory": "2"}},
    {"type": "Pod", "max": {"cpu": "2", "memory": "2Gi"}, "min": {"cpu": "10m"}, "maxLimitRequestRatio": {"cpu": "3"}},
    {"type": "PersistentVolumeClaim", "min": {"storage": "2Gi"}, "max": {"storage": "4Gi"}},
)
HARD: tuple[dict[str, str], ...] = (
    {"pods": "2", "count/pods": "2"},
    {"requests.cpu": "1", "limits.memory": "1Gi"},
    {"cpu": "1", "memory": "1Gi"},
    {"configmaps": "2", "secrets": "1", "services": "1", "count/configmaps": "1"},
    {"services.nodeports": "1", "services.loadbalancers": "0"},
    {
        "persistentvolumeclaims": "1",
        "requests.storage": "2Gi",
        "fast.storageclass.storage.k8s.io/requests.storage": "1Gi",
    },
    {"count/deployments.apps": "1", "count/jobs.batch": "0", "requests.example.com/gpu": "1"},
)
LEVELS = ("privileged", "baseline", "restricted", "nonesuch", "")


def prelude(rng: Random, resource: Resource) -> list[Step]:
    """Return the steps of one setting, for kinds that may meet it."""
    if not resource.namespaced:
        return []
    choices = [quota]
    if resource.kind in WITH_PODS:
        choices += [limits, security, security]
    if resource.kind == "PersistentVolumeClaim":
        choices += [limits]
    if resource.kind == "Pod":
        choices += [budget]
    return rng.choice(choices)(rng)


def step(method: str, path: str, body: Any, headers: dict[str, str] | None = None) -> Step:
    return Step(
        method, path, body, headers=dict(headers or {}), kind="setting", verb="set up", area="settings", aside=True
    )


def limits(rng: Random) -> list[Step]:
    return [
        step(
            "POST",
            f"{NAMESPACE}/limitranges",
            {"metadata": {"name": "limits"}, "spec": {"limits": rng.sample(LIMITS, rng.choice([1, 1, 2]))}},
        )
    ]


def quota(rng: Random) -> list[Step]:
    hard = rng.choice(HARD)
    spec: dict[str, Any] = {"hard": hard}
    if rng.random() < 0.2 and "pods" in hard:
        spec["scopes"] = [rng.choice(["Terminating", "NotTerminating", "BestEffort", "NotBestEffort"])]
    used = dict.fromkeys(hard, "0")
    return [
        step("POST", f"{NAMESPACE}/resourcequotas", {"metadata": {"name": "quota"}, "spec": spec}),
        step("PATCH", f"{NAMESPACE}/resourcequotas/quota/status", {"status": {"hard": hard, "used": used}}, MERGE),
    ]


def security(rng: Random) -> list[Step]:
    labels = {
        f"pod-security.kubernetes.io/{mode}": rng.choice(LEVELS) for mode in rng.sample(["enforce", "warn", "audit"], 2)
    }
    if rng.random() < 0.3:
        labels["pod-security.kubernetes.io/enforce-version"] = rng.choice(["v1.20", "latest", "v1.99", "x"])
    return [step("PATCH", NAMESPACE, {"metadata": {"labels": labels}}, MERGE)]


def budget(rng: Random) -> list[Step]:
    spec = {"minAvailable": rng.choice([0, 1, "50%"]), "selector": rng.choice([{}, {"matchLabels": {"app": "web"}}])}
    status = {
        "disruptionsAllowed": rng.choice([0, 1, 2]),
        "observedGeneration": rng.choice([0, 1, 2]),
        "currentHealthy": 2,
        "desiredHealthy": 1,
        "expectedPods": 2,
    }
    return [
        step("POST", BUDGETS, {"metadata": {"name": "budget"}, "spec": spec}),
        step("PATCH", f"{BUDGETS}/budget/status", {"status": status}, MERGE),
    ]


def afterwards(steps: list[Step]) -> list[Step]:
    """Return the reads that show the effect on the objects of a prelude."""
    paths = {one.path for one in steps if one.method == "POST"}
    return [Step("GET", path, kind="setting", verb="get", area="settings", aside=True) for path in sorted(paths)]
