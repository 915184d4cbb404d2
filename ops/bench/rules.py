"""The cost of a write's rules: ``python -m kubechronicle.ops.bench.rules [--rounds N]``.

Runs in this process without a server. A body is decoded, passes all rules of api/ for a creation (schema, defaults,
managed fields, strategy, validation), and is encoded for the store. Prints CPU microseconds of this thread per object:
the minimum of several rounds, as noise only adds time. JSON decoding and encoding are listed separately.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from kubechronicle.api.builtin.kinds import strategy_of
from kubechronicle.api.managed_fields import managers
from kubechronicle.api.meta.encoding import copy_object, encode_stored
from kubechronicle.api.pipeline import bodies, conversion, pipeline
from kubechronicle.api.pipeline.pipeline import WriteContext
from kubechronicle.api.registry.registry import ResourceType, builtin_registry
from kubechronicle.api.schema import check

OBJECTS_PER_ROUND = 200
CONTEXT = WriteContext(
    now="2026-01-01T00:00:00Z",
    uid="b0b0b0b0-0000-4000-8000-000000000000",
    name_suffix="abcde",
    manager="kube-controller-manager",
    namespace="default",
)


def configmap() -> dict[str, Any]:
    """Return a ConfigMap of 1 KB."""
    data = {f"setting-{number:02}": "x" * 40 for number in range(14)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": data}


def lease() -> dict[str, Any]:
    spec = {
        "holderIdentity": "node-0017",
        "leaseDurationSeconds": 40,
        "renewTime": "2026-01-01T00:00:00.000000Z",
    }
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "node-0017"}, "spec": spec}


def pod() -> dict[str, Any]:
    """Return a Pod of 4 KB as a workload controller makes it: with sidecar, probes, volumes and affinity."""
    labels = {
        "app.kubernetes.io/name": "storefront",
        "app.kubernetes.io/instance": "storefront-eu",
        "app.kubernetes.io/version": "2026.4.1",
        "app.kubernetes.io/component": "web",
        "pod-template-hash": "7c9d8f6b54",
    }
    selector = {"matchLabels": {"app.kubernetes.io/name": "storefront", "app.kubernetes.io/instance": "storefront-eu"}}
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "storefront-eu-7c9d8f6b54",
        "controller": True,
        "uid": "3f0c0b1e-8a53-4a8f-a7a7-5b1c5f1d2a11",
        "blockOwnerDeletion": True,
    }
    annotations = {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": "9102",
        "prometheus.io/path": "/metrics",
        "checksum/config": "8f1c4b0e0cc8d7f9f2a1f0c0a6fd5bb8a4f0d1c7d0e9b3a2c1f0e9d8c7b6a594",
    }
    spread = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": selector,
    }
    apart = {"weight": 100, "podAffinityTerm": {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}}
    spec = {
        "serviceAccountName": "storefront",
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "fsGroup": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [apart]}},
        "topologySpreadConstraints": [spread],
        "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "web", "effect": "NoSchedule"}],
        "initContainers": [_init_container()],
        "containers": [_web_container(), _exporter_container()],
        "volumes": [
            {"name": "config", "configMap": {"name": "storefront-eu", "items": [{"key": "a.yaml", "path": "a.yaml"}]}},
            {"name": "cache", "emptyDir": {"sizeLimit": "512Mi"}},
            {"name": "certificates", "secret": {"secretName": "storefront-eu-tls", "optional": True}},
        ],
    }
    metadata = {
        "generateName": "storefront-eu-7c9d8f6b54-",
        "labels": labels,
        "annotations": annotations,
        "ownerReferences": [owner],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


SECURED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def _init_container() -> dict[str, Any]:
    return {
        "name": "migrate",
        "image": "registry.example.com/shop/storefront:2026.4.1",
        "command": ["/app/bin/migrate", "--wait", "--timeout=60s"],
        "env": [{"name": "DATABASE_HOST", "value": "postgres.data.svc.cluster.local"}],
        "resources": {"limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
        "securityContext": SECURED,
    }


def _web_container() -> dict[str, Any]:
    field = {"fieldRef": {"fieldPath": "status.podIP"}}
    secret = {"secretKeyRef": {"name": "storefront-eu-database", "key": "password"}}
    return {
        "name": "web",
        "image": "registry.example.com/shop/storefront:2026.4.1",
        "args": ["serve", "--listen=:8080", "--config=/etc/storefront/a.yaml", "--log-format=json"],
        "ports": [{"name": "http", "containerPort": 8080}, {"name": "admin", "containerPort": 8081}],
        "env": [
            {"name": "POD_IP", "valueFrom": field},
            {"name": "DATABASE_HOST", "value": "postgres.data.svc.cluster.local"},
            {"name": "DATABASE_PASSWORD", "valueFrom": secret},
            {"name": "GOMAXPROCS", "value": "2"},
            {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector.observability:4317"},
        ],
        "resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "250m", "memory": "512Mi"}},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 5},
        "livenessProbe": {"httpGet": {"path": "/live", "port": "admin"}, "initialDelaySeconds": 15},
        "startupProbe": {"tcpSocket": {"port": 8080}, "failureThreshold": 30, "periodSeconds": 2},
        "lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "-c", "sleep 10"]}}},
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/storefront", "readOnly": True},
            {"name": "cache", "mountPath": "/var/cache/storefront"},
            {"name": "certificates", "mountPath": "/etc/tls", "readOnly": True},
        ],
        "securityContext": SECURED,
    }


def _exporter_container() -> dict[str, Any]:
    return {
        "name": "exporter",
        "image": "registry.example.com/observability/exporter:1.12.0",
        "args": ["--target=http://127.0.0.1:8081/stats", "--listen=:9102"],
        "ports": [{"name": "metrics", "containerPort": 9102, "protocol": "TCP"}],
        "resources": {"limits": {"cpu": "100m", "memory": "64Mi"}, "requests": {"cpu": "10m", "memory": "32Mi"}},
        "readinessProbe": {"httpGet": {"path": "/metrics", "port": "metrics"}},
        "securityContext": SECURED,
    }


def create(rt: ResourceType, body: dict[str, Any]) -> dict[str, Any]:
    """Apply all rules of a creation."""
    obj, _ = pipeline.decode_object(rt, body, CONTEXT, create=True)
    return pipeline.prepare_create(rt, obj, CONTEXT).object


def least(work: Callable[[Any], object], make: Callable[[], Any], rounds: int) -> float:
    """Return the CPU microseconds of ``work(x)`` for a new ``x = make()``: the minimum of the rounds."""
    best = float("inf")
    for _ in range(rounds):
        objects = [make() for _ in range(OBJECTS_PER_ROUND)]
        gc.collect()
        gc.disable()
        began = time.thread_time()
        for obj in objects:
            work(obj)
        best = min(best, time.thread_time() - began)
        gc.enable()
    return best / OBJECTS_PER_ROUND * 1e6


def measure(rt: ResourceType, obj: dict[str, Any], rounds: int) -> dict[str, float]:
    """Return microseconds by step. "rules": all steps but JSON, measured together."""
    raw = orjson.dumps(obj)
    kind = bodies.kind_type(rt)
    assert kind is not None, f"{rt} is built in"
    checked = copy_object(obj)
    checked["metadata"].setdefault("namespace", "default")
    check.check(checked, kind)
    defaulted = copy_object(checked)
    conversion.apply(defaulted, kind)
    stored = create(rt, copy_object(obj))
    writer = managers.Writer(manager=CONTEXT.manager, api_version=rt.api_version, now=CONTEXT.now)
    rules = strategy_of(rt.resource)
    return {
        "JSON decode": least(orjson.loads, lambda: raw, rounds),
        "schema": least(lambda obj: check.check(obj, kind), lambda: orjson.loads(raw), rounds),
        "defaults": least(lambda obj: conversion.apply(obj, kind), lambda: copy_object(checked), rounds),
        "managed fields": least(
            lambda obj: managers.track(kind, None, obj, writer=writer), lambda: copy_object(defaulted), rounds
        ),
        "validation": least(rules.validate, lambda: stored, rounds),
        "rules": least(lambda obj: create(rt, obj), lambda: orjson.loads(raw), rounds),
        "JSON encode": least(encode_stored, lambda: stored, rounds),
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kubechronicle.ops.bench.rules", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="rounds of 200 objects; the minimum counts (default 15)")
    rounds = parser.parse_args(argv).rounds
    registry = builtin_registry()
    rows = [
        ("", "v1", "configmaps", configmap()),
        ("", "v1", "pods", pod()),
        ("coordination.k8s.io", "v1", "leases", lease()),
    ]
    for group, version, plural, obj in rows:
        rt = registry.lookup(group, version, plural)
        assert rt is not None
        steps = measure(rt, obj, rounds)
        size = len(orjson.dumps(obj))
        print(f"{rt.kind} of {size:,} bytes: " + ", ".join(f"{name} {us:.1f} µs" for name, us in steps.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
