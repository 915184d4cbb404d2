"""The Node authorizer on random clusters, compared with a model that searches all objects for each request.

The references of a pod or volume are recorded together with the generated object. So the model never reads a spec.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from view_objects import Object, ViewObjects

from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.eventlog.records import Key
from kubechronicle.http.authentication.user import User
from kubechronicle.http.authorization.decision import Decision
from kubechronicle.http.authorization.node import NodeAuthorizer

NODES, SPACES, NAMES = ("n1", "n2", "n3"), ("one", "two"), ("a", "b", "c", "d")
SECRETS, MAPS, CLAIMS, ACCOUNTS = "secrets", "configmaps", "persistentvolumeclaims", "serviceaccounts"
RESOURCE_CLAIMS, VOLUMES, PODS = "resourceclaims.resource.k8s.io", "persistentvolumes", "pods"
ATTACHMENTS, SLICES = "volumeattachments.storage.k8s.io", "resourceslices.resource.k8s.io"


# -- how a pod refers to something ------------------------------------------------------------------------------------


def in_volume(**source: Any) -> Callable[[Object, str], None]:
    def refer(pod: Object, name: str) -> None:
        volumes = pod["spec"].setdefault("volumes", [])
        volumes.append({"name": f"v{len(volumes)}", **filled(source, name)})

    return refer


def in_container(kind: str, **fields: Any) -> Callable[[Object, str], None]:
    def refer(pod: Object, name: str) -> None:
        pod["spec"].setdefault(kind, []).append({"name": "c", **filled(fields, name)})

    return refer


def filled(value: Any, name: str) -> Any:
    """Replace NAME by the name."""
    if isinstance(value, dict):
        return {key: filled(each, name) for key, each in value.items()}
    if isinstance(value, list):
        return [filled(each, name) for each in value]
    return name if value is NAME else value


def named_claim(pod: Object, name: str) -> None:
    pod["spec"].setdefault("resourceClaims", []).append({"name": f"by-name-{name}", "resourceClaimName": name})


def made_claim(pod: Object, name: str) -> None:
    own = {"name": f"made-{name}", "resourceClaimTemplateName": "template"}
    pod["spec"].setdefault("resourceClaims", []).append(own)
    statuses = pod["status"].setdefault("resourceClaimStatuses", [])
    statuses.append({"name": own["name"], "resourceClaimName": name})


def extended_claim(pod: Object, name: str) -> None:
    pod["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": name}


def pull_secret(pod: Object, name: str) -> None:
    pod["spec"].setdefault("imagePullSecrets", []).append({"name": name})


def account(pod: Object, name: str) -> None:
    pod["spec"]["serviceAccountName"] = name


NAME = object()
REFERENCE = {"name": NAME}
WAYS: dict[str, tuple[Callable[[Object, str], None], ...]] = {
    SECRETS: (
        pull_secret,
        in_container("containers", env=[{"name": "A", "valueFrom": {"secretKeyRef": {**REFERENCE, "key": "k"}}}]),
        in_container("initContainers", envFrom=[{"secretRef": REFERENCE}]),
        in_container("ephemeralContainers", envFrom=[{"secretRef": REFERENCE}]),
        in_volume(secret={"secretName": NAME}),
        in_volume(projected={"sources": [{"secret": REFERENCE}]}),
        in_volume(azureFile={"secretName": NAME, "shareName": "s"}),
        in_volume(csi={"driver": "d", "nodePublishSecretRef": REFERENCE}),
        *(in_volume(**{kind: {"secretRef": REFERENCE}}) for kind in ("cephfs", "cinder", "flexVolume", "iscsi", "rbd")),
        *(in_volume(**{kind: {"secretRef": REFERENCE}}) for kind in ("scaleIO", "storageos")),
    ),
    MAPS: (
        in_container("containers", env=[{"name": "A", "valueFrom": {"configMapKeyRef": {**REFERENCE, "key": "k"}}}]),
        in_container("initContainers", envFrom=[{"configMapRef": REFERENCE}]),
        in_volume(configMap=REFERENCE),
        in_volume(projected={"sources": [{"configMap": REFERENCE}]}),
    ),
    CLAIMS: (in_volume(persistentVolumeClaim={"claimName": NAME}),),
    ACCOUNTS: (account,),
    RESOURCE_CLAIMS: (named_claim, made_claim),
}


SOURCES = ("azureFile", "cephfs", "rbd", "iscsi", "scaleIO", "flexVolume", "cinder", "csi", "csi", "nfs")


@dataclass
class Pod:
    node: str
    refers: set[tuple[str, str]] = field(default_factory=set)


@dataclass
class Volume:
    claim: tuple[str, str] | None
    secrets: set[tuple[str, str]] = field(default_factory=set)


class Cluster(ViewObjects):
    """Objects of a cluster, with the references the model needs."""

    def __init__(self) -> None:
        super().__init__()
        self.pods: dict[tuple[str, str], Pod] = {}
        self.volumes: dict[str, Volume] = {}
        self.of_node: dict[tuple[str, str], str] = {}  # (resource, name)

    def change(self, draw: random.Random) -> None:
        if self.objects and draw.random() < 0.25:
            key = draw.choice(list(self.objects))
            self.delete(key)
            self.pods.pop((key.namespace, key.name), None) if key.resource == PODS else None
            self.volumes.pop(key.name, None) if key.resource == VOLUMES else None
            self.of_node.pop((key.resource, key.name), None)
            return
        draw.choice((self.put_pod, self.put_pod, self.put_pod, self.put_volume, self.put_of_node))(draw)
        if draw.random() < 0.05:
            self.forget_history()

    def put_pod(self, draw: random.Random) -> None:
        space, name = draw.choice(SPACES), draw.choice(NAMES)
        made = Pod(draw.choice((*NODES, "")))
        pod: Object = {"metadata": {}, "spec": {}, "status": {}}
        if made.node:
            pod["spec"]["nodeName"] = made.node
        for kind, ways in WAYS.items():
            for referred in draw.sample(NAMES, draw.randint(0, 2 if kind != ACCOUNTS else 1)):
                draw.choice(ways)(pod, referred)
                made.refers.add((kind, referred))
        if draw.random() < 0.3:
            pod["spec"].setdefault("volumes", []).append({"name": "own", "ephemeral": {"volumeClaimTemplate": {}}})
            made.refers.add((CLAIMS, f"{name}-own"))
        if draw.random() < 0.2:
            extended_claim(pod, "a")
            made.refers.add((RESOURCE_CLAIMS, "a"))
        if draw.random() < 0.2:  # of no claim of the pod: without effect
            statuses = pod["status"].setdefault("resourceClaimStatuses", [])
            statuses.append({"name": "stranger", "resourceClaimName": draw.choice(NAMES)})
        if draw.random() < 0.1:
            pod["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
            made.refers.clear()
        self.pods[(space, name)] = made
        self.put(PODS, space, name, pod)

    def put_volume(self, draw: random.Random) -> None:
        claim = (draw.choice(SPACES), draw.choice((*NAMES, "a-own"))) if draw.random() < 0.85 else None
        made, secret, where = Volume(claim), draw.choice(NAMES), draw.choice((*SPACES, ""))
        spec: Object = {}
        if claim is not None:
            spec["claimRef"] = {"namespace": claim[0], "name": claim[1]}
        reference = {"name": secret, **({"namespace": where} if where else {})}
        kind = draw.choice(
            ("azureFile", "cephfs", "rbd", "iscsi", "scaleIO", "flexVolume", "cinder", "csi", "csi", "nfs")
        )
        if kind == "azureFile":
            spec[kind] = {"secretName": secret, "secretNamespace": where or None}
        elif kind == "csi":
            fields = draw.sample(("nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"), 1)
            fields += draw.sample(("controllerPublishSecretRef", "controllerExpandSecretRef"), 1)
            reference = {"name": secret, "namespace": where or "one"}
            spec[kind] = {fields[0]: reference, fields[1]: {"name": "controllers", "namespace": "one"}}
        elif kind != "nfs":
            spec[kind] = {"secretRef": reference}
        if claim is not None and kind != "nfs":
            needs = where or ("one" if kind == "csi" else "" if kind == "cinder" else claim[0])
            made.secrets = {(needs, secret)} if needs else set()
        name = draw.choice(NAMES)
        self.volumes[name] = made
        self.put(VOLUMES, "", name, {"spec": spec})

    def put_of_node(self, draw: random.Random) -> None:
        resource, name, node = draw.choice((ATTACHMENTS, SLICES)), draw.choice(NAMES), draw.choice(NODES)
        self.of_node[(resource, name)] = node
        self.put(resource, "", name, {"spec": {"nodeName": node}})


# -- the model --------------------------------------------------------------------------------------------------------


def related(cluster: Cluster, node: str, resource: str, space: str, name: str) -> bool:
    """Return whether a path leads from the object to the node."""
    if (resource, name) in cluster.of_node and resource in (ATTACHMENTS, SLICES):
        return space == "" and cluster.of_node[(resource, name)] == node
    if resource == PODS:
        return (space, name) in cluster.pods and cluster.pods[(space, name)].node == node
    if resource == VOLUMES:
        volume = cluster.volumes.get(name)
        if space or volume is None or volume.claim is None:
            return False
        return related(cluster, node, CLAIMS, *volume.claim)
    for (where, _), pod in cluster.pods.items():
        if where == space and pod.node == node and (resource, name) in pod.refers:
            return True
    if resource == SECRETS:
        claims = [each.claim for each in cluster.volumes.values() if (space, name) in each.secrets]
        return any(related(cluster, node, CLAIMS, *claim) for claim in claims if claim is not None)
    return False


def model_allows(cluster: Cluster, node: str, info: RequestInfo) -> bool:
    """Return the decision by the documentation of node authorization."""
    resource, verb, subresource, name = info.group_resource, info.verb, info.subresource, info.name
    is_related = name != "" and related(cluster, node, resource, info.namespace, name)
    own = name == node or verb == "create"
    match resource:
        case "secrets" | "configmaps":
            return verb in ("get", "list", "watch") and not subresource and is_related
        case "persistentvolumeclaims" if subresource == "status":
            return verb in ("update", "patch") and is_related
        case "persistentvolumeclaims" | "persistentvolumes" | "resourceclaims.resource.k8s.io":
            return verb == "get" and not subresource and is_related
        case "volumeattachments.storage.k8s.io":
            return verb == "get" and not subresource and is_related
        case "serviceaccounts":
            return (verb, subresource) in (("get", ""), ("create", "token")) and is_related
        case "leases.coordination.k8s.io":
            return info.namespace == "kube-node-lease" and verb in OWN and own
        case "csinodes.storage.k8s.io":
            return not subresource and verb in OWN and own
        case "resourceslices.resource.k8s.io":
            if subresource:
                return False
            if verb in ("list", "watch", "deletecollection"):
                return info.field_selector == f"spec.nodeName={node}"
            return verb == "create" or (verb in ("get", "update", "patch", "delete") and is_related)
        case "nodes":
            if subresource:
                return subresource == "status" and verb in ("update", "patch")
            return verb in ("create", "update", "patch") or (verb in ("get", "list", "watch") and name == node)
        case "pods":
            if subresource:
                return (subresource, verb) in (("status", "update"), ("status", "patch"), ("eviction", "create"))
            if verb in ("list", "watch") and info.field_selector == f"spec.nodeName={node}":
                return True
            return verb in ("create", "delete") or (verb in ("get", "list", "watch") and is_related)
        case "services":
            return verb in ("get", "list", "watch") and not subresource
        case "events":
            return verb in ("create", "update", "patch") and not subresource
    return False


OWN = ("get", "create", "update", "patch", "delete")
VERBS = ("get", "get", "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
ASKED = (
    SECRETS,
    SECRETS,
    MAPS,
    CLAIMS,
    ACCOUNTS,
    RESOURCE_CLAIMS,
    VOLUMES,
    PODS,
    ATTACHMENTS,
    SLICES,
    "leases.coordination.k8s.io",
    "csinodes.storage.k8s.io",
    "nodes",
    "services",
    "events",
    "deployments.apps",
)
SUBRESOURCES = ("", "", "", "status", "token", "eviction", "log")


def random_request(draw: random.Random) -> RequestInfo:
    resource, _, group = draw.choice(ASKED).partition(".")
    spaces = (*SPACES, *SPACES, "", "kube-node-lease")
    return RequestInfo(
        path="/",
        verb=draw.choice(VERBS),
        is_resource=True,
        group=group,
        version="v1",
        namespace="" if resource in ("persistentvolumes", "nodes") and draw.random() < 0.8 else draw.choice(spaces),
        resource=resource,
        subresource=draw.choice(SUBRESOURCES),
        name=draw.choice((*NAMES, *NODES, "a-own", "controllers", "")),
        field_selector=draw.choice(("", "", *(f"spec.nodeName={node}" for node in NODES))),
    )


@pytest.mark.parametrize("seed", range(20))
def test_every_decision_equals_the_model(seed: int) -> None:
    draw, cluster = random.Random(seed), Cluster()
    authorizer = NodeAuthorizer(cluster.views)
    users = {node: User(name=f"system:node:{node}", groups=("system:nodes",)) for node in NODES}
    counts = {True: 0, False: 0}
    for _ in range(12):
        cluster.change(draw)
    for _ in range(50):
        cluster.change(draw)
        for _ in range(20):
            node, info = draw.choice(NODES), random_request(draw)
            wanted = model_allows(cluster, node, info)
            counts[wanted] += 1
            assert (authorizer.decide(users[node], info).decision is Decision.ALLOW) == wanted, (node, info)
        for node in NODES:  # and reads of every possible object
            for resource in (SECRETS, CLAIMS, RESOURCE_CLAIMS, VOLUMES, ATTACHMENTS):
                info = reading(resource, draw.choice(SPACES), draw.choice((*NAMES, "a-own", "controllers")))
                wanted = model_allows(cluster, node, info)
                counts[wanted] += 1
                assert (authorizer.decide(users[node], info).decision is Decision.ALLOW) == wanted, (node, info)
    assert min(counts.values()) > 50


def reading(plural: str, space: str, name: str) -> RequestInfo:
    resource, _, group = plural.partition(".")
    return RequestInfo(
        path="/",
        verb="get",
        is_resource=True,
        group=group,
        version="v1",
        resource=resource,
        name=name,
        namespace="" if plural in (VOLUMES, ATTACHMENTS) else space,
    )


def test_the_index_drops_deleted_objects() -> None:
    draw, cluster = random.Random(1), Cluster()
    authorizer = NodeAuthorizer(cluster.views)
    user = User(name="system:node:n1", groups=("system:nodes",))
    for _ in range(50):
        cluster.change(draw)
        authorizer.decide(user, reading(SECRETS, "one", "a"))
    for key in list(cluster.objects):
        assert isinstance(key, Key)
        cluster.delete(key)
    authorizer.decide(user, reading(SECRETS, "one", "a"))
    kept = (authorizer._of_pod, authorizer._related, authorizer._of_volume, authorizer._claims_of)
    assert not any(kept)
