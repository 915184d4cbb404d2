"""The cases of the benchmark, with the reference figures of kube-apiserver: data without behaviour.

The reference is kube-apiserver v1.36.2 with etcd 3.6 on two shared cores: TLS, bearer token, HTTP/1.1, load
from other processes, fdatasync 0.1 to 0.2 ms. CPU is per operation (for a watch: per event delivered).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from kubechronicle.api.values.objects import Object
from kubechronicle.ops.bench import custom_objects, rules

REFERENCE_NAME = "kube-apiserver 1.36.2 + etcd 3.6"
REFERENCE_READY_SECONDS = 1.9
REFERENCE_EMPTY_MIB = (278, 40)

_Flags = dict[str, str | int | float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One line of the report.

    ``load``: flags of the load generator
    ``fill``: the number of objects in the case's namespace before it runs
    ``area``: the part of the namespace's name that separates kinds of objects
    ``reference_cpu``: microseconds of CPU per operation of the reference (server, store)
    ``reference_wall``: rate and latency of the reference
    """

    name: str
    title: str
    load: _Flags
    fill: int = 0
    area: str = ""
    reference_cpu: tuple[float, float] | None = None
    reference_wall: str = ""

    @property
    def namespace(self) -> str:
        return f"bench-{self.area}{self.fill or self.load['mode']}"

    def duration(self, seconds: float) -> float:
        """Return the length of the measured part: twice as long for watches, as the rate of their writes is fixed."""
        return seconds * (2 if self.load["mode"] == "watch" else 1)


def _get(connections: int, cpu: tuple[float, float], wall: str) -> Case:
    return Case(
        name=f"get-{connections}",
        title=f"GET 4 KB, {connections} conn.",
        load={"mode": "get", "size": 4096, "conns": connections},
        reference_cpu=cpu,
        reference_wall=wall,
    )


def _http2(case: Case, connections: int) -> Case:
    """Return the case with client-go's use of connections: many requests share one."""
    title = case.title.replace(" conn.", " tasks")
    return replace(
        case,
        name=f"{case.name}-http2",
        title=f"{title}, HTTP/2, {connections} conn.",
        load={**case.load, "http2": connections},
        reference_cpu=None,
        reference_wall="",
    )


def _write(verb: str, connections: int, cpu: tuple[float, float] | None = None, wall: str = "") -> Case:
    return Case(
        name=f"{verb}-{connections}",
        title=f"{verb} ConfigMap of 1 KB, {connections} conn.",
        load={"mode": verb, "size": 1024, "conns": connections},
        reference_cpu=cpu,
        reference_wall=wall,
    )


def _objects(name: str, title: str, verb: str, collection: str, template: Object, *, conns: int, **load: str) -> Case:
    """Return a case that writes objects of one kind. ``load``: further flags."""
    text = json.dumps(template, separators=(",", ":"))
    return Case(
        name=f"{name}-{conns}",
        title=f"{title}, {conns} conn.",
        load={"mode": "objects", "verb": verb, "collection": collection, "template": text, "conns": conns, **load},
    )


def _node_status() -> Object:
    """Return an idle kubelet's status: new times of its conditions."""
    kinds = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    conditions = [
        {"type": kind, "status": "False", "lastHeartbeatTime": "2026-01-01T00:00:00Z", "message": "turn @count@"}
        for kind in kinds
    ]
    return {"status": {"conditions": conditions}}


def _admitted(name: str, title: str, connections: int, **load: str | int) -> Case:
    """Return a case that creates ConfigMaps which webhooks or policies admit. ``load``: flags that register them."""
    return Case(
        name=f"{name}-{connections}",
        title=f"create ConfigMap of 1 KB, {title}, {connections} conn.",
        load={"mode": "create", "size": 1024, "conns": connections, **load},
        area=f"{name}-",
    )


