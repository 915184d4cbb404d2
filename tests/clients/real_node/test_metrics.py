"""kubectl top with the real metrics-server, which runs in a pod behind an APIService."""

from __future__ import annotations

from harness import eventually

from kubechronicle.ops.development.real_node.images import METRICS_SERVER
from kubechronicle.ops.development.real_node.node import NAME, Node

MANIFEST = f"""
apiVersion: v1
kind: ServiceAccount
metadata: {{namespace: kube-system, name: metrics-server}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: metrics-server}}
rules:
- {{apiGroups: [""], resources: [nodes/metrics], verbs: [get]}}
- {{apiGroups: [""], resources: [pods, nodes], verbs: [get, list, watch]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: metrics-server}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: metrics-server}}
subjects: [{{kind: ServiceAccount, namespace: kube-system, name: metrics-server}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: metrics-server-delegator}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:auth-delegator"}}
subjects: [{{kind: ServiceAccount, namespace: kube-system, name: metrics-server}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{namespace: kube-system, name: metrics-server-reader}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: extension-apiserver-authentication-reader}}
subjects: [{{kind: ServiceAccount, namespace: kube-system, name: metrics-server}}]
---
apiVersion: v1
kind: Service
metadata: {{namespace: kube-system, name: metrics-server}}
spec:
  selector: {{app: metrics-server}}
  ports: [{{port: 443, targetPort: 10250}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {{namespace: kube-system, name: metrics-server}}
spec:
  selector: {{matchLabels: {{app: metrics-server}}}}
  template:
    metadata: {{labels: {{app: metrics-server}}}}
    spec:
      serviceAccountName: metrics-server
      containers:
      - name: metrics-server
        image: {METRICS_SERVER}
        imagePullPolicy: IfNotPresent
        args: [--secure-port=10250, --cert-dir=/tmp, --kubelet-insecure-tls, --metric-resolution=10s,
               --kubelet-request-timeout=5s, --kubelet-preferred-address-types=InternalIP]
        readinessProbe: {{httpGet: {{path: /readyz, port: 10250, scheme: HTTPS}}, periodSeconds: 2}}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {{name: v1beta1.metrics.k8s.io}}
spec:
  group: metrics.k8s.io
  version: v1beta1
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
  service: {{namespace: kube-system, name: metrics-server}}
"""


def test_top_shows_the_node_and_its_pods(node: Node) -> None:
    node.kubectl("apply", "-f", "-", stdin=MANIFEST)
    try:
        node.kubectl("wait", "apiservice/v1beta1.metrics.k8s.io", "--for=condition=Available", "--timeout=120s")
        eventually(lambda: NAME in node.call("top", "nodes").stdout, "kubectl top knows the node", timeout=120)
        shown = lambda: node.call("top", "pods", "--namespace=kube-system").stdout  # noqa: E731
        eventually(lambda: "metrics-server" in shown(), "kubectl top knows the pods", timeout=120)
        assert "NodeMetrics" in node.kubectl("api-resources", "--api-group=metrics.k8s.io")
    finally:
        node.kubectl("delete", "-f", "-", stdin=MANIFEST)
    eventually(lambda: node.call("top", "nodes").returncode != 0, "the group is gone")
