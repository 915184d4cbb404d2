"""Flags: addresses and certificates of the server."""

from kubechronicle.ops.settings.flags.flag import Flag

FLAGS = (
    Flag(
        name="bind-address", placeholder="IP", default="0.0.0.0",
        help="The address to listen on; 0.0.0.0 and :: mean all.",
    ),
    Flag(
        name="secure-port", placeholder="PORT", default="6443",
        help="The port to serve HTTPS on; 0 takes a free one, shown in the first line of output and admin.kubeconfig.",
    ),
    Flag(
        name="advertise-address", placeholder="IP", default="",
        help="The address at which the cluster reaches this server: the endpoint of the Service `kubernetes`. "
        "Default: --bind-address, or if that is all addresses or a loopback one, the one of the default route.",
    ),
    Flag(
        name="external-hostname", placeholder="NAME", default="",
        help="A further host name of this server, included in its serving certificate.",
    ),
    Flag(
        name="tls-cert-file", placeholder="FILE", default="",
        help="The serving certificate (PEM), followed by intermediates. Default: one made in DATA_DIR/pki.",
    ),
    Flag(
        name="tls-private-key-file", placeholder="FILE", default="",
        help="The private key of --tls-cert-file.",
    ),
    Flag(
        name="cert-dir", placeholder="DIR", default="",
        help="A directory whose apiserver.crt and apiserver.key are served, if they are there and --tls-cert-file is "
        "not given. None are made there.",
    ),
    Flag(
        name="root-ca-file", placeholder="FILE", default="",
        help="Authorities (PEM) with which pods verify this server: the ConfigMap kube-root-ca.crt of every namespace. "
        "Default: --tls-cert-file if given, otherwise the authority in DATA_DIR/pki. Servers that share a database "
        "share one authority, or each has a file with the authorities of all.",
    ),
    Flag(
        name="enable-logs-handler", placeholder="BOOL", default="false", switch=True,
        help="Serve the files of /var/log of this machine at /logs. Deprecated in Kubernetes.",
    ),
    Flag(
        name="enable-ui", placeholder="BOOL", default="false", switch=True,
        help="Serve a web page about history at /ui/ to users who may get that path; `kubechronicle ui` opens it.",
    ),
)  # fmt: skip