def _list(objects: int, variant: str, milliseconds: float | None, wall: str, **load: str | int) -> Case:
    """Return a case that lists. ``milliseconds``: CPU of the reference's server and etcd together."""
    return Case(
        name=f"list-{objects}-{variant}",
        title=f"LIST {objects:,} × 1 KB, {variant}",
        load={"mode": "list", "count": objects, **load},
        fill=objects,
        reference_cpu=(milliseconds * 1000, 0) if milliseconds is not None else None,
        reference_wall=wall,
    )


def _watch(watchers: int, cpu: tuple[float, float], wall: str) -> Case:
    return Case(
        name=f"watch-{watchers}",
        title=f"watch, {watchers:,} watchers × 50 creates/s",
        load={"mode": "watch", "watchers": watchers, "rate": 50},
        reference_cpu=cpu,
        reference_wall=wall,
    )


def _custom(kilobytes: int) -> tuple[Case, ...]:
    """Return the cases of custom objects."""
    flags: _Flags = {**custom_objects.load_flags(kilobytes)}
    apply: _Flags = {"mode": "objects", "verb": "apply", "conns": 16}
    update: _Flags = {
        "mode": "objects",
        "verb": "update",
        "conns": 16,
        "template": custom_objects.template(kilobytes, update=True),
    }
    loads: tuple[tuple[str, str, _Flags, int], ...] = (
        ("get-1", "GET, 1 conn.", {"mode": "get", "conns": 1}, 0),
        ("get-16", "GET, 16 conn.", {"mode": "get", "conns": 16}, 0),
        ("list-1000", "LIST 1,000", {"mode": "list", "count": 1000}, 1000),
        ("create-16", "create, 16 conn.", {"mode": "create", "conns": 16}, 0),
        ("update-16", "update, 16 conn.", update, 0),
        ("apply-16", "server-side apply, changed, 16 conn.", apply, 0),
        ("watch-1000", "watch, 1,000 watchers × 50 creates/s", {"mode": "watch", "watchers": 1000, "rate": 50}, 0),
    )
    return _custom_cases(kilobytes, flags, loads)


def _large_custom() -> tuple[Case, ...]:
    """Return the cases of custom objects of 20 KB: writes by one client alone, and by 16."""
    flags: _Flags = {**custom_objects.load_flags(20)}
    loads: list[tuple[str, str, _Flags, int]] = []
    for conns in (1, 16):
        applies: _Flags = {"mode": "objects", "verb": "apply", "conns": conns}
        label, values = (custom_objects.changing(20, label=label) for label in (True, False))
        loads += [
            (f"create-{conns}", f"create, {conns} conn.", {"mode": "create", "conns": conns}, 0),
            (f"apply-{conns}", f"apply, a label changed, {conns} conn.", {**applies, "template": label}, 0),
            (f"apply-all-{conns}", f"apply, all texts changed, {conns} conn.", {**applies, "template": values}, 0),
        ]
    return _custom_cases(20, flags, loads)


def _custom_cases(kilobytes: int, flags: _Flags, loads: Iterable[tuple[str, str, _Flags, int]]) -> tuple[Case, ...]:
    size = f"custom-{kilobytes}k"
    return tuple(
        Case(
            name=f"{size}-{name}",
            title=f"custom {kilobytes} KB: {title}",
            load={**flags, **load},
            fill=fill,
            area=f"{size}-",
        )
        for name, title, load, fill in loads
    )


