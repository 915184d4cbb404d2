"""Flags: objects that the server itself keeps, and defaults of objects."""

from kubechronicle.ops.settings.flags.flag import Flag

FLAGS = (
    Flag(
        name="kubernetes-service-node-port", placeholder="PORT", default="0",
        help="Make the Service `kubernetes` one of type NodePort with this port; 0: of type ClusterIP. An existing "
        "Service stays as it is.",
    ),
    Flag(
        name="endpoint-reconciler-type", placeholder="TYPE", default="lease",
        help="lease: keep the addresses of running servers in the endpoints of the Service `kubernetes`. none: leave "
        "these endpoints to others. The former master-count works like lease.",
    ),
    Flag(
        name="default-not-ready-toleration-seconds", placeholder="SECONDS", default="300",
        help="How long a pod stays on a node that is not ready, unless it says otherwise.",
    ),
    Flag(
        name="default-unreachable-toleration-seconds", placeholder="SECONDS", default="300",
        help="How long a pod stays on a node that is unreachable, unless it says otherwise.",
    ),
    Flag(
        name="allow-privileged", placeholder="true|false", default="true", switch=True,
        help="Allow privileged containers. kube-apiserver's default is false, and every installer sets true; "
        "PodSecurity admission is the finer means.",
    ),
)  # fmt: skip
