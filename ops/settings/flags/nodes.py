"""Flags: connections to the kubelets of nodes, and proxies on the way to them and others."""

from kubechronicle.ops.settings.flags.flag import Flag

FLAGS = (
    Flag(
        name="simulated-nodes", placeholder="N", default="",
        help="For tests: simulate this many nodes, and all pods on them (docs/testing.md). 0 makes no nodes, but leads "
        "each Node with the annotation kwok.x-k8s.io/node: fake. Without the flag, nothing is simulated.",
    ),
    Flag(
        name="simulated-scheduler", placeholder="true|false", default="true", switch=True,
        help="With --simulated-nodes: bind pods to nodes by nodeSelector, node affinity, taints, resources and host "
        "ports. false: a kube-scheduler does it.",
    ),
    Flag(
        name="simulation-stages", placeholder="FILE", default="",
        help="With --simulated-nodes: a YAML file with further Stages (kwok.x-k8s.io/v1alpha1). One with the name of a "
        "built-in Stage replaces it.",
    ),
    Flag(
        name="kubelet-preferred-address-types", placeholder="LIST", repeatable=True,
        default="Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP",
        help="The types of a node's addresses in the order of preference, for connections to its kubelet: logs, exec, "
        "port-forward, proxies.",
    ),
    Flag(
        name="kubelet-port", placeholder="PORT", default="10250",
        help="The port of kubelets whose Node names none.",
    ),
    Flag(
        name="kubelet-timeout", placeholder="DURATION", default="5s",
        help="How long a connection to a kubelet may take to be established.",
    ),
    Flag(
        name="kubelet-certificate-authority", placeholder="FILE", default="",
        help="Authorities (PEM) of the serving certificates of kubelets. Reloaded when it changes. Without it, these "
        "certificates are not verified, as in kube-apiserver.",
    ),
    Flag(
        name="kubelet-client-certificate", placeholder="FILE", default="",
        help="The client certificate (PEM) that this server shows to kubelets. Reloaded when it changes. Default: one "
        "made in DATA_DIR/pki, for the user kube-apiserver-kubelet-client of the group system:masters. Kubelets must "
        "trust DATA_DIR/pki/ca.crt as the authority of clients.",
    ),
    Flag(
        name="kubelet-client-key", placeholder="FILE", default="",
        help="The private key of --kubelet-client-certificate.",
    ),
    Flag(
        name="max-connection-bytes-per-sec", placeholder="BYTES", default="0",
        help="The most bytes a second in each direction of a session: exec, attach, port-forward, and upgraded "
        "connections through a proxy of nodes, pods and Services; 0: no limit.",
    ),
    Flag(
        name="egress-selector-config-file", placeholder="FILE", default="",
        help="An EgressSelectorConfiguration (apiserver.k8s.io/v1beta1): proxies for connections to nodes, pods, "
        "Services, extension API servers and webhooks. Without it, all connections are direct.",
    ),
)  # fmt: skip