_METADATA = {"name": "@name@", "namespace": "@namespace@"}
_POD = rules.pod()
_POD_SPEC = {name: value for name, value in _POD["spec"].items() if name != "serviceAccountName"}
_LABELS = _POD["metadata"]["labels"]
# Without an owner: the garbage collector would delete Pods of an owner that does not exist.
POD: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {**_METADATA, "labels": _LABELS, "annotations": _POD["metadata"]["annotations"]},
    "spec": _POD_SPEC,
}
DEPLOYMENT: Object = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {**_METADATA, "labels": _LABELS},
    "spec": {
        "replicas": 3,
        "selector": {"matchLabels": _LABELS},
        "template": {"metadata": {"labels": _LABELS, "annotations": {"turn": "@count@"}}, "spec": _POD_SPEC},
    },
}
LEASE: Object = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {**_METADATA, "resourceVersion": "@revision@"},
    "spec": {
        "holderIdentity": "@name@", "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.@count@Z",
    },
}  # fmt: skip
NODE: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "@name@"}}
PODS, NODES = "/api/v1/namespaces/@namespace@/pods", "/api/v1/nodes"
DEPLOYMENTS = "/apis/apps/v1/namespaces/@namespace@/deployments"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/@namespace@/leases"


# Cases that create many objects come last, so that the others are measured on a small server.
CASES: tuple[Case, ...] = (
    _get(1, (475, 217), "1,570/s, p50 0.57, p99 1.8 ms"),
    _get(16, (269, 67), "4,095/s, p50 3.4, p99 12 ms"),
    _get(64, (286, 58), "3,850/s, p50 15, p99 46 ms"),
    _http2(_get(1, (0, 0), ""), 1),
    replace(_http2(_get(16, (0, 0), ""), 1), reference_cpu=(297, 71)),
    _list(1000, "JSON", 7.8, "p50 10.1 ms"),
    _list(1000, "protobuf", None, "", format="protobuf"),
    _list(1000, "table", None, "", format="table"),
    _write("create", 1, (858, 452), "850/s, p50 1.04, p99 3.6 ms"),
    _write("create", 16, (568, 184), "2,080/s, p50 6.7 ms"),
    _write("create", 64, (479, 133), "2,630/s, p50 22 ms"),
    _write("update", 1),
    _write("update", 16),
    _write("update", 64),
    _objects("create-pod", "create Pod of 4 KB", "create", PODS, POD, conns=16),
    _objects("create-deployment", "create Deployment of 4 KB", "create", DEPLOYMENTS, DEPLOYMENT, conns=16),
    _objects("apply", "server-side apply of the Deployment, changed", "apply", DEPLOYMENTS, DEPLOYMENT, conns=16),
    _objects("lease-update", "renewal of a Lease", "update", LEASES, LEASE, conns=64),
    _objects(
        "node-status",
        "patch of a Node's status",
        "patch",
        NODES,
        _node_status(),
        conns=64,
        subresource="status",
        setup=json.dumps(NODE),
    ),
    _admitted("webhooks", "one mutating and one validating webhook", 1, webhooks="true"),
    _admitted("webhooks", "one mutating and one validating webhook", 16, webhooks="true"),
    _admitted("policies", "20 policies of three expressions", 16, policies=20),
    _admitted("other-policies", "500 policies for other objects", 16, **{"other-policies": 500}),
    Case(
        name="held-500",
        title="GET 4 KB while 500 writes wait 2 s for a webhook, 4 conn.",
        load={"mode": "held", "webhooks": "true", "size": 4096, "conns": 4, "held-writers": 500},
        area="held-",
    ),
    _watch(100, (28, 8), "p50 2.2, p99 7.3 ms"),  # 0.14 + 0.04 cores at 5,000 events/s
    _http2(_watch(100, (0, 0), ""), 10),
    _watch(1000, (16.4, 0.8), "p50 20.7, p99 61.6 ms"),  # 0.82 + 0.04 cores at 50,000 events/s
    *_custom(1),
    *_custom(4),
    *_large_custom(),
    _list(10000, "JSON", 94, "p50 95 ms"),
    _list(10000, "rv=0", 80, "p50 77 ms", query="resourceVersion=0"),
    _list(10000, "limit=500 pages", 131, "p50 139 ms", limit=500),
    _list(10000, "protobuf", 71, "p50 65 ms", format="protobuf"),
    _list(10000, "table", None, "", format="table"),
)

# One case of each kind; takes about a minute.
QUICK = ("get-16", "list-1000-JSON", "create-16", "update-16", "watch-100")
