"""The configuration files of a node's programs, as this kind of machine needs them.

Each setting that differs from the program's default has its reason beside it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kubechronicle.ops.development.real_node.images import PAUSE
from kubechronicle.ops.development.real_node.place import DNS, Place
from kubechronicle.ops.development.real_node.programs import BIN

DOMAIN = "cluster.local"
HANDLERS = ("runc", "test-handler")
"""Names of the runtime; Kubernetes' tests of RuntimeClass expect the second one."""


def containerd(home: Path, runc: str) -> str:
    """Return containerd's configuration (TOML, version 3). It reads ``mirror`` at each pull."""
    runtimes = "\n".join(
        f"""
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.{name}]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.{name}.options]
BinaryName = "{runc}"
SystemdCgroup = false
"""
        for name in HANDLERS
    )
    # restrict_oom_score_adj: without the right to lower it, every sandbox fails with an EOF of its pipe.
    return f"""
version = 3
root = "{home}/containerd"
state = "/run/containerd"

[grpc]
address = "{socket(home)}"

[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{BIN}"]
conf_dir = "{home}/cni"
{runtimes}
[plugins."io.containerd.cri.v1.images".registry]
config_path = "{home}/registries"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE}"
"""


def mirror(home: Path, url: str) -> None:
    """Let containerd pull the images of all hosts from one registry (registry.py)."""
    folder = home / "registries" / "_default"
    folder.mkdir(parents=True)
    (folder / "hosts.toml").write_text(f'server = "{url}"\n\n[host."{url}"]\ncapabilities = ["pull", "resolve"]\n')


def socket(home: Path) -> str:
    """Return the path of containerd's socket, in the place's own /run."""
    return "/run/containerd.sock"


def cni(home: Path, place: Place) -> str:
    """Return the network configuration of pods: a bridge on the node, addresses from the node's range."""
    ipam = {
        "type": "host-local",
        "dataDir": f"{home}/cni-addresses",
        "ranges": [[{"subnet": place.pods}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    # hairpinMode: a pod may reach itself through its Service.
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": True, "hairpinMode": True, "ipam": ipam}
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge, ports]})


def kubelet(home: Path, place: Place, client_ca: Path) -> str:
    """Return the KubeletConfiguration (JSON is YAML)."""
    return json.dumps(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": f"unix://{socket(home)}",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(client_ca)},
            },
            "authorization": {"mode": "Webhook"},
            "clusterDNS": [DNS],
            "clusterDomain": DOMAIN,
            "resolvConf": str(home / "resolv.conf"),
            "cgroupDriver": "cgroupfs",
            # cgroup v1, and no limit for all pods together.
            "failCgroupV1": False,
            "enforceNodeAllocatable": [],
            # The machine's own disks, which other programs fill, must not evict pods.
            "localStorageCapacityIsolation": False,
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            # A spec that tries to pull an image makes the kubelet forget that it was there before.
            "imagePullCredentialsVerificationPolicy": "NeverVerify",
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "failSwapOn": False,
            # Short periods, so that tests see changes soon.
            "nodeStatusUpdateFrequency": "5s",
            "syncFrequency": "10s",
            "maxPods": 110,
        }
    )


def corefile(kubeconfig: Path, place: Place) -> str:
    """Return CoreDNS' configuration: the names of the cluster, and none of the world outside."""
    return f"""
{DOMAIN}:53 in-addr.arpa:53 ip6.arpa:53 {{
    bind {place.inside}
    errors
    kubernetes {DOMAIN} in-addr.arpa ip6.arpa {{
        kubeconfig {kubeconfig}
        pods insecure
        ttl 5
    }}
    cache 5
    loadbalance
}}
.:53 {{
    bind {place.inside}
    errors
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


def dns_objects(place: Place) -> list[Mapping[str, Any]]:
    """Return the Service of CoreDNS with its endpoint, the node, and the rights of CoreDNS."""
    ports = [{"name": f"dns-{protocol.lower()}", "port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]
    labels = {"k8s-app": "kube-dns", "kubernetes.io/name": "CoreDNS"}
    named = {"namespace": "kube-system", "name": "kube-dns", "labels": labels}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:coredns"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns"}
    read = ["list", "watch"]
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": named, "spec": {"clusterIP": DNS, "ports": ports}},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": named | {"labels": {"kubernetes.io/service-name": "kube-dns"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [place.inside], "conditions": {"ready": True}}],
            "ports": ports,
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "system:coredns"},
            "rules": [
                {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": read},
                {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": read},
            ],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "system:coredns"},
            "roleRef": role,
            "subjects": [subject],
        },
    ]


RBAC = "/apis/rbac.authorization.k8s.io/v1"
PATHS = {
    "Service": "/api/v1/namespaces/{namespace}/services",
    "EndpointSlice": "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
}
"""The collection of each kind of the objects in this module."""
